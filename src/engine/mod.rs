//! Floor 5: the loop. Intake accepts, the router decides, the dispatcher runs turns; the feed is read by those who
//! watch, and the courier posts it to those who subscribed.
//!
//! They share nothing but the store and some bells: intake rings the router's, the router rings the
//! dispatcher's. A bell that rings while its listener works is heard when it listens again, so nothing is missed
//! between looking and sleeping; and what is in the store is found after any restart.

mod courier;
mod decider;
mod desk;
mod dispatcher;
mod explain;
mod feed;
mod intake;
mod observing;
mod readers;
mod router;
pub mod schedule;
mod sighting;
mod subscriptions;
mod telling;
mod turn_end;
mod turn_run;
mod watching;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use tokio::sync::{Notify, watch};

pub use crate::store::PollRow;
pub use courier::Courier;
pub use decider::Decider;
pub use desk::{Added, Desk, NewWatch, Who};
pub use dispatcher::{Dispatcher, DispatcherSettings, over_budget, running};
pub use explain::explain;
pub use feed::{Feed, Interest, Page, Said, Stream};
pub use intake::Intake;
pub use observing::{Observing, Waiting};
pub use readers::{Readers, Told as ToldOfReader};
pub use router::Router;
pub use subscriptions::{
    Granted, Lifetime, Request, SubscribeError, SubscriptionSettings, Subscriptions, subscription_id,
};
pub use telling::{Taken, Told};
pub use turn_run::{TurnRunner, TurnRunnerParts, turn_dir};
pub use watching::Watches;

pub use crate::store::{Hook, ServerState};

use crate::domain::{Session, SessionKey};
use crate::registry::{Registry, View};
use crate::{registry, routing, store};

/// Why the loop could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] registry::Error),
    /// A task ended in a panic, which is a defect.
    #[error("finish a task: it panicked")]
    Panicked,
}

/// The bells that tell a part that there is work.
#[derive(Clone, Default)]
pub struct Bells {
    /// A delivery waits for its decision.
    pub router: Arc<Notify>,
    /// An inbox, a session or a setting has changed.
    pub dispatcher: Arc<Notify>,
    /// Sessions may have come or gone.
    pub observers: Arc<Notify>,
    /// How many turns run.
    pub turns: TurnCount,
    /// The feed has grown.
    pub feed: Arc<Notify>,
    /// Something is owed to a subscription.
    pub courier: Arc<Notify>,
    /// A watch was added or ended, or a session closed.
    pub watches: Arc<Notify>,
}

impl Bells {
    /// Something may have been added to the feed.
    pub fn published(&self) {
        self.feed.notify_one();
        self.courier.notify_one();
    }
}

/// How many turns run now, for whoever has to do something while any does.
#[derive(Clone)]
pub struct TurnCount(Arc<watch::Sender<usize>>);

impl Default for TurnCount {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl TurnCount {
    /// Counts one turn until what is given back is dropped.
    fn count(&self) -> Counted {
        self.0.send_modify(|count| *count += 1);
        Counted(self.clone())
    }

    /// The number, and every change of it.
    pub fn watch(&self) -> watch::Receiver<usize> {
        self.0.subscribe()
    }
}

/// A turn that counts.
struct Counted(TurnCount);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// The registry with a view of it that is read anew only where files have changed. Cheap to clone.
#[derive(Clone)]
pub struct Sessions {
    registry: Arc<Registry>,
    view: Arc<Mutex<Looked>>,
}

#[derive(Default)]
struct Looked {
    view: View,
    since: Option<Instant>,
}

impl Sessions {
    /// The sessions of `registry`.
    pub fn new(registry: Registry) -> Self {
        Self { registry: Arc::new(registry), view: Arc::default() }
    }

    /// The files themselves.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Looks at the files: every change made before this call is seen. It costs a look at each file, so it is made
    /// once for a batch of work.
    pub fn now(&self) -> Result<SessionsNow<'_>, Error> {
        let mut seen = self.seen();
        seen.0.since = Some(Instant::now());
        seen.0.view.refresh(&self.registry)?;
        Ok(seen)
    }

    /// As [`now`](Self::now) for what arrived at `arrived`: a look that was begun after it is not repeated.
    pub fn since(&self, arrived: Instant) -> Result<SessionsNow<'_>, Error> {
        let mut seen = self.seen();
        if seen.0.since.is_none_or(|since| since < arrived) {
            seen.0.since = Some(Instant::now());
            seen.0.view.glance(&self.registry)?;
        }
        Ok(seen)
    }

    /// The sessions as they were when somebody last looked.
    pub fn seen(&self) -> SessionsNow<'_> {
        // A poisoned view is a cache like any other: what it holds is checked against the files anyway.
        SessionsNow(self.view.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// The sessions at one moment.
pub struct SessionsNow<'a>(MutexGuard<'a, Looked>);

impl SessionsNow<'_> {
    /// One session.
    pub fn get(&self, key: &SessionKey) -> Option<&Session> {
        self.0.view.find(key)
    }

    /// What open sessions wait for on GitHub.
    fn open_on_github(&self) -> Vec<Waiting> {
        let open = self.0.view.sessions().filter(|session| session.is_open() && session.work_item.repo().is_some());
        open.map(|s| Waiting { item: s.work_item.clone(), since: s.created_at, own: true }).collect()
    }

    /// Whether some session file cannot be read.
    pub fn damaged(&self) -> usize {
        self.0.view.damaged().len()
    }
}

impl routing::Sessions for SessionsNow<'_> {
    fn find(&self, key: &SessionKey) -> Option<Session> {
        self.0.view.find(key).cloned()
    }
}
