//! Notes who reads the feed of a repository, so that its observers know for whom to look.
//!
//! A client that polls or listens is in no table of its own: it is somebody for some minutes after it last asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::{Error, Interest};
use crate::catalogue;
use crate::store::Store;

/// How long somebody who asked is taken for a reader.
const FOR: Duration = Duration::from_secs(600);
/// How often that is written down anew.
const RENEWED: Duration = Duration::from_secs(240);

/// What is done when there is a new reader.
pub type Told = Arc<dyn Fn() + Send + Sync>;

/// Keeps account of readers. Cheap to clone.
#[derive(Clone)]
pub struct Readers {
    store: Store,
    told: Told,
    noted: Arc<Mutex<BTreeMap<(&'static str, String), Instant>>>,
}

impl Readers {
    /// Readers are kept in `store`; `told` hears of new ones.
    pub fn new(store: Store, told: Told) -> Self {
        Self { store, told, noted: Arc::default() }
    }

    /// Notes that somebody reads this now. Only what names a repository can be looked for.
    pub async fn note(&self, interest: &Interest) -> Result<(), Error> {
        if !interest.arguments.contains_key("repository") {
            return Ok(());
        }
        let key = (interest.kind.name(), catalogue::canonical(&interest.arguments));
        let is_new = {
            // A poisoned table is one like any other: at worst something is noted twice.
            let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
            noted.retain(|_, at| at.elapsed() < FOR);
            if noted.get(&key).is_some_and(|at| at.elapsed() < RENEWED) {
                return Ok(());
            }
            noted.insert(key, Instant::now()).is_none()
        };
        let (name, arguments) = (interest.kind.name(), interest.arguments.clone());
        let now = Timestamp::now();
        let until = now.checked_add(FOR).unwrap_or(now);
        self.store.write_apart(move |db| db.note_reader(name, &arguments, now, until)).await?;
        if is_new {
            (self.told)();
        }
        Ok(())
    }
}
