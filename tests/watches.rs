//! Watches from outside: a server that floods, repeats, refuses, forges, forgets and goes away; nothing is lost, doubled
//! or told to the wrong one.

use std::net::TcpListener;

use crate::support::events::{Events, now, post};
use crate::support::{Server, wait_for, wait_until};
use serde_json::{Value, json};

const ITEM: &str = "local:demo";
const QUICK: &str =
    "[routing]\ndebounce = \"30ms\"\n[dispatch]\nretry_backoff = \"50ms\"\nmax_turns_per_hour = 10000\n";

fn machine(events: &Events, more: &str) -> Server {
    let server = Server::start(&format!("{QUICK}{}min_poll_interval = \"100ms\"\n{more}", events.table()));
    server.register(ITEM, "claude", "s-1");
    server
}

fn watch(server: &Server, more: &[&str]) -> String {
    let args = ["watches", "add", "--server", "ci", "--event", "ticket.updated", "--work-item", ITEM];
    let row = server.json(&[&args[..], more].concat());
    row["watch"].as_str().expect("an id").to_owned()
}

fn row(server: &Server, id: &str) -> Value {
    server.json(&["watches", "show", id])
}

#[test]
fn a_flood_by_stream_stays_in_order_and_is_told_once() {
    let events = Events::start(&["push"]);
    events.script().stream_ends_after = Some(97);
    let server = machine(&events, "");
    let id = watch(&server, &[]);
    wait_until("the stream is open", || {
        events.count("events/stream") > 0 && row(&server, &id)["checked_at"].is_string()
    });
    for n in 0..400 {
        events.emit(&format!("evt-{n}"), json!({"n": format!("n-{n}-")}));
    }
    wait_until("all are here", || row(&server, &id)["cursor"] == "400");
    let rows = server.json(&["deliveries", "list", "--limit", "1000"]);
    let mut ids: Vec<_> = rows.as_array().expect("rows").iter().filter_map(|row| row["delivery"].as_str()).collect();
    ids.reverse();
    let wanted: Vec<_> = (0..400).map(|n| format!("evt-{n}")).collect();
    assert_eq!(ids, wanted);
    wait_until("all are told", || (0..400).all(|n| server.prompts().contains(&format!("n-{n}-"))));
    let text = server.prompts();
    assert!((0..400).all(|n| text.matches(&format!("n-{n}-")).count() == 1), "told twice");
    assert!(events.count("events/stream") >= 4, "the stream never ended");
}

#[test]
fn a_killed_server_goes_on_where_it_was() {
    let events = Events::start(&["poll"]);
    let mut server = machine(&events, "");
    let id = watch(&server, &[]);
    events.emit("evt-0", json!({"n": "n-0-"}));
    wait_until("the first is told", || server.prompts().contains("n-0-"));
    for n in 1..20 {
        server.kill();
        events.emit(&format!("evt-{n}"), json!({"n": format!("n-{n}-")}));
        server.serve(&[]);
        // Killed at any moment from before the first poll to after the turn.
        if n % 3 == 0 {
            let cursor = (n + 1).to_string();
            wait_until("it is here", || row(&server, &id)["cursor"].as_str() == Some(&cursor));
        }
    }
    wait_until("all are told", || (0..20).all(|n| server.prompts().contains(&format!("n-{n}-"))));
    server.ended_turns(1);
    let rows = server.json(&["deliveries", "list", "--limit", "1000"]);
    assert_eq!(rows.as_array().expect("rows").len(), 20);
}

