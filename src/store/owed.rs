//! What subscriptions are owed: put down with the decision, taken off when it was taken.

use jiff::Timestamp;
use rusqlite::params;
use serde::Serialize;

use super::db::{millis, moment};
use super::principals::{raw_access, read_access};
use super::{Db, Error, subscriptions};
use crate::catalogue;
use crate::domain::{Arguments, Occurrence, Place, Placed, Subscription, SubscriptionId, SubscriptionState};

/// One post that is due, as the courier keeps it in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Its number; numbers only grow.
    pub id: i64,
    /// Where it goes.
    pub url: String,
    /// Not before this.
    pub at: Timestamp,
}

/// What a post is to hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Parcel {
    /// An event.
    Event {
        /// What happened.
        placed: Box<Placed>,
        /// Nothing at or before this place is still to come.
        watermark: Place,
    },
    /// The word that the subscription has ended.
    Terminated,
}

/// All that one post needs.
#[derive(Clone)]
pub struct Post {
    /// What to send.
    pub parcel: Parcel,
    /// To whom.
    pub subscription: Subscription,
    /// The secrets to sign with, the newest first.
    pub secrets: Vec<String>,
    /// How many attempts have failed.
    pub attempts: u32,
    /// The journal's own id.
    pub journal: String,
}

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

/// The state of the courier's work, for `status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CourierState {
    /// Subscriptions that are posted to.
    pub active: u64,
    /// Subscriptions that wait for a refresh.
    pub suspended: u64,
    /// Events that are owed.
    pub owed: u64,
    /// Active subscriptions whose last attempts failed.
    pub failing: u64,
}

/// Beyond so many owed events a subscription is suspended: an endpoint that takes less than it asks for.
const MOST_OWED: i64 = 50_000;
/// How many attempts are kept of each subscription.
const ATTEMPTS_KEPT: i64 = 50;

impl Db {
    /// Puts an occurrence down for every subscription that it fits.
    pub(super) fn owe_to_all(&self, place: Place, occurrence: &Occurrence, now: Timestamp) -> Result<(), Error> {
        let Some(kind) = catalogue::event_type(&occurrence.name) else { return Ok(()) };
        let rows = self.all(
            "find subscriptions",
            "SELECT s.id, s.arguments, p.repositories, p.acts_as
             FROM subscriptions s JOIN principals p ON p.name = s.principal
             WHERE s.name = ?1 AND s.state = 'active' AND (s.expires_at IS NULL OR s.expires_at > ?2)",
            params![occurrence.name, millis(now)],
            |row| Ok((SubscriptionId(row.get(0)?), row.get::<_, String>(1)?, raw_access(row, 2)?)),
        )?;
        for (id, arguments, access) in rows {
            let arguments: Arguments =
                serde_json::from_str(&arguments).map_err(|error| Error::content("arguments", error))?;
            if kind.matches(&arguments, occurrence) && read_access(access)?.sees(occurrence) {
                self.owe(&id, place, now)?;
            }
        }
        Ok(())
    }

    pub(super) fn owe(&self, id: &SubscriptionId, place: Place, now: Timestamp) -> Result<(), Error> {
        self.execute(
            "put down what is owed",
            "INSERT OR IGNORE INTO owed (subscription, place, kind, due_at) VALUES (?1, ?2, 'event', ?3)",
            params![id.0, place.0, millis(now)],
        )
        .map(|_| ())
    }

    /// What is owed with numbers above `after`, by number.
    pub fn due_after(&self, after: i64, limit: usize) -> Result<Vec<Due>, Error> {
        self.all(
            "find what is owed",
            "SELECT o.id, s.url, o.due_at FROM owed o JOIN subscriptions s ON s.id = o.subscription
             WHERE o.id > ?1 AND s.state <> 'suspended' ORDER BY o.id LIMIT ?2",
            params![after, limit as i64],
            |row| Ok(Due { id: row.get(0)?, url: row.get(1)?, at: moment(row.get(2)?) }),
        )
    }

