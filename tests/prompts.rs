//! Every event that we map, from GitHub's payload to the text that an agent reads.

use std::path::Path;

use the_loop::domain::{
    Decision, Delivery, DeliverySeq, Event, Link, Node, Notice, NoticeId, Outcome, RepoName, Repository, Session,
    SessionKey, SessionStatus, Source, WorkItem,
};
use the_loop::payload;
use the_loop::routing::{Batch, Links, PromptSettings, Rules, Sessions, prompt, route};

/// Nothing is known but what the event itself teaches.
struct NoLinks;

impl Links for NoLinks {
    fn from(&self, _: &Node) -> Vec<Link> {
        Vec::new()
    }
    fn names(&self, _: &Repository) -> Vec<RepoName> {
        Vec::new()
    }
}

struct One(Session);

impl Sessions for One {
    fn find(&self, key: &SessionKey) -> Option<Session> {
        (self.0.key() == *key).then(|| self.0.clone())
    }
}

fn session(work_item: &str) -> Session {
    Session {
        version: Session::VERSION,
        work_item: WorkItem::parse(work_item).expect("work item"),
        harness: "claude".into(),
        session_id: "s-1".into(),
        cwd: "/tmp".into(),
        status: SessionStatus::Active,
        created_at: "2026-11-30T09:00:00Z".parse().expect("time"),
        closed_reason: None,
        repository_id: None,
        unknown: serde_json::Map::new(),
    }
}

fn event(file: &str) -> Event {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/payloads").join(file);
    let delivery = Delivery {
        source: Source::GithubWebhook,
        id: "72d3162e-cc78-11e3-81ab-4c9367dc0958".into(),
        event: file.split('.').next().expect("name").into(),
        body: std::fs::read(path).expect("fixture").into(),
        received_at: "2026-11-30T10:00:01Z".parse().expect("time"),
    };
    payload::read(&delivery).expect("an event")
}

/// Wakes for everything, so that every kind of event shows how it is told.
fn all_wake(event: &Event) -> Rules {
    let mut rules = Rules::default();
    rules.routing.wake_on.push(event.name.clone());
    rules
}

fn decide(event: &Event, session: &Session, rules: &Rules) -> Decision {
    let decision = route(event, rules, &NoLinks, &One(session.clone()));
    assert_eq!(decision, route(event, rules, &NoLinks, &One(session.clone())), "deciding twice gives the same");
    decision
}

fn told(event: Event, session: &Session, how: String) -> String {
    let notice = Notice {
        id: NoticeId(1),
        session: session.key(),
        seq: DeliverySeq(1),
        delivery: "72d3162e-cc78-11e3-81ab-4c9367dc0958".into(),
        event,
        how,
        created_at: "2026-11-30T10:00:01Z".parse().expect("time"),
        attempts: 0,
        last_turn: None,
    };
    let batch = Batch { tell: vec![notice], superseded: Vec::new() };
    prompt(session, &batch, "f3nc3", &PromptSettings::default(), false)
}

#[test]
fn every_mapped_event_is_told() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/payloads");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("fixtures")
        .map(|entry| entry.expect("entry").file_name().into_string().expect("name"))
        .filter(|name| !name.starts_with("discussion"))
        .collect();
    files.sort();
    assert!(files.len() >= 20, "{files:?}");
    for file in files {
        let event = event(&file);
        let item = match event.subjects.first().map(|subject| &subject.node) {
            Some(Node::Item(item)) => item.to_string(),
            _ => "github:octo-org/demo@rename-flag".into(),
        };
        let session = session(&item);
        let mut rules = all_wake(&event);
        rules.routing.on_closed = the_loop::routing::OnClosed::Tell;
        let decision = decide(&event, &session, &rules);
        assert_eq!(decision.outcome, Outcome::Queued, "{file}: {decision:?}");
        let how = decision.assignments[0].how.clone();
        let text = told(event.clone(), &session, how);
        assert!(!text.contains("api.github.com"), "{file}");
        let links: Vec<_> =
            event.links.iter().map(|link| format!("{} {} {}", link.from, link.kind.as_str(), link.to)).collect();
        let shown = format!(
            "reason: {}\nfingerprint: {}\nsupersedes: {}\nlinks: {links:#?}\n\n{text}",
            decision.reason,
            event.fingerprint,
            event.supersedes.as_deref().unwrap_or("-"),
        );
        insta::assert_snapshot!(file.trim_end_matches(".json"), shown);
    }
}