#[test]
fn each_session_is_told_and_none_twice() {
    let events = Events::start(&["poll"]);
    events.script().repeat = true;
    let server = machine(&events, "");
    server.register("local:other", "claude", "s-2");
    let first = watch(&server, &[]);
    assert_eq!(watch(&server, &[]), first, "the same was asked for twice");
    watch(&server, &["--arg", "ticket=T-1"]);
    let args = ["watches", "add", "--server", "ci", "--event", "ticket.updated", "--work-item", "local:other"];
    server.json(&args);
    events.emit("evt-1", json!({"ticket": "T-1", "n": "the-news"}));
    wait_until("both are told", || server.prompts().matches("the-news").count() >= 2);
    let polls = events.count("events/poll");
    wait_until("it repeats itself", || events.count("events/poll") > polls + 12);
    let calls = server.calls();
    let of = |id: &str| calls.iter().filter(|call| call.argv.contains(&id.to_owned())).count();
    assert_eq!((of("s-1"), of("s-2"), calls.len()), (1, 1, 2));
}

#[test]
fn a_gap_is_told_with_its_time_and_a_liar_is_not_heard_for_ever() {
    let events = Events::start(&["poll"]);
    let server = machine(&events, "");
    let id = watch(&server, &["--where", "n=never"]);
    wait_until("it is polled", || row(&server, &id)["cursor"].is_string());
    for _ in 0..5 {
        let polls = events.count("events/poll");
        events.script().truncate = true;
        wait_until("it is polled", || events.count("events/poll") > polls + 1);
    }
    wait_until("the gap is told", || server.prompts().contains("watch.gap"));
    let text = server.prompts();
    assert!(text.contains("\"from\"") && text.contains("\"to\"") && text.contains("missed"), "{text}");
    // Two, should the ten minutes in which one is told end just now.
    assert!(server.calls().len() <= 2, "{} turns", server.calls().len());
}

#[test]
fn a_forgotten_cursor_is_a_gap_and_a_server_that_takes_none_is_left() {
    let events = Events::start(&["poll"]);
    let server = machine(&events, "");
    let id = watch(&server, &[]);
    wait_until("it is polled", || row(&server, &id)["cursor"].is_string());
    let anew = || {
        let script = events.script();
        script.seen.iter().filter(|(method, params)| method == "events/poll" && params["cursor"].is_null()).count()
    };
    let before = anew();
    events.script().forget = true;
    wait_until("it begins anew", || anew() > before);
    wait_until("the gap is told", || server.prompts().contains("watch.gap"));
    wait_until("it is left", || row(&server, &id)["state"] == "ended");
    wait_until("that is told", || server.prompts().contains("watch.ended"));
    assert_eq!(anew(), before + 1);
}

#[test]
fn a_refusal_ends_the_watch_and_its_session_hears_of_it() {
    for (code, word) in [(-32011, "no such event"), (-32023, "no such event"), (-32024, "does not allow")] {
        let events = Events::start(&["poll"]);
        let server = machine(&events, "");
        let id = watch(&server, &[]);
        wait_until("it is polled", || row(&server, &id)["checked_at"].is_string());
        events.script().refuse = vec![("events/poll", code, "gone <b>away</b>")];
        wait_until("it ends", || row(&server, &id)["state"] == "ended");
        let reason = row(&server, &id)["reason"].as_str().expect("a reason").to_owned();
        assert!(reason.contains(word), "{reason}");
        wait_until("the session is told", || server.prompts().contains("watch.ended"));
        assert!(!server.prompts().contains("<b>"), "the server's words left their fence");
    }
}

#[test]
fn a_way_that_is_not_to_be_had_gives_way_to_the_next() {
    let events = Events::start(&["push", "poll"]);
    events.script().refuse = vec![("events/stream", -32026, "no streams")];
    let server = machine(&events, "");
    let id = watch(&server, &[]);
    wait_until("it polls", || events.count("events/poll") > 1 && row(&server, &id)["delivery"] == "poll");
    events.emit("evt-1", json!({"n": "by-poll"}));
    wait_until("it is told", || server.prompts().contains("by-poll"));
}

