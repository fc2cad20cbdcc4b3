//! The server from outside: each kind of event wakes the session that it concerns, and an end of the server loses nothing.

use crate::support::{Server, payloads, processes, wait_until};

#[test]
fn each_payload_finds_its_session() {
    let server = Server::start("");
    server.register("octo-org/demo#15", "claude", "safe-id");
    server.register("octo-org/demo#16", "codex", "0190a0de-0000-7000-8000-000000000001");
    for (number, (event, payload)) in [
        ("issue_comment", payloads::issue_comment(15, "hello")),
        ("pull_request", payloads::pull_request("opened", 16, "feature")),
        ("pull_request_review", payloads::review(16, "approved", "good")),
        ("pull_request_review_comment", payloads::review_comment(16, "here")),
        ("workflow_run", payloads::workflow_run("failure", "feature", &[16])),
        ("check_suite", payloads::check_suite("failure", "buildkite", &[16])),
        ("status", payloads::status("failure", "feature")),
        ("issues", payloads::issues("closed", 15)),
    ]
    .into_iter()
    .enumerate()
    {
        let delivery = format!("delivery-{number}");
        let (status, text) = server.deliver(event, &delivery, &payload);
        assert_eq!(status, 202, "{event}: {text}");
        wait_until(&format!("{event} is done with"), || {
            let row = server.decided(&delivery);
            assert_ne!(row["outcome"], "failed", "{row}");
            row["outcome"] != "queued"
        });
        let row = server.decided(&delivery);
        let expected = if matches!(event, "pull_request" | "issues") { "filtered" } else { "delivered" };
        assert_eq!(row["outcome"], expected, "{event}: {row}");
    }
    assert_eq!(server.post("ping", &payloads::ping()).0, 200);
    let calls = server.wait_calls(6);
    assert_eq!(calls.len(), 6);
    assert_eq!((calls[0].name.as_str(), calls[1].name.as_str()), ("claude", "codex"));
    assert!(calls[0].prompt().contains("hello") && calls[0].cwd == server.path("work"), "{:?}", calls[0]);
    assert!(calls[0].argv.contains(&"safe-id".into()) && calls.iter().all(|call| call.ended.is_some()));
}

#[test]
fn a_server_is_killed_stopped_and_started_again() {
    let mut server = Server::start("");
    server.register("octo-org/demo#15", "claude", "safe-id");
    server.hold();
    server.post("issue_comment", &payloads::issue_comment(15, "before"));
    server.wait_calls(1);
    server.kill();
    server.serve(&[]);
    assert_eq!(server.turns()[0]["state"], "running");
    server.release();
    assert_eq!(server.ended_turns(1)[0]["state"], "succeeded");
    server.plan("claude", "echo sorry >&2; exit 3");
    server.post("issue_comment", &payloads::issue_comment(15, "after"));
    let turns = server.ended_turns(2);
    assert_eq!(turns[1]["exit_code"], 3, "{turns:?}");
    assert!(server.stop().success());
    server.restart();
    assert_eq!(server.get("/healthz").expect("an answer").0, 200);
}

const CODEX: &str = "0190a0de-0000-7000-8000-000000000001";
const REPEAT: &str = "This may be a repeat";

/// What a failed turn told stays in the conversation, and the agent may have acted on it.
#[test]
fn news_that_is_told_again_says_so() {
    for (harness, id) in [("claude", "safe-id"), ("codex", CODEX)] {
        let server = Server::start("");
        server.register("octo-org/demo#15", harness, id);
        server.plan(harness, "if mkdir \"$root/failed\"; then exit 1; fi");
        server.post("issue_comment", &payloads::issue_comment(15, "hello"));
        let states: Vec<_> = server.ended_turns(2).iter().map(|turn| turn["state"].clone()).collect();
        assert_eq!(states, ["failed", "succeeded"], "{harness}");
        server.post("issue_comment", &payloads::issue_comment(15, "something new"));
        let repeats: Vec<_> = server.wait_calls(3).iter().map(|call| call.prompt().contains(REPEAT)).collect();
        assert_eq!(repeats, [false, true, false], "{harness}");
    }
}

/// Claude Code skips a message that it has answered; one that it has not answered it reads twice.
#[test]
fn news_of_an_interrupted_turn_says_that_it_is_told_again() {
    for (harness, id) in [("claude", "safe-id"), ("codex", CODEX)] {
        let mut server = Server::start("");
        server.register("octo-org/demo#15", harness, id);
        server.hold();
        server.post("issue_comment", &payloads::issue_comment(15, "hello"));
        server.wait_calls(1);
        let shim = processes::shim(&server, 1);
        let children = processes::children(&shim);
        server.kill();
        processes::kill(&shim);
        children.iter().for_each(|child| processes::kill(child));
        server.release();
        server.serve(&[]);
        let states: Vec<_> = server.ended_turns(2).iter().map(|turn| turn["state"].clone()).collect();
        assert_eq!(states, ["interrupted", "succeeded"], "{harness}");
        let repeats: Vec<_> = server.calls().iter().map(|call| call.prompt().contains(REPEAT)).collect();
        assert_eq!(repeats, [false, true], "{harness}");
    }
}

/// A person at the terminal may take hours; finding the conversation busy again and again uses up nothing.
#[test]
fn a_busy_conversation_uses_up_no_budget() {
    let server =
        Server::start("[routing]\ndebounce = \"10ms\"\n[dispatch]\nretry_backoff = \"20ms\"\nmax_turns_per_hour = 2\n");
    server.register("octo-org/demo#15", "codex", CODEX);
    let busy = server.path("busy");
    std::fs::write(&busy, "").expect("a mark");
    server
        .plan("codex", "if [ -e \"$root/busy\" ]; then echo 'Error: it already has an active writer' >&2; exit 1; fi");
    server.post("issue_comment", &payloads::issue_comment(15, "hello"));
    server.ended_turns(5);
    std::fs::remove_file(busy).expect("the mark");
    wait_until("it is told", || server.turns().last().is_some_and(|turn| turn["state"] == "succeeded"));
    // What ran counts: of two in an hour, one is left.
    let told = |text: &str| server.post("issue_comment", &payloads::issue_comment(15, text));
    told("one more");
    wait_until("one more is told", || server.calls().last().is_some_and(|call| call.prompt().contains("one more")));
    told("one too many");
    wait_until("the budget holds the last", || {
        let row = server.json(&["sessions", "show", "octo-org/demo#15"]);
        row["held"].to_string().contains("max_turns_per_hour: 2 turns in the last hour, 2 are allowed")
    });
}
