//! Watches: what we ask of other MCP servers, up to where they have told us, and which deliveries came by which.

use jiff::Timestamp;
use rusqlite::{Row, params};

use super::db::{millis, moment};
use super::{Db, Error};
use crate::domain::{
    Condition, Decision, DeliverySeq, Event, Mode, Outcome, SessionKey, Source, Watch, WatchId, WatchState, WorkItem,
};

const COLUMNS: &str = "id, server, event, arguments, conditions, until, once, work_item, delivery, state, reason, \
                       cursor, created_at, checked_at, last_event_at, problem";

/// How a webhook subscription of a watch stands. The secrets are what both sides sign with.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Hook {
    /// What the server signs with.
    pub secret: Option<String>,
    /// Since when.
    pub secret_since: Option<Timestamp>,
    /// What it signed with before, and until when that is taken.
    pub old_secret: Option<(String, Timestamp)>,
    /// Where the server posts to, while it is subscribed.
    pub url: Option<String>,
    /// Until when the server posts, as it said.
    pub refresh_before: Option<Timestamp>,
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hook({:?}, secrets hidden)", self.url)
    }
}

impl Db {
    /// Keeps a new watch.
    pub fn add_watch(&self, watch: &Watch) -> Result<(), Error> {
        self.execute(
            "keep a watch",
            "INSERT INTO watches (id, server, event, arguments, conditions, until, once, work_item, session, delivery,
                 state, reason, cursor, created_at, checked_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
            params![
                watch.id.0,
                watch.server,
                watch.event,
                text(&watch.arguments)?,
                text(&watch.only)?,
                text(&watch.until)?,
                watch.once,
                watch.work_item.to_string(),
                watch.session().0,
                watch.delivery.map(Mode::as_str),
                watch.state.as_str(),
                watch.reason,
                watch.cursor,
                millis(watch.created_at),
                watch.checked_at.map(millis),
            ],
        )
        .map(|_| ())
    }

    /// One watch.
    pub fn watch(&self, id: &WatchId) -> Result<Option<Watch>, Error> {
        let sql = format!("SELECT {COLUMNS} FROM watches WHERE id = ?1");
        self.one("read a watch", &sql, [&id.0], raw)?.map(Raw::read).transpose()
    }

    /// All watches, the oldest first; those that ended too, unless `active`.
    pub fn watches(&self, active: bool) -> Result<Vec<Watch>, Error> {
        let sql = format!("SELECT {COLUMNS} FROM watches WHERE state = 'active' OR NOT ?1 ORDER BY created_at, id");
        self.all("list watches", &sql, [active], raw)?.into_iter().map(Raw::read).collect()
    }

    /// Ends a watch, once; whether it was active.
    pub fn end_watch(&self, id: &WatchId, reason: &str, now: Timestamp) -> Result<bool, Error> {
        let ended = self.execute(
            "end a watch",
            "UPDATE watches SET state = 'ended', reason = ?2, ended_at = ?3, problem = NULL WHERE id = ?1 AND state = 'active'",
            params![id.0, reason, millis(now)],
        )?;
        Ok(ended == 1)
    }

    /// Ends every watch of a session; how many.
    pub fn end_watches_of(&self, session: &SessionKey, reason: &str, now: Timestamp) -> Result<usize, Error> {
        self.execute(
            "end the watches of a session",
            "UPDATE watches SET state = 'ended', reason = ?2, ended_at = ?3, problem = NULL WHERE session = ?1 AND state = 'active'",
            params![session.0, reason, millis(now)],
        )
    }

    /// Notes how a watch's events come.
    pub fn set_watch_delivery(&self, id: &WatchId, mode: Mode) -> Result<(), Error> {
        let sql = "UPDATE watches SET delivery = ?2 WHERE id = ?1";
        self.execute("note how a watch is served", sql, params![id.0, mode.as_str()]).map(|_| ())
    }

    /// Notes that the server has told everything up to `cursor`.
    pub fn watch_checked(&self, id: &WatchId, cursor: Option<&str>, now: Timestamp) -> Result<(), Error> {
        self.execute(
            "note a watch's cursor",
            "UPDATE watches SET cursor = coalesce(?2, cursor), checked_at = ?3, problem = NULL WHERE id = ?1",
            params![id.0, cursor, millis(now)],
        )
        .map(|_| ())
    }

