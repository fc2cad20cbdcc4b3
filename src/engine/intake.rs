//! Intake: the waist through which everything comes in.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::domain::{Decision, DeliverySeq, Event, Outcome, Receipt};
use crate::payload::Received;
use crate::store::{self, Accepting, Db, Refused, Store};

use super::decider::{self, Decider};
use super::{Bells, Error};
use crate::crash_point;

/// Bodies above this are compressed off the async threads.
const LARGE: usize = 256 << 10;

/// At most one refusal is kept in this time: whoever can reach us must not fill our disk.
const REFUSALS_EVERY: Duration = Duration::from_secs(1);

/// Takes deliveries in. Cheap to clone.
#[derive(Clone)]
pub struct Intake {
    store: Store,
    decider: Decider,
    bells: Bells,
    last_refusal: Arc<Mutex<Option<Instant>>>,
}

impl Intake {
    /// Deliveries go to `store` and are decided by `decider`; what it cannot decide at once is the router's.
    pub fn new(store: Store, decider: Decider, bells: Bells) -> Self {
        Self { store, decider, bells, last_refusal: Arc::default() }
    }

    /// Takes one delivery in. When this returns, its fate is on disk and the sender may be told.
    pub async fn accept(&self, received: Received) -> Result<Receipt, Error> {
        let arrived = Instant::now();
        let Received { delivery, event } = received;
        let read = event.map_err(|error| decider::unread(&error));
        let accepting = if delivery.body.len() > LARGE {
            tokio::task::spawn_blocking(|| Accepting::new(delivery)).await.map_err(|_| Error::Panicked)??
        } else {
            Accepting::new(delivery)?
        };
        let decider = self.decider.clone();
        // What is left of the work is dropped, and told to the log, by us: others wait for the writer.
        let work = move |db: &Db| Ok((take_in(db, &decider, &accepting, &read, arrived)?, accepting, read));
        let (taken, _accepting, read) = self.store.write(work).await?;
        crash_point::reached("after-accept-commit");
        let receipt = match taken {
            Taken::Known(receipt) => {
                if matches!(receipt, Receipt::Requeued(_)) {
                    self.bells.dispatcher.notify_one();
                }
                receipt
            }
            Taken::Waits(seq) => {
                self.bells.router.notify_one();
                Receipt::Accepted(seq)
            }
            Taken::Decided(seq, decision) => {
                self.bells.published();
                if let (Ok(event), Some(decision)) = (&read, &decision)
                    && decider::told(seq, event, decision) == Outcome::Queued
                {
                    self.bells.dispatcher.notify_one();
                }
                Receipt::Accepted(seq)
            }
        };
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

/// What came of taking a delivery in.
enum Taken {
    /// It came before.
    Known(Receipt),
    /// It is kept, and the router decides it.
    Waits(DeliverySeq),
    /// It is kept and decided; without a decision where it cannot be read.
    Decided(DeliverySeq, Option<Decision>),
}

/// Takes a delivery in. A new one is decided in the same commit, unless something older waits for its decision: decisions
/// follow the order of the journal. Whatever is wrong with deciding costs the delivery nothing: it is kept all the same,
/// for the router.
fn take_in(
    db: &Db,
    decider: &Decider,
    accepting: &Accepting,
    read: &Result<Event, String>,
    arrived: Instant,
) -> Result<Taken, store::Error> {
    if let Some(receipt) = db.known(accepting)? {
        return Ok(Taken::Known(receipt));
    }
    if !db.has_undecided()? {
        match db.apart(|db| decider.decide_new(db, accepting, read, arrived)) {
            Ok((seq, decision)) => return Ok(Taken::Decided(seq, decision)),
            Err(error) => {
                tracing::error!(delivery = accepting.id(), error = %crate::domain::chain(&error), "could not decide a delivery at once");
            }
        }
    }
    Ok(match db.accept(accepting)? {
        Receipt::Accepted(seq) => Taken::Waits(seq),
        known => Taken::Known(known),
    })
}
