//! The order of trust, the filters and the words of decisions, on events made by hand.

use super::{Links, OnClosed, Rules, Sessions, coalesce, route};
use crate::domain::{
    Author, Decision, DeliverySeq, Event, Fact, Link, LinkKind, Nature, Node, Notice, NoticeId, Outcome, Person,
    RepoName, Repository, Session, SessionKey, SessionStatus, Subject, SubjectKind, WorkItem,
};
use crate::routing::{PromptSettings, Settings};

fn item(text: &str) -> WorkItem {
    WorkItem::parse_in(text, Some(&repo("demo"))).expect(text)
}

fn repo(name: &str) -> RepoName {
    RepoName::new("github.com", "octo-org", name).expect(name)
}

fn commit() -> Node {
    Node::Commit { repo: repo("demo"), sha: "a".repeat(40) }
}

fn person(login: &str) -> Person {
    Person { login: login.into(), bot: false }
}

fn author(login: &str, association: &str) -> Author {
    Author { person: Some(person(login)), association: Some(association.into()) }
}

fn link(from: Node, kind: LinkKind, to: &str) -> Link {
    Link { from, to: item(to), kind, by: Some(author("octocat", "OWNER")) }
}

fn node(text: &str) -> Node {
    Node::Item(item(text))
}

/// An event of octocat's, who owns the repository.
fn event(title: &str, nature: Nature, subjects: Vec<(SubjectKind, Node)>) -> Event {
    let (name, action) = title.split_once('.').map_or((title, None), |(name, action)| (name, Some(action.into())));
    Event {
        name: name.into(),
        action,
        repository: Some(Repository { id: Some(1), name: repo("demo") }),
        sender: Some(person("octocat")),
        author: Some(author("octocat", "OWNER")),
        nature,
        subjects: subjects.into_iter().map(|(kind, node)| Subject { node, kind }).collect(),
        links: Vec::new(),
        fingerprint: "f".into(),
        supersedes: None,
        happened_at: None,
        facts: Vec::new(),
    }
}

fn comment(on: &str) -> Event {
    event("issue_comment.created", Nature::Words, vec![(SubjectKind::Object, node(on))])
}

fn run(subjects: Vec<(SubjectKind, Node)>) -> Event {
    event("workflow_run.completed", Nature::Verdict, subjects)
}

#[derive(Default)]
struct World {
    links: Vec<Link>,
    sessions: Vec<Session>,
    names: Vec<RepoName>,
    rules: Rules,
}

impl Links for World {
    fn from(&self, node: &Node) -> Vec<Link> {
        self.links.iter().filter(|link| link.from == *node).cloned().collect()
    }
    fn names(&self, _: &Repository) -> Vec<RepoName> {
        self.names.clone()
    }
}

impl Sessions for World {
    fn find(&self, key: &SessionKey) -> Option<Session> {
        self.sessions.iter().find(|session| session.key() == *key).cloned()
    }
}

impl World {
    fn with(sessions: &[&str]) -> Self {
        let mut world = Self::default();
        for text in sessions {
            world.sessions.push(Session {
                version: Session::VERSION,
                work_item: item(text),
                harness: "claude".into(),
                session_id: format!("s-{text}"),
                cwd: "/tmp".into(),
                status: SessionStatus::Active,
                created_at: "2026-11-30T09:00:00Z".parse().expect("time"),
                closed_reason: None,
                repository_id: None,
                unknown: serde_json::Map::new(),
            });
        }
        world
    }

    fn linked(mut self, from: Node, kind: LinkKind, to: &str) -> Self {
        self.links.push(link(from, kind, to));
        self
    }

    fn decide(&self, event: &Event) -> Decision {
        route(event, &self.rules, self, self)
    }

    /// The work items whose sessions are told.
    fn told(&self, event: &Event) -> Vec<String> {
        self.decide(event).assignments.iter().map(|told| told.session.to_string()).collect()
    }

    /// Why nobody is told.
    fn refusal(&self, event: &Event) -> String {
        let decision = self.decide(event);
        assert_eq!(decision.outcome, Outcome::Filtered, "{decision:?}");
        decision.reason
    }
}

fn keys(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| item(text).key()).collect()
}