    /// All that a post needs; `None` if it is not to be sent after all: the subscription is gone, over or suspended, or
    /// its principal may not see it any more.
    pub fn post(&self, id: i64, now: Timestamp) -> Result<Option<Post>, Error> {
        let sql = format!(
            "SELECT {}, o.place, o.kind, o.attempts, s.secret,
                 CASE WHEN s.old_secret_until > ?2 THEN s.old_secret END,
                 (SELECT value FROM meta WHERE key = 'store')
             FROM owed o JOIN subscriptions s ON s.id = o.subscription
             WHERE o.id = ?1 AND s.state <> 'suspended' AND (s.expires_at IS NULL OR s.expires_at > ?2)",
            subscriptions::COLUMNS.split(", ").map(|name| format!("s.{name}")).collect::<Vec<_>>().join(", ")
        );
        let row = self.one("read what is owed", &sql, params![id, millis(now)], |row| {
            let (place, kind, attempts) = (Place(row.get(13)?), row.get::<_, String>(14)?, row.get(15)?);
            let secrets = [row.get::<_, Option<String>>(16)?, row.get(17)?];
            Ok((subscriptions::raw(row)?, place, kind, attempts, secrets, row.get::<_, String>(18)?))
        })?;
        let Some((raw, place, kind, attempts, secrets, journal)) = row else { return Ok(None) };
        let subscription = subscriptions::read(raw)?;
        let parcel = if kind == "terminated" {
            Parcel::Terminated
        } else {
            let Some(access) = self.access(&subscription.principal)? else { return Ok(None) };
            let Some(placed) = self.occurrence_at(place)? else { return Ok(None) };
            if !access.sees(&placed.occurrence) {
                return Ok(None);
            }
            let earlier = self.one(
                "find what is still owed",
                "SELECT min(place) FROM owed WHERE subscription = ?1 AND place < ?2",
                params![subscription.id.0, place.0],
                |row| row.get::<_, Option<i64>>(0),
            )?;
            let watermark = earlier.flatten().map_or(place, |earlier| Place(earlier - 1));
            Parcel::Event { placed: Box::new(placed), watermark }
        };
        let secrets = secrets.into_iter().flatten().collect();
        Ok(Some(Post { parcel, subscription, secrets, attempts, journal }))
    }

    /// Takes off what is not to be sent after all.
    pub fn forget_owed(&self, id: i64) -> Result<(), Error> {
        // What a suspended subscription is owed stays.
        self.execute(
            "drop what is owed",
            "DELETE FROM owed WHERE id = ?1 AND NOT EXISTS
                 (SELECT 1 FROM subscriptions s WHERE s.id = owed.subscription AND s.state = 'suspended')",
            [id],
        )
        .map(|_| ())
    }

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

    /// The place up to which nothing is still owed to a subscription; `head` where nothing is.
    pub(super) fn watermark(&self, id: &SubscriptionId, head: Place) -> Result<Place, Error> {
        let sql = "SELECT min(place) FROM owed WHERE subscription = ?1";
        let first = self.one("find what is owed", sql, [&id.0], |row| row.get::<_, Option<i64>>(0))?;
        Ok(first.flatten().map_or(head, |first| Place(first - 1)))
    }

    /// How many events a subscription is owed.
    pub fn count_owed(&self, id: &SubscriptionId) -> Result<u64, Error> {
        let sql = "SELECT count(*) FROM owed WHERE subscription = ?1";
        let found = self.one("count what is owed", sql, [&id.0], |row| row.get::<_, i64>(0))?;
        Ok(found.and_then(|n| u64::try_from(n).ok()).unwrap_or(0))
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

    /// How the courier's work stands.
    pub fn courier_state(&self, now: Timestamp) -> Result<CourierState, Error> {
        // A reader may come before the server that brings the tables.
        let sql = "SELECT 1 FROM sqlite_master WHERE name = 'subscriptions'";
        if self.one("look for subscriptions", sql, (), |_| Ok(()))?.is_none() {
            return Ok(CourierState::default());
        }
        let found = self.one(
            "count subscriptions",
            "SELECT count(*) FILTER (WHERE state = 'active'), count(*) FILTER (WHERE state = 'suspended'),
                    (SELECT count(*) FROM owed), count(*) FILTER (WHERE state = 'active' AND failed_since IS NOT NULL)
             FROM subscriptions WHERE expires_at IS NULL OR expires_at > ?1",
            [millis(now)],
            |row| {
                let count = |at: usize| row.get::<_, i64>(at).map(|n| u64::try_from(n).unwrap_or(0));
                Ok(CourierState { active: count(0)?, suspended: count(1)?, owed: count(2)?, failing: count(3)? })
            },
        )?;
        Ok(found.unwrap_or_default())
    }
}
