//! `turns list|show|cancel`: what was run, when, with what result.

use std::path::Path;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Serialize;

use super::args::Json;
use super::context::Context;
use super::failure::{Exit, Failure};
use super::printer::{Column, relative};
use crate::domain::{FailureKind, SessionKey, Turn, TurnId, TurnState};
use crate::engine::turn_dir;
use crate::harness;
use crate::store::{Access, Db, TurnFilter};

/// `the-loop turns …`
#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// List turns, newest first
    List(List),
    /// Show one turn: what it was told, what it printed, how it ended
    Show(One),
    /// End a running turn with all its processes; what it was told counts as failed
    Cancel(One),
}

/// `the-loop turns list`
#[derive(Args, Debug)]
pub(super) struct List {
    /// Only those in this state: running, succeeded, failed, timed_out, interrupted or cancelled
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only those of this work item's session
    #[arg(long, value_name = "REF")]
    work_item: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    json: Json,
}

/// The turn that a command is about.
#[derive(Args, Debug)]
pub(super) struct One {
    /// The turn's number
    #[arg(value_name = "TURN")]
    turn: i64,
    #[command(flatten)]
    json: Json,
}

/// One turn in JSON; scripts rely on these names.
#[derive(Serialize, Debug)]
pub(super) struct Row {
    turn: TurnId,
    work_item: String,
    harness: String,
    session_id: String,
    cwd: String,
    pub(super) state: TurnState,
    attempt: u32,
    pub(super) started_at: Timestamp,
    ended_at: Option<Timestamp>,
    exit_code: Option<i32>,
    error: Option<String>,
    failure: Option<FailureKind>,
    deliveries: Vec<String>,
    cost_usd: Option<f64>,
    session_cost_usd: Option<f64>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    last_words: Option<String>,
}

impl Row {
    pub(super) fn new(db: &Db, turn: Turn) -> Result<Self, Failure> {
        Ok(Self {
            deliveries: db.delivery_ids_of(turn.id)?,
            turn: turn.id,
            work_item: turn.work_item.to_string(),
            harness: turn.harness,
            session_id: turn.session_id,
            cwd: turn.cwd,
            state: turn.state,
            attempt: turn.attempt,
            started_at: turn.started_at,
            ended_at: turn.ended_at,
            exit_code: turn.exit_code,
            error: turn.error,
            failure: turn.failure,
            cost_usd: turn.usage.cost_usd,
            session_cost_usd: turn.usage.session_cost_usd,
            input_tokens: turn.usage.input_tokens,
            output_tokens: turn.usage.output_tokens,
            last_words: turn.last_words,
        })
    }

    pub(super) fn took(&self, now: Timestamp) -> String {
        let took = self.ended_at.unwrap_or(now).duration_since(self.started_at);
        let seconds = took.as_millis() as f64 / 1000.0;
        if seconds < 120.0 { format!("{seconds:.1} s") } else { format!("{:.0} min", seconds / 60.0) }
    }
}

pub(super) fn run(context: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list(context, &args),
        Command::Show(one) => show(context, &one),
        Command::Cancel(one) => cancel(context, &one),
    }
}

fn list(context: &Context, args: &List) -> Result<(), Failure> {
    let state = match &args.state {
        None => None,
        Some(word) => Some(TurnState::from_word(word).ok_or_else(|| {
            Failure::new(Exit::Usage, format!("`{word}` is not a state of turns"))
                .hint("it is one of running, succeeded, failed, timed_out, interrupted, cancelled")
        })?),
    };
    let item = args.work_item.as_ref().map(|text| context.work_item(text, &context.cwd)).transpose()?;
    let filter = TurnFilter { state, session: item.map(|item| SessionKey(item.key())), limit: args.limit };
    let state_dir = context.state_dir()?;
    let mut rows = Vec::new();
    if Db::exists(&state_dir) {
        let db = Db::open(&state_dir, Access::Read)?;
        for turn in db.list_turns(&filter)? {
            rows.push(Row::new(&db, turn)?);
        }
    }
    let now = Timestamp::now();
    context.printer.list(
        &rows,
        args.json.json,
        "no turn has been run yet",
        &[
            (Column::Whole("TURN"), &|row| row.turn.to_string()),
            (Column::Whole("STARTED"), &|row| relative(row.started_at, now)),
            (Column::Whole("WORK ITEM"), &|row| row.work_item.clone()),
            (Column::Whole("HARNESS"), &|row| row.harness.clone()),
            (Column::Whole("STATE"), &|row| row.state.as_str().to_owned()),
            (Column::Whole("TOOK"), &|row| row.took(now)),
            (Column::Whole("COST"), &|row| row.cost_usd.map_or_else(|| "-".into(), |usd| format!("${usd:.4}"))),
            (Column::Prose("RESULT"), &|row| {
                row.error
                    .clone()
                    .or_else(|| row.last_words.clone())
                    .map_or_else(|| "-".into(), |text| first_line(&text))
            }),
        ],
    )
}

