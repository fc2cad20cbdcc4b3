//! Servers that are not ours: the TypeScript SDK's is polled and streamed over HTTP and on stdio, PyPI's
//! mcp-webhook-events posts to us.
//!
//! They come from npm and PyPI at fixed versions; what cannot be had is said, and not tested.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{Server, wait_until};
use serde_json::json;

const ITEM: &str = "local:peers";
const QUICK: &str = "[routing]\ndebounce = \"30ms\"\n[dispatch]\nmax_turns_per_hour = 10000\n";
/// Where it is set, a test that cannot have what it needs fails and is not left out.
const MUST: &str = "THE_LOOP_TESTS_MUST_RUN";

/// A directory with our scripts in which `install` has been done once; `None`, after a notice, where that fails.
fn prepared(name: &str, done: &str, install: impl FnOnce(&Path) -> bool) -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&dir).expect("a directory");
    let lock = File::create(dir.join("lock")).expect("a lock");
    lock.lock().expect("locked");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/server");
    for script in ["package.json", "ticks.mjs", "tickets.py"] {
        std::fs::copy(from.join(script), dir.join(script)).expect("a copy");
    }
    if dir.join(done).exists() || install(&dir) && dir.join(done).exists() {
        return Some(dir);
    }
    let notice = format!("LEFT OUT: what {name} needs cannot be installed");
    assert!(std::env::var_os(MUST).is_none(), "{notice}");
    writeln!(std::io::stderr(), "{notice}").expect("stderr");
    None
}

fn run(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn ticks() -> Option<PathBuf> {
    prepared("peer-ticks", "node_modules/@modelcontextprotocol/server", |dir| {
        run(Command::new("npm").args(["install", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(dir))
    })
}

fn tickets() -> Option<PathBuf> {
    prepared("peer-tickets", "venv/installed", |dir| {
        let python = dir.join("venv/bin/python");
        let packages = ["mcp-webhook-events==0.2.0", "mcp==2.3.0", "uvicorn"];
        let installed = run(Command::new("python3").args(["-m", "venv", "venv"]).current_dir(dir))
            && run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(packages));
        installed && File::create(dir.join("venv/installed")).is_ok()
    })
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn the_typescript_sdk_streams_and_is_polled() {
    let Some(dir) = ticks() else { return };
    let script = dir.join("ticks.mjs").display().to_string();
    let child = Command::new("node").args([&script, "http"]).stdout(Stdio::piped()).spawn().expect("node");
    let mut http = Ended(child);
    let mut port = String::new();
    BufReader::new(http.0.stdout.take().expect("its output")).read_line(&mut port).expect("a port");
    let url = format!("http://127.0.0.1:{}/mcp", port.trim());
    let server = Server::start(&format!(
        "{QUICK}[mcp.servers.stream]\nurl = \"{url}\"\n[mcp.servers.poll]\nurl = \"{url}\"\ndelivery = \"poll\"\n\
         min_poll_interval = \"100ms\"\n[mcp.servers.child]\ncommand = \"node\"\nargs = [\"{script}\", \"stdio\"]\n"
    ));
    server.register(ITEM, "claude", "s-1");
    for (name, way) in [("stream", "stream"), ("poll", "poll"), ("child", "stream")] {
        let row = server.json(&["watches", "add", "--server", name, "--event", "clock.tick", "--work-item", ITEM]);
        assert_eq!(row["delivery"], way, "{row}");
        let id = row["watch"].as_str().expect("an id").to_owned();
        wait_until("ticks come", || !rows(&server, name).is_empty() && rows(&server, name).len() > 4);
        server.ok(&["watches", "remove", &id]);
        let numbers = rows(&server, name);
        let first = numbers[0];
        let wanted: Vec<_> = (0..numbers.len() as u64).map(|n| first + n).collect();
        assert_eq!(numbers, wanted, "{name} lost, doubled or mixed up ticks");
    }
    let wrong = server.cli(&["watches", "add", "--server", "poll", "--event", "clock.tock", "--work-item", ITEM]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("clock.tick"), "{wrong:?}");
}

/// The numbers of the ticks of a server, in order of arrival.
fn rows(server: &Server, name: &str) -> Vec<u64> {
    let rows = server.json(&["deliveries", "list", "--limit", "1000"]);
    let of = rows.as_array().expect("rows").iter().rev().filter(|row| row["source"] == format!("mcp:{name}"));
    of.filter_map(|row| row["delivery"].as_str()?.strip_prefix("tick-")?.parse().ok()).collect()
}

#[test]
fn mcp_webhook_events_posts_to_us() {
    let Some(dir) = tickets() else { return };
    let free = || TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let (port, ours) = (free(), free());
    let store = tempfile::tempdir().expect("a directory");
    let script = dir.join("tickets.py");
    let mut command = Command::new(dir.join("venv/bin/python"));
    command.arg(script).arg(port.to_string()).arg(store.path().join("events.sqlite3"));
    let _tickets = Ended(command.spawn().expect("python"));
    wait_until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let mut server = Server::new(&format!(
        "{QUICK}[mcp.callback]\nurl = \"http://127.0.0.1:{ours}/mcp-events\"\n\
         [mcp.servers.tickets]\nurl = \"http://127.0.0.1:{port}/mcp\"\ntoken_env = \"TICKETS_TOKEN\"\n"
    ));
    server.set_env("TICKETS_TOKEN", "a-token");
    server.serve(&["--port", &ours.to_string()]);
    server.register(ITEM, "claude", "s-1");
    let args = ["watches", "add", "--server", "tickets", "--event", "ticket.updated", "--arg", "ticket=T-1"];
    let row = server.json(&[&args[..], &["--work-item", ITEM]].concat());
    let id = row["watch"].as_str().expect("an id").to_owned();
    wait_until("it is subscribed", || server.json(&["watches", "show", &id])["checked_at"].is_string());
    for (ticket, summary) in [("T-2", "not-ours"), ("T-1", "posted-to-us")] {
        publish(port, ticket, summary);
    }
    let call = server.wait_calls(1).remove(0);
    assert!(call.prompt().contains("posted-to-us") && !call.prompt().contains("not-ours"), "{}", call.prompt());
    assert!(!call.env.contains_key("TICKETS_TOKEN"), "the turn got the server's token");
}

fn publish(port: u16, ticket: &str, summary: &str) {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}});
    let params = json!({"name": "publish", "arguments": {"ticket": ticket, "summary": summary}, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let answer = ureq::post(format!("http://127.0.0.1:{port}/mcp"))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("authorization", "Bearer a-token")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "publish")
        .send(&body)
        .expect("published");
    assert_eq!(answer.status().as_u16(), 200);
}
