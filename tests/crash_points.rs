//! The server dies at every named point of the walk, and what it was given is told once all the same.
//!
//! Only a debug build has such points.
#![cfg(debug_assertions)]

use std::fs;
use std::net::TcpListener;

use crate::support::events::{Events, event, now};
use crate::support::payloads::{issue_comment, issues};
use crate::support::{SECRET, Server, sign, wait_for, wait_until};
use serde_json::{Value, json};

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
    revive_at(server, &[]);
}

fn revive_at(server: &mut Server, args: &[&str]) {
    wait_until("the server dies", || is_dead(server));
    server.kill();
    server.set_env(CRASH_AT, "");
    server.serve(args);
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

const LOCAL: &str = "local:demo";

/// A machine on which a session waits for events of another MCP server, with the watch's id.
fn watching(events: &Events, more: &str, args: &[&str]) -> (Server, String) {
    let config = format!("{QUICK}max_turns_per_hour = 10000\n{more}{}min_poll_interval = \"100ms\"\n", events.table());
    let mut server = Server::new(&config);
    server.register(LOCAL, "claude", "5e550001-0000-4000-8000-000000000001");
    server.serve(&[]);
    let add = ["watches", "add", "--server", "ci", "--event", "ticket.updated", "--work-item", LOCAL];
    let row = server.json(&[&add[..], args].concat());
    let id = row["watch"].as_str().expect("an id").to_owned();
    wait_until("it is followed", || server.json(&["watches", "show", &id])["checked_at"].is_string());
    (server, id)
}

/// How often agents were told this, and whether any telling was called a repeat.
fn told(server: &Server, text: &str) -> usize {
    let calls = server.calls();
    assert!(!calls.iter().any(|call| call.prompt().contains("may be a repeat")), "no repeat is to be feared");
    calls.iter().map(|call| call.prompt().matches(text).count()).sum()
}

/// The points on the way of what another MCP server tells, and of the turn that it wakes.
const WATCH_POINTS: &[&str] = &[
    "before-watch-commit",
    "before-watch-commit:2",
    "watch-event-decided",
    "watch-event-decided:101",
    "after-watch-commit",
    "after-watch-commit:2",
    "after-turn-start-commit",
    "after-result",
    "after-finish-commit",
];

#[test]
fn wherever_the_server_dies_what_another_server_tells_is_told_once() {
    for way in ["poll", "push"] {
        for point in WATCH_POINTS {
            let events = Events::start(&[way]);
            let (mut server, _) = watching(&events, "", &[]);
            server.stop();
            // More than share a transaction, and not only what was asked for.
            events.script().pages_are_whole = true;
            events.script().events =
                (0..120).map(|n| event(&format!("evt-{n}"), json!({"n": format!("n-{n}-")}))).collect();
            server.set_env(CRASH_AT, *point);
            server.serve(&[]);
            revive(&mut server);
            events.emit("evt-last", json!({"n": "n-last-"}));
            let marks: Vec<_> = (0..120).map(|n| format!("n-{n}-")).chain(["n-last-".to_owned()]).collect();
            let all = |server: &Server| marks.iter().map(|mark| told(server, mark)).collect::<Vec<_>>();
            wait_until(&format!("{way} {point}: all are told"), || all(&server).iter().all(|count| *count > 0));
            wait_until(&format!("{way} {point}: it rests"), || server.json(&["sessions", "list"])[0]["pending"] == 0);
            assert!(all(&server).iter().all(|count| *count == 1), "{way} {point}: {:?}", all(&server));
            let rows = server.json(&["deliveries", "list", "--limit", "1000"]);
            assert_eq!(rows.as_array().expect("rows").len(), marks.len(), "{way} {point}");
        }
    }
}

#[test]
fn wherever_the_server_dies_a_gap_is_told_once_and_a_watch_ends_once() {
    for point in ["after-watch-news-commit", "before-watch-commit", "after-watch-commit"] {
        let events = Events::start(&["poll"]);
        let (mut server, _) = watching(&events, "", &[]);
        server.stop();
        events.script().events = (0..9).map(|n| event(&format!("evt-{n}"), json!({"n": format!("n-{n}-")}))).collect();
        events.script().history_from = 8;
        server.set_env(CRASH_AT, point);
        server.serve(&[]);
        revive(&mut server);
        wait_until(&format!("{point}: what is left is told"), || told(&server, "n-8-") > 0);
        wait_until(&format!("{point}: the gap is told"), || told(&server, "\"gap\"") > 0);
        wait_until(&format!("{point}: it rests"), || server.json(&["sessions", "list"])[0]["pending"] == 0);
        // Two, should the ten minutes in which one is told end just now.
        let gaps = told(&server, "\"gap\"");
        assert!((1..=2).contains(&gaps) && told(&server, "n-8-") == 1, "{point}: {gaps} gaps");
    }
    for point in ["after-watch-news-commit", "watch-event-decided", "after-watch-commit"] {
        let events = Events::start(&["poll"]);
        let (mut server, id) = watching(&events, "", &["--until", "n=n-over-"]);
        server.stop();
        let is_own = point == "after-watch-news-commit";
        if is_own {
            events.script().refuse = vec![("events/poll", -32011, "gone")];
        } else {
            events.emit("evt-over", json!({"n": "n-over-"}));
        }
        server.set_env(CRASH_AT, point);
        server.serve(&[]);
        revive(&mut server);
        let mark = if is_own { "watch.ended" } else { "n-over-" };
        wait_until(&format!("{point}: the end is told"), || told(&server, mark) > 0);
        wait_until(&format!("{point}: it is over"), || server.json(&["watches", "show", &id])["state"] == "ended");
        wait_until(&format!("{point}: it rests"), || server.json(&["sessions", "list"])[0]["pending"] == 0);
        let rows = server.json(&["deliveries", "list"]);
        assert_eq!((server.calls().len(), rows.as_array().expect("rows").len()), (1, 1), "{point}");
    }
}

#[test]
fn wherever_the_server_dies_what_is_posted_to_it_is_told_once() {
    let points = ["before-watch-commit", "watch-event-decided", "after-watch-commit", "before-callback-answer"];
    for point in ["after-secret-commit", "after-subscribe-answer"].into_iter().chain(points) {
        let events = Events::start(&["webhook"]);
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port().to_string();
        let callback = format!("[mcp.callback]\nurl = \"http://127.0.0.1:{port}/mcp-events\"\n");
        let config = format!("{QUICK}{callback}{}", events.table());
        let mut server = Server::new(&config);
        server.register(LOCAL, "claude", "5e550001-0000-4000-8000-000000000001");
        let is_late = points.contains(&point);
        if !is_late {
            server.set_env(CRASH_AT, point);
        }
        server.serve(&["--port", &port]);
        let add = ["watches", "add", "--server", "ci", "--event", "ticket.updated", "--work-item", LOCAL];
        server.ok(&add);
        if is_late {
            wait_until("it subscribes", || server.json(&["watches", "list"])[0]["checked_at"].is_string());
            server.stop();
            // Each start subscribes anew, which takes in an empty answer: that is the first commit.
            let nth = if point.ends_with("commit") { ":2" } else { "" };
            server.set_env(CRASH_AT, format!("{point}{nth}"));
            let asked = events.count("events/subscribe");
            server.serve(&["--port", &port]);
            wait_until("it subscribes anew", || events.count("events/subscribe") > asked);
        } else {
            revive_at(&mut server, &["--port", &port]);
        }
        let (url, secret) = wait_for(point, || events.script().hooks.first().cloned());
        let mut body = event("evt-1", json!({"n": "n-1-"}));
        body["cursor"] = Value::Null;
        // As a sender of webhooks does: until it is taken.
        let mut revived = !is_late;
        wait_until(&format!("{point}: it is taken"), || {
            let (_, secret) = events.script().hooks.first().cloned().unwrap_or((url.clone(), secret.clone()));
            let status = crate::support::events::post(&url, &secret, "evt-1", now(), &body.to_string()).0;
            if status == 0 && !revived {
                revive_at(&mut server, &["--port", &port]);
                revived = true;
            }
            status == 204 && revived
        });
        wait_until(&format!("{point}: it is told"), || told(&server, "n-1-") > 0);
        wait_until(&format!("{point}: it rests"), || server.json(&["sessions", "list"])[0]["pending"] == 0);
        assert_eq!(told(&server, "n-1-"), 1, "{point}");
    }
}