#[test]
fn the_strongest_way_that_has_a_session_wins() {
    // Each way is weaker than the one before it: with the stronger sessions away, the next is found.
    let all = ["#1", "#16", "#15", "#17", "@b", "#18", "#20"];
    for from in 0..all.len() {
        let world = World::with(&all[from..])
            .linked(node("#16"), LinkKind::Recorded, "#1")
            .linked(node("#16"), LinkKind::Closes, "#15")
            .linked(commit(), LinkKind::HeadCommit, "#17")
            .linked(node("@b"), LinkKind::HeadBranch, "#18")
            .linked(node("@issue-20"), LinkKind::HeadBranch, "#18");
        let run = run(vec![
            (SubjectKind::Attached, node("#16")),
            (SubjectKind::Commit, commit()),
            (SubjectKind::Branch, node("@b")),
            (SubjectKind::Branch, node("@issue-20")),
        ]);
        assert_eq!(world.told(&run), keys(&all[from..=from]), "{:#?}", world.decide(&run).steps);
    }
}

#[test]
fn a_way_through_a_pull_request_goes_on_from_there() {
    let seen = |sessions: &[&str]| World::with(sessions).linked(commit(), LinkKind::HeadCommit, "#16");
    let run = run(vec![(SubjectKind::Commit, commit())]);
    assert_eq!(seen(&["#16"]).told(&run), keys(&["#16"]));
    assert_eq!(seen(&["#15"]).linked(node("#16"), LinkKind::Closes, "#15").told(&run), keys(&["#15"]));
    let recorded = seen(&["#7", "#16"]).linked(node("#16"), LinkKind::Recorded, "#7");
    assert_eq!(recorded.told(&run), keys(&["#7"]));
    let reason = seen(&["#15"]).linked(node("#16"), LinkKind::Closes, "#15").decide(&run).reason;
    assert_eq!(
        reason,
        "wakes github:octo-org/demo#15: commit aaaaaaaaaaaa was seen as the head of octo-org/demo#16 (by octocat, \
         OWNER), and octo-org/demo#16 closes octo-org/demo#15 (by octocat, OWNER)"
    );
}

#[test]
fn an_events_own_links_count_and_circles_end() {
    let mut told = comment("#16");
    told.links = vec![link(node("#16"), LinkKind::Closes, "#15"), link(node("#15"), LinkKind::Recorded, "#16")];
    assert_eq!(World::with(&["#15"]).told(&told), keys(&["#15"]));
    assert_eq!(World::default().decide(&told).outcome, Outcome::Unmatched);
}

#[test]
fn several_at_one_rank_are_told_and_one_conversation_once() {
    let mut world = World::with(&["#1", "#2", "#3"]);
    let mut told = comment("#16");
    told.links = ["#1", "#2", "#3"].map(|to| link(node("#16"), LinkKind::Closes, to)).to_vec();
    assert_eq!(world.told(&told), keys(&["#1", "#2", "#3"]));
    world.sessions[2].session_id = "s-#1".into();
    assert_eq!(world.told(&told), keys(&["#1", "#2"]));
}

#[test]
fn closed_sessions_are_passed_by_and_paused_ones_are_not() {
    let mut world = World::with(&["#16", "#15"]).linked(node("#16"), LinkKind::Closes, "#15");
    world.sessions[0].status = SessionStatus::Closed;
    assert_eq!(world.told(&comment("#16")), keys(&["#15"]));
    world.sessions[1].status = SessionStatus::Paused;
    assert_eq!(world.told(&comment("#16")), keys(&["#15"]));
    world.sessions[1].status = SessionStatus::Closed;
    let decision = world.decide(&comment("#16"));
    assert_eq!(decision.reason, "no open session for github:octo-org/demo#16, github:octo-org/demo#15");
    assert_eq!(decision.work_items, [item("#16"), item("#15")]);
    assert!(decision.steps.contains(&"the session for octo-org/demo#16 is closed".to_string()));
}

#[test]
fn a_renamed_repository_keeps_its_sessions_and_a_new_one_of_the_old_name_gets_none() {
    let mut world =
        World::with(&["octo-org/old#15"]).linked(node("octo-org/old#16"), LinkKind::Closes, "octo-org/old#15");
    world.sessions[0].repository_id = Some(1);
    assert!(world.told(&comment("#16")).is_empty());
    world.names = vec![repo("old")];
    assert_eq!(world.told(&comment("#15")), keys(&["octo-org/old#15"]));
    assert_eq!(world.told(&comment("#16")), keys(&["octo-org/old#15"]));

    let mut reused = World::with(&["#15"]);
    reused.sessions[0].repository_id = Some(2);
    let decision = reused.decide(&comment("#15"));
    assert_eq!(decision.outcome, Outcome::Unmatched);
    let step = "the session for octo-org/demo#15 belongs to another repository that had this name";
    assert!(decision.steps.contains(&step.to_string()), "{:?}", decision.steps);
}

