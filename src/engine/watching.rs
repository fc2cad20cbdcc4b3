//! Watches, for those who serve them: which there are, how they stand, and what of that is kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::domain::{EventOffer, Mode, Watch, WatchId};
use crate::store::{Db, Hook, ServerState, Store};

use super::{Bells, Error, Sessions};

/// Who asks what a server offers does not wait for longer.
const WANTED: SignedDuration = SignedDuration::from_mins(1);

/// The watches. Cheap to clone.
#[derive(Clone)]
pub struct Watches {
    pub(super) store: Store,
    pub(super) sessions: Sessions,
    pub(super) bells: Bells,
    /// What servers said that is not worth a write of its own: nothing has happened up to here.
    pub(super) quiet: Quiet,
}

/// Watches of which nothing new was heard: up to where, and when. What is in here is newer than what is in the store:
/// it is taken out on the store's writer only.
pub(super) type Quiet = Arc<Mutex<BTreeMap<WatchId, (Option<String>, Timestamp)>>>;

/// Forgets what was last heard of a watch: something newer is written.
pub(super) fn heard(quiet: &Quiet, id: &WatchId) {
    quiet.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
}

impl Watches {
    /// The watches in `store`, of `sessions`.
    pub fn new(store: Store, sessions: Sessions, bells: Bells) -> Self {
        Self { store, sessions, bells, quiet: Quiet::default() }
    }

    /// Notes that a server has told everything up to `cursor`, and nothing was new. Kept with the next
    /// [`keep_quiet`](Self::keep_quiet): lost in a crash, the server only says so again.
    pub fn nothing_new(&self, id: &WatchId, cursor: Option<String>) {
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        let known = quiet.remove(id).and_then(|(cursor, _)| cursor);
        quiet.insert(id.clone(), (cursor.or(known), Timestamp::now()));
    }

    /// Keeps of all watches what was noted since the last time: a thousand watches at rest are one write.
    pub async fn keep_quiet(&self) -> Result<(), Error> {
        let quiet = Arc::clone(&self.quiet);
        if quiet.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return Ok(());
        }
        let keep = move |db: &Db| {
            let noted = std::mem::take(&mut *quiet.lock().unwrap_or_else(PoisonError::into_inner));
            noted.iter().try_for_each(|(id, (cursor, at))| db.watch_checked(id, cursor.as_deref(), *at))
        };
        Ok(self.store.write(keep).await?)
    }

    /// Waits until a watch may have been added or ended.
    pub async fn changed(&self) {
        self.bells.watches.notified().await;
    }

    /// Says that something has changed.
    pub fn look_again(&self) {
        self.bells.watches.notify_one();
    }

    /// The watches that are to be served. Those whose sessions are over end here.
    pub async fn active(&self) -> Result<Vec<Watch>, Error> {
        let watches = self.store.read(|db| db.watches(true)).await?;
        let sessions = self.sessions.clone();
        let (open, closed): (Vec<_>, Vec<_>) = tokio::task::spawn_blocking(move || {
            let now = sessions.now()?;
            // A file that cannot be read may be that of the session: its watches wait with it until it is mended.
            let unknown = now.damaged() > 0;
            let is_open = |watch: &Watch| now.get(&watch.session()).map_or(unknown, crate::domain::Session::is_open);
            Ok::<_, Error>(watches.into_iter().partition(is_open))
        })
        .await
        .map_err(|_| Error::Panicked)??;
        for watch in closed {
            let id = watch.id.clone();
            self.store.write(move |db| db.end_watch(&id, "its session was closed", Timestamp::now())).await?;
            tracing::info!(watch = %watch.id, "a watch ended: its session was closed");
        }
        Ok(open)
    }

    /// Begins a watch anew: its server does not take the cursor any more.
    pub async fn forget_cursor(&self, id: &WatchId) -> Result<(), Error> {
        let (id, quiet) = (id.clone(), Arc::clone(&self.quiet));
        let forget = move |db: &Db| {
            heard(&quiet, &id);
            db.forget_watch_cursor(&id)
        };
        Ok(self.store.write(forget).await?)
    }

    /// Notes why nothing comes by a watch; until its server tells something.
    pub async fn failed(&self, id: &WatchId, problem: &str) -> Result<(), Error> {
        let (id, problem) = (id.clone(), problem.to_owned());
        Ok(self.store.write(move |db| db.watch_failed(&id, &problem)).await?)
    }

    /// One watch as it is now.
    pub async fn get(&self, id: &WatchId) -> Result<Option<Watch>, Error> {
        let id = id.clone();
        Ok(self.store.read(move |db| db.watch(&id)).await?)
    }

    /// Notes how a watch's events come.
    pub async fn serves(&self, id: &WatchId, mode: Mode) -> Result<(), Error> {
        let id = id.clone();
        Ok(self.store.write(move |db| db.set_watch_delivery(&id, mode)).await?)
    }

    /// How the webhook subscription of a watch stands.
    pub async fn hook(&self, id: &WatchId) -> Result<Option<Hook>, Error> {
        let id = id.clone();
        Ok(self.store.read(move |db| db.hook(&id)).await?)
    }

    /// Keeps how the webhook subscription of a watch stands.
    pub async fn keep_hook(&self, id: &WatchId, hook: Hook) -> Result<(), Error> {
        let id = id.clone();
        Ok(self.store.write(move |db| db.set_hook(&id, &hook)).await?)
    }

    /// Ended watches whose servers still post to us, with where to.
    pub async fn hooks_to_end(&self) -> Result<Vec<(Watch, String)>, Error> {
        Ok(self.store.read(Db::hooks_to_end).await?)
    }

    /// The servers that somebody wants looked at: who cannot reach them, but can ask us.
    pub async fn offers_wanted(&self) -> Result<Vec<String>, Error> {
        let since = Timestamp::now().checked_sub(WANTED).unwrap_or(Timestamp::MIN);
        Ok(self.store.read(move |db| db.offers_wanted(since)).await?)
    }

    /// Keeps what a server offers, for those who asked.
    pub async fn keep_offers(&self, server: &str, offers: Vec<EventOffer>) -> Result<(), Error> {
        let server = server.to_owned();
        Ok(self.store.write(move |db| db.set_offers(&server, &offers, Timestamp::now())).await?)
    }

    /// Keeps how a server stands, for commands to show.
    pub async fn server_is(&self, state: ServerState) -> Result<(), Error> {
        Ok(self.store.write(move |db| db.set_server_state(&state)).await?)
    }

    /// Forgets how servers stood for an earlier process.
    pub async fn begin(&self) -> Result<(), Error> {
        Ok(self.store.write(Db::forget_server_states).await?)
    }
}