fn first_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if line.chars().count() > 100 { line.chars().take(99).chain(['…']).collect() } else { line.to_owned() }
}

fn find(context: &Context, one: &One) -> Result<(Db, Turn), Failure> {
    let none = || {
        Failure::new(Exit::NotFound, format!("there is no turn {}", one.turn))
            .hint("see what there is: the-loop turns list")
    };
    let state_dir = context.state_dir()?;
    if !Db::exists(&state_dir) {
        return Err(none());
    }
    let db = Db::open(&state_dir, Access::Read)?;
    let turn = db.turn(TurnId(one.turn))?.ok_or_else(none)?;
    Ok((db, turn))
}

fn show(context: &Context, one: &One) -> Result<(), Failure> {
    let (db, turn) = find(context, one)?;
    let dir = turn_dir(&context.state_dir()?, turn.id);
    let row = Row::new(&db, turn)?;
    let read = |name: &str| read_file(&dir.join(name));
    if one.json.json {
        let mut value = serde_json::to_value(&row).map_err(|error| Failure::from_error(Exit::Failed, &error))?;
        if let Some(object) = value.as_object_mut() {
            for name in ["prompt", "stdout", "stderr"] {
                object.insert(name.into(), read(name).into());
            }
        }
        return context.printer.json(&value);
    }
    let now = Timestamp::now();
    let p = context.printer;
    let cost = match (row.cost_usd, row.session_cost_usd) {
        (Some(own), Some(all)) => Some(format!("${own:.4} (the conversation so far: ${all:.4})")),
        (None, Some(all)) => Some(format!("unknown (the conversation so far: ${all:.4})")),
        (Some(own), None) => Some(format!("${own:.4}")),
        (None, None) => None,
    };
    let tokens =
        row.input_tokens.zip(row.output_tokens).map(|(read, written)| format!("{read} read, {written} written"));
    let fields = [
        ("turn", Some(row.turn.to_string())),
        ("work item", Some(row.work_item.clone())),
        ("harness", Some(format!("{}, session {}", row.harness, row.session_id))),
        ("directory", Some(row.cwd.clone())),
        ("state", Some(row.state.as_str().to_owned())),
        ("attempt", Some(row.attempt.to_string())),
        ("started", Some(format!("{} ({})", row.started_at, relative(row.started_at, now)))),
        ("took", Some(row.took(now))),
        ("exit code", row.exit_code.map(|code| code.to_string())),
        ("error", row.error.clone()),
        ("cost", cost),
        ("tokens", tokens),
        ("deliveries", Some(row.deliveries.join(", "))),
        ("files", Some(dir.display().to_string())),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            p.line(&format!("{:<12} {value}", format!("{name}:")))?;
        }
    }
    for (title, text) in [
        ("told", read("prompt")),
        ("last words", row.last_words.clone()),
        ("stdout", read("stdout")),
        ("stderr", read("stderr")),
    ] {
        if let Some(text) = text.filter(|text| !text.trim().is_empty()) {
            p.line(&format!("\n--- {title} ---"))?;
            p.line(text.trim_end())?;
        }
    }
    Ok(())
}

/// A file of the turn's directory, as text; `None` where it is not there (any more).
fn read_file(path: &Path) -> Option<String> {
    std::fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn cancel(context: &Context, one: &One) -> Result<(), Failure> {
    let (_, turn) = find(context, one)?;
    let dir = turn_dir(&context.state_dir()?, turn.id);
    let running = turn.state == TurnState::Running
        && harness::cancel(&dir).map_err(|error| Failure::from_error(Exit::Failed, &error))?;
    if !running {
        return Err(Failure::new(
            Exit::Failed,
            format!("turn {} does not run: it is {}", turn.id, turn.state.as_str()),
        ));
    }
    context.printer.line(&format!("turn {} is being ended; its deliveries will be listed as failed", turn.id))
}
