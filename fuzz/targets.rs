//! What is fuzzed, as plain functions: `cargo fuzz` calls them with what it invents, and so does
//! `tests/fuzz_targets.rs` on any compiler. A target fails by a panic.

use std::path::PathBuf;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use the_loop::config::{self, Environment};
use the_loop::domain::{
    Condition, Decision, Link, Node, RepoName, Repository, Secret, Session, SessionKey, Watch, WatchId, WatchState,
    WorkItem,
};
use the_loop::edges::mcp_client::reading::{Page, Said};
use the_loop::payload::{self, GithubHeaders};
use the_loop::routing::{self, Links, Rules, Sessions};
use the_loop::signing;

fn secrets() -> Vec<Secret> {
    vec![Secret::new("NEW", "the new secret of a test"), Secret::new("OLD", "the old secret of a test")]
}

/// Headers in the first four lines (signature, event, delivery, content type), then the body.
pub(crate) fn signature(data: &[u8]) {
    let mut parts = data.splitn(5, |byte| *byte == b'\n');
    let mut line = || parts.next().map(|line| String::from_utf8_lossy(line).into_owned());
    let (signature, event, delivery, content_type) = (line(), line(), line(), line());
    let body = &Bytes::copy_from_slice(parts.next().unwrap_or_default());
    let secrets = secrets();
    let sha1 = delivery.is_some();
    let form = signing::github_signature(signature.as_deref(), sha1);
    let given = signing::verify_github(&secrets, signature.as_deref(), sha1, body);
    if let Ok(verified) = given {
        form.expect("what verifies has the form of a signature");
        let right = signing::sign_github(&secrets[verified.secret()], body);
        let given = signature.as_deref().unwrap_or_default().trim().to_ascii_lowercase();
        assert!(given.contains(&right["sha256=".len()..]), "{given} is not {right}");
    }
    let right = signing::sign_github(&secrets[1], body);
    let verified = signing::verify_github(&secrets, Some(&right), sha1, body).expect("its own signature");
    assert_eq!(verified.secret(), 1);
    let headers = GithubHeaders::read(&|name| match name {
        "x-github-event" => event.clone(),
        "x-github-delivery" => delivery.clone(),
        "content-type" => content_type.clone(),
        _ => None,
    });
    if let Ok(headers) = headers
        && let Ok(received) = payload::from_github(&headers, &verified, Timestamp::UNIX_EPOCH)
    {
        assert_eq!(received.event, payload::read(&received.delivery), "read again, another event");
    }
}

/// Knows nothing and nobody.
struct Nothing;

impl Links for Nothing {
    fn from(&self, _: &Node) -> Vec<Link> {
        Vec::new()
    }

    fn names(&self, _: &Repository) -> Vec<RepoName> {
        Vec::new()
    }
}

impl Sessions for Nothing {
    fn find(&self, _: &SessionKey) -> Option<Session> {
        None
    }
}

/// An event's name in the first line, then a body: read and decided, the same each time.
pub(crate) fn payload(data: &[u8]) {
    let (name, body) =
        data.iter().position(|byte| *byte == b'\n').map_or((data, &[][..]), |at| (&data[..at], &data[at + 1..]));
    let (name, body) = (String::from_utf8_lossy(name).into_owned(), &Bytes::copy_from_slice(body));
    let secrets = secrets();
    let signature = signing::sign_github(&secrets[0], body);
    let verified = signing::verify_github(&secrets, Some(&signature), false, body).expect("its own signature");
    let headers = GithubHeaders::read(&|header| match header {
        "x-github-event" => Some(name.clone()),
        "x-github-delivery" => Some("d-1".into()),
        "content-type" => Some("application/json".into()),
        _ => None,
    });
    let Ok(headers) = headers else { return };
    let Ok(received) = payload::from_github(&headers, &verified, Timestamp::UNIX_EPOCH) else { return };
    let Ok(event) = received.event else { return };
    assert_eq!(payload::read(&received.delivery).as_ref().ok(), Some(&event), "read twice, two events");
    assert!(!event.fingerprint.is_empty(), "an event without an identity");
    let decide = || -> Decision { routing::route(&event, &Rules::default(), &Nothing, &Nothing) };
    let decision = decide();
    assert_eq!(decide(), decision, "decided twice, two decisions");
    assert!(!decision.reason.is_empty() && decision.assignments.is_empty(), "{decision:?}");
}