    /// Notes why nothing comes by a watch; until its server tells something.
    pub fn watch_failed(&self, id: &WatchId, problem: &str) -> Result<(), Error> {
        let sql = "UPDATE watches SET problem = ?2 WHERE id = ?1 AND problem IS NOT ?2";
        self.execute("note a watch's problem", sql, params![id.0, problem]).map(|_| ())
    }

    /// Forgets up to where the server has told everything.
    pub fn forget_watch_cursor(&self, id: &WatchId) -> Result<(), Error> {
        self.execute("begin a watch anew", "UPDATE watches SET cursor = NULL WHERE id = ?1", [&id.0]).map(|_| ())
    }

    /// The place of a delivery by its receipt: who handed it over, and its id there.
    pub fn receipt(&self, source: &Source, id: &str) -> Result<Option<DeliverySeq>, Error> {
        let sql = "SELECT seq FROM deliveries WHERE source = ?1 AND id = ?2";
        self.one("look a receipt up", sql, params![source.key(), id], |row| row.get(0).map(DeliverySeq))
    }

    /// Notes that a delivery came by a watch; false if that is known.
    pub fn sight(&self, id: &WatchId, seq: DeliverySeq) -> Result<bool, Error> {
        let sql = "INSERT INTO sightings (seq, watch) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
        Ok(self.execute("note what a watch saw", sql, params![seq.0, id.0])? == 1)
    }

    /// The watches by which a delivery came, whatever has become of them.
    pub fn watches_that_saw(&self, seq: DeliverySeq) -> Result<Vec<Watch>, Error> {
        let sql = format!(
            "SELECT {COLUMNS} FROM watches WHERE id IN (SELECT watch FROM sightings WHERE seq = ?1) ORDER BY created_at, id"
        );
        self.all("read what watches saw", &sql, [seq.0], raw)?.into_iter().map(Raw::read).collect()
    }

    /// Records what was decided about an event that came by watches, and tells the sessions that do not have it yet.
    pub fn record_watched(
        &self,
        seq: DeliverySeq,
        event: &Event,
        decision: &Decision,
        now: Timestamp,
    ) -> Result<(), Error> {
        // What was queued once stays readable, though a later watch may filter it.
        self.execute(
            "record a decision",
            "UPDATE deliveries SET outcome = ?2, reason = ?3, decision = ?4, read = coalesce(?5, read) WHERE seq = ?1",
            params![
                seq.0,
                decision.outcome.as_str(),
                decision.reason,
                text(decision)?,
                if decision.outcome == Outcome::Queued { Some(text(event)?) } else { None },
            ],
        )?;
        for assignment in &decision.assignments {
            let known = self.one(
                "look a notice up",
                "SELECT 1 FROM notices WHERE session = ?1 AND fingerprint = ?2",
                params![assignment.session.0, event.fingerprint],
                |row| row.get::<_, i64>(0),
            )?;
            if known.is_none() {
                self.notify(seq, event, &assignment.session, &assignment.work_item.to_string(), &assignment.how, now)?;
            }
        }
        self.settle(seq)
    }

    /// Notes when an event last came by a watch.
    pub fn watch_heard(&self, id: &WatchId, now: Timestamp) -> Result<(), Error> {
        let sql = "UPDATE watches SET last_event_at = ?2 WHERE id = ?1";
        self.execute("note a watch's last event", sql, params![id.0, millis(now)]).map(|_| ())
    }

    /// How the webhook subscription of a watch stands.
    pub fn hook(&self, id: &WatchId) -> Result<Option<Hook>, Error> {
        self.one(
            "read a subscription",
            "SELECT secret, secret_since, old_secret, old_secret_until, hook_url, refresh_before FROM watches WHERE id = ?1",
            [&id.0],
            |row| {
                let old = row.get::<_, Option<String>>(2)?.zip(row.get::<_, Option<i64>>(3)?.map(moment));
                Ok(Hook {
                    secret: row.get(0)?,
                    secret_since: row.get::<_, Option<i64>>(1)?.map(moment),
                    old_secret: old,
                    url: row.get(4)?,
                    refresh_before: row.get::<_, Option<i64>>(5)?.map(moment),
                })
            },
        )
    }

