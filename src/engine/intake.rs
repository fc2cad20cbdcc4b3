//! Intake: the waist through which everything comes in.

use crate::domain::{Delivery, Receipt};
use crate::store::{self, Accepting, Store};

use super::{Bells, Error};
use crate::crash_point;

/// Bodies above this are compressed off the async threads.
const LARGE: usize = 256 << 10;

/// Takes deliveries in. Cheap to clone.
#[derive(Clone)]
pub struct Intake {
    store: Store,
    bells: Bells,
}

impl Intake {
    /// Deliveries go to `store`, and the router hears of them.
    pub fn new(store: Store, bells: Bells) -> Self {
        Self { store, bells }
    }

    /// Takes one delivery in. When this returns, its fate is on disk and the sender may be told.
    pub async fn accept(&self, delivery: Delivery) -> Result<Receipt, Error> {
        let accepting = if delivery.body.len() > LARGE {
            tokio::task::spawn_blocking(|| Accepting::new(delivery)).await.map_err(|_| Error::Panicked)??
        } else {
            Accepting::new(delivery)?
        };
        let receipt = self.store.write(move |db| db.accept(&accepting)).await?;
        crash_point::reached("after-accept-commit");
        match receipt {
            Receipt::Accepted(_) => self.bells.router.notify_one(),
            Receipt::Requeued(_) => self.bells.dispatcher.notify_one(),
            Receipt::Duplicate(_) => {}
        }
        Ok(receipt)
    }

    /// Whether the store takes writes now: for the readiness answer.
    pub async fn ready(&self) -> Result<(), store::Error> {
        self.store.write(|_| Ok(())).await
    }
}
