//! What servers tell of watches: receipts, notices, what of the watch changes and the cursor, in one transaction.

use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::crash_point;
use crate::domain::{Delivery, Watch, WatchId};
use crate::payload;
use crate::routing;
use crate::store::Accepting;

use super::sighting::{Read, decide, read, sighted};
use super::watching::heard;
use super::{Error, Watches};

/// How many occurrences share a transaction: others wait for the writer too.
const CHUNK: usize = 100;
/// And how much memory they take, about: what is made of them takes some times as much for a moment.
const CHUNK_SIZE: usize = 4 << 20;

/// What a server told of a watch.
#[derive(Debug, Default)]
pub struct Told {
    /// Occurrences `{eventId, name, timestamp, data}`, in the server's order.
    pub occurrences: Vec<Value>,
    /// Up to where that was everything, where the server says.
    pub cursor: Option<String>,
    /// Something between the last cursor and this is lost.
    pub truncated: bool,
    /// What is older than this is let go where we have not looked for longer.
    pub max_age: Option<SignedDuration>,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// The watch goes on; so many of the occurrences were new to it.
    Goes(usize),
    /// It is over.
    Ended,
}

impl Watches {
    /// Takes in what a server told: receipts, notices and the cursor are on disk together when this returns.
    pub async fn take(&self, watch: &WatchId, told: Told) -> Result<Taken, Error> {
        let Told { occurrences, cursor, truncated, max_age } = told;
        if truncated {
            self.tell_gap(watch).await?;
        }
        let mut rest = occurrences.into_iter().peekable();
        let mut new = 0;
        loop {
            let part = part(&mut rest);
            let last = rest.peek().is_none();
            // The cursor goes with the last part: what was taken before it is known by its receipt.
            let cursor = cursor.clone().filter(|_| last);
            match self.take_some(watch, part, cursor, last, max_age).await? {
                Taken::Goes(some) => new += some,
                Taken::Ended => return Ok(Taken::Ended),
            }
            if last {
                return Ok(Taken::Goes(new));
            }
        }
    }

    async fn take_some(
        &self,
        id: &WatchId,
        occurrences: Vec<Value>,
        cursor: Option<String>,
        last: bool,
        max_age: Option<SignedDuration>,
    ) -> Result<Taken, Error> {
        let some = !occurrences.is_empty();
        let key = id.clone();
        let Some(watch) = self.store.read(move |db| db.watch(&key)).await? else { return Ok(Taken::Ended) };
        let made = tokio::task::spawn_blocking({
            let (watch, sessions) = (watch.clone(), self.sessions.clone());
            move || {
                sessions.now().map(drop)?;
                let each = occurrences.into_iter();
                Ok::<_, Error>(each.filter_map(|one| read(&watch, &one, max_age)).collect::<Vec<_>>())
            }
        })
        .await
        .map_err(|_| Error::Panicked)??;
        crash_point::reached("before-watch-commit");
        let (sessions, key, quiet) = (self.sessions.clone(), id.clone(), Arc::clone(&self.quiet));
        let taken = self
            .store
            .write(move |db| {
                let now = Timestamp::now();
                // Read again on the writer: a person may have ended it meanwhile.
                let Some(watch) = db.watch(&key)?.filter(Watch::is_active) else { return Ok(Taken::Ended) };
                let mut new = 0;
                for Read { accepting, event, data } in &made {
                    let Some(seq) = sighted(db, &watch, accepting)? else { continue };
                    new += 1;
                    decide(db, &sessions, seq, event, data)?;
                    crash_point::reached("watch-event-decided");
                    if let Some(end) = routing::look(&watch, data, false).end {
                        db.watch_heard(&watch.id, now)?;
                        db.end_watch(&watch.id, &end, now)?;
                        return Ok(Taken::Ended);
                    }
                }
                if new > 0 {
                    db.watch_heard(&watch.id, now)?;
                }
                if last {
                    heard(&quiet, &key);
                    db.watch_checked(&watch.id, cursor.as_deref(), now)?;
                }
                Ok(Taken::Goes(new))
            })
            .await?;
        crash_point::reached("after-watch-commit");
        if some || taken == Taken::Ended {
            self.bells.dispatcher.notify_one();
        }
        if taken == Taken::Ended {
            self.bells.watches.notify_one();
        }
        Ok(taken)
    }

    /// Tells a watch's session that something may have been missed since we last knew everything.
    pub async fn tell_gap(&self, id: &WatchId) -> Result<(), Error> {
        let key = id.clone();
        let Some(watch) = self.store.read(move |db| db.watch(&key)).await? else { return Ok(()) };
        let from = watch.checked_at.or(Some(watch.created_at));
        match payload::from_gap(&watch, from, Timestamp::now()) {
            Ok(delivery) => self.tell(&watch, delivery, None).await,
            Err(error) => unreadable(&error),
        }
    }

    /// Ends a watch that its session did not end, and tells the session.
    pub async fn end(&self, id: &WatchId, reason: &str) -> Result<(), Error> {
        let key = id.clone();
        let Some(watch) = self.store.read(move |db| db.watch(&key)).await? else { return Ok(()) };
        tracing::warn!(watch = %watch.id, server = watch.server, reason, "a watch ended");
        match payload::from_end(&watch, reason, Timestamp::now()) {
            Ok(delivery) => self.tell(&watch, delivery, Some(reason.to_owned())).await?,
            Err(error) => unreadable(&error)?,
        }
        self.bells.watches.notify_one();
        Ok(())
    }

    async fn tell(&self, watch: &Watch, delivery: Delivery, end: Option<String>) -> Result<(), Error> {
        let event = match payload::read(&delivery) {
            Ok(event) => event,
            Err(error) => return unreadable(&error),
        };
        let accepting = Accepting::new(delivery)?;
        let (id, sessions) = (watch.id.clone(), self.sessions.clone());
        self.store
            .write(move |db| {
                let now = Timestamp::now();
                let Some(watch) = db.watch(&id)?.filter(Watch::is_active) else { return Ok(()) };
                if let Some(seq) = sighted(db, &watch, &accepting)? {
                    decide(db, &sessions, seq, &event, &Value::Null)?;
                }
                match end {
                    Some(reason) => db.end_watch(&watch.id, &reason, now).map(|_| ()),
                    None => Ok(()),
                }
            })
            .await?;
        crash_point::reached("after-watch-news-commit");
        self.bells.dispatcher.notify_one();
        Ok(())
    }
}

/// The next occurrences that share a transaction.
fn part(rest: &mut Peekable<IntoIter<Value>>) -> Vec<Value> {
    let (mut part, mut size) = (Vec::new(), 0);
    while part.len() < CHUNK
        && let Some(next) = rest.next_if(|next| part.is_empty() || size + payload::weight(next) <= CHUNK_SIZE)
    {
        size += payload::weight(&next);
        part.push(next);
    }
    part
}

fn unreadable(error: &payload::Error) -> Result<(), Error> {
    // We wrote it ourselves, so this is a defect; the watch goes on all the same.
    tracing::error!(%error, "could not tell a session of its watch");
    Ok(())
}
