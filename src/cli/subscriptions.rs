//! `subscriptions list|show|drop`: who is posted what, and how the posting fares.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Serialize;

use super::args::Json;
use super::context::Context;
use super::failure::{Exit, Failure};
use super::poke;
use super::printer::{Column, relative};
use crate::catalogue;
use crate::domain::{Arguments, Subscription, SubscriptionId, SubscriptionState};
use crate::store::{Access, AttemptRow, Db};

/// How many attempts are shown.
const ATTEMPTS: usize = 20;

/// `the-loop subscriptions …`
#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// List subscriptions, oldest first
    List(Json),
    /// Show one subscription: what it wants, what it is owed, how the last posts went
    Show(One),
    /// End a subscription and tell its endpoint so
    Drop(One),
}

/// The subscription that a command is about.
#[derive(Args, Debug)]
pub(super) struct One {
    /// The subscription's id, or the beginning of it
    #[arg(value_name = "SUBSCRIPTION")]
    subscription: String,
    #[command(flatten)]
    json: Json,
}

/// One subscription in JSON; scripts rely on these names. Its secret is not among them.
#[derive(Serialize, Debug)]
struct Row {
    subscription: SubscriptionId,
    principal: String,
    event: String,
    arguments: Arguments,
    url: String,
    state: SubscriptionState,
    created_at: Timestamp,
    refreshed_at: Timestamp,
    expires_at: Option<Timestamp>,
    owed: u64,
    last_delivery_at: Option<Timestamp>,
    last_error: Option<String>,
    failed_since: Option<Timestamp>,
}

impl Row {
    fn new(db: &Db, s: Subscription) -> Result<Self, Failure> {
        Ok(Self {
            owed: db.count_owed(&s.id)?,
            subscription: s.id,
            principal: s.principal,
            event: s.name,
            arguments: s.arguments,
            url: s.url,
            state: s.state,
            created_at: s.created_at,
            refreshed_at: s.refreshed_at,
            expires_at: s.expires_at,
            last_delivery_at: s.last_delivery_at,
            last_error: s.last_error,
            failed_since: s.failed_since,
        })
    }

    /// How it fares, in a few words.
    fn fares(&self, now: Timestamp) -> String {
        if self.expires_at.is_some_and(|at| at <= now) {
            return "over".into();
        }
        match (self.state, self.failed_since, self.last_delivery_at) {
            (SubscriptionState::Ending, ..) => "ending".into(),
            (SubscriptionState::Suspended, ..) => {
                format!("suspended: {}", self.last_error.as_deref().unwrap_or("every attempt failed"))
            }
            (_, Some(since), _) => {
                format!("failing since {}: {}", relative(since, now), self.last_error.as_deref().unwrap_or("unknown"))
            }
            (_, None, Some(last)) => format!("well, last taken {}", relative(last, now)),
            (_, None, None) => "nothing posted yet".into(),
        }
    }
}

pub(super) fn run(context: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::List(json) => list(context, json),
        Command::Show(one) => show(context, &one),
        Command::Drop(one) => drop_one(context, &one),
    }
}

fn list(context: &Context, Json { json }: Json) -> Result<(), Failure> {
    let state_dir = context.state_dir()?;
    let mut rows = Vec::new();
    if Db::exists(&state_dir) {
        let db = Db::open(&state_dir, Access::Write)?;
        for subscription in db.subscriptions()? {
            rows.push(Row::new(&db, subscription)?);
        }
    }
    let now = Timestamp::now();
    context.printer.list(
        &rows,
        json,
        "nobody has subscribed yet",
        &[
            (Column::Whole("SUBSCRIPTION"), &|row| row.subscription.0.clone()),
            (Column::Whole("PRINCIPAL"), &|row| row.principal.clone()),
            (Column::Whole("EVENT"), &|row| row.event.clone()),
            (Column::Prose("ARGUMENTS"), &|row| catalogue::canonical(&row.arguments)),
            (Column::Prose("URL"), &|row| place(&row.url)),
            (Column::Whole("OWED"), &|row| row.owed.to_string()),
            (Column::Prose("STATE"), &|row| row.fares(now)),
        ],
    )
}

