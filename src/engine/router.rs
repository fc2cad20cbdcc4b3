//! The router: decides what intake could not, in the order of the journal.
//!
//! Most deliveries are decided in the commit that takes them in ([`Intake`](super::Intake)). What is left for the router
//! came by polling, or while something older waited, or is to be decided anew, or met a failing store.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::crash_point;
use crate::domain::{DeliverySeq, Event};
use crate::store::{Store, Undecided};

use super::decider::{self, Decider};
use super::{Bells, Error, sighting};

/// How many deliveries are decided at a time, so that they share commits and one look at the registry.
const BATCH: usize = 128;
/// How many bytes of bodies are held for that.
const BATCH_BYTES: u64 = 32 << 20;
/// The wait after the store failed: it may be full, and somebody may be making room.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// No sleep is longer.
const LONGEST_SLEEP: Duration = Duration::from_secs(300);

/// The router's parts.
#[derive(Clone)]
pub struct Router {
    store: Store,
    decider: Decider,
    bells: Bells,
}

impl Router {
    /// Deliveries in `store` are decided by `decider`.
    pub fn new(store: Store, decider: Decider, bells: Bells) -> Self {
        Self { store, decider, bells }
    }

    /// Decides whatever waits, then sleeps until more comes; for ever.
    pub async fn run(self) {
        loop {
            match self.step().await {
                // The bell tells; the time is for what happened where no bell could be rung.
                Ok(0) => drop(tokio::time::timeout(LONGEST_SLEEP, self.bells.router.notified()).await),
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
        let arrived = Instant::now();
        let read = tokio::task::spawn_blocking(|| waiting.into_iter().map(read).collect::<Vec<_>>())
            .await
            .map_err(|_| Error::Panicked)?;
        // All are handed over before the first is waited for: they share a commit, in order.
        let mut writes = Vec::with_capacity(count);
        for (seq, event, data) in read {
            let decider = self.decider.clone();
            writes.push(self.store.submit(move |db| match (event, data) {
                // What came by a watch is decided when it comes, and here only when a person asks for it anew.
                (Ok(event), Some(data)) => decider.decide_watched(db, seq, &event, &data, arrived),
                (event, _) => decider.decide(db, seq, &event, arrived).map(drop),
            })?);
        }
        let mut failed = None;
        for write in writes {
            if let Err(error) = write.done().await {
                failed = failed.or(Some(error));
            }
        }
        crash_point::reached("after-decision-commit");
        // Also where one of them failed: the others are in their inboxes.
        self.bells.dispatcher.notify_one();
        self.bells.published();
        failed.map_or(Ok(count), |error| Err(error.into()))
    }
}

fn read(undecided: Undecided) -> (DeliverySeq, Result<Event, String>, Option<Value>) {
    let Undecided { seq, delivery } = undecided;
    let data = delivery.as_ref().ok().and_then(sighting::data_of);
    let event = match delivery {
        Ok(delivery) => decider::read(&delivery),
        Err(error) => Err(format!("cannot be read: failed to {}", crate::domain::chain(&error))),
    };
    (seq, event, data)
}
