//! The server dies at every named point of the walk, and what it was given is told once all the same.
//!
//! Run with `cargo test --features crash-points --test crash_points`.

mod support;

use std::fs;

use serde_json::Value;
use support::payloads::{issue_comment, issues};
use support::{SECRET, Server, sign, wait_until};

/// The variable that names the point.
const CRASH_AT: &str = "THE_LOOP_CRASH_AT";

const QUICK: &str = "[routing]\ndebounce = \"0s\"\n[dispatch]\nretry_backoff = \"20ms\"\n";

/// Every named point on the way of a delivery to the end of its turn.
const POINTS: &[&str] = &[
    "after-accept-commit",
    "before-answer",
    "after-session-file",
    "before-rename",
    "after-rename",
    "after-turn-start-commit",
    "after-prepare",
    "after-shim-start",
    "after-result",
    "after-follow",
    "after-finish-commit",
];

/// Waits until the server has died, or has delivered `d-1` and goes on: it answers `/readyz` by a commit of its own, so
/// it has survived the one before. Whether it died.
fn died_or_delivered(server: &Server) -> bool {
    let mut died = false;
    wait_until("the server dies or has delivered", || {
        died = is_dead(server);
        let goes_on = || matches!(server.get("/readyz"), Ok((200, _)));
        died || outcome(server, "d-1")["outcome"] == "delivered" && goes_on()
    });
    died
}

fn is_dead(server: &Server) -> bool {
    // One that died as soon as it listened was reaped by who looked.
    fs::read_to_string(format!("/proc/{}/stat", server.pid())).ok().is_none_or(|stat| stat.contains(") Z "))
}

/// Waits for the server's death, then starts it again without the crash point.
fn revive(server: &mut Server) {
    wait_until("the server dies", || is_dead(server));
    server.kill();
    server.set_env(CRASH_AT, "");
    server.serve(&[]);
}

/// Posts as GitHub does; no answer is `None`.
fn post(server: &Server, event: &str, delivery: &str, payload: &Value) -> Option<u16> {
    let body = payload.to_string();
    let signature = sign(SECRET, body.as_bytes());
    let headers = [
        ("Content-Type", "application/json"),
        ("X-GitHub-Event", event),
        ("X-GitHub-Delivery", delivery),
        ("X-Hub-Signature-256", &signature),
    ];
    server.deliver_raw(&headers, body.as_bytes()).ok().map(|(status, _)| status)
}

fn outcome(server: &Server, delivery: &str) -> Value {
    let rows = server.json(&["deliveries", "list"]);
    rows.as_array().expect("rows").iter().find(|row| row["delivery"] == delivery).cloned().unwrap_or_default()
}

/// The server dies at `point`, comes again, and what it was given is told once. False where it never came to the point.
#[track_caller]
fn told_once(point: &str, harness: &str, filler: usize) -> bool {
    let mut server = Server::new(QUICK);
    server.register("octo-org/demo#15", harness, "5e550001-0000-4000-8000-000000000001");
    // Another id makes the registry follow, which is one more step to die at.
    server.plan(harness, "id=5e550002-0000-4000-8000-000000000002");
    server.set_env(CRASH_AT, point);
    server.serve(&[]);
    let mut payload = issue_comment(15, "the one and only");
    payload["filler"] = "x".repeat(filler).into();
    let answer = post(&server, "issue_comment", "d-1", &payload);
    let died = died_or_delivered(&server);
    server.kill();
    server.set_env(CRASH_AT, "");
    server.serve(&[]);
    if answer.is_none() {
        // Not answered is not taken, as far as the sender knows: a person presses Redeliver.
        let again = post(&server, "issue_comment", "d-1", &payload);
        assert!(matches!(again, Some(200 | 202)), "{point}: {again:?}");
    } else {
        assert_eq!(answer, Some(202), "{point}");
    }
    wait_until(&format!("{point}: it is delivered"), || outcome(&server, "d-1")["outcome"] == "delivered");
    // A second delivery in the same session shows that nothing is held up, and comes after whatever was still to come.
    assert_eq!(post(&server, "issue_comment", "d-2", &issue_comment(15, "the next")), Some(202));
    wait_until(&format!("{point}: the next is delivered"), || outcome(&server, "d-2")["outcome"] == "delivered");
    let calls = server.calls();
    let told = |text: &str| calls.iter().filter(|call| call.prompt().contains(text)).count();
    assert_eq!((told("the one and only"), told("the next")), (1, 1), "{point}: {:?}", server.turns());
    assert!(!calls.iter().any(|call| call.prompt().contains("may be a repeat")), "{point}: no repeat is to be feared");
    assert!(server.turns().iter().all(|turn| turn["state"] != "running"), "{point}: {:?}", server.turns());
    let sessions = server.json(&["sessions", "list"]);
    assert_eq!(sessions[0]["session_id"], "5e550002-0000-4000-8000-000000000002", "{point}");
    assert_eq!((&sessions[0]["pending"], &sessions[0]["needs_attention"]), (&0.into(), &Value::Null), "{point}");
    died
}