#[test]
fn a_verdict_does_not_travel_over_a_strangers_link() {
    let mut world = World::with(&["#15"]).linked(node("#16"), LinkKind::Closes, "#15");
    let verdict = run(vec![(SubjectKind::Attached, node("#16"))]);
    assert_eq!(world.told(&verdict), keys(&["#15"]));
    for by in [author("mallory", "NONE"), Author { person: None, association: Some("OWNER".into()) }] {
        world.links[0].by = Some(by);
        assert!(world.told(&verdict).is_empty());
        assert_eq!(world.told(&comment("#16")), keys(&["#15"]), "words are judged by who says them");
    }
    assert!(world.decide(&verdict).steps.iter().any(|step| step.ends_with("does not travel over that link")));
    world.rules.trust.ignore_actors = vec!["demo-agent[bot]".into()];
    let agent = Person { login: "demo-agent[bot]".into(), bot: true };
    world.links[0].by = Some(Author { person: Some(agent), association: Some("NONE".into()) });
    assert_eq!(world.told(&verdict), keys(&["#15"]), "the agent waits for its own pull request's checks");
    world.links[0].by = None;
    assert_eq!(world.told(&verdict), keys(&["#15"]), "nothing is held against an unknown author");
}

#[test]
fn wake_on_decides_what_is_worth_it() {
    let world = World::with(&["#15"]);
    let about = || vec![(SubjectKind::Object, node("#15"))];
    let fact = |name: &str, value: &str| vec![Fact { name: name.into(), value: value.into() }];
    assert_eq!(world.refusal(&event("issues.labeled", Nature::State, about())), "`issues.labeled` is not in wake_on");
    assert_eq!(world.refusal(&event("push", Nature::State, about())), "`push` is not in wake_on");
    for (state, told) in [("failure", true), ("error", true), ("success", true), ("pending", false), ("", false)] {
        let status = Event { facts: fact("status.state", state), ..event("status", Nature::Verdict, about()) };
        assert_eq!(!world.told(&status).is_empty(), told, "{state}");
    }
    let suite =
        |app| Event { facts: fact("check_suite.app", app), ..event("check_suite.completed", Nature::Verdict, about()) };
    assert!(!world.told(&suite("buildkite")).is_empty());
    assert!(world.refusal(&suite("github-actions")).contains("workflow_run"));
    let watched = event("mail.received", Nature::Watched, about());
    assert!(!world.told(&watched).is_empty(), "a watch was asked for");
    let mut all = World::with(&["#15"]);
    all.rules.routing.wake_on = vec!["issues".into(), "status.pending".into(), "check_suite".into()];
    assert!(!all.told(&event("issues.labeled", Nature::State, about())).is_empty());
    assert!(!all.told(&suite("github-actions")).is_empty(), "nothing else would tell it");
    let pending = Event { facts: fact("status.state", "pending"), ..event("status", Nature::Verdict, about()) };
    assert!(!all.told(&pending).is_empty());
}