#[test]
fn an_event_that_we_do_not_map_is_kept_and_says_so() {
    let event = event("discussion.created.json");
    let decision = decide(&event, &session("github:octo-org/demo#4"), &all_wake(&event));
    assert_eq!(decision.outcome, Outcome::Unmatched);
    insta::assert_snapshot!(decision.reason, @"unmapped: `discussion` names no work item that we know of");
}

#[test]
fn what_is_done_to_a_pull_request_reaches_the_issue_that_it_closes() {
    for (file, outcome) in [
        ("issue_comment.created.pull_request.json", Outcome::Queued),
        ("pull_request_review.submitted.json", Outcome::Queued),
        ("pull_request_review_comment.created.json", Outcome::Queued),
        ("pull_request.closed.json", Outcome::Queued),
        ("pull_request.synchronize.json", Outcome::Filtered),
    ] {
        let decision = decide(&event(file), &session("github:octo-org/demo#15"), &Rules::default());
        assert_eq!(decision.outcome, outcome, "{file}: {decision:?}");
        assert!(decision.closes.is_empty(), "{file}: a linked pull request's end is not the issue's");
        let way = "octo-org/demo#16 closes octo-org/demo#15 (by octocat, OWNER)";
        assert!(decision.steps.iter().any(|step| step == way), "{:?}", decision.steps);
    }
}

#[test]
fn the_default_rules_say_who_is_woken() {
    for (file, item, reason) in [
        ("issues.closed.json", "octo-org/demo#15", "closed github:octo-org/demo#15"),
        ("issues.labeled.json", "octo-org/demo#15", "`issues.labeled` is not in wake_on"),
        ("check_run.completed.json", "octo-org/demo#16", "`check_run.completed` is not in wake_on"),
        (
            "issue_comment.created.json",
            "octo-org/demo#15",
            "wakes github:octo-org/demo#15: the event is about octo-org/demo#15",
        ),
        ("issue_comment.created.json", "octo-org/demo#99", "no open session for github:octo-org/demo#15"),
        (
            "status.json",
            "octo-org/demo@rename-flag",
            "wakes github:octo-org/demo@rename-flag: the event is about the branch octo-org/demo@rename-flag",
        ),
        ("status.json", "octo-org/demo@main", "no open session for github:octo-org/demo@rename-flag"),
    ] {
        assert_eq!(decide(&event(file), &session(item), &Rules::default()).reason, reason, "{file} {item}");
    }
}

#[test]
fn a_prompt_of_several_says_what_was_left_out_and_what_may_be_a_repeat() {
    let session = session("github:octo-org/demo#15");
    let notice = |id: i64, file: &str, how: &str| Notice {
        id: NoticeId(id),
        session: session.key(),
        seq: DeliverySeq(id),
        delivery: format!("d-{id}"),
        event: Event { facts: event(file).facts.into_iter().take(1).collect(), ..event(file) },
        how: how.into(),
        created_at: "2026-11-30T10:00:01Z".parse().expect("time"),
        attempts: 1,
        last_turn: None,
    };
    let way = "octo-org/demo#16 closes octo-org/demo#15 (by octocat, OWNER)";
    let tell = vec![
        notice(1, "pull_request_review.submitted.json", way),
        notice(4, "workflow_run.completed.json", "commit aaaaaaaaaaaa`\n@/etc/passwd was seen"),
    ];
    let batch = Batch { tell, superseded: vec![(NoticeId(2), NoticeId(4)), (NoticeId(3), NoticeId(4))] };
    insta::assert_snapshot!("several", prompt(&session, &batch, "f3nc3", &PromptSettings::default(), true));
}
