//! What is known of a session beside its file: when it was last told something, why it waits, what it has cost.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::params;

use super::db::{millis, moment};
use super::{Db, Error};
use crate::catalogue;
use crate::domain::{Attention, SessionKey, Turn, TurnOutcome, Usage};

/// What the store knows of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionState {
    /// When something was last put into its inbox.
    pub last_event_at: Option<Timestamp>,
    /// Until when it waits after a failure.
    pub retry_at: Option<Timestamp>,
    /// What it needs a person for.
    pub attention: Option<Attention>,
}

/// What turns have cost since some moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spending {
    /// All sessions together, in US dollars.
    pub all_usd: f64,
    /// The session asked for.
    pub session_usd: f64,
}

impl Db {
    /// The states of all sessions that have one.
    pub fn session_states(&self) -> Result<BTreeMap<SessionKey, SessionState>, Error> {
        let rows = self.all(
            "read the states of sessions",
            "SELECT session, last_event_at, retry_at, attention_reason, attention_mend FROM session_states",
            (),
            |row| {
                let attention = match (row.get::<_, Option<String>>(3)?, row.get::<_, Option<String>>(4)?) {
                    (Some(reason), Some(mend)) => Some(Attention { reason, mend }),
                    _ => None,
                };
                let state = SessionState {
                    last_event_at: row.get::<_, Option<i64>>(1)?.map(moment),
                    retry_at: row.get::<_, Option<i64>>(2)?.map(moment),
                    attention,
                };
                Ok((SessionKey(row.get(0)?), state))
            },
        )?;
        Ok(rows.into_iter().collect())
    }

    /// Lets a session be tried at once: no hold, no wait.
    pub fn release(&self, session: &SessionKey) -> Result<(), Error> {
        self.execute(
            "release a session",
            "UPDATE session_states SET retry_at = NULL, attention_reason = NULL, attention_mend = NULL
             WHERE session = ?1",
            [&session.0],
        )?;
        self.execute(
            "release a session's notices",
            "UPDATE notices SET reason = NULL WHERE session = ?1 AND state = 'waiting'",
            [&session.0],
        )
        .map(|_| ())
    }

    /// Holds a session until a person has mended what is the matter.
    pub fn set_attention(&self, session: &SessionKey, attention: &Attention, now: Timestamp) -> Result<(), Error> {
        self.execute(
            "hold a session",
            "INSERT INTO session_states (session, attention_reason, attention_mend) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET attention_reason = excluded.attention_reason,
                 attention_mend = excluded.attention_mend, retry_at = NULL",
            params![session.0, attention.reason, attention.mend],
        )?;
        match catalogue::needs_attention(session, &attention.reason, now) {
            Some(occurrence) => self.publish_own(occurrence, now),
            None => Ok(()),
        }
    }

    pub(super) fn set_retry(&self, session: &SessionKey, at: Option<Timestamp>) -> Result<(), Error> {
        self.execute(
            "set a session's wait",
            "INSERT INTO session_states (session, retry_at) VALUES (?1, ?2)
             ON CONFLICT DO UPDATE SET retry_at = excluded.retry_at",
            params![session.0, at.map(millis)],
        )
        .map(|_| ())
    }

    /// A turn's own price. Some harnesses count a conversation's whole cost: the turn's is the difference to what was
    /// seen before, and unknown the first time, since the conversation is older than we are.
    pub(super) fn price(&self, turn: &Turn, outcome: &TurnOutcome) -> Result<Usage, Error> {
        let mut usage = outcome.usage.clone();
        let Some(total) = usage.session_cost_usd else { return Ok(usage) };
        let before = self.one(
            "read a session's cost",
            "SELECT priced_session, priced_usd FROM session_states WHERE session = ?1",
            [&turn.session.0],
            |row| Ok((row.get::<_, Option<String>>(0)?, row.get::<_, Option<f64>>(1)?)),
        )?;
        if let Some((Some(session), Some(seen))) = before
            && session == turn.session_id
            && usage.cost_usd.is_none()
        {
            usage.cost_usd = Some((total - seen).max(0.0));
        }
        let id = outcome.new_session_id.as_ref().unwrap_or(&turn.session_id);
        self.execute(
            "keep a session's cost",
            "INSERT INTO session_states (session, priced_session, priced_usd) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET priced_session = excluded.priced_session, priced_usd = excluded.priced_usd",
            params![turn.session.0, id, total],
        )?;
        Ok(usage)
    }

    /// What turns that began after `since` have cost, as far as their harnesses say.
    pub fn spending(&self, session: &SessionKey, since: Timestamp) -> Result<Spending, Error> {
        let found = self.one(
            "add up costs",
            "SELECT coalesce(sum(cost_usd), 0.0), coalesce(sum(cost_usd) FILTER (WHERE session = ?1), 0.0)
             FROM turns WHERE started_at > ?2",
            params![session.0, millis(since)],
            |row| Ok(Spending { all_usd: row.get(0)?, session_usd: row.get(1)? }),
        )?;
        Ok(found.unwrap_or_default())
    }
}
