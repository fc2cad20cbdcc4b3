//! Which events wake it.

use super::*;

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
