//! `status`: one screen that says whether all is well, and what is not.

use jiff::Timestamp;
use serde_json::json;

use super::args::Json;
use super::context::Context;
use super::failure::Failure;
use super::printer::relative;
use super::sessions::SessionNews;
use super::{session_news, turns};
use crate::daemon;
use crate::domain::{Outcome, SessionStatus};
use crate::engine::schedule::HOUR;
use crate::store::{Access, Db, DeliveryFilter, PollRow, ServerState};

/// How many failed deliveries are named.
const NAMED: usize = 5;

/// One repository that is polled: since when, last, next, and why not.
fn polled(poll: &PollRow, serving: bool, now: Timestamp) -> String {
    let when = |at: Option<Timestamp>| at.map_or_else(|| "never".into(), |at| relative(at, now));
    let next = match poll.next_at {
        Some(at) if serving && at > now => format!("next {}", relative(at, now)),
        _ if serving => "next now".into(),
        _ => "no server runs".into(),
    };
    let trouble = poll.trouble.as_ref().map_or_else(String::new, |trouble| format!("; {trouble}"));
    let (since, last) = (relative(poll.since, now), when(poll.checked_at));
    format!("{} since {since}, last checked {last}, {next}{trouble}", poll.repository)
}

pub(super) fn run(context: &Context, Json { json }: Json) -> Result<(), Failure> {
    let state_dir = context.state_dir()?;
    let now = Timestamp::now();
    let server = daemon::holder(&state_dir);
    let listing = context.registry()?.read()?;
    let news = session_news::news(context)?;
    let mut running = Vec::new();
    let mut failed = Vec::new();
    let mut outcomes = Vec::new();
    let (mut watches, mut servers) = (Vec::new(), Vec::new());
    let mut polls = Vec::new();
    let mut courier = crate::store::CourierState::default();
    if Db::exists(&state_dir) {
        let db = Db::open(&state_dir, Access::Read)?;
        for turn in db.running_turns()? {
            running.push((turn.id, turns::Row::new(&db, turn.clone())?, turn.work_item.to_string()));
        }
        let filter = DeliveryFilter { outcome: Some(Outcome::Failed), limit: NAMED, ..DeliveryFilter::default() };
        failed = db.list_deliveries(&filter)?;
        watches = db.watches(true)?;
        servers = db.server_states()?;
        polls = db.polls()?;
        courier = db.courier_state(now)?;
        outcomes = db.count_outcomes(now.checked_sub(HOUR * 24).unwrap_or(Timestamp::MIN))?;
    }
    let none = SessionNews::default();
    let of = |session: &crate::domain::Session| news.get(&session.key()).unwrap_or(&none);
    let active = listing.sessions.iter().filter(|s| s.status == SessionStatus::Active).count();
    let paused = listing.sessions.iter().filter(|s| s.status == SessionStatus::Paused).count();
    let open: Vec<_> = listing.sessions.iter().filter(|s| s.is_open()).collect();
    let waiting: u64 = open.iter().map(|session| of(session).pending).sum();
    if json {
        let sessions: Vec<_> =
            listing.sessions.iter().map(|session| super::sessions::Row::new(session, of(session))).collect();
        let running: Vec<_> = running.iter().map(|(_, row, _)| row).collect();
        let outcomes: serde_json::Map<_, _> =
            outcomes.iter().map(|(outcome, count)| (outcome.as_str().to_owned(), json!(count))).collect();
        let polls: Vec<_> = polls
            .iter()
            .map(|poll| {
                json!({
                    "repository": poll.repository, "since": poll.since, "checked_at": poll.checked_at,
                    "next_at": poll.next_at, "trouble": poll.trouble,
                })
            })
            .collect();
        return context.printer.json(&json!({
            "polling": polls,
            "server": server, "sessions": sessions, "waiting": waiting, "running": running, "failed": failed,
            "last_day": outcomes, "watches": watches, "mcp_servers": servers, "courier": courier,
            "damaged": listing.damaged.iter().map(|d| d.path.display().to_string()).collect::<Vec<_>>(),
        }));
    }
    let p = context.printer;
    match &server {
        Some(holder) => p.line(&format!(
            "server    {} (process {}, started {})",
            holder.listening.as_deref().unwrap_or("starting"),
            holder.pid,
            relative(holder.started_at, now)
        ))?,
        None => p.line("server    not running: the-loop gh-webhook serve")?,
    }
    p.line(&format!("state     {}", state_dir.display()))?;
    p.line(&format!("sessions  {active} active, {paused} paused"))?;
    p.line(&format!("waiting   {waiting} {}", if waiting == 1 { "event" } else { "events" }))?;
    for session in &open {
        let news = of(session);
        if news.pending > 0 {
            let why = match (&news.needs_attention, &news.held, session.status) {
                (Some(_), _, _) => "needs you, see below".to_owned(),
                (_, _, SessionStatus::Paused) => "paused".to_owned(),
                (_, Some(held), _) => held.clone(),
                _ => "soon".to_owned(),
            };
            p.line(&format!("          {}: {}, {why}", session.work_item, news.pending))?;
        }
    }
    for poll in &polls {
        p.line(&format!("polling   {}", polled(poll, server.is_some(), now)))?;
    }
    p.line(&format!("running   {}", running.len()))?;
    for (id, row, item) in &running {
        p.line(&format!("          turn {id} for {item}, {} so far", row.took(now)))?;
    }
    if !watches.is_empty() {
        p.line(&format!("watches   {} active", watches.len()))?;
        let mut names: Vec<_> = watches.iter().map(|watch| watch.server.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let state = servers.iter().find(|state| state.server == name);
            p.line(&format!("          {name}: {}", standing(state, server.is_some(), now)))?;
        }
    }
    let counts: Vec<_> = outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
    p.line(&format!("last day  {}", if counts.is_empty() { "no deliveries".into() } else { counts.join(", ") }))?;
    if courier.active + courier.suspended > 0 {
        p.line(&format!(
            "courier   {} active, {} suspended, {} failing; {} owed",
            courier.active, courier.suspended, courier.failing, courier.owed
        ))?;
    }
    for row in &failed {
        p.line(&format!(
            "failed    {}: {}; again with: the-loop deliveries replay {}",
            row.event, row.reason, row.delivery
        ))?;
    }
    for session in open {
        if let Some(attention) = &of(session).needs_attention {
            p.line(&format!("needs you {}: {attention}", session.work_item))?;
        }
    }
    for damaged in &listing.damaged {
        p.line(&format!("damaged   {}: {}", damaged.path.display(), damaged.why))?;
    }
    Ok(())
}

/// How an MCP server stands: connected since, last checked, next, why not.
pub(super) fn standing(state: Option<&ServerState>, runs: bool, now: Timestamp) -> String {
    let Some(state) = state.filter(|_| runs) else {
        return if runs { "not connected yet".into() } else { "no server of ours runs".into() };
    };
    let checked =
        state.checked_at.map_or_else(|| "not checked yet".into(), |at| format!("last checked {}", relative(at, now)));
    match (&state.problem, state.connected_since) {
        (Some(problem), _) => {
            let next =
                state.next_at.map_or_else(String::new, |at| format!("; tried again {}", relative(at.max(now), now)));
            format!("cannot be used: {problem}{next}")
        }
        (None, Some(since)) => format!("connected since {}, {checked}", relative(since, now)),
        (None, None) => "not needed now".into(),
    }
}