/// A callback without its query, which may hold a key.
fn place(url: &str) -> String {
    url.split_once('?').map_or_else(|| url.to_owned(), |(place, _)| format!("{place}?…"))
}

fn find(context: &Context, one: &One) -> Result<(Db, Subscription), Failure> {
    let none = || {
        Failure::new(Exit::NotFound, format!("there is no subscription {}", one.subscription))
            .hint("see what there is: the-loop subscriptions list")
    };
    let state_dir = context.state_dir()?;
    if !Db::exists(&state_dir) || one.subscription.is_empty() {
        return Err(none());
    }
    let db = Db::open(&state_dir, Access::Write)?;
    let mut found: Vec<_> =
        db.subscriptions()?.into_iter().filter(|known| known.id.0.starts_with(&one.subscription)).collect();
    match (found.pop(), found.len()) {
        (Some(only), 0) => Ok((db, only)),
        (None, _) => Err(none()),
        (Some(_), more) => {
            Err(Failure::new(Exit::Usage, format!("{} subscriptions begin with {}", more + 1, one.subscription)))
        }
    }
}

fn show(context: &Context, one: &One) -> Result<(), Failure> {
    let (db, subscription) = find(context, one)?;
    let attempts = db.attempts(&subscription.id, ATTEMPTS)?;
    let row = Row::new(&db, subscription)?;
    if one.json.json {
        let mut value = serde_json::to_value(&row).map_err(|error| Failure::from_error(Exit::Failed, &error))?;
        let attempts = serde_json::to_value(&attempts).map_err(|error| Failure::from_error(Exit::Failed, &error))?;
        if let Some(object) = value.as_object_mut() {
            object.insert("attempts".into(), attempts);
        }
        return context.printer.json(&value);
    }
    let now = Timestamp::now();
    let p = context.printer;
    let when = |at: Timestamp| format!("{at} ({})", relative(at, now));
    let fields = [
        ("subscription", row.subscription.0.clone()),
        ("principal", row.principal.clone()),
        ("event", row.event.clone()),
        ("arguments", catalogue::canonical(&row.arguments)),
        ("url", row.url.clone()),
        ("state", row.fares(now)),
        ("made", when(row.created_at)),
        ("refreshed", when(row.refreshed_at)),
        ("ends", row.expires_at.map_or_else(|| "never".into(), |at| at.to_string())),
        ("owed", row.owed.to_string()),
    ];
    for (name, value) in fields {
        p.line(&format!("{:<14} {value}", format!("{name}:")))?;
    }
    if attempts.is_empty() {
        return Ok(());
    }
    p.line("")?;
    let columns = [
        Column::Whole("POSTED"),
        Column::Whole("EVENT"),
        Column::Whole("ATTEMPT"),
        Column::Whole("STATUS"),
        Column::Whole("TOOK"),
        Column::Prose("RESULT"),
    ];
    let cells = |row: &AttemptRow| {
        vec![
            relative(row.at, now),
            row.event_id.clone(),
            row.attempt.to_string(),
            row.status.map_or_else(|| "-".into(), |status| status.to_string()),
            format!("{} ms", row.took_ms),
            row.error.clone().unwrap_or_else(|| "taken".into()),
        ]
    };
    p.table(&columns, attempts.iter().map(cells).collect())
}

fn drop_one(context: &Context, one: &One) -> Result<(), Failure> {
    let (db, subscription) = find(context, one)?;
    db.transaction(|db| db.end_subscription(&subscription.id, Timestamp::now()))?;
    poke::poke(&context.state_dir()?)?;
    if one.json.json {
        return context.printer.json(&Row::new(&db, subscription)?);
    }
    context.printer.line(&format!(
        "subscription {} of {} has ended; its endpoint is told when a server runs",
        subscription.id, subscription.principal
    ))
}
