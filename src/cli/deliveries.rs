//! `deliveries list|show|explain|replay|drop`: the journal from outside.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::json;

use super::args::Json;
use super::context::Context;
use super::failure::{Exit, Failure};
use super::printer::{Column, relative};
use super::{backfill, explain, poke};
use crate::domain::{DeliverySeq, NoticeState, Outcome};
use crate::store::{Access, Db, DeliveryFilter, DeliveryRow};

/// `the-loop deliveries …`
#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// List deliveries, newest first
    List(List),
    /// Show one delivery: what it says and what became of it
    Show(Show),
    /// Say, step by step, why a delivery goes where it goes
    Explain(One),
    /// Tell the sessions of a delivery once more
    Replay(One),
    /// Take in what GitHub's webhook sent while no server could take it
    Backfill(backfill::Backfill),
    /// Give up what still waits or has failed of a delivery
    Drop(One),
}

/// `the-loop deliveries list`
#[derive(Args, Debug)]
pub(super) struct List {
    /// Only those with this outcome: pending, unmatched, filtered, queued, delivered or failed
    #[arg(long, value_name = "OUTCOME")]
    outcome: Option<String>,
    /// Only those that concern this work item
    #[arg(long, value_name = "REF")]
    work_item: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    json: Json,
}

/// The delivery that a command is about.
#[derive(Args, Debug)]
pub(super) struct One {
    /// The delivery's id, or its number in the journal
    #[arg(value_name = "ID")]
    pub(super) id: String,
    #[command(flatten)]
    pub(super) json: Json,
}

/// `the-loop deliveries show`
#[derive(Args, Debug)]
pub(super) struct Show {
    #[command(flatten)]
    one: One,
    /// Print the payload as it was received
    #[arg(long, conflicts_with = "field")]
    body: bool,
    /// Print one field of the payload whole, such as comment.body
    #[arg(long, value_name = "PATH")]
    field: Option<String>,
}

pub(super) fn run(context: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list(context, &args),
        Command::Show(args) => show(context, &args),
        Command::Explain(one) => explain::run(context, &one),
        Command::Replay(one) => replay(context, &one),
        Command::Backfill(args) => backfill::run(context, &args),
        Command::Drop(one) => drop_delivery(context, &one),
    }
}

/// Opens the journal and finds the delivery that a person names.
pub(super) fn find(context: &Context, id: &str, access: Access) -> Result<(Db, DeliverySeq), Failure> {
    let state_dir = context.state_dir()?;
    let none = || {
        Failure::new(Exit::NotFound, format!("there is no delivery `{id}`"))
            .hint("see what there is: the-loop deliveries list")
    };
    if !Db::exists(&state_dir) {
        return Err(none());
    }
    let db = Db::open(&state_dir, access)?;
    let seq = db.find_delivery(id)?.ok_or_else(none)?;
    Ok((db, seq))
}

/// The row of a delivery that was just found.
pub(super) fn row(db: &Db, seq: DeliverySeq) -> Result<DeliveryRow, Failure> {
    db.delivery_row(seq)?.ok_or_else(|| Failure::new(Exit::NotFound, format!("delivery {seq} is not there any more")))
}

/// `issue_comment.created`
pub(super) fn title(row: &DeliveryRow) -> String {
    row.action.as_ref().map_or_else(|| row.event.clone(), |action| format!("{}.{action}", row.event))
}

fn list(context: &Context, args: &List) -> Result<(), Failure> {
    let outcome = match &args.outcome {
        None => None,
        Some(word) => Some(Outcome::from_word(word).ok_or_else(|| {
            Failure::new(Exit::Usage, format!("`{word}` is not an outcome"))
                .hint("it is one of pending, unmatched, filtered, queued, delivered, failed")
        })?),
    };
    let work_item = args.work_item.as_ref().map(|text| context.work_item(text, &context.cwd)).transpose()?;
    let state_dir = context.state_dir()?;
    let filter = DeliveryFilter { outcome, work_item, after: None, limit: args.limit };
    let rows =
        if Db::exists(&state_dir) { Db::open(&state_dir, Access::Read)?.list_deliveries(&filter)? } else { Vec::new() };
    let now = Timestamp::now();
    context.printer.list(
        &rows,
        args.json.json,
        "no delivery has come yet; try one: the-loop gh-webhook send --event ping",
        &[
            (Column::Whole("RECEIVED"), &|row| relative(row.received_at, now)),
            (Column::Whole("EVENT"), &|row| title(row)),
            (Column::Whole("REPOSITORY"), &|row| row.repository.clone().unwrap_or_else(|| "-".into())),
            (Column::Whole("OUTCOME"), &|row| row.outcome.to_string()),
            (Column::Whole("DELIVERY"), &|row| row.delivery.clone()),
            (Column::Prose("WHY"), &|row| row.reason.clone()),
        ],
    )
}