    /// Keeps how the webhook subscription of a watch stands.
    pub fn set_hook(&self, id: &WatchId, hook: &Hook) -> Result<(), Error> {
        self.execute(
            "keep a subscription",
            "UPDATE watches SET secret = ?2, secret_since = ?3, old_secret = ?4, old_secret_until = ?5, hook_url = ?6,
                 refresh_before = ?7 WHERE id = ?1",
            params![
                id.0,
                hook.secret,
                hook.secret_since.map(millis),
                hook.old_secret.as_ref().map(|(secret, _)| secret),
                hook.old_secret.as_ref().map(|(_, until)| millis(*until)),
                hook.url,
                hook.refresh_before.map(millis),
            ],
        )
        .map(|_| ())
    }

    /// Ended watches whose servers still post to us, with where to.
    pub fn hooks_to_end(&self) -> Result<Vec<(Watch, String)>, Error> {
        let sql = format!("SELECT {COLUMNS}, hook_url FROM watches WHERE state = 'ended' AND hook_url IS NOT NULL");
        let rows = self.all("find subscriptions to end", &sql, (), |row| Ok((raw(row)?, row.get::<_, String>(16)?)))?;
        rows.into_iter().map(|(raw, url)| Ok((raw.read()?, url))).collect()
    }

    /// Lets go of watches that ended before `before`, and of what nobody can ask for any more.
    pub(super) fn retain_watches(&self, before: Timestamp) -> Result<(), Error> {
        self.execute(
            "let watches go",
            "DELETE FROM watches WHERE state = 'ended' AND ended_at < ?1 AND hook_url IS NULL",
            [millis(before)],
        )?;
        self.execute("let sightings go", "DELETE FROM sightings WHERE seq NOT IN (SELECT seq FROM deliveries)", ())
            .map(|_| ())
    }
}

fn text(value: &impl serde::Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::content("value", error))
}

struct Raw {
    id: String,
    server: String,
    event: String,
    arguments: String,
    only: String,
    until: String,
    once: bool,
    work_item: String,
    delivery: Option<String>,
    state: String,
    reason: Option<String>,
    cursor: Option<String>,
    created_at: i64,
    checked_at: Option<i64>,
    last_event_at: Option<i64>,
    problem: Option<String>,
}

fn raw(row: &Row<'_>) -> rusqlite::Result<Raw> {
    Ok(Raw {
        id: row.get(0)?,
        server: row.get(1)?,
        event: row.get(2)?,
        arguments: row.get(3)?,
        only: row.get(4)?,
        until: row.get(5)?,
        once: row.get(6)?,
        work_item: row.get(7)?,
        delivery: row.get(8)?,
        state: row.get(9)?,
        reason: row.get(10)?,
        cursor: row.get(11)?,
        created_at: row.get(12)?,
        checked_at: row.get(13)?,
        last_event_at: row.get(14)?,
        problem: row.get(15)?,
    })
}

impl Raw {
    fn read(self) -> Result<Watch, Error> {
        let wrong = |error: serde_json::Error| Error::content("watch", error);
        Ok(Watch {
            id: WatchId(self.id),
            server: self.server,
            event: self.event,
            arguments: serde_json::from_str(&self.arguments).map_err(wrong)?,
            only: serde_json::from_str::<Vec<Condition>>(&self.only).map_err(wrong)?,
            until: serde_json::from_str::<Vec<Condition>>(&self.until).map_err(wrong)?,
            once: self.once,
            work_item: WorkItem::parse(&self.work_item).map_err(|error| Error::content("watch", error))?,
            delivery: self.delivery.as_deref().and_then(Mode::from_word),
            state: if self.state == WatchState::Active.as_str() { WatchState::Active } else { WatchState::Ended },
            reason: self.reason,
            cursor: self.cursor,
            created_at: moment(self.created_at),
            checked_at: self.checked_at.map(moment),
            last_event_at: self.last_event_at.map(moment),
            problem: self.problem,
        })
    }
}