#[test]
fn wherever_the_server_dies_a_delivery_is_told_once() {
    for point in POINTS {
        assert!(told_once(point, "claude", 0), "{point} was never reached");
    }
    assert!(told_once("after-accept-commit", "claude", 300 << 10), "a large one was not taken");
}

/// At every commit, one after the other, until the whole way is gone without another.
#[test]
fn at_whichever_commit_the_server_dies_a_delivery_is_told_once() {
    for point in ["before-commit", "after-commit"] {
        let died = (1..).take_while(|n| told_once(&format!("{point}:{n}"), "claude", 0)).count();
        // Taking it in, beginning its turn, ending it.
        assert!(died >= 3, "{point}: only {died} commits");
    }
}

#[test]
fn wherever_the_server_dies_a_session_is_closed_once() {
    for point in ["after-accept-commit", "before-rename", "after-rename", "after-session-file", "before-answer"] {
        let mut server = Server::new(QUICK);
        server.register("octo-org/demo#15", "claude", "s-1");
        server.set_env(CRASH_AT, point);
        server.serve(&[]);
        let answer = post(&server, "issues", "d-1", &issues("closed", 15));
        revive(&mut server);
        assert!(matches!(answer, None | Some(202)), "{point}: {answer:?}");
        if answer.is_none() {
            let again = post(&server, "issues", "d-1", &issues("closed", 15));
            assert!(matches!(again, Some(200 | 202)), "{point}: {again:?}");
        }
        let row = server.decided("d-1");
        assert!(matches!(row["outcome"].as_str(), Some("filtered" | "unmatched")), "{point}: {row}");
        assert_eq!(server.json(&["sessions", "list"])[0]["status"], "closed", "{point}");
        assert!(server.calls().is_empty(), "{point}: it was woken");
    }
}

#[test]
fn a_server_that_dies_while_it_takes_a_turn_over_loses_nothing() {
    for point in ["after-result", "after-follow", "after-finish-commit"] {
        let mut server = Server::new(QUICK);
        server.register("octo-org/demo#15", "claude", "5e550001-0000-4000-8000-000000000001");
        server.plan("claude", "id=5e550002-0000-4000-8000-000000000002");
        server.hold();
        server.serve(&[]);
        assert_eq!(post(&server, "issue_comment", "d-1", &issue_comment(15, "the one and only")), Some(202));
        server.wait_calls(1);
        server.kill();
        server.set_env(CRASH_AT, point);
        server.serve(&[]);
        // Only now: a turn that ends earlier may make it die before it listens.
        server.release();
        revive(&mut server);
        wait_until(&format!("{point}: it is delivered"), || outcome(&server, "d-1")["outcome"] == "delivered");
        assert_eq!(server.calls().len(), 1, "{point}");
        assert_eq!(server.turns()[0]["state"], "succeeded", "{point}");
    }
}
