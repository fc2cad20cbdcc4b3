//! The whole circle with the real Claude Code and codex: an agent subscribes, ends its turn, costs nothing while it waits, is
//! resumed in the same conversation by the event, and unsubscribes.

use std::io::Write;

use crate::support::desk::{Desk, SECRET_WORD};
use crate::support::events::Events;
use crate::support::model::Asked;
use crate::support::wait_until;
use serde_json::json;

/// What a person asks for.
const TASK: &str = "Wait until ticket T-1 is done, then say so.";
/// How the agent program finds our tools; the file is what `mcp install` writes.
const TOOLS: &[&str] = &["--mcp-config", ".mcp.json", "--allowedTools", "mcp__the-loop"];
const CHECKS: usize = 10;

#[test]
fn claude_subscribes_sleeps_is_woken_and_unsubscribes() {
    let events = Events::start(&["poll"]);
    let args = serde_json::to_string(TOOLS).expect("a list");
    let Some(mut desk) = Desk::with_claude_and(&format!("args = {args}\n{}", events.table())) else { return };
    // The tools are few: they need no search of their own before they can be called.
    desk.server.set_env("ENABLE_TOOL_SEARCH", "false");
    desk.server.restart();
    desk.server.ok(&["mcp", "install", "--harness", "claude", "--write"]);
    circle(&desk, &events);
}

#[test]
fn codex_subscribes_sleeps_is_woken_and_unsubscribes() {
    let events = Events::start(&["poll"]);
    let Some(desk) = Desk::with_codex_and(&events.table()) else { return };
    desk.server.ok(&["mcp", "install", "--harness", "codex", "--write"]);
    circle(&desk, &events);
}

fn circle(desk: &Desk, events: &Events) {
    let mut ask =
        json!({"server": "ci", "name": "ticket.updated", "arguments": {"ticket": "T-1"}, "where": {"state": "done"}});
    if desk.harness == "codex" {
        // It tells its tools nothing of the conversation that a person began; its shell knows.
        desk.model.will_call("subscribe_mcp_events", ask.clone());
        by_hand(desk);
        let told = desk.model.asked().pop().expect("a request").body;
        assert!(told.contains("CODEX_THREAD_ID"), "the agent is not told what is missing");
        ask["session"] = format!("codex:{}", desk.session).into();
    }
    desk.model.will_call("subscribe_mcp_events", ask);
    let before = desk.model.asked().len();
    by_hand(desk);
    let watches = desk.server.json(&["watches", "list"]);
    let watch = watches[0].clone();
    assert_eq!(
        (watch["state"].as_str(), watch["event"].as_str()),
        (Some("active"), Some("ticket.updated")),
        "{watches}"
    );
    assert_eq!(watch["work_item"], format!("github:{}", crate::support::desk::ITEM));
    let subscribed = desk.model.asked().len();
    assert_eq!(subscribed - before, 2, "one request that subscribes, one that ends the turn");

    events.emit("evt-0", json!({"ticket": "T-1", "state": "open"}));
    let polls = events.count("events/poll");
    wait_until("we look often", || events.count("events/poll") > polls + 5);
    assert_eq!(desk.model.asked().len(), subscribed, "waiting asked the model");

    // In a turn of ours, the tools know whose it is.
    desk.model.will_call("unsubscribe_mcp_events", json!({"subscription": watch["watch"]}));
    events.emit("evt-1", json!({"ticket": "T-1", "state": "done", "url": "https://tickets.example.com/T-1"}));
    let turn = desk.server.ended_turns(1).pop().expect("a turn");
    assert_eq!((&turn["state"], &turn["session_id"]), (&"succeeded".into(), &desk.session.as_str().into()), "{turn}");
    let asked = desk.model.asked();
    let last = asked.last().expect("a request");
    for part in [SECRET_WORD, TASK, "tickets.example.com/T-1"] {
        assert!(last.body.contains(part), "{part} is not in what the model was told");
    }
    assert!(!last.body.contains("\\\"open\\\""), "what `where` hides was told");
    let watch = desk.server.json(&["watches", "show", watch["watch"].as_str().expect("an id")]);
    assert_eq!((&watch["state"], &watch["reason"]), (&"ended".into(), &"its session unsubscribed".into()), "{watch}");
    compare(desk, &asked[before..]);
}

/// The same wait by an agent that looks for itself, every look a request with the whole conversation.
fn compare(desk: &Desk, woken: &[Asked]) {
    let before = desk.model.asked().len();
    for _ in 0..CHECKS {
        desk.model.will_call("list_mcp_events", json!({}));
    }
    by_hand(desk);
    let asked = desk.model.asked();
    let polled = &asked[before..];
    assert_eq!(polled.len(), CHECKS + 1);
    let bytes = |asked: &[Asked]| asked.iter().map(|asked| asked.body.len()).sum::<usize>();
    writeln!(
        std::io::stderr(),
        "{} woken: {} requests, {} bytes, however long it waits; polling {CHECKS} times: {} requests, {} bytes",
        desk.harness,
        woken.len(),
        bytes(woken),
        polled.len(),
        bytes(polled)
    )
    .expect("stderr");
    assert!(bytes(polled) > bytes(woken));
}

fn by_hand(desk: &Desk) {
    let session = desk.session.as_str();
    let args = match desk.harness {
        "codex" => vec!["exec", "resume", "--json", "--skip-git-repo-check", session, "-"],
        _ => [&["-p", "--output-format", "json", "--resume", session][..], TOOLS].concat(),
    };
    desk.by_hand(&args, TASK);
}
