//! The program as a process: a machine of its own with a state directory, a home, a `PATH` of stubs and a port.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

use super::stub::{self, Call};
use super::wait::{wait_for, wait_until};

/// The webhook's secret on every machine.
pub const SECRET: &str = "It's a Secret to Everybody";

/// For tests that care about nothing else: news is told at once, and failures are tried again at once.
const QUICK: &str = "[routing]\ndebounce = \"30ms\"\n[dispatch]\nretry_backoff = \"50ms\"\n";

/// A machine with the server on it.
pub struct Server {
    root: tempfile::TempDir,
    env: Vec<(String, String)>,
    process: Option<Child>,
    url: String,
    http: ureq::Agent,
}

/// Why a request had no answer.
pub type Undelivered = Box<ureq::Error>;

impl Server {
    /// A machine with a running server. An empty `config` is one that does not wait before it tells news.
    pub fn start(config: &str) -> Self {
        let mut server = Self::new(config);
        server.serve(&[]);
        server
    }

    /// The same machine with the server not yet started.
    pub fn new(config: &str) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        for dir in ["home", "work"] {
            fs::create_dir(root.path().join(dir)).expect(dir);
        }
        let path = fs::canonicalize(root.path()).expect("a path");
        stub::install(&path);
        fs::write(path.join("config.toml"), if config.is_empty() { QUICK } else { config }).expect("config.toml");
        let http = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        Self { root, env: Vec::new(), process: None, url: String::new(), http }
    }

    /// Sets a variable of the server and of every command from here on; a later one of the same name wins.
    pub fn set_env(&mut self, name: &str, value: impl Into<String>) {
        self.env.push((name.into(), value.into()));
    }

    /// Starts the server with more arguments and waits until it listens.
    pub fn serve(&mut self, args: &[&str]) {
        assert!(self.process.is_none(), "the server runs already");
        let out = self.path("serve.out");
        let log = File::options().create(true).append(true).open(self.path("serve.log")).expect("a log");
        let mut command = self.command(&["gh-webhook", "serve"]);
        if !args.contains(&"--port") {
            command.args(["--port", "0"]);
        }
        command.args(args).stdout(File::create(&out).expect("serve.out")).stderr(log);
        let mut process = command.spawn().expect("the server");
        self.url = wait_for("the server listens", || {
            let text = fs::read_to_string(&out).expect("serve.out");
            let line = text.lines().next().filter(|_| text.ends_with('\n'));
            let gone = process.try_wait().expect("the server");
            assert!(gone.is_none() || line.is_some(), "the server ended with {gone:?}: {}", self.log());
            line.and_then(|line| line.strip_prefix("listening on ")).map(String::from)
        });
        self.process = Some(process);
    }

    /// Ends the server as a power cut does. Turns go on.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("a running server");
        process.kill().expect("killed");
        process.wait().expect("reaped");
    }

    /// Asks the server to stop and waits for its end.
    pub fn stop(&mut self) -> ExitStatus {
        let mut process = self.process.take().expect("a running server");
        signal(&process, rustix::process::Signal::TERM);
        wait_for("the server stops", || process.try_wait().expect("the server"))
    }

    /// Stops the server, if it runs, and starts it again.
    pub fn restart(&mut self) {
        if self.process.is_some() {
            self.stop();
        }
        self.serve(&[]);
    }

    /// Where it listens, the webhook's path included.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The process id of the running server.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running server").id()
    }

    /// What the server logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("serve.log")).unwrap_or_default()
    }

    /// A place on this machine: `home`, `work`, `state`, `config.toml` …
    pub fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.root.path()).expect("the root").join(name)
    }

    /// Signs and posts a payload with a new delivery id, as GitHub does.
    #[track_caller]
    pub fn post(&self, event: &str, payload: &Value) -> (u16, String) {
        self.deliver(event, &uuid::Uuid::new_v4().to_string(), payload)
    }

    /// Posts a payload with a delivery id of one's own.
    #[track_caller]
    pub fn deliver(&self, event: &str, delivery: &str, payload: &Value) -> (u16, String) {
        let body = payload.to_string();
        let signature = sign(SECRET, body.as_bytes());
        let headers = [
            ("Content-Type", "application/json"),
            ("User-Agent", "GitHub-Hookshot/044aadd"),
            ("X-GitHub-Hook-ID", "292430182"),
            ("X-GitHub-Event", event),
            ("X-GitHub-Delivery", delivery),
            ("X-Hub-Signature-256", &signature),
        ];
        self.deliver_raw(&headers, body.as_bytes()).expect("an answer")
    }

    /// Posts what it is given, with no header of its own but the length. The answer's status and text.
    pub fn deliver_raw(&self, headers: &[(&str, &str)], body: &[u8]) -> Result<(u16, String), Undelivered> {
        let mut request = self.http.post(&self.url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = request.send(body).map_err(Box::new)?;
        Ok((response.status().as_u16(), response.body_mut().read_to_string().map_err(Box::new)?))
    }

    /// Gets another path of the server, such as `/healthz`.
    pub fn get(&self, path: &str) -> Result<(u16, String), Undelivered> {
        let url = url::Url::parse(&self.url).and_then(|url| url.join(path)).expect("a URL");
        let mut response = self.http.get(url.as_str()).call().map_err(Box::new)?;
        Ok((response.status().as_u16(), response.body_mut().read_to_string().map_err(Box::new)?))
    }

    /// A command of the program on this machine, not yet run.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_the-loop"));
        command.arg("--state-dir").arg(self.path("state")).arg("--config").arg(self.path("config.toml"));
        self.prepare(&mut command);
        command.args(args);
        command
    }

    /// Any other program on this machine, not yet run.
    pub fn program(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        self.prepare(&mut command);
        command
    }

    fn prepare(&self, command: &mut Command) {
        let system = std::env::var("PATH").unwrap_or_default();
        command.current_dir(self.path("work")).stdin(Stdio::null()).env_clear();
        command.env("PATH", format!("{}:{system}", self.path("bin").display())).env("HOME", self.path("home"));
        command.env("THE_LOOP_GH_WEBHOOK_SECRET", SECRET).env("NO_COLOR", "1").env("LANG", "C.UTF-8");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
    }

    /// Runs a command to its end, however that is.
    pub fn cli(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("a command")
    }

    /// Runs a command that must succeed, and gives its standard output.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        let done = self.cli(args);
        assert!(done.status.success(), "{args:?}: {}: {}", done.status, String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("UTF-8")
    }

    /// What a command prints with `--json`.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        let text = self.ok(&[args, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?} printed no JSON: {error}: {text}"))
    }

    /// Registers a session that works in `work`.
    #[track_caller]
    pub fn register(&self, work_item: &str, harness: &str, session_id: &str) {
        self.register_in(work_item, harness, session_id, &self.path("work"));
    }

    /// Registers a session that works in `cwd`.
    #[track_caller]
    pub fn register_in(&self, work_item: &str, harness: &str, session_id: &str, cwd: &Path) {
        let cwd = cwd.display().to_string();
        self.ok(&["sessions", "register", work_item, "--harness", harness, "--session-id", session_id, "--cwd", &cwd]);
    }

    /// The row of `deliveries list` for a delivery, once it has been decided.
    #[track_caller]
    pub fn decided(&self, delivery: &str) -> Value {
        wait_for(&format!("{delivery} is decided"), || {
            let rows = self.json(&["deliveries", "list", "--limit", "100000"]);
            let rows = rows.as_array().expect("rows");
            rows.iter().find(|row| row["delivery"] == delivery && row["outcome"] != "pending").cloned()
        })
    }

    /// Every turn, oldest first.
    #[track_caller]
    pub fn turns(&self) -> Vec<Value> {
        let mut turns = self.json(&["turns", "list", "--limit", "100000"]).as_array().expect("turns").clone();
        turns.reverse();
        turns
    }

    /// Waits until so many turns are over, and gives all turns.
    #[track_caller]
    pub fn ended_turns(&self, count: usize) -> Vec<Value> {
        let mut turns = Vec::new();
        wait_until(&format!("{count} turns end"), || {
            turns = self.turns();
            turns.iter().filter(|turn| turn["state"] != "running").count() >= count
        });
        turns
    }

    /// How the stubs were called so far.
    pub fn calls(&self) -> Vec<Call> {
        Call::all(&self.path(""))
    }

    /// Everything that the stubs were told so far.
    pub fn prompts(&self) -> String {
        self.calls().iter().map(Call::prompt).collect()
    }

    /// Waits until a stub was told of this.
    #[track_caller]
    pub fn wait_told(&self, text: &str) {
        wait_until(&format!("`{text}` is told"), || self.prompts().contains(text));
    }

    /// Waits until stubs were called so often, and gives all calls.
    #[track_caller]
    pub fn wait_calls(&self, count: usize) -> Vec<Call> {
        wait_for(&format!("{count} calls"), || Some(self.calls()).filter(|calls| calls.len() >= count))
    }

    /// Makes every stub wait, after it has been called, until [`release`](Self::release).
    pub fn hold(&self) {
        fs::write(self.path("hold"), "").expect("hold");
    }

    /// Lets held stubs go on.
    pub fn release(&self) {
        fs::remove_file(self.path("hold")).expect("release");
    }

    /// Shell lines that the stub of this name runs before it answers, such as `echo sorry >&2; exit 1`.
    pub fn plan(&self, name: &str, lines: &str) {
        let next = self.path("plan").join(format!(".{name}"));
        fs::write(&next, lines).expect("a plan");
        fs::rename(next, self.path("plan").join(name)).expect("the plan");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.kill());
            drop(process.wait());
        }
        // Turns outlive their server by design; those of a test end with it.
        for turn in fs::read_dir(self.path("state/turns")).into_iter().flatten().flatten() {
            if let Ok(true) = the_loop::harness::cancel(&turn.path()) {
                drop(the_loop::harness::wait(&turn.path()));
            }
        }
        if std::thread::panicking() {
            eprintln!("--- the server's log\n{}", self.log());
        }
    }
}

fn signal(process: &Child, signal: rustix::process::Signal) {
    let pid = i32::try_from(process.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a process id");
    rustix::process::kill_process(pid, signal).expect("signalled");
}

/// The value of `X-Hub-Signature-256`, made by other code than the program's own.
pub fn sign(secret: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key of any length");
    mac.update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}
