//! Which session an event reaches.

use super::*;

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
fn a_comment_on_a_pull_request_reaches_the_session_of_its_branch_and_no_further() {
    let world = |sessions: &[&str]| {
        World::with(sessions)
            .linked(node("#16"), LinkKind::HeadBranch, "@b")
            .linked(node("@b"), LinkKind::HeadBranch, "#16")
            .linked(node("@b"), LinkKind::HeadBranch, "#17")
            .linked(node("#16"), LinkKind::Closes, "#15")
    };
    assert_eq!(world(&["@b"]).told(&comment("#16")), keys(&["@b"]));
    assert_eq!(world(&["@b", "#15"]).told(&comment("#16")), keys(&["#15"]));
    assert!(world(&["#17"]).told(&comment("#16")).is_empty());
    let reason = world(&["@b"]).decide(&comment("#16")).reason;
    assert!(reason.contains("octo-org/demo@b is the head branch of octo-org/demo#16"), "{reason}");
    assert_eq!(world(&[]).decide(&comment("#16")).work_items, [item("#16"), item("#15")]);
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
