//! Subscriptions: made, refreshed, ended; and the callbacks that have been proved.

use jiff::Timestamp;
use rusqlite::{Row, params};

use super::db::{millis, moment};
use super::{Db, Error};
use crate::catalogue;
use crate::domain::{Arguments, Cursor, Place, Subscription, SubscriptionId, SubscriptionState};

/// A subscription to be made or refreshed. Its endpoint has been proved.
#[derive(Clone)]
pub struct Subscribe {
    /// Its id.
    pub id: SubscriptionId,
    /// Whose it is.
    pub principal: String,
    /// Where it is posted to.
    pub url: String,
    /// The event type.
    pub name: String,
    /// The filters.
    pub arguments: Arguments,
    /// The secret to sign with.
    pub secret: String,
    /// Until when an earlier secret signs as well.
    pub old_secret_until: Timestamp,
    /// When it ends unless refreshed.
    pub expires_at: Option<Timestamp>,
    /// From where a new one begins; `None` is now.
    pub from: Option<Place>,
    /// Nothing that was recorded earlier is owed.
    pub since: Option<Timestamp>,
    /// How many subscriptions the principal may have.
    pub limit: usize,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Subscribed {
    /// It stands.
    Granted {
        /// Nothing at or before this place will be posted (again).
        cursor: Cursor,
        /// How it stood before, where it is not new.
        before: Option<Box<Subscription>>,
        /// Of what it was to be owed from the past, not all is there, or not all was put down.
        truncated: bool,
    },
    /// The principal has as many as it may.
    Full,
}

pub(super) const COLUMNS: &str = "id, principal, url, name, arguments, created_at, refreshed_at, expires_at, state, \
                                  through, last_delivery_at, last_error, failed_since";

/// The most that is put down at once for a subscription that begins in the past.
const REPLAY: usize = 10_000;

impl Db {
    /// Makes or refreshes a subscription, and puts down what it is owed from the past.
    pub fn subscribe(&self, new: &Subscribe, now: Timestamp) -> Result<Subscribed, Error> {
        let mut before = self.subscription(&new.id)?;
        let over = |s: &Subscription| {
            s.state == SubscriptionState::Ending || s.expires_at.is_some_and(|expires| expires <= now)
        };
        if before.as_ref().is_some_and(over) {
            self.remove_subscription(&new.id)?;
            before = None;
        }
        let head = self.head()?;
        let mut truncated = false;
        match &before {
            None => {
                let count = self.count_subscriptions(&new.principal, now)?;
                if count >= new.limit {
                    return Ok(Subscribed::Full);
                }
                self.insert(new, head.place, now)?;
                truncated = self.replay(new, new.from.unwrap_or(head.place), now)?;
            }
            Some(known) => {
                self.refresh(new, now)?;
                if known.state == SubscriptionState::Suspended {
                    // What was owed is due again, under new numbers so that the courier sees it; what happened since
                    // was not put down.
                    self.execute(
                        "revive what is owed",
                        "INSERT OR REPLACE INTO owed (subscription, place, kind, attempts, due_at)
                         SELECT subscription, place, kind, 0, ?2 FROM owed WHERE subscription = ?1 ORDER BY place",
                        params![new.id.0, millis(now)],
                    )?;
                    truncated = self.replay(new, known.through, now)?;
                }
            }
        }
        let place = self.watermark(&new.id, head.place)?;
        let cursor = Cursor { place, ..head };
        Ok(Subscribed::Granted { cursor, before: before.map(Box::new), truncated })
    }

