//! One decision and what it makes true. Runs on the store's writer, so that it sees every link learned before.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;

use crate::crash_point;
use crate::domain::{Decision, Delivery, DeliverySeq, Event, Outcome, Session, SessionKey, SessionStatus, WorkItem};
use crate::payload;
use crate::registry::Registry;
use crate::routing::{self, Rules};
use crate::store::{Accepting, Db, LinksInStore};

use super::{Error, Sessions, sighting};

/// Decides deliveries. Cheap to clone.
#[derive(Clone)]
pub struct Decider {
    sessions: Sessions,
    rules: Arc<Rules>,
    numbers: mpsc::Sender<(WorkItem, u64)>,
}

impl Decider {
    /// Deliveries are decided by `rules`, for these sessions.
    pub fn new(sessions: Sessions, rules: Arc<Rules>) -> Self {
        let (numbers, sent) = mpsc::channel();
        let registry = sessions.clone();
        // It ends with the last clone of this.
        std::thread::spawn(move || note_numbers(registry.registry(), &sent));
        Self { sessions, rules, numbers }
    }

    /// Decides what was read of a delivery that arrived at `arrived` and waits in the journal.
    pub(super) fn decide(
        &self,
        db: &Db,
        seq: DeliverySeq,
        read: &Result<Event, String>,
        arrived: Instant,
    ) -> Result<Outcome, crate::store::Error> {
        match self.judge(db, read, arrived)? {
            Ok((event, decision)) => {
                db.record_decision(seq, event, &decision, Timestamp::now())?;
                Ok(told(seq, event, &decision))
            }
            Err(reason) => db.record_unreadable(seq, &reason).map(|()| Outcome::Filtered),
        }
    }

    /// The same for a new delivery, which is taken into the journal with its decision; none where it cannot be read.
    pub(super) fn decide_new(
        &self,
        db: &Db,
        accepting: &Accepting,
        read: &Result<Event, String>,
        arrived: Instant,
    ) -> Result<(DeliverySeq, Option<Decision>), crate::store::Error> {
        match self.judge(db, read, arrived)? {
            Ok((event, decision)) => {
                let seq = db.accept_decided(accepting, event, &decision, Timestamp::now())?;
                Ok((seq, Some(decision)))
            }
            Err(reason) => Ok((db.accept_unreadable(accepting, &reason)?, None)),
        }
    }

    /// The same for what came by watches, with the data that their conditions look into.
    pub(super) fn decide_watched(
        &self,
        db: &Db,
        seq: DeliverySeq,
        event: &Event,
        data: &Value,
        arrived: Instant,
    ) -> Result<(), crate::store::Error> {
        self.sessions.since(arrived).map(drop).map_err(unreadable)?;
        sighting::decide(db, &self.sessions, seq, event, data)
    }

    /// What is to become of an event, with the files of sessions that it ends written; or why there is no telling.
    fn judge<'e>(
        &self,
        db: &Db,
        read: &'e Result<Event, String>,
        arrived: Instant,
    ) -> Result<Result<(&'e Event, Decision), String>, crate::store::Error> {
        let event = match read {
            Ok(event) => event,
            Err(reason) => return Ok(Err(reason.clone())),
        };
        let decision = {
            let links = LinksInStore::new(db);
            // What was registered before the delivery came is seen.
            let sessions = self.sessions.since(arrived).map_err(unreadable)?;
            let routed = || routing::route(event, &self.rules, &links, &sessions);
            // As in reading: a defect that one delivery brings to light must not stop all others.
            let decision = std::panic::catch_unwind(std::panic::AssertUnwindSafe(routed));
            links.finish()?;
            decision
        };
        let Ok(decision) = decision else {
            return Ok(Err("cannot be decided: deciding it panicked; please report this delivery".into()));
        };
        // Session files first: closing is idempotent, so a crash before the commit only decides again.
        for key in &decision.closes {
            self.close(db, key, event)?;
        }
        self.note_repository(event, &decision);
        crash_point::reached("after-session-file");
        Ok(Ok((event, decision)))
    }

    fn close(&self, db: &Db, key: &SessionKey, event: &Event) -> Result<(), crate::store::Error> {
        let item = self.sessions.seen().get(key).map(|session| session.work_item.clone());
        if let Some(item) = item {
            let reason = format!("{} arrived", event.title());
            self.sessions
                .registry()
                .update(&item, |session| {
                    session.status = SessionStatus::Closed;
                    session.closed_reason = Some(reason.clone());
                })
                .map_err(|error| unreadable(error.into()))?;
            self.sessions.now().map(drop).map_err(unreadable)?;
            db.drop_inbox(key, &format!("its session was closed: {reason}"))?;
            db.end_watches_of(key, "its session was closed", Timestamp::now())?;
        }
        Ok(())
    }

    /// Has the repository's number written into the files of sessions that a delivery has reached by name. That takes
    /// the disk some milliseconds and nobody waits for it: lost in a crash, the next delivery brings it again.
    fn note_repository(&self, event: &Event, decision: &Decision) {
        let Some(repository) = &event.repository else { return };
        let Some(id) = repository.id else { return };
        let seen = self.sessions.seen();
        for assignment in &decision.assignments {
            let unknown = |session: &&Session| {
                session.repository_id.is_none() && session.work_item.repo() == Some(&repository.name)
            };
            if let Some(session) = seen.get(&assignment.session).filter(unknown)
                && self.numbers.send((session.work_item.clone(), id)).is_err()
            {
                tracing::error!("the thread that notes repository numbers has ended");
            }
        }
    }
}

/// Repository numbers are gathered for so long: each change in the directory of sessions makes everybody look at all of
/// its files again, and in a storm there are many first events.
const GATHER: Duration = Duration::from_secs(1);

/// Writes repository numbers into session files until nobody can send any more.
fn note_numbers(registry: &Registry, numbers: &mpsc::Receiver<(WorkItem, u64)>) {
    while let Ok(first) = numbers.recv() {
        std::thread::sleep(GATHER);
        let all: HashMap<WorkItem, u64> = std::iter::once(first).chain(numbers.try_iter()).collect();
        for (item, id) in all {
            note_number(registry, &item, id);
        }
    }
}

fn note_number(registry: &Registry, item: &WorkItem, id: u64) {
    let known = registry.find(item).map(|session| session.is_none_or(|session| session.repository_id.is_some()));
    let noted = known.and_then(|known| match known {
        true => Ok(()),
        false => registry.update(item, |session| session.repository_id = Some(id)).map(drop),
    });
    if let Err(error) = noted {
        tracing::warn!(%item, error = %crate::domain::chain(&error), "could not note a repository's number");
    }
}

/// Says what was decided.
pub(super) fn told(seq: DeliverySeq, event: &Event, decision: &Decision) -> Outcome {
    tracing::info!(seq = seq.0, event = %event.title(), outcome = %decision.outcome, reason = ?decision.reason, "decided");
    decision.outcome
}

pub(super) fn unreadable(error: Error) -> crate::store::Error {
    match error {
        Error::Store(error) => error,
        other => crate::store::Error::Content { what: "session", why: crate::domain::chain(&other) },
    }
}

/// Reads a delivery. One that cannot be read is kept with the reason.
pub(super) fn read(delivery: &Delivery) -> Result<Event, String> {
    payload::read(delivery).map_err(|error| unread(&error))
}

/// Why a delivery was not read, as its reason.
pub(super) fn unread(error: &payload::Error) -> String {
    format!("cannot be read: {error}")
}
