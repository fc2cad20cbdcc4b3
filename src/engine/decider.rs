//! One decision and what it makes true. Runs on the store's writer, so that it sees every link learned before.

use std::sync::{Arc, mpsc};
use std::time::Instant;

use jiff::Timestamp;
use serde_json::Value;

use crate::crash_point;
use crate::domain::{Decision, Delivery, DeliverySeq, Event, Outcome, Session, SessionKey, SessionStatus, WorkItem};
use crate::payload;
use crate::registry::Registry;
use crate::routing::{self, Rules};
use crate::store::{Db, LinksInStore};

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

    /// Decides what was read of a delivery that arrived at `arrived`.
    pub(super) fn decide(
        &self,
        db: &Db,
        seq: DeliverySeq,
        read: &Result<Event, String>,
        arrived: Instant,
    ) -> Result<Outcome, crate::store::Error> {
        match read {
            Ok(event) => self.decide_event(db, seq, event, arrived),
            Err(reason) => db.record_unreadable(seq, reason).map(|()| Outcome::Filtered),
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

    fn decide_event(
        &self,
        db: &Db,
        seq: DeliverySeq,
        event: &Event,
        arrived: Instant,
    ) -> Result<Outcome, crate::store::Error> {
        let decision = {
            let links = LinksInStore::new(db);
            // What was registered before the delivery came is seen.
            let sessions = self.sessions.since(arrived).map_err(unreadable)?;
            let routed = || routing::route(event, &self.rules, &links, &sessions);
            // As in reading: a defect that one delivery brings to light must not stop all others.
            let decision = std::panic::catch_unwind(std::panic::AssertUnwindSafe(routed));
            links.finish()?;
            match decision {
                Ok(decision) => decision,
                Err(_) => {
                    let why = "cannot be decided: deciding it panicked; please report this delivery";
                    return db.record_unreadable(seq, why).map(|()| Outcome::Filtered);
                }
            }
        };
        // Session files first: closing is idempotent, so a crash before the commit only decides again.
        for key in &decision.closes {
            self.close(db, key, event)?;
        }
        self.note_repository(event, &decision);
        crash_point::reached("after-session-file");
        db.record_decision(seq, event, &decision, Timestamp::now())?;
        tracing::info!(seq = seq.0, event = %event.title(), outcome = %decision.outcome, reason = ?decision.reason, "decided");
        Ok(decision.outcome)
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

/// Writes repository numbers into session files, one by one, until nobody can send any more.
fn note_numbers(registry: &Registry, numbers: &mpsc::Receiver<(WorkItem, u64)>) {
    while let Ok((item, id)) = numbers.recv() {
        let known = registry.find(&item).map(|session| session.is_none_or(|session| session.repository_id.is_some()));
        let noted = known.and_then(|known| match known {
            true => Ok(()),
            false => registry.update(&item, |session| session.repository_id = Some(id)).map(drop),
        });
        if let Err(error) = noted {
            tracing::warn!(%item, error = %crate::domain::chain(&error), "could not note a repository's number");
        }
    }
}

fn unreadable(error: Error) -> crate::store::Error {
    match error {
        Error::Store(error) => error,
        other => crate::store::Error::Content { what: "session", why: crate::domain::chain(&other) },
    }
}

/// Reads a delivery. One that cannot be read is kept with the reason; a panic in reading is a defect, but not a reason
/// to stop deciding all others.
pub(super) fn read(delivery: &Delivery) -> Result<Event, String> {
    match std::panic::catch_unwind(|| payload::read(delivery)) {
        Ok(Ok(event)) => Ok(event),
        Ok(Err(error)) => Err(format!("cannot be read: {error}")),
        Err(_) => Err("cannot be read: reading it panicked; please report this delivery".into()),
    }
}