#[test]
fn words_need_a_trusted_author_and_a_trusted_sender() {
    let mut world = World::with(&["#15"]);
    world.rules.trust.actors = vec!["Friend".into()];
    world.rules.trust.bots = vec!["good[bot]".into()];
    let bot = |login: &str| Person { login: login.into(), bot: true };
    let nobody = Author { person: None, association: Some("OWNER".into()) };
    let by = |person: Person, association: &str| Author { person: Some(person), association: Some(association.into()) };
    let cases = [
        (Some(person("octocat")), Some(author("octocat", "OWNER")), ""),
        (Some(person("OctoCat")), Some(author("octocat", "member")), ""),
        (Some(person("friend")), Some(author("friend", "NONE")), ""),
        (Some(bot("good[bot]")), Some(by(bot("good[bot]"), "NONE")), ""),
        (Some(person("mallory")), Some(author("mallory", "NONE")), "mallory, NONE"),
        (Some(person("mallory")), Some(author("mallory", "CONTRIBUTOR")), "mallory, CONTRIBUTOR"),
        (Some(bot("other[bot]")), Some(by(bot("other[bot]"), "MEMBER")), "other[bot], MEMBER"),
        (Some(person("good[bot]")), Some(by(person("good[bot]"), "NONE")), "good[bot], NONE"),
        (Some(person("mallory")), Some(author("octocat", "OWNER")), "mallory acted on words of octocat, OWNER"),
        (Some(person("friend")), Some(author("octocat", "OWNER")), ""),
        (Some(person("octo-org")), Some(author("octocat", "OWNER")), ""),
        (Some(person("octocat")), Some(author("mallory", "NONE")), "mallory, NONE"),
        (None, Some(author("octocat", "OWNER")), "names no sender"),
        (Some(person("octocat")), Some(nobody), "a deleted account"),
        (Some(person("octocat")), None, "a deleted account"),
    ];
    for (sender, author, wanted) in cases {
        let event = Event { sender, author, ..comment("#15") };
        let decision = world.decide(&event);
        if wanted.is_empty() {
            assert_eq!(decision.outcome, Outcome::Queued, "{event:?}: {}", decision.reason);
        } else {
            assert!(world.refusal(&event).contains(wanted), "{event:?}: {}", decision.reason);
        }
    }
}

#[test]
fn a_change_of_state_needs_a_sender_with_rights() {
    let mut world = World::with(&["#15"]);
    world.rules.routing.wake_on = vec!["issues".into(), "pull_request".into(), "push".into()];
    let act = |title: &str, sender: Person, author: Option<Author>| Event {
        sender: Some(sender),
        author,
        ..event(title, Nature::State, vec![(SubjectKind::Object, node("#15"))])
    };
    let stranger = || Some(author("mallory", "NONE"));
    assert!(!world.told(&act("issues.labeled", person("triager"), stranger())).is_empty(), "it takes rights to label");
    assert!(!world.told(&act("push", person("pusher"), None)).is_empty(), "it takes rights to push");
    assert!(world.refusal(&act("issues.reopened", person("mallory"), stranger())).contains("mallory, NONE"));
    let bot = Person { login: "helper[bot]".into(), bot: true };
    assert!(world.refusal(&act("issues.labeled", bot, stranger())).contains("not in `bots`"));
    let mut push = act("pull_request.synchronize", person("friend-of-mallory"), stranger());
    assert!(world.refusal(&push).contains("fork"));
    push.links = vec![link(node("@b"), LinkKind::HeadBranch, "#15")];
    assert!(!world.told(&push).is_empty());
    push.sender = None;
    assert!(world.refusal(&push).contains("no sender"));
}

#[test]
fn our_own_doings_do_not_come_back() {
    let mut world = World::with(&["#15"]);
    let marked = Event {
        facts: vec![Fact { name: "comment.body".into(), value: "Done.\n\n<!-- the-loop -->".into() }],
        ..comment("#15")
    };
    assert!(world.refusal(&marked).contains("marker"));
    world.rules.trust.ignore_actors = vec!["Octocat".into()];
    assert!(world.refusal(&comment("#15")).contains("ignore_actors"));
    assert!(!world.told(&run(vec![(SubjectKind::Attached, node("#15"))])).is_empty(), "its push has its own checks");
}

#[test]
fn the_end_of_an_item_ends_its_own_session_only() {
    let closed = || Event {
        links: vec![link(node("#16"), LinkKind::Closes, "#15")],
        ..event("pull_request.closed", Nature::State, vec![(SubjectKind::Object, node("#16"))])
    };
    let linked = World::with(&["#15"]).decide(&closed());
    assert_eq!((linked.outcome, linked.closes.len(), linked.assignments.len()), (Outcome::Queued, 0, 1));

    let mut own = World::with(&["#16"]);
    let decision = own.decide(&closed());
    assert_eq!((decision.outcome, decision.reason.as_str()), (Outcome::Filtered, "closed github:octo-org/demo#16"));
    assert_eq!(decision.closes, [SessionKey(item("#16").key())]);
    assert!(decision.assignments.is_empty());
    // Whoever closes it and whatever wakes: it is over.
    own.rules.routing.wake_on.clear();
    own.rules.trust.ignore_actors = vec!["octocat".into()];
    assert_eq!(own.decide(&closed()).closes.len(), 1);

    let mut keep = World::with(&["#16"]);
    keep.rules.routing.on_closed = OnClosed::Keep;
    let decision = keep.decide(&closed());
    assert_eq!((decision.outcome, decision.closes.len()), (Outcome::Filtered, 0));
    keep.rules.routing.on_closed = OnClosed::Tell;
    let decision = keep.decide(&closed());
    assert_eq!((decision.outcome, decision.closes.len()), (Outcome::Queued, 0));

    // A recorded link takes the news, but the pull request's own session still ends.
    let both = World::with(&["#7", "#16"]).linked(node("#16"), LinkKind::Recorded, "#7");
    let decision = both.decide(&closed());
    assert_eq!((decision.outcome, decision.closes.len()), (Outcome::Queued, 1));
    assert_eq!(decision.assignments[0].session, SessionKey(item("#7").key()));
}