/// A work item as somebody types or pastes it.
pub(crate) fn work_item(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(item) = WorkItem::parse(&text) else { return };
    let shown = item.to_string();
    let again = WorkItem::parse(&shown).unwrap_or_else(|error| panic!("`{text}` is shown as `{shown}`: {error}"));
    assert_eq!((&again, again.key()), (&item, item.key()), "`{text}` is shown as `{shown}`");
}

/// A configuration file.
pub(crate) fn configuration(data: &[u8]) {
    let dir: PathBuf = std::env::temp_dir();
    let path = dir.join(format!("the-loop-fuzz-{}-{:?}.toml", std::process::id(), std::thread::current().id()));
    std::fs::write(&path, data).expect("a file");
    let none: [(&str, &str); 0] = [];
    match config::load(&dir, Some(&path), &Environment::from_iter(none), &[]) {
        Ok(loaded) => drop(loaded.entries()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    std::fs::remove_file(&path).expect("removed");
}

/// What another MCP server sends: the way (`page`, `post` or the kind of a frame) in the first line, then the JSON. What
/// it tells of becomes the same delivery each time, and its data is what conditions look into.
pub(crate) fn told(data: &[u8]) {
    let (way, body) = first_line(data);
    let json = || serde_json::from_slice::<Value>(body).ok();
    let mut events = Vec::new();
    match way.as_str() {
        "page" => {
            if let Some(Ok(page)) = json().map(Page::read) {
                events = page.events;
            }
        }
        "post" => {
            if let Some(Said::Event(event, _)) = Said::posted(body) {
                events.push(event);
            }
        }
        kind => {
            if let Some(Said::Event(event, _)) = json().map(|params| Said::frame(kind, params)) {
                events.push(event);
            }
        }
    }
    for event in events {
        let make = || payload::from_occurrence("ci", "ticket.updated", &event, Timestamp::UNIX_EPOCH);
        let Ok(delivery) = make() else { continue };
        let id = &delivery.id;
        assert!((1..=200).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic()), "{id:?}");
        assert_eq!(make().map(|again| (again.id, again.body)).ok(), Some((id.clone(), delivery.body.clone())));
        assert_eq!(payload::occurrence_data(&delivery), event.get("data").cloned().unwrap_or_default());
        assert!(payload::weight(&event) > 0);
        if let Ok(read) = payload::read(&delivery) {
            assert_eq!(payload::read(&delivery).ok().as_ref(), Some(&read), "read twice, two events");
            assert!(!read.fingerprint.is_empty(), "an event without an identity");
        }
    }
}

/// What a watch makes of an event: a `--where` in the first line, an `--until` in the second, then the data.
pub(crate) fn condition(data: &[u8]) {
    let (only, rest) = first_line(data);
    let (until, body) = first_line(rest);
    let parse = |text: &str| {
        let condition = Condition::parse(text).ok()?;
        let shown = condition.to_string();
        assert_eq!(Condition::parse(&shown).as_ref(), Ok(&condition), "`{text}` is shown as `{shown}`");
        Some(condition)
    };
    let (only, until) = (parse(&only), parse(&until));
    let Ok(data) = serde_json::from_slice::<Value>(body) else { return };
    let holds = |condition: &Option<Condition>| condition.as_ref().map(|condition| condition.holds(&data));
    let (wanted, over) = (holds(&only).unwrap_or(true), holds(&until).unwrap_or(false));
    let watch = |once: bool| Watch {
        id: WatchId("w_1".into()),
        server: "ci".into(),
        event: "ticket.updated".into(),
        arguments: Default::default(),
        only: only.iter().cloned().collect(),
        until: until.iter().cloned().collect(),
        once,
        work_item: WorkItem::Local("x".into()),
        delivery: None,
        state: WatchState::Active,
        reason: None,
        cursor: None,
        created_at: Timestamp::UNIX_EPOCH,
        checked_at: None,
        last_event_at: None,
        problem: None,
    };
    for once in [false, true] {
        let look = routing::look(&watch(once), &data, false);
        assert_eq!((look.tell, look.end.is_some()), (wanted, over || once && wanted), "{look:?}");
    }
}

fn first_line(data: &[u8]) -> (String, &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n');
    let (line, rest) = end.map_or((data, &[][..]), |at| (&data[..at], &data[at + 1..]));
    (String::from_utf8_lossy(line).into_owned(), rest)
}
