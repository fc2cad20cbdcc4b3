//! `demo`: the main job end to end on this machine, with the real server and the real path.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;
use uuid::Uuid;

use super::context::Context;
use super::failure::{Exit, Failure};
use super::samples;
use crate::clients;
use crate::domain::{Outcome, Secret, TurnState, WorkItem};
use crate::engine::turn_dir;
use crate::store::{Access, Db, DeliveryRow};

/// The work item of the demonstration.
const ITEM: &str = "github:octo-org/demo#15";
/// The variable that holds the secret, in the server of the demonstration only.
const SECRET: &str = "THE_LOOP_GH_WEBHOOK_SECRET";
/// How long anything may take, a real agent's turn included.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often the store is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// `the-loop demo`
#[derive(Args, Debug)]
pub(super) struct Demo {
    /// The agent to wake: the demonstration's own, or the real claude (which needs to be signed in, and costs a few cents)
    #[arg(long, value_name = "NAME", default_value = "demo", value_parser = ["demo", "claude"])]
    harness: String,
}

/// `the-loop demo-harness ID`: the agent of the demonstration. It reads what it is told and says so.
pub(super) fn harness(context: &Context, session_id: &str) -> Result<(), Failure> {
    let mut told = String::new();
    std::io::stdin()
        .read_to_string(&mut told)
        .map_err(|error| Failure::new(Exit::Failed, format!("failed to read what I was told: {error}")))?;
    context
        .printer
        .line(&format!("(I am conversation {session_id}, resumed in {}. I was told:)", context.cwd.display()))?;
    context.printer.line(&told)
}

pub(super) fn run(context: &Context, demo: &Demo) -> Result<(), Failure> {
    let stage = Stage::set(context, &demo.harness)?;
    let outcome = stage.play();
    stage.clear();
    outcome
}

/// The demonstration's own machine: a temporary directory, a secret and a server.
struct Stage<'a> {
    context: &'a Context,
    program: PathBuf,
    dir: tempfile::TempDir,
    harness: String,
    session_id: String,
    secret: Secret,
    server: std::cell::RefCell<Option<Child>>,
    began: Instant,
}