#[test]
fn the_newest_state_is_told_and_words_are_never_merged() {
    let notice = |id: i64, key: Option<&str>, seconds: Option<i64>, nature: Nature| Notice {
        id: NoticeId(id),
        session: SessionKey("x".into()),
        seq: DeliverySeq(id),
        delivery: format!("d-{id}"),
        event: Event {
            supersedes: key.map(String::from),
            happened_at: seconds.map(|s| jiff::Timestamp::from_second(s).expect("time")),
            ..event("workflow_run.completed", nature, vec![])
        },
        how: String::new(),
        created_at: "2026-11-30T10:00:00Z".parse().expect("time"),
        attempts: 0,
        last_turn: None,
    };
    let batch = |waiting: &[Notice], most: usize, prompt: PromptSettings| {
        let batch = coalesce(waiting, &Settings { max_events_per_turn: most, ..Settings::default() }, &prompt);
        let told: Vec<_> = batch.tell.iter().map(|notice| notice.id.0).collect();
        let old: Vec<_> = batch.superseded.iter().map(|(old, by)| (old.0, by.0)).collect();
        (told, old)
    };
    let (v, w) = (Nature::Verdict, Nature::Words);
    let roomy = PromptSettings::default();
    let ci = |id, seconds| notice(id, Some("ci"), seconds, v);
    assert_eq!(batch(&[ci(1, None), ci(2, None), ci(3, None)], 50, roomy), (vec![3], vec![(1, 3), (2, 3)]));
    assert_eq!(batch(&[ci(1, Some(9)), ci(2, Some(5))], 50, roomy), (vec![1], vec![(2, 1)]), "overtaken");
    assert_eq!(batch(&[ci(1, Some(9)), ci(2, Some(9))], 50, roomy), (vec![2], vec![(1, 2)]), "same second");
    assert_eq!(batch(&[ci(1, Some(9)), ci(2, None)], 50, roomy), (vec![2], vec![(1, 2)]));
    let words = [notice(1, Some("ci"), None, w), notice(2, Some("ci"), None, w), notice(3, None, None, v)];
    assert_eq!(batch(&words, 50, roomy), (vec![1, 2, 3], vec![]));
    assert_eq!(batch(&words, 2, roomy), (vec![1, 2], vec![]));
    assert_eq!(batch(&words, 0, roomy), (vec![1], vec![]), "always one");
    let tiny = PromptSettings { max_prompt: crate::domain::Size(1), ..roomy };
    assert_eq!(batch(&words, 50, tiny), (vec![1], vec![]), "always one");
    // What is replaced waits with what replaces it.
    let mixed = [ci(1, None), notice(2, None, None, w), ci(3, None)];
    assert_eq!(batch(&mixed, 1, roomy), (vec![2], vec![]));
}

#[test]
fn settings_read_as_documented_and_refuse_what_they_do_not_know() {
    let defaults: Settings = serde_json::from_str("{}").expect("empty");
    assert_eq!(defaults, Settings::default());
    assert_eq!(defaults.wake_on.len(), 8);
    let changed: Settings = serde_json::from_str(r#"{"debounce": "0s", "on_closed": "tell"}"#).expect("settings");
    assert_eq!((changed.on_closed, changed.debounce.to_string().as_str()), (OnClosed::Tell, "0s"));
    assert!(serde_json::from_str::<Settings>(r#"{"debounc": "1s"}"#).is_err());
    assert!(serde_json::from_str::<super::Trust>(r#"{"actor": []}"#).is_err());
    let prompt: PromptSettings = serde_json::from_str(r#"{"max_field": "1KiB"}"#).expect("prompt");
    assert_eq!((prompt.max_field.0, prompt.max_prompt.0), (1024, 64 << 10));
}
