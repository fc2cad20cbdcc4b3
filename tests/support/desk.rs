//! A desk with a real agent program: a conversation that was begun by hand, and a server that wakes it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::Value;

use super::model::{Asked, Model};
use super::{Server, npm, payloads, wait_for};

const CLAUDE: (&str, &str) = ("@anthropic-ai/claude-code", "2.1.332");
const CODEX: (&str, &str) = ("@openai/codex", "0.171.0");

/// The work item that the conversation waits for.
pub const ITEM: &str = "octo-org/demo#15";
/// What a person told it first.
pub const SECRET_WORD: &str = "The secret word is ZEBRA.";

/// A machine with a real agent program, a model, and a conversation that was begun by hand and waits for news.
pub struct Desk {
    /// What the program asks.
    pub model: Model,
    /// What wakes it.
    pub server: Server,
    /// `claude` or `codex`.
    pub harness: &'static str,
    /// The conversation's id.
    pub session: String,
    program: PathBuf,
}

impl Desk {
    /// With Claude Code; `None`, after a notice, where it cannot be had.
    pub fn with_claude() -> Option<Self> {
        Self::with_claude_and("")
    }

    /// The same with more configuration: first keys of `[harness.claude]`, then tables.
    pub fn with_claude_and(more: &str) -> Option<Self> {
        let package = npm::package(CLAUDE.0, CLAUDE.1)?;
        // The package's own `claude` is put in place by an install script; the program lies beside it.
        let mut desk = Self::new("claude", beside(&package, "claude-code-", "claude"), more);
        for (name, value) in [
            ("ANTHROPIC_BASE_URL", desk.model.url().as_str()),
            ("ANTHROPIC_API_KEY", "sk-ant-none"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
        ] {
            desk.server.set_env(name, value);
        }
        let said = desk.by_hand(&["-p", "--output-format", "json"], SECRET_WORD);
        let result: Value = serde_json::from_str(&said).expect(&said);
        Some(desk.waiting(result["session_id"].as_str().expect("an id")))
    }

    /// With codex; `None`, after a notice, where it cannot be had.
    pub fn with_codex() -> Option<Self> {
        Self::with_codex_and("")
    }

    /// The same with more configuration: first keys of `[harness.codex]`, then tables.
    pub fn with_codex_and(more: &str) -> Option<Self> {
        let package = npm::package(CODEX.0, CODEX.1)?;
        let program = package.join("../../.bin/codex").canonicalize().expect("codex");
        let mut desk = Self::new("codex", program, more);
        let home = desk.server.path("home/.codex");
        fs::create_dir(&home).expect("codex's home");
        let config = format!(
            "model = \"none\"\nmodel_provider = \"none\"\n[model_providers.none]\nname = \"none\"\n\
             base_url = \"{}/v1\"\nenv_key = \"NO_KEY\"\nwire_api = \"responses\"\n\
             stream_max_retries = 0\nrequest_max_retries = 1\n",
            desk.model.url()
        );
        fs::write(home.join("config.toml"), config).expect("config.toml");
        desk.server.set_env("NO_KEY", "none");
        let said = desk.by_hand(&["exec", "--json", "--skip-git-repo-check", "-"], SECRET_WORD);
        let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        let thread = lines.iter().find(|line| line["type"] == "thread.started").expect("a thread");
        Some(desk.waiting(thread["thread_id"].as_str().expect("an id")))
    }

    fn new(harness: &'static str, program: PathBuf, more: &str) -> Self {
        let config = format!(
            "[routing]\ndebounce = \"10ms\"\n[dispatch]\nretry_backoff = \"100ms\"\nkill_grace = \"10s\"\n\
             [harness.{harness}]\ncommand = \"{}\"\n{more}",
            program.display()
        );
        let mut server = Server::new(&config);
        // Whatever is not on loopback has nowhere to go.
        for name in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"] {
            server.set_env(name, "http://127.0.0.1:9");
        }
        server.set_env("NO_PROXY", "127.0.0.1");
        Self { model: Model::start(), server, harness, session: String::new(), program }
    }

    fn waiting(mut self, session: &str) -> Self {
        self.session = session.into();
        self.server.register(ITEM, self.harness, session);
        self.server.serve(&[]);
        self
    }

    /// Starts the program as a person does, with the prompt on its standard input.
    pub fn start_by_hand(&self, args: &[&str], prompt: &str) -> Child {
        let mut command = self.server.program(&self.program);
        let command = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program");
        child.stdin.take().expect("its input").write_all(prompt.as_bytes()).expect("the prompt");
        child
    }

    /// Runs the program as a person does, and gives what it prints.
    pub fn by_hand(&self, args: &[&str], prompt: &str) -> String {
        let done = self.start_by_hand(args, prompt).wait_with_output().expect("its output");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success(), "{}: {said} {}", done.status, String::from_utf8_lossy(&done.stderr));
        said
    }

    /// Delivers a comment.
    pub fn comment(&self, delivery: &str, text: &str) {
        let (status, answer) = self.server.deliver("issue_comment", delivery, &payloads::issue_comment(15, text));
        assert_eq!(status, 202, "{answer}");
    }

    /// Waits until the last turn has this state; that turn.
    pub fn last_turn(&self, state: &str) -> Value {
        wait_for(&format!("the last turn is {state}"), || {
            self.server.turns().pop().filter(|turn| turn["state"] == state)
        })
    }

    /// Delivers a comment and waits for its turn to end well; the turn.
    pub fn tell(&self, delivery: &str, text: &str) -> Value {
        let before = self.server.turns().len();
        self.comment(delivery, text);
        let turn = self.server.ended_turns(before + 1).pop().expect("a turn");
        assert_eq!(turn["state"], "succeeded", "{turn}");
        assert_eq!((&turn["deliveries"][0], &turn["session_id"]), (&delivery.into(), &self.session.as_str().into()));
        turn
    }

    /// What the session's row says now.
    pub fn row(&self) -> Value {
        self.server.json(&["sessions", "show", ITEM])
    }

    /// The conversation is one: its last request holds `said` in order, and no request has lost what an earlier one held.
    pub fn check_conversation(&self, said: &[&str]) {
        let asked = self.model.asked();
        let heard = |asked: &Asked| asked.said.iter().map(|text| words(text)).collect::<Vec<_>>();
        let all: Vec<_> = asked.iter().map(heard).collect();
        let said: Vec<_> = said.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(all.last(), Some(&said));
        for (earlier, later) in all.iter().zip(all.iter().skip(1)) {
            assert!(later.starts_with(earlier), "{earlier:#?} is lost in {later:#?}");
        }
        assert!(asked.iter().all(|asked| asked.conversation.as_ref() == Some(&self.session)), "{asked:#?}");
    }
}

/// The words of a message: of ours, the comment that it tells.
fn words(text: &str) -> String {
    let data = text.split_once("-----BEGIN DATA ").and_then(|(_, rest)| rest.split_once("-----\n"));
    let Some((facts, _)) = data.and_then(|(_, rest)| rest.split_once("\n-----END DATA ")) else { return text.into() };
    assert!(text.starts_with("the-loop: news for your session on "), "{text}");
    let facts: Value = serde_json::from_str(facts).expect(facts);
    facts["comment.body"].as_str().expect("a comment").into()
}

/// A program of the platform's package, which lies beside `package` under a name that begins with `prefix`.
fn beside(package: &Path, prefix: &str, program: &str) -> PathBuf {
    let siblings = fs::read_dir(package.parent().expect("a scope")).expect("packages");
    let platform = siblings.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    platform.expect("a package for this platform").path().join(program)
}