impl<'a> Stage<'a> {
    fn set(context: &'a Context, harness: &str) -> Result<Self, Failure> {
        let failed = |what: &str, error: std::io::Error| Failure {
            causes: vec![error.to_string()],
            ..Failure::new(Exit::Failed, format!("failed to {what}"))
        };
        let program = std::env::current_exe().map_err(|error| failed("find our own program", error))?;
        let dir = tempfile::Builder::new()
            .prefix("the-loop-demo-")
            .tempdir()
            .map_err(|error| failed("make a temporary directory", error))?;
        std::fs::create_dir(dir.path().join("work")).map_err(|error| failed("make a directory to work in", error))?;
        // Text in TOML's basic strings is escaped as in JSON.
        let command = Value::String(program.to_string_lossy().into_owned());
        let config = format!(
            "[routing]\ndebounce = \"200ms\"\n\n[harness.demo]\ncommand = {command}\nresume = [\"demo-harness\", \"{{session_id}}\"]\n"
        );
        std::fs::write(dir.path().join("config.toml"), config)
            .map_err(|error| failed("write a configuration", error))?;
        Ok(Self {
            context,
            program,
            dir,
            harness: harness.to_owned(),
            session_id: Uuid::new_v4().to_string(),
            secret: Secret::new(SECRET, Uuid::new_v4().simple().to_string()),
            server: std::cell::RefCell::new(None),
            began: Instant::now(),
        })
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    fn play(&self) -> Result<(), Failure> {
        self.tell("the-loop demo: a signed GitHub delivery wakes a waiting agent session, once")?;
        if self.harness == "claude" {
            self.begin_conversation()?;
        }
        let url = self.serve()?;
        self.tell(&format!("server   started on {url}, with a secret of its own"))?;
        self.register()?;
        let item = WorkItem::parse(ITEM).map_err(|error| Failure::from_error(Exit::Failed, &error))?;
        let comment = sample("issue_comment", &item)?;

        let forged = Secret::new("forged", "a guess");
        let answer = self.post(&url, &forged, "issue_comment", &Uuid::new_v4().to_string(), &comment)?;
        self.tell(&format!("forged   a comment signed with another secret: {answer}"))?;

        let delivery = Uuid::new_v4().to_string();
        let answer = self.post(&url, &self.secret, "issue_comment", &delivery, &comment)?;
        self.tell(&format!("comment  on issue 15, signed, delivery {delivery}: {answer}"))?;
        let answer = self.post(&url, &self.secret, "issue_comment", &delivery, &comment)?;
        self.tell(&format!("again    the same delivery: {answer}"))?;
        let first = self.wait_for(&delivery)?;

        let mut stranger = sample("issue_comment", &item)?;
        for person in ["/sender/login", "/comment/user/login"] {
            if let Some(login) = stranger.pointer_mut(person) {
                *login = "mallory".into();
            }
        }
        if let Some(association) = stranger.pointer_mut("/comment/author_association") {
            *association = "NONE".into();
        }
        let delivery = Uuid::new_v4().to_string();
        let answer = self.post(&url, &self.secret, "issue_comment", &delivery, &stranger)?;
        self.tell(&format!("stranger comments too, delivery {delivery}: {answer}"))?;
        self.wait_for(&delivery)?;

        let delivery = Uuid::new_v4().to_string();
        let answer = self.post(&url, &self.secret, "workflow_run", &delivery, &sample("workflow_run", &item)?)?;
        self.tell(&format!("CI       failed, delivery {delivery}: {answer}"))?;
        self.wait_for(&delivery)?;

        self.tell("what the agent was told by the first turn:")?;
        self.show_turn(&first)?;
        self.tell("done: two turns, each in the session's directory; nothing else ran")
    }

    /// A first turn with the real agent, so that there is a conversation to resume.
    fn begin_conversation(&self) -> Result<(), Failure> {
        self.tell(&format!("claude   begins conversation {} (a real one)", self.session_id))?;
        let output = Command::new("claude")
            .args(["-p", "--session-id", &self.session_id])
            .arg("You wait for news on issue 15. Say that you wait, in one line, and end your turn.")
            .current_dir(self.work())
            .stdin(Stdio::null())
            .output()
            .map_err(|error| {
                Failure { causes: vec![error.to_string()], ..Failure::new(Exit::Failed, "failed to run `claude`") }
                    .hint("install Claude Code and sign in, or run the demonstration without --harness")
            })?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Failure { causes: vec![said, why], ..Failure::new(Exit::Failed, "claude did not begin") });
        }
        self.tell(&format!("claude   says: {said}"))
    }

    /// Starts the real server and gives the address that it prints.
    fn serve(&self) -> Result<String, Failure> {
        let log = std::fs::File::create(self.dir.path().join("server.log"));
        let mut command = self.command(&["gh-webhook", "serve", "--port", "0"]);
        command.env(SECRET, String::from_utf8_lossy(self.secret.expose()).as_ref());
        command.stdout(Stdio::piped()).stdin(Stdio::null()).stderr(log.map_or_else(|_| Stdio::null(), Stdio::from));
        let failed =
            |error: &dyn std::fmt::Display| Failure::new(Exit::Failed, format!("failed to start the server: {error}"));
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let stdout = child.stdout.take();
        *self.server.borrow_mut() = Some(child);
        let mut line = String::new();
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut line).map_err(|error| failed(&error))?;
        }
        line.trim().strip_prefix("listening on ").map(str::to_owned).ok_or_else(|| {
            failed(&std::fs::read_to_string(self.dir.path().join("server.log")).unwrap_or_default().trim())
        })
    }

    fn register(&self) -> Result<(), Failure> {
        let work = self.work();
        let mut command = self.command(&["sessions", "register", ITEM, "--harness", &self.harness]);
        let output = command
            .args(["--session-id", &self.session_id, "--cwd"])
            .arg(&work)
            .output()
            .map_err(|error| Failure::new(Exit::Failed, format!("failed to register the session: {error}")))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Failure { causes: vec![why], ..Failure::new(Exit::Failed, "failed to register the session") });
        }
        self.tell(&format!("session  {}", String::from_utf8_lossy(&output.stdout).trim()))
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--state-dir").arg(self.state()).arg("--config").arg(self.dir.path().join("config.toml"));
        command.args(words);
        command
    }

    fn post(&self, url: &str, secret: &Secret, event: &str, delivery: &str, body: &Value) -> Result<String, Failure> {
        let answer = clients::send(url, secret, event, delivery, body.to_string().as_bytes())
            .map_err(|error| Failure::from_error(Exit::Failed, &error))?;
        Ok(format!("{} {}", answer.status, answer.text.trim()))
    }

    /// Waits until a delivery has an outcome, telling each step on the way.
    fn wait_for(&self, delivery: &str) -> Result<DeliveryRow, Failure> {
        let mut last = None;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let db = Db::open(&self.state(), Access::Read)?;
            let row = match db.find_delivery(delivery)? {
                Some(seq) => db.delivery_row(seq)?,
                None => None,
            };
            let Some(row) = row else {
                return Err(Failure::new(Exit::Failed, format!("delivery {delivery} was not kept")));
            };
            if last != Some(row.outcome) {
                last = Some(row.outcome);
                self.tell(&format!("         {}: {}", row.outcome, row.reason))?;
            }
            match row.outcome {
                Outcome::Pending | Outcome::Queued if Instant::now() < deadline => std::thread::sleep(LOOK),
                Outcome::Delivered | Outcome::Filtered => return Ok(row),
                _ => {
                    return Err(Failure::new(
                        Exit::Failed,
                        format!("delivery {delivery} is {}: {}", row.outcome, row.reason),
                    ));
                }
            }
        }
    }

    /// What the turn of a delivery was told, and what the agent said.
    fn show_turn(&self, row: &DeliveryRow) -> Result<(), Failure> {
        let db = Db::open(&self.state(), Access::Read)?;
        let Some(turn) = db.notices_of(row.seq)?.first().and_then(|notice| notice.turn) else {
            return Err(Failure::new(Exit::Failed, "the delivery has no turn"));
        };
        let state = db.turn(turn)?.map(|turn| (turn.state, turn.last_words));
        let Some((TurnState::Succeeded, words)) = state else {
            return Err(Failure::new(Exit::Failed, format!("turn {turn} did not succeed")));
        };
        let dir = turn_dir(&self.state(), turn);
        let told = std::fs::read_to_string(dir.join("stdout")).unwrap_or_default();
        let text = if self.harness == "claude" { words.unwrap_or_default() } else { told };
        text.lines().try_for_each(|line| self.context.printer.line(&format!("    {line}")))
    }

    /// One line of the timeline.
    fn tell(&self, text: &str) -> Result<(), Failure> {
        self.context.printer.line(&format!("{:7.3} s  {text}", self.began.elapsed().as_secs_f64()))
    }

    /// Ends the server; the directory goes with the stage.
    fn clear(&self) {
        if let Some(mut server) = self.server.borrow_mut().take() {
            let asked = i32::try_from(server.id())
                .ok()
                .and_then(rustix::process::Pid::from_raw)
                .is_some_and(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM).is_ok());
            let ended = if asked { server.wait() } else { server.kill().and_then(|()| server.wait()) };
            if let Err(error) = ended {
                self.context.printer.warning(&format!("the server of the demonstration could not be ended: {error}"));
            }
        }
    }
}

fn sample(event: &str, item: &WorkItem) -> Result<Value, Failure> {
    samples::payload(event, item).ok_or_else(|| Failure::new(Exit::Failed, format!("there is no sample of {event}")))
}
