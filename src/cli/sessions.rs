//! `sessions list`, `show`, `close`, `pause` and `resume`; `register` has its own file.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Serialize;

use super::args::{ItemArg, Json};
use super::context::Context;
use super::failure::{Exit, Failure};
use super::printer::{Column, relative};
use super::{links, poke, session_news, session_register};
use crate::domain::{Attention, Session, SessionStatus};
use crate::registry::{Damaged, Registry};

/// `the-loop sessions …`
#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Register an agent session for a work item
    Register(session_register::Register),
    /// List all sessions
    List(Json),
    /// Show one session
    Show(One),
    /// End a session: nothing wakes it any more
    Close(One),
    /// Let news for a session wait
    Pause(One),
    /// Wake a paused or held session again, at once where something waits
    Resume(One),
    /// Record that a pull request delivers a work item
    Link(links::LinkArgs),
}

/// The session that a command is about.
#[derive(Args, Debug)]
pub(super) struct One {
    #[command(flatten)]
    item: ItemArg,
    #[command(flatten)]
    json: Json,
}

/// What the store knows of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SessionNews {
    /// When something last came for it.
    pub(super) last_event_at: Option<Timestamp>,
    /// How many notices wait in its inbox.
    pub(super) pending: u64,
    /// Why its inbox waits though it is active.
    pub(super) held: Option<String>,
    /// What it needs a person for.
    pub(super) needs_attention: Option<Attention>,
}

/// One session in JSON; scripts rely on these names.
#[derive(Serialize, Debug)]
pub(super) struct Row {
    work_item: String,
    harness: String,
    session_id: String,
    cwd: PathBuf,
    status: SessionStatus,
    created_at: Timestamp,
    last_event_at: Option<Timestamp>,
    pending: u64,
    held: Option<String>,
    needs_attention: Option<String>,
    closed_reason: Option<String>,
}

impl Row {
    pub(super) fn new(session: &Session, news: &SessionNews) -> Self {
        let gone = session.is_open() && !session.cwd.is_dir();
        let gone = gone.then(|| Attention {
            reason: format!("its directory `{}` is missing", session.cwd.display()),
            mend: "bring it back, or register the session again with another --cwd and --force".into(),
        });
        Self {
            work_item: session.work_item.to_string(),
            harness: session.harness.clone(),
            session_id: session.session_id.clone(),
            cwd: session.cwd.clone(),
            status: session.status,
            created_at: session.created_at,
            last_event_at: news.last_event_at,
            pending: news.pending,
            held: news.held.clone(),
            needs_attention: news.needs_attention.clone().or(gone).map(|attention| attention.to_string()),
            closed_reason: session.closed_reason.clone(),
        }
    }

    /// The row as lines of `name: value`, without what has no value.
    fn lines(&self, now: Timestamp) -> Vec<(&'static str, String)> {
        let ago = |time: Timestamp| format!("{time} ({})", relative(time, now));
        let fields = [
            ("work item", Some(self.work_item.clone())),
            ("harness", Some(self.harness.clone())),
            ("session", Some(self.session_id.clone())),
            ("directory", Some(self.cwd.display().to_string())),
            ("status", Some(self.status.as_str().to_owned())),
            ("closed because", self.closed_reason.clone()),
            ("registered", Some(ago(self.created_at))),
            ("last event", Some(self.last_event_at.map_or_else(|| "none yet".into(), ago))),
            ("waiting", Some(self.pending.to_string())),
            ("held", self.held.clone()),
            ("needs you", self.needs_attention.clone()),
        ];
        fields.into_iter().filter_map(|(name, value)| value.map(|value| (name, value))).collect()
    }
}

pub(super) fn run(context: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::Register(register) => session_register::run(context, register),
        Command::List(json) => list(context, json),
        Command::Show(one) => show(context, &one),
        Command::Close(one) => close(context, &one),
        Command::Pause(one) => pause(context, &one),
        Command::Resume(one) => resume(context, &one),
        Command::Link(args) => links::link(context, &args),
    }
}

