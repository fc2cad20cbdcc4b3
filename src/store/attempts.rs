//! Attempts to post what is owed: recorded, with what becomes of it and of the subscription.

use jiff::Timestamp;
use rusqlite::params;
use serde::Serialize;

use super::db::{millis, moment};
use super::{Db, Error};
use crate::domain::{Subscription, SubscriptionId, SubscriptionState};

/// How one post went, as `subscriptions show` tells it.
#[derive(Debug, Clone, Serialize)]
pub struct AttemptRow {
    /// The event.
    pub event_id: String,
    /// Which attempt it was; the first is 1.
    pub attempt: u32,
    /// When it was made.
    pub at: Timestamp,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// The HTTP status, where there was an answer.
    pub status: Option<u16>,
    /// The category of the failure.
    pub error: Option<String>,
}

/// What becomes of what was owed after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostEnd {
    /// It was taken.
    Taken,
    /// It will never be taken, and the endpoint said so.
    Refused,
    /// It is tried again then.
    Again(Timestamp),
    /// Enough: the subscription is suspended with what it is owed.
    Suspend,
}

/// Beyond so many owed events a subscription is suspended: an endpoint that takes less than it asks for.
const MOST_OWED: i64 = 50_000;
/// How many attempts are kept of each subscription.
const ATTEMPTS_KEPT: i64 = 50;

impl Db {
    /// Records an attempt and what becomes of what was owed.
    pub fn record_attempt(
        &self,
        id: i64,
        subscription: &SubscriptionId,
        row: &AttemptRow,
        end: PostEnd,
    ) -> Result<(), Error> {
        let Some(known) = self.subscription(subscription)? else { return Ok(()) };
        self.execute(
            "record an attempt",
            "INSERT INTO attempts (subscription, event_id, attempt, at, took_ms, status, error)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                subscription.0,
                row.event_id,
                row.attempt,
                millis(row.at),
                i64::try_from(row.took_ms).unwrap_or(i64::MAX),
                row.status,
                row.error
            ],
        )?;
        match end {
            PostEnd::Taken | PostEnd::Refused => {
                self.execute("settle what was owed", "DELETE FROM owed WHERE id = ?1", [id])?;
            }
            PostEnd::Again(at) => {
                self.execute(
                    "put off what is owed",
                    "UPDATE owed SET attempts = attempts + 1, due_at = ?2 WHERE id = ?1",
                    params![id, millis(at)],
                )?;
            }
            PostEnd::Suspend => {}
        }
        self.note_health(&known, row, end)?;
        if known.state == SubscriptionState::Ending && !matches!(end, PostEnd::Again(_)) {
            self.remove_subscription(subscription)?;
        } else if end == PostEnd::Suspend || self.owes_too_much(subscription)? {
            self.suspend(subscription)?;
        }
        Ok(())
    }

    fn note_health(&self, known: &Subscription, row: &AttemptRow, end: PostEnd) -> Result<(), Error> {
        let at = millis(row.at);
        if end == PostEnd::Taken {
            self.execute(
                "note a success",
                "UPDATE subscriptions SET last_delivery_at = ?2, failed_since = NULL WHERE id = ?1",
                params![known.id.0, at],
            )?;
        } else {
            self.execute(
                "note a failure",
                "UPDATE subscriptions SET last_error = ?3, failed_since = coalesce(failed_since, ?2) WHERE id = ?1",
                params![known.id.0, at, row.error],
            )?;
        }
        Ok(())
    }

    fn owes_too_much(&self, id: &SubscriptionId) -> Result<bool, Error> {
        let sql = "SELECT 1 FROM owed WHERE subscription = ?1 LIMIT 1 OFFSET ?2";
        Ok(self.one("count what is owed", sql, params![id.0, MOST_OWED], |_| Ok(()))?.is_some())
    }

    fn suspend(&self, id: &SubscriptionId) -> Result<(), Error> {
        let head = self.head()?;
        self.execute(
            "suspend a subscription",
            "UPDATE subscriptions SET state = 'suspended', through = ?2 WHERE id = ?1 AND state = 'active'",
            params![id.0, head.place.0],
        )
        .map(|_| ())
    }

    /// The last attempts of a subscription, newest first.
    pub fn attempts(&self, id: &SubscriptionId, limit: usize) -> Result<Vec<AttemptRow>, Error> {
        self.all(
            "read attempts",
            "SELECT event_id, attempt, at, took_ms, status, error FROM attempts WHERE subscription = ?1
             ORDER BY id DESC LIMIT ?2",
            params![id.0, limit as i64],
            |row| {
                Ok(AttemptRow {
                    event_id: row.get(0)?,
                    attempt: row.get(1)?,
                    at: moment(row.get(2)?),
                    took_ms: row.get::<_, i64>(3).map(|ms| u64::try_from(ms).unwrap_or(0))?,
                    status: row.get(4)?,
                    error: row.get(5)?,
                })
            },
        )
    }

    /// Lets go of all but the last attempts of each subscription.
    pub(super) fn retain_attempts(&self) -> Result<(), Error> {
        self.execute(
            "let attempts go",
            "DELETE FROM attempts WHERE id IN (SELECT id FROM
                 (SELECT id, row_number() OVER (PARTITION BY subscription ORDER BY id DESC) AS nth FROM attempts)
                 WHERE nth > ?1)",
            [ATTEMPTS_KEPT],
        )
        .map(|_| ())
    }
}