fn show(context: &Context, args: &Show) -> Result<(), Failure> {
    let (db, seq) = find(context, &args.one.id, Access::Read)?;
    if args.body || args.field.is_some() {
        return show_payload(context, &db, seq, args.field.as_deref());
    }
    let row = row(&db, seq)?;
    let notices = db.notices_of(seq)?;
    if args.one.json.json {
        let mut value = serde_json::to_value(&row).map_err(|error| Failure::from_error(Exit::Failed, &error))?;
        if let Some(object) = value.as_object_mut() {
            object.insert("notices".into(), json!(notices));
        }
        return context.printer.json(&value);
    }
    let items: Vec<_> = row.work_items.iter().map(ToString::to_string).collect();
    let fields = [
        ("delivery", row.delivery.clone()),
        ("event", title(&row)),
        ("repository", row.repository.clone().unwrap_or_else(|| "-".into())),
        ("received", format!("{} ({})", row.received_at, relative(row.received_at, Timestamp::now()))),
        ("source", row.source.clone()),
        ("size", format!("{} bytes", row.body_size)),
        ("work items", if items.is_empty() { "none".into() } else { items.join(", ") }),
        ("outcome", row.outcome.to_string()),
        ("because", row.reason.clone()),
    ];
    for (name, value) in fields {
        context.printer.line(&format!("{:<12} {value}", format!("{name}:")))?;
    }
    for notice in notices {
        let turn = notice.turn.map_or_else(String::new, |turn| format!(", turn {turn}"));
        let why = notice.reason.map_or_else(String::new, |reason| format!(": {reason}"));
        context.printer.line(&format!("told to {}: {}{turn}{why}", notice.session, notice.state))?;
    }
    context
        .printer
        .note(&format!("more: the-loop deliveries explain {0}, the-loop deliveries show {0} --body", row.delivery));
    Ok(())
}

fn show_payload(context: &Context, db: &Db, seq: DeliverySeq, field: Option<&str>) -> Result<(), Failure> {
    let delivery = db.delivery(seq)?.ok_or_else(|| {
        Failure::new(Exit::NotFound, "the payload has been let go")
            .hint("store.keep_for and store.keep_bodies say how long it is kept")
    })?;
    let Some(field) = field else { return context.printer.raw(&delivery.body) };
    let event = crate::payload::read(&delivery).map_err(|error| Failure::from_error(Exit::Failed, &error))?;
    match event.fact(field) {
        Some(serde_json::Value::String(text)) => context.printer.line(text),
        Some(value) => context.printer.json(value),
        None => {
            let names: Vec<_> = event.facts.iter().map(|fact| fact.name.as_str()).collect();
            Err(Failure::new(Exit::NotFound, format!("this delivery has no field `{field}`"))
                .hint(format!("it has {}", names.join(", "))))
        }
    }
}

fn replay(context: &Context, one: &One) -> Result<(), Failure> {
    let (db, seq) = find(context, &one.id, Access::Write)?;
    let told = [NoticeState::Failed, NoticeState::Delivered, NoticeState::Superseded, NoticeState::Dropped];
    let queued = db.transaction(|db| {
        let before = db.notices_of(seq)?.len();
        // A delivery that reached nobody is decided anew: a session may have been registered since.
        if before == 0 { db.undecide(seq).map(|()| None) } else { db.requeue(seq, &told).map(Some) }
    })?;
    poke::poke(&context.state_dir()?)?;
    let what = match queued {
        None => "it is decided anew",
        Some(0) => "it waits already",
        Some(_) => "it waits in its inbox again",
    };
    let row = row(&db, seq)?;
    if one.json.json {
        return context.printer.json(&row);
    }
    let server = crate::daemon::holder(&context.state_dir()?);
    let when = if server.is_some() { "" } else { "; no server runs now, the next one will tell it" };
    context.printer.line(&format!("delivery {}: {what}{when}", row.delivery))
}

fn drop_delivery(context: &Context, one: &One) -> Result<(), Failure> {
    let (db, seq) = find(context, &one.id, Access::Write)?;
    let dropped = db.transaction(|db| db.drop_notices(seq, "dropped by hand"))?;
    let row = row(&db, seq)?;
    if one.json.json {
        return context.printer.json(&row);
    }
    let what = if dropped == 0 { "nothing of it waits or has failed" } else { "it will not be told any more" };
    context.printer.line(&format!("delivery {}: {what}", row.delivery))
}
