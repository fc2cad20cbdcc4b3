//! From when on a watch hears: what happens after it was made is told, whatever its server is and however it tells.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, Stdio};

use crate::support::events::{Events, now, post};
use crate::support::{Server, wait_until};
use serde_json::{Value, json};

const ITEM: &str = "local:demo";
const QUICK: &str =
    "[routing]\ndebounce = \"30ms\"\n[dispatch]\nretry_backoff = \"50ms\"\nmax_turns_per_hour = 10000\n";

fn add(server: &Server) -> Value {
    server.json(&["watches", "add", "--server", "ci", "--event", "ticket.updated", "--work-item", ITEM])
}

fn is_told(server: &Server, mark: &str) -> bool {
    server.calls().iter().any(|call| call.prompt().contains(mark))
}

#[test]
fn what_happens_once_a_watch_is_made_is_told() {
    for (way, as_program) in [("push", true), ("poll", true), ("push", false), ("poll", false)] {
        let events = Events::start(&[way]);
        let table = if as_program { events.as_program("ci") } else { events.table() };
        let server = Server::start(&format!("{QUICK}{table}min_poll_interval = \"100ms\"\n"));
        server.register(ITEM, "claude", "s-1");
        for n in 0..3 {
            events.emit(&format!("before-{n}"), json!({"n": format!("before-{n}-")}));
            let watch = add(&server);
            events.emit(&format!("evt-{n}"), json!({"n": format!("n-{n}-")}));
            assert!(watch["checked_at"].is_string(), "{way}, program: {as_program}: {watch}");
            wait_until("it is told", || is_told(&server, &format!("n-{n}-")));
            server.ok(&["watches", "remove", watch["watch"].as_str().expect("an id")]);
            assert!(!is_told(&server, "before-"), "{way}: what was before is not waited for");
        }
    }
}

#[test]
fn what_is_posted_once_a_watch_is_made_is_taken() {
    let events = Events::start(&["webhook"]);
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let callback = format!("[mcp.callback]\nurl = \"http://127.0.0.1:{port}/mcp-events\"\n");
    let mut server = Server::new(&format!("{QUICK}{callback}{}", events.table()));
    server.serve(&["--port", &port.to_string()]);
    server.register(ITEM, "claude", "s-1");
    add(&server);
    let (url, secret) = events.script().hooks.first().cloned().expect("a subscription");
    let body = json!({"eventId": "evt-1", "name": "ticket.updated", "timestamp": "2026-11-30T12:00:00Z",
        "data": {"n": "cut in a character: \u{fffd}"}, "cursor": null});
    // As JavaScript writes a text that was cut between the halves of a character.
    let body = body.to_string().replace('\u{fffd}', "\\ud83d");
    assert_eq!(post(&url, &secret, "evt-1", now(), &body).0, 204);
    wait_until("it is told", || is_told(&server, "cut in a character"));
}

#[test]
fn who_makes_a_watch_at_a_server_that_does_not_begin_is_told_so() {
    let events = Events::start(&["poll"]);
    let server = Server::start(&format!("{QUICK}{}timeout = \"60s\"\n", events.as_program("ci")));
    server.register(ITEM, "claude", "s-1");
    events.script().hang = vec!["events/poll"];
    let args = ["watches", "add", "--server", "ci", "--event", "ticket.updated", "--work-item", ITEM];
    let added = server.cli(&args);
    let said = String::from_utf8_lossy(&added.stderr).into_owned();
    assert!(added.status.success() && said.contains("has not begun to tell yet"), "{said}");
    assert!(server.json(&["watches", "list"])[0]["checked_at"].is_null());
}

/// The agent's tools, as a harness starts them.
struct Tools {
    process: Child,
    answers: BufReader<std::process::ChildStdout>,
    asked: u64,
}

impl Tools {
    fn start(server: &Server) -> Self {
        let mut command = server.command(&["mcp", "agent", "--harness", "claude", "--session-id", "s-1"]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the tools");
        let answers = BufReader::new(process.stdout.take().expect("its output"));
        let mut tools = Self { process, answers, asked: 0 };
        tools.ask(
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}),
        );
        tools.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        tools
    }

    fn say(&mut self, message: &Value) {
        let input = self.process.stdin.as_mut().expect("its input");
        writeln!(input, "{message}").and_then(|()| input.flush()).expect("said");
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).expect("an answer") > 0, "the tools ended");
            let message: Value = serde_json::from_str(&line).expect("JSON");
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))["structuredContent"].clone()
    }
}

impl Drop for Tools {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[test]
fn an_agent_that_looks_for_events_is_not_held_up_by_servers_that_hang() {
    let (good, hung) = (Events::start(&["poll"]), Events::start(&["poll"]));
    let mut tables = QUICK.to_owned();
    for n in 0..3 {
        tables += &format!("{}timeout = \"2s\"\n", hung.named(&format!("a{n}")));
    }
    let server = Server::start(&format!("{tables}{}", good.named("good")));
    server.register(ITEM, "claude", "s-1");
    let mut tools = Tools::start(&server);
    // They answer when all of them have been asked: who asks one after the other never gets there.
    hung.script().hang = vec!["events/list"];
    let releasing = std::thread::spawn({
        let hung = hung.clone();
        move || {
            wait_until("all are asked", || hung.count("events/list") == 3);
            hung.script().hang.clear();
        }
    });
    let listed = tools.call("list_mcp_events", json!({}));
    releasing.join().expect("released");
    assert_eq!(listed["events"].as_array().map(Vec::len), Some(4), "{listed}");
    hung.script().hang = vec!["events/list"];
    let listed = tools.call("list_mcp_events", json!({}));
    assert_eq!(listed["events"].as_array().map(Vec::len), Some(1), "{listed}");
    let named = listed["servers_that_cannot_be_used"].as_array().expect("some");
    let names: Vec<_> = named.iter().map(|problem| problem["server"].as_str().expect("a name")).collect();
    assert_eq!(names, ["a0", "a1", "a2"], "{listed}");
    assert!(named.iter().all(|problem| problem["problem"].as_str().is_some_and(|why| why.contains("did not answer"))));
    let types = server.json(&["watches", "types"]);
    assert_eq!(types.as_array().map(Vec::len), Some(1));
}

#[test]
fn what_happens_once_an_agent_has_subscribed_is_told() {
    let events = Events::start(&["poll"]);
    let server = Server::start(&format!("{QUICK}{}min_poll_interval = \"100ms\"\n", events.as_program("ci")));
    server.register(ITEM, "claude", "s-1");
    let mut tools = Tools::start(&server);
    let subscribed = tools.call("subscribe_mcp_events", json!({"server": "ci", "name": "ticket.updated"}));
    events.emit("evt-1", json!({"n": "the-news"}));
    assert!(subscribed["watch"]["checked_at"].is_string(), "{subscribed}");
    wait_until("it is told", || is_told(&server, "the-news"));
}