#[test]
fn a_busy_server_and_an_odd_answer_pass() {
    let events = Events::start(&["poll"]);
    let server = machine(&events, "");
    let id = watch(&server, &[]);
    events.script().refuse = vec![("events/poll", -32013, "too much")];
    let polls = events.count("events/poll");
    wait_until("it asked again", || events.count("events/poll") > polls + 1);
    events.script().refuse.clear();
    events.script().events.push(json!("this is no event"));
    events.script().events.push(json!({"eventId": "evt-x", "name": "another.event", "data": {"n": "not-ours"}}));
    events.emit("evt-1", json!({"n": "after-all-that"}));
    wait_until("it is told", || server.prompts().contains("after-all-that"));
    assert!(!server.prompts().contains("not-ours") && row(&server, &id)["state"] == "active");
}

#[test]
fn a_callback_believes_signatures_and_nothing_else() {
    let events = Events::start(&["webhook"]);
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let callback = format!("[mcp.callback]\nurl = \"http://127.0.0.1:{port}/mcp-events\"\n");
    let mut server = Server::new(&format!("{QUICK}{}{callback}", events.table()));
    server.serve(&["--port", &port.to_string()]);
    server.register(ITEM, "claude", "s-1");
    let id = watch(&server, &[]);
    let (url, secret) = wait_for("it subscribes", || events.script().hooks.first().cloned());
    wait_until("the answer is kept", || row(&server, &id)["checked_at"].is_string());
    assert!(events.script().challenged == 1 && url.ends_with(&format!("?watch={id}")), "{url}");
    let event = |n: &str| {
        json!({"eventId": format!("evt-{n}"), "name": "ticket.updated", "timestamp": "2026-11-30T12:00:00Z",
            "data": {"n": format!("n-{n}-")}, "cursor": null})
        .to_string()
    };
    let wrong = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    let other = url.replace(&id, "w_000000000000");
    for (url, secret, at, wanted) in [
        (&url, wrong, now(), 401),
        (&other, secret.as_str(), now(), 401),
        (&url, secret.as_str(), now() - 360, 401),
        (&url, secret.as_str(), now() + 360, 401),
    ] {
        assert_eq!(post(url, secret, "evt-forged", at, &event("forged")).0, wanted);
    }
    let challenge = json!({"type": "verification", "challenge": "guess"}).to_string();
    assert_eq!(post(&url, &secret, "msg_1", now(), &challenge).0, 403);
    assert_eq!(post(&url, &secret, "msg_1", now(), "{").0, 400);
    let large = format!("{{\"data\": \"{}\"}}", "x".repeat(300_000));
    assert_eq!(post(&url, &secret, "msg_1", now(), &large).0, 413);
    for _ in 0..3 {
        assert_eq!(post(&url, &secret, "evt-1", now(), &event("1")).0, 204);
    }
    wait_until("it is told", || server.prompts().contains("n-1-"));
    server.ended_turns(1);
    assert_eq!((server.prompts().matches("n-1-").count(), server.prompts().contains("n-forged-")), (1, false));
    assert_eq!(post(&url, &secret, "msg_gap", now(), &json!({"type": "gap", "cursor": "7"}).to_string()).0, 204);
    wait_until("the gap is told", || server.prompts().contains("watch.gap"));
    assert_eq!(row(&server, &id)["cursor"], "7");
    let ended =
        json!({"type": "terminated", "error": {"code": -32024, "message": "access was taken away"}}).to_string();
    assert_eq!(post(&url, &secret, "msg_end", now(), &ended).0, 204);
    wait_until("the end is told", || server.prompts().contains("access was taken away"));
    assert_eq!(post(&url, &secret, "evt-2", now(), &event("2")).0, 410);
    wait_until("it is unsubscribed", || events.count("events/unsubscribe") == 1);
    assert!(!server.log().contains(&secret) && !server.prompts().contains(&secret), "a secret was shown");
}

