//! The server from outside: each kind of event wakes the session that it concerns, and an end of the server loses nothing.

mod support;

use support::{Server, payloads, wait_until};

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
