//! Intake: the waist through which everything comes in.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::domain::{Delivery, Receipt};
use crate::store::{self, Accepting, Refused, Store};

use super::{Bells, Error};

/// Bodies above this are compressed off the async threads.
const LARGE: usize = 256 << 10;

/// At most one refusal is kept in this time: whoever can reach us must not fill our disk.
const REFUSALS_EVERY: Duration = Duration::from_secs(1);

/// Takes deliveries in. Cheap to clone.
#[derive(Clone)]
pub struct Intake {
    store: Store,
    bells: Bells,
    last_refusal: Arc<Mutex<Option<Instant>>>,
}

impl Intake {
    /// Deliveries go to `store`, and the router hears of them.
    pub fn new(store: Store, bells: Bells) -> Self {
        Self { store, bells, last_refusal: Arc::default() }
    }

    /// Takes one delivery in. When this returns, its fate is on disk and the sender may be told.
    pub async fn accept(&self, delivery: Delivery) -> Result<Receipt, Error> {
        let accepting = if delivery.body.len() > LARGE {
            tokio::task::spawn_blocking(|| Accepting::new(delivery)).await.map_err(|_| Error::Panicked)??
        } else {
            Accepting::new(delivery)?
        };
        let receipt = self.store.write(move |db| db.accept(&accepting)).await?;
        match receipt {
            Receipt::Accepted(_) => self.bells.router.notify_one(),
            Receipt::Requeued(_) => self.bells.dispatcher.notify_one(),
            Receipt::Duplicate(_) => {}
        }
        Ok(receipt)
    }

    /// Keeps a refusal for `doctor` to show; one in a second is enough to see what is wrong.
    pub fn note_refusal(&self, status: u16, reason: &str, hint: &str) {
        {
            let mut last = self.last_refusal.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_some_and(|at| at.elapsed() < REFUSALS_EVERY) {
                return;
            }
            *last = Some(Instant::now());
        }
        let refused = Refused { at: Timestamp::now(), status, reason: reason.into(), hint: hint.into() };
        // The log has it too, so nobody waits for this; a store that is closed or full has other worries.
        if self.store.submit(move |db| db.note_refusal(&refused)).is_err() {
            tracing::debug!("a refusal was not kept: the store is closed");
        }
    }

    /// Whether the store takes writes now: for the readiness answer.
    pub async fn ready(&self) -> Result<(), store::Error> {
        self.store.write(|_| Ok(())).await
    }
}
