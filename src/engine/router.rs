//! The router: one decision per delivery, in the order of the journal.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::domain::{Decision, DeliverySeq, Event, Session, SessionKey, SessionStatus};
use crate::payload;
use crate::routing::{self, Rules};
use crate::store::{Db, LinksInStore, Store, Undecided};

use super::{Bells, Error, Sessions, watching};

/// How many deliveries are decided at a time, so that they share commits and one look at the registry.
const BATCH: usize = 128;
/// How many bytes of bodies are held for that.
const BATCH_BYTES: u64 = 32 << 20;
/// The wait after the store failed: it may be full, and somebody may be making room.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The router's parts.
#[derive(Clone)]
pub struct Router {
    store: Store,
    sessions: Sessions,
    rules: Arc<Rules>,
    bells: Bells,
}

impl Router {
    /// Deliveries in `store` are decided by `rules`.
    pub fn new(store: Store, sessions: Sessions, rules: Arc<Rules>, bells: Bells) -> Self {
        Self { store, sessions, rules, bells }
    }

    /// Decides whatever waits, then sleeps until more comes; for ever.
    pub async fn run(self) {
        loop {
            match self.step().await {
                Ok(0) => self.bells.router.notified().await,
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(error = %crate::domain::chain(&error), "could not decide deliveries; trying again");
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
    }

    /// Decides one batch and gives its size.
    async fn step(&self) -> Result<usize, Error> {
        let waiting = self.store.read(|db| db.undecided(BATCH, BATCH_BYTES)).await?;
        let count = waiting.len();
        if count == 0 {
            return Ok(0);
        }
        let read = tokio::task::spawn_blocking(|| waiting.into_iter().map(read).collect::<Vec<_>>())
            .await
            .map_err(|_| Error::Panicked)?;
        // After the deliveries were read: what was registered before one of them came is seen.
        let sessions = self.sessions.clone();
        tokio::task::spawn_blocking(move || sessions.now().map(drop)).await.map_err(|_| Error::Panicked)??;
        // All are handed over before the first is waited for: they share a commit, in order.
        let mut writes = Vec::with_capacity(count);
        for (seq, event, data) in read {
            let this = self.clone();
            writes.push(self.store.submit(move |db| match (event, data) {
                // What came by a watch is decided when it comes, and here only when a person asks for it anew.
                (Ok(event), Some(data)) => watching::decide(db, &this.sessions, seq, &event, &data),
                (Ok(event), None) => this.decide(db, seq, &event),
                (Err(reason), _) => db.record_unreadable(seq, &reason),
            })?);
        }
        for write in writes {
            write.done().await?;
        }
        self.bells.dispatcher.notify_one();
        self.bells.published();
        Ok(count)
    }

    /// Decides one delivery and makes it true. Runs on the writer, so that it sees every link learned before.
    fn decide(&self, db: &Db, seq: DeliverySeq, event: &Event) -> Result<(), crate::store::Error> {
        let decision = {
            let links = LinksInStore::new(db);
            let sessions = self.sessions.seen();
            let decision = routing::route(event, &self.rules, &links, &sessions);
            links.finish()?;
            decision
        };
        // Session files first: closing is idempotent, so a crash before the commit only decides again.
        for key in &decision.closes {
            self.close(db, key, event)?;
        }
        self.note_repository(event, &decision)?;
        db.record_decision(seq, event, &decision, Timestamp::now())?;
        tracing::info!(seq = seq.0, event = %event.title(), outcome = %decision.outcome, reason = ?decision.reason, "decided");
        Ok(())
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
            self.bells.watches.notify_one();
        }
        Ok(())
    }

    /// Writes the repository's number into the files of sessions that a delivery has reached by name.
    fn note_repository(&self, event: &Event, decision: &Decision) -> Result<(), crate::store::Error> {
        let Some(repository) = &event.repository else { return Ok(()) };
        let Some(id) = repository.id else { return Ok(()) };
        for assignment in &decision.assignments {
            let unknown = |session: &Session| {
                session.repository_id.is_none() && session.work_item.repo() == Some(&repository.name)
            };
            let item = self
                .sessions
                .seen()
                .get(&assignment.session)
                .filter(|session| unknown(session))
                .map(|session| session.work_item.clone());
            if let Some(item) = item {
                self.sessions
                    .registry()
                    .update(&item, |session| session.repository_id = Some(id))
                    .map_err(|error| unreadable(error.into()))?;
                self.sessions.now().map(drop).map_err(unreadable)?;
            }
        }
        Ok(())
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
fn read(undecided: Undecided) -> (DeliverySeq, Result<Event, String>, Option<Value>) {
    let Undecided { seq, delivery } = undecided;
    let data = watching::data_of(&delivery);
    let event = match std::panic::catch_unwind(|| payload::read(&delivery)) {
        Ok(Ok(event)) => Ok(event),
        Ok(Err(error)) => Err(format!("cannot be read: {error}")),
        Err(_) => Err("cannot be read: reading it panicked; please report this delivery".into()),
    };
    (seq, event, data)
}
