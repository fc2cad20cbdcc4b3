//! What subscriptions are owed: put down with the decision, taken off when it was taken.

use jiff::Timestamp;
use rusqlite::params;
use serde::Serialize;

use super::db::{millis, moment};
use super::principals::{raw_access, read_access};
use super::{Db, Error, subscriptions};
use crate::catalogue;
use crate::domain::{Arguments, Occurrence, Place, Placed, Subscription, SubscriptionId};

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
    /// The word that something is lost.
    Gap {
        /// Where.
        place: Place,
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

impl Db {
    /// Puts an occurrence down for every subscription that it fits.
    pub(super) fn owe_to_all(&self, place: Place, occurrence: &Occurrence, now: Timestamp) -> Result<(), Error> {
        let kinds: Vec<_> = if occurrence.name == catalogue::GAP {
            catalogue::event_types().filter(|kind| kind.may_be_lost_in(&Arguments::new(), occurrence)).collect()
        } else {
            catalogue::event_type(&occurrence.name).into_iter().collect()
        };
        for kind in kinds {
            let rows = self.all(
                "find subscriptions",
                "SELECT s.id, s.arguments, p.repositories, p.acts_as
                 FROM subscriptions s JOIN principals p ON p.name = s.principal
                 WHERE s.name = ?1 AND s.state = 'active' AND (s.expires_at IS NULL OR s.expires_at > ?2)",
                params![kind.name(), millis(now)],
                |row| Ok((SubscriptionId(row.get(0)?), row.get::<_, String>(1)?, raw_access(row, 2)?)),
            )?;
            for (id, arguments, access) in rows {
                let arguments: Arguments =
                    serde_json::from_str(&arguments).map_err(|error| Error::content("arguments", error))?;
                let concerns = kind.matches(&arguments, occurrence) || kind.may_be_lost_in(&arguments, occurrence);
                if concerns && read_access(access)?.sees(occurrence) {
                    self.owe(&id, place, now)?;
                }
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
            match placed.occurrence.name == catalogue::GAP {
                true => Parcel::Gap { place, watermark },
                false => Parcel::Event { placed: Box::new(placed), watermark },
            }
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