#[test]
fn a_programs_server_gets_none_of_our_secrets() {
    let script = "env > child.env; echo not MCP; echo some trouble >&2; exit 1";
    let config = format!(
        "{QUICK}[mcp.servers.child]\ncommand = \"sh\"\nargs = [\"-c\", \"{script}\"]\nenv = {{ PLAIN = \"yes\" }}\n\
         env_from = {{ THEIRS = \"OURS\" }}\n[mcp.servers.far]\nurl = \"http://127.0.0.1:9/\"\ntoken_env = \"FAR_TOKEN\"\n"
    );
    let mut server = Server::new(&config);
    server.set_env("OURS", "given-on-purpose");
    server.set_env("FAR_TOKEN", "a-token-of-another");
    server.set_env("CLAUDE_CODE_SESSION_ID", "outer");
    let types = server.cli(&["watches", "types", "--server", "child"]);
    let error = String::from_utf8_lossy(&types.stderr).into_owned();
    assert!(!types.status.success() && error.contains("some trouble"), "{error}");
    let env = std::fs::read_to_string(server.path("state/child.env")).expect("the child's environment");
    assert!(env.contains("PLAIN=yes\n") && env.contains("THEIRS=given-on-purpose\n"), "{env}");
    for hidden in [crate::support::SECRET, "a-token-of-another", "CLAUDE_CODE_SESSION_ID"] {
        assert!(!env.contains(hidden), "{hidden}");
    }
}

#[test]
fn who_lacks_a_token_asks_the_server_that_has_it() {
    let events = Events::start(&["poll"]);
    let table = format!("{}token_env = \"CI_TOKEN\"\nmin_poll_interval = \"100ms\"\n", events.table());
    let mut server = Server::new(&format!("{QUICK}{table}"));
    server.register(ITEM, "claude", "s-1");
    let types = server.cli(&["watches", "types", "--server", "ci"]);
    let error = String::from_utf8_lossy(&types.stderr).into_owned();
    assert!(error.contains("`CI_TOKEN` is not set") && error.contains("no server of ours runs"), "{error}");
    server.set_env("CI_TOKEN", "only-the-server-has-it");
    server.serve(&[]);
    server.set_env("CI_TOKEN", "");
    let types = server.json(&["watches", "types", "--server", "ci"]);
    assert_eq!(types[0]["name"], "ticket.updated", "{types}");
    let wrong = server.cli(&["watches", "add", "--server", "ci", "--event", "ticket.update", "--work-item", ITEM]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("did you mean `ticket.updated`"), "{wrong:?}");
    let id = watch(&server, &[]);
    wait_until("it is polled", || row(&server, &id)["cursor"].is_string());
    events.emit("evt-1", json!({"n": "by-token"}));
    let call = server.wait_calls(1).remove(0);
    assert!(call.prompt().contains("by-token"));
    let has = |name: &str, value: &str| call.env.get(name).is_some_and(|held| held == value);
    assert!(!call.env.contains_key("CI_TOKEN") && has("THE_LOOP_SESSION", ITEM), "{:?}", call.env);
    assert!(has("THE_LOOP_STATE_DIR", &server.path("state").display().to_string()));
    assert!(has("THE_LOOP_CONFIG", &server.path("config.toml").display().to_string()));
}

#[test]
fn a_stream_that_nobody_waits_for_is_closed_and_its_neighbour_is_not() {
    let events = Events::start(&["push"]);
    let server = machine(&events, "");
    let (one, _other) = (watch(&server, &["--arg", "ticket=T-1"]), watch(&server, &[]));
    wait_until("both are open", || events.script().open_streams == 2);
    server.ok(&["watches", "remove", &one]);
    wait_until("one is closed", || events.script().open_streams == 1);
    events.emit("evt-1", json!({"n": "still-heard"}));
    wait_until("the other is told", || server.prompts().contains("still-heard"));
    server.ok(&["sessions", "close", "--work-item", ITEM]);
    wait_until("none is open", || events.script().open_streams == 0);
    let states = server.json(&["watches", "list"]);
    let over = |row: &Value| row["state"] == "ended" && row["reason"].is_string();
    assert!(states.as_array().expect("rows").iter().all(over), "{states}");
}
