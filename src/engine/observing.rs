//! What observers of GitHub need of us: who waits for what, and one transaction for what they saw.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::domain::{Delivery, Reader, Receipt, WorkItem};
use crate::store::{Accepting, PollRow, Store};

use super::{Bells, Error, Sessions};

/// A work item that an open session waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The session's work item, or a pull request that belongs to it.
    pub item: WorkItem,
    /// Since when the session waits.
    pub since: Timestamp,
    /// Whether the session was registered for this very item.
    pub own: bool,
}

/// The door of observers. Cheap to clone.
#[derive(Clone)]
pub struct Observing {
    store: Store,
    sessions: Sessions,
    bells: Bells,
    posts: bool,
}

impl Observing {
    /// Observations go to `store`, for the sessions in `sessions` and whoever reads the feed; `posts` says whether
    /// subscribers are posted to.
    pub fn new(store: Store, sessions: Sessions, bells: Bells, posts: bool) -> Self {
        Self { store, sessions, bells, posts }
    }

    /// Whether there is anybody to observe for.
    pub async fn is_needed(&self) -> Result<bool, Error> {
        Ok(!self.waiting().await?.is_empty() || !self.readers().await?.is_empty())
    }

    /// Everybody who reads the feed now.
    pub async fn readers(&self) -> Result<Vec<Reader>, Error> {
        let posts = self.posts;
        Ok(self.store.read(move |db| db.readers(Timestamp::now(), posts)).await?)
    }

    /// Every work item on GitHub that an open session waits for, with the pull requests that are known to belong to it.
    pub async fn waiting(&self) -> Result<Vec<Waiting>, Error> {
        let sessions = self.sessions.clone();
        let own: Vec<Waiting> = tokio::task::spawn_blocking(move || sessions.now().map(|now| now.open_on_github()))
            .await
            .map_err(|_| Error::Panicked)??;
        if own.is_empty() {
            return Ok(own);
        }
        let found = self.store.read(move |db| {
            let mut all = own.clone();
            let mut seen: BTreeSet<String> = own.iter().map(|waiting| waiting.item.key()).collect();
            for waiting in own {
                for item in db.items_leading_to(&waiting.item.key())? {
                    if seen.insert(item.key()) {
                        all.push(Waiting { item, since: waiting.since, own: false });
                    }
                }
            }
            Ok(all)
        });
        Ok(found.await?)
    }

    /// What was seen of a repository before.
    pub async fn seen(&self, repository: &str) -> Result<Option<PollRow>, Error> {
        let repository = repository.to_owned();
        Ok(self.store.read(move |db| db.poll(&repository)).await?)
    }

    /// Keeps what was seen and takes in what it led to, in one transaction. Gives the number of new deliveries.
    pub async fn keep(&self, row: PollRow, deliveries: Vec<Delivery>) -> Result<usize, Error> {
        let made = deliveries.into_iter().map(Accepting::new);
        let accepting = made.collect::<Result<Vec<_>, _>>()?;
        let new = self
            .store
            .write(move |db| {
                let mut new = 0;
                for accepting in &accepting {
                    if let Receipt::Accepted(_) = db.accept(accepting)? {
                        new += 1;
                    }
                }
                db.put_poll(&row)?;
                Ok(new)
            })
            .await?;
        if new > 0 {
            self.bells.router.notify_one();
        }
        Ok(new)
    }

    /// Forgets every repository but these: whoever waits for another one later, waits from then on.
    pub async fn forget_all_but(&self, keep: BTreeSet<String>) -> Result<(), Error> {
        let known = self.store.read(|db| db.polls()).await?;
        let gone: Vec<_> = known.into_iter().map(|row| row.repository).filter(|name| !keep.contains(name)).collect();
        if gone.is_empty() {
            return Ok(());
        }
        self.store.write(move |db| gone.iter().try_for_each(|name| db.forget_poll(name).map(drop))).await?;
        Ok(())
    }

    /// Returns when a command has changed something.
    pub async fn changed(&self) {
        self.bells.observers.notified().await;
    }
}
