//! Clients that are not ours: the AI SDK subscribes and is posted to, the TypeScript SDK polls and streams.
//!
//! They come from npm at fixed versions; where there is no npm, or it reaches no registry, that is said and nothing is
//! tested.
#![allow(clippy::print_stderr, reason = "what is left out is told")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_the-loop");
const EVENT: &str = "github.workflow_run";

/// The directory with the peers installed; `None` where that cannot be done.
fn peers() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers");
    std::fs::create_dir_all(&dir).expect("a directory");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
    for name in ["package.json", "webhook.mjs", "stream.mjs"] {
        std::fs::copy(from.join(name), dir.join(name)).expect("a copy");
    }
    // Two tests may come here at once: the second waits, then finds all there.
    let lock = std::fs::File::create(dir.join("lock")).expect("a lock");
    lock.lock().expect("locked");
    let installed = dir.join("node_modules/@ai-sdk/mcp").exists()
        || Command::new("npm")
            .args(["install", "--no-audit", "--no-fund", "--ignore-scripts"])
            .current_dir(&dir)
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
    if !installed {
        eprintln!("npm is not here or installs nothing: clients that are not ours were not tried");
    }
    installed.then_some(dir)
}

/// A server, with what is needed to send it deliveries.
struct Server {
    dir: tempfile::TempDir,
    child: Child,
    url: String,
}

impl Server {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let config = "[mcp]\nenabled = true\nallow_callbacks = [\"http://127.0.0.1:*\"]\nretry_backoff = \"100ms\"\n\
                      [[mcp.tokens]]\nprincipal = \"peer\"\ntoken_env = \"PEER_TOKEN\"\n";
        std::fs::write(dir.path().join("config.toml"), config).expect("a configuration");
        let mut child = command(dir.path())
            .args(["gh-webhook", "serve", "--port", "0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a server");
        let line = lines(&mut child).next().expect("its address");
        let url = line.trim_start_matches("listening on ").replace("/gh-webhook", "/mcp");
        Self { dir, child, url }
    }

    fn deliver(&self, id: &str) {
        let sent = command(self.dir.path())
            .args(["gh-webhook", "send", "--event", "workflow_run", "--delivery", id])
            .stdout(Stdio::null())
            .status()
            .expect("sent");
        assert!(sent.success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().expect("ended");
        self.child.wait().expect("collected");
    }
}

fn command(state: &Path) -> Command {
    let mut command = Command::new(BINARY);
    command.arg("--state-dir").arg(state).current_dir(state);
    command.env("THE_LOOP_GH_WEBHOOK_SECRET", "a secret for this test").env("PEER_TOKEN", "a token for this test");
    command
}

fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stdout.take().expect("its output")).lines().map(|line| line.expect("a line"))
}

/// Runs a script, delivers an event when it says `when`, and gives what it printed after that.
fn run(server: &Server, dir: &Path, script: &[&str], when: &str) -> Vec<String> {
    let mut child = Command::new("node")
        .args(script)
        .current_dir(dir)
        .env("THE_LOOP_GH_WEBHOOK_SECRET", "a secret for this test")
        .stdout(Stdio::piped())
        .spawn()
        .expect("node");
    let mut printed = lines(&mut child);
    assert!(printed.any(|line| line == when), "the peer never said `{when}`");
    server.deliver("delivery-1");
    let rest = printed.collect();
    assert!(child.wait().expect("its end").success());
    rest
}

#[test]
fn the_ai_sdk_subscribes_verifies_receives_and_refreshes() {
    let Some(dir) = peers() else { return };
    let server = Server::start();
    let url = server.url.clone();
    let printed = run(&server, &dir, &["webhook.mjs", &url, "a token for this test", EVENT], "subscribed");
    assert_eq!(printed, ["delivery-1", "refreshed", "unsubscribed"]);
}

#[test]
fn the_typescript_sdk_polls_and_streams_over_http() {
    let Some(dir) = peers() else { return };
    let server = Server::start();
    let url = server.url.clone();
    let printed = run(&server, &dir, &["stream.mjs", "http", &url, "a token for this test", EVENT], "listening");
    assert_eq!(printed, ["delivery-1", "delivery-1"]);
}

#[test]
fn the_typescript_sdk_polls_and_streams_over_stdio() {
    let Some(dir) = peers() else { return };
    let server = Server::start();
    let state = server.dir.path().to_str().expect("text").to_owned();
    let script = ["stream.mjs", "stdio", EVENT, BINARY, "--state-dir", &state, "mcp", "serve"];
    assert_eq!(run(&server, &dir, &script, "listening"), ["delivery-1", "delivery-1"]);
}