    fn insert(&self, new: &Subscribe, head: Place, now: Timestamp) -> Result<(), Error> {
        self.execute(
            "keep a subscription",
            "INSERT INTO subscriptions (id, principal, url, name, arguments, secret, created_at, refreshed_at, expires_at,
                 state, through) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8, 'active', ?9)",
            params![
                new.id.0,
                new.principal,
                new.url,
                new.name,
                catalogue::canonical(&new.arguments),
                new.secret,
                millis(now),
                new.expires_at.map(millis),
                head.0
            ],
        )
        .map(|_| ())
    }

    fn refresh(&self, new: &Subscribe, now: Timestamp) -> Result<(), Error> {
        self.execute(
            "refresh a subscription",
            "UPDATE subscriptions SET
                 old_secret = CASE WHEN secret <> ?2 THEN secret ELSE old_secret END,
                 old_secret_until = CASE WHEN secret <> ?2 THEN ?3 ELSE old_secret_until END,
                 secret = ?2, refreshed_at = ?4, expires_at = ?5, state = 'active',
                 failed_since = CASE WHEN state = 'active' THEN failed_since END WHERE id = ?1",
            params![new.id.0, new.secret, millis(new.old_secret_until), millis(now), new.expires_at.map(millis)],
        )
        .map(|_| ())
    }

    /// Puts down what a subscription is owed after `from`; whether something of it is lost.
    fn replay(&self, new: &Subscribe, from: Place, now: Timestamp) -> Result<bool, Error> {
        let access = self.access(&new.principal)?.unwrap_or_default();
        let mut places = Vec::new();
        let mut is_cut = false;
        self.fitting(&new.name, &new.arguments, from, new.since, |placed| {
            let is_seen = access.sees(&placed.occurrence);
            is_cut = is_seen && places.len() == REPLAY;
            if is_seen && !is_cut {
                places.push(placed.place);
            }
            !is_cut
        })?;
        if let Some(kind) = catalogue::event_type(&new.name) {
            self.gaps(from, Place(i64::MAX), |placed| {
                if kind.may_be_lost_in(&new.arguments, &placed.occurrence) && access.sees(&placed.occurrence) {
                    places.push(placed.place);
                }
            })?;
        }
        places.sort_unstable();
        for place in places {
            self.owe(&new.id, place, now)?;
        }
        Ok(is_cut || from < self.feed_floor(&new.name)?)
    }

    /// Removes a subscription and what it is owed; whether there was one.
    pub fn remove_subscription(&self, id: &SubscriptionId) -> Result<bool, Error> {
        self.execute("remove a subscription", "DELETE FROM subscriptions WHERE id = ?1", [&id.0]).map(|n| n > 0)
    }

    /// Ends a subscription: nothing more is owed to it but the word that it has ended. Whether it was there.
    pub fn end_subscription(&self, id: &SubscriptionId, now: Timestamp) -> Result<bool, Error> {
        let ended = self.execute(
            "end a subscription",
            "UPDATE subscriptions SET state = 'ending' WHERE id = ?1 AND state <> 'ending'",
            [&id.0],
        )?;
        if ended == 0 {
            return Ok(false);
        }
        self.execute("drop what is owed", "DELETE FROM owed WHERE subscription = ?1", [&id.0])?;
        self.execute(
            "owe a last word",
            "INSERT INTO owed (subscription, place, kind, due_at) VALUES (?1, 0, 'terminated', ?2)",
            params![id.0, millis(now)],
        )?;
        Ok(true)
    }

    /// Removes subscriptions whose time is over, and those that nobody has revived since `stale`; how many.
    pub fn expire_subscriptions(&self, now: Timestamp, stale: Timestamp) -> Result<usize, Error> {
        self.execute("forget proofs", "DELETE FROM verified_callbacks WHERE until <= ?1", [millis(now)])?;
        self.execute(
            "expire subscriptions",
            "DELETE FROM subscriptions WHERE expires_at <= ?1 OR (state = 'suspended' AND failed_since < ?2)",
            params![millis(now), millis(stale)],
        )
    }

    /// One subscription.
    pub fn subscription(&self, id: &SubscriptionId) -> Result<Option<Subscription>, Error> {
        let sql = format!("SELECT {COLUMNS} FROM subscriptions WHERE id = ?1");
        self.one("read a subscription", &sql, [&id.0], raw)?.map(read).transpose()
    }

    /// Every subscription, oldest first.
    pub fn subscriptions(&self) -> Result<Vec<Subscription>, Error> {
        let sql = format!("SELECT {COLUMNS} FROM subscriptions ORDER BY created_at, id");
        self.all("list subscriptions", &sql, (), raw)?.into_iter().map(read).collect()
    }

    /// How many subscriptions a principal has.
    pub fn count_subscriptions(&self, principal: &str, now: Timestamp) -> Result<usize, Error> {
        let found = self.one(
            "count subscriptions",
            "SELECT count(*) FROM subscriptions
             WHERE principal = ?1 AND state <> 'ending' AND (expires_at IS NULL OR expires_at > ?2)",
            params![principal, millis(now)],
            |row| row.get::<_, i64>(0),
        )?;
        Ok(found.and_then(|n| usize::try_from(n).ok()).unwrap_or(0))
    }

    /// Whether a callback has been proved, for this principal, not too long ago.
    pub fn is_verified(&self, principal: &str, url: &str, now: Timestamp) -> Result<bool, Error> {
        let sql = "SELECT 1 FROM verified_callbacks WHERE principal = ?1 AND url = ?2 AND until > ?3";
        Ok(self.one("look a proof up", sql, params![principal, url, millis(now)], |_| Ok(()))?.is_some())
    }

    /// Notes that a callback has been proved.
    pub fn set_verified(&self, principal: &str, url: &str, until: Timestamp) -> Result<(), Error> {
        self.execute(
            "keep a proof",
            "INSERT INTO verified_callbacks (principal, url, until) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET until = excluded.until",
            params![principal, url, millis(until)],
        )
        .map(|_| ())
    }
}

pub(super) type Raw = (Subscription, String, String);

pub(super) fn raw(row: &Row<'_>) -> rusqlite::Result<Raw> {
    let at = |index: usize| row.get::<_, Option<i64>>(index).map(|at| at.map(moment));
    let subscription = Subscription {
        id: SubscriptionId(row.get(0)?),
        principal: row.get(1)?,
        url: row.get(2)?,
        name: row.get(3)?,
        arguments: Arguments::new(),
        created_at: moment(row.get(5)?),
        refreshed_at: moment(row.get(6)?),
        expires_at: at(7)?,
        state: SubscriptionState::Active,
        through: Place(row.get(9)?),
        last_delivery_at: at(10)?,
        last_error: row.get(11)?,
        failed_since: at(12)?,
    };
    Ok((subscription, row.get(4)?, row.get(8)?))
}

pub(super) fn read((mut subscription, arguments, state): Raw) -> Result<Subscription, Error> {
    subscription.arguments = serde_json::from_str(&arguments).map_err(|error| Error::content("arguments", error))?;
    subscription.state = SubscriptionState::from_word(&state).ok_or_else(|| Error::content("state", &state))?;
    Ok(subscription)
}