fn list(context: &Context, Json { json }: Json) -> Result<(), Failure> {
    let listing = context.registry()?.read()?;
    let news = session_news::news(context)?;
    let none = SessionNews::default();
    let rows: Vec<Row> =
        listing.sessions.iter().map(|session| Row::new(session, news.get(&session.key()).unwrap_or(&none))).collect();
    tell_damaged(context, &listing.damaged);
    let now = Timestamp::now();
    context.printer.list(
        &rows,
        json,
        "no session is registered; register one with: the-loop sessions register --help",
        &[
            (Column::Whole("WORK ITEM"), &|row| row.work_item.clone()),
            (Column::Whole("HARNESS"), &|row| row.harness.clone()),
            (Column::Whole("SESSION"), &|row| row.session_id.clone()),
            (Column::Whole("STATUS"), &|row| row.status.as_str().to_owned()),
            (Column::Whole("WAITING"), &|row| row.pending.to_string()),
            (Column::Whole("LAST EVENT"), &|row| {
                row.last_event_at.map_or_else(|| "-".into(), |time| relative(time, now))
            }),
            (Column::Prose("DIRECTORY"), &|row| row.cwd.display().to_string()),
        ],
    )?;
    if json {
        return Ok(());
    }
    for row in &rows {
        if let Some(held) = &row.held {
            context.printer.line(&format!("{} is held: {held}", row.work_item))?;
        }
        if let Some(attention) = &row.needs_attention {
            context.printer.line(&format!("{} needs you: {attention}", row.work_item))?;
        }
    }
    Ok(())
}

/// Names each file that was skipped. The others work, so that this is no failure; but it is not to be overlooked.
fn tell_damaged(context: &Context, damaged: &[Damaged]) {
    for Damaged { path, why } in damaged {
        context.printer.warning(&format!("`{}` {why}; its session is skipped until it is mended", path.display()));
    }
}

fn show(context: &Context, one: &One) -> Result<(), Failure> {
    let (registry, item) = (context.registry()?, context.work_item(one.item.text(), &context.cwd)?);
    let session = registry.find(&item)?.ok_or(crate::registry::Error::Unknown(item))?;
    answer(context, &session, one.json, None)
}

fn close(context: &Context, one: &One) -> Result<(), Failure> {
    change(context, one, |session| {
        if session.status == SessionStatus::Closed {
            return Ok("was closed already");
        }
        session.status = SessionStatus::Closed;
        session.closed_reason = Some("closed by hand".into());
        Ok("is closed: nothing wakes it any more")
    })
}

fn pause(context: &Context, one: &One) -> Result<(), Failure> {
    change(context, one, |session| {
        only_open(session)?;
        session.status = SessionStatus::Paused;
        Ok("is paused: news for it wait until it is resumed")
    })
}

fn resume(context: &Context, one: &One) -> Result<(), Failure> {
    change(context, one, |session| {
        only_open(session)?;
        session.status = SessionStatus::Active;
        Ok("is active: what waits for it is told now")
    })
}

fn only_open(session: &Session) -> Result<(), Failure> {
    if session.is_open() {
        return Ok(());
    }
    let item = &session.work_item;
    Err(Failure::new(Exit::Failed, format!("the session of `{item}` is closed"))
        .hint(format!("register it again: the-loop sessions register '{item}' --session-id {}", session.session_id)))
}

/// Changes a session on disk, tells a running server and then the person. `change` gives what to tell.
fn change(
    context: &Context,
    one: &One,
    change: impl FnOnce(&mut Session) -> Result<&'static str, Failure>,
) -> Result<(), Failure> {
    let item = context.work_item(one.item.text(), &context.cwd)?;
    let registry: Registry = context.registry()?;
    let mut told = Ok("");
    let session = registry.update(&item, |session| told = change(session))?;
    let told = told?;
    let state_dir = context.state_dir()?;
    match session.status {
        SessionStatus::Active => poke::resumed(&state_dir, &session.key())?,
        SessionStatus::Paused => poke::poke(&state_dir)?,
        SessionStatus::Closed => poke::closed(&state_dir, &session.key())?,
    }
    answer(context, &session, one.json, Some(told))
}

/// The session as JSON, as one line of what was done, or as its fields.
fn answer(context: &Context, session: &Session, Json { json }: Json, told: Option<&str>) -> Result<(), Failure> {
    if let (false, Some(told)) = (json, told) {
        let Session { work_item, harness, session_id, .. } = session;
        return context.printer.line(&format!("{work_item} ({harness} session {session_id}) {told}"));
    }
    let news = session_news::news(context)?;
    let row = Row::new(session, &news.get(&session.key()).cloned().unwrap_or_default());
    if json {
        return context.printer.json(&row);
    }
    row.lines(Timestamp::now())
        .into_iter()
        .try_for_each(|(name, value)| context.printer.line(&format!("{:<15} {value}", format!("{name}:"))))
}
