//! Floor 3: the journal, inboxes, turns and links in SQLite; one writer that commits in groups.
//!
//! [`Store`] is the server's handle: reads on connections of their own, writes through one thread. [`Db`] is one
//! connection with all the verbs; command-line tools open one directly ([`Db::open`]) and SQLite's own lock keeps the
//! two processes apart. See `docs/decisions/0003-sqlite-with-one-writer.md`.

mod attempts;
mod checkpoint;
mod db;
mod decisions;
mod deliveries;
mod feed;
mod inbox;
mod journal;
mod links;
mod owed;
mod polls;
mod principals;
mod readers;
mod refusals;
mod retention;
mod schema;
mod servers;
mod sessions;
mod subscriptions;
mod turns;
mod watches;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub use attempts::{AttemptRow, PostEnd};
pub use db::{Access, Db};
pub use deliveries::{DeliveryFilter, DeliveryRow, NoticeRow};
pub use feed::Scan;
pub use inbox::{Inbox, WaitingNotice};
pub use journal::{Accepting, Undecided};
pub use links::LinksInStore;
pub use owed::{CourierState, Due, Parcel, Post};
pub use polls::PollRow;
pub use refusals::Refused;
pub use retention::{Kept, Retention};
pub use servers::ServerState;
pub use sessions::{SessionState, Spending};
pub use subscriptions::{Subscribe, Subscribed};
pub use turns::{NewTurn, Settlement, TurnFilter};
pub use watches::Hook;

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The state directory or the database file could not be made or opened.
    #[error("open the database `{path}`")]
    Open {
        /// Where it is.
        path: PathBuf,
        /// SQLite's reason.
        #[source]
        source: rusqlite::Error,
    },
    /// The state directory could not be made.
    #[error("make the state directory `{path}`")]
    Directory {
        /// Where it should be.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// A newer program wrote this file.
    #[error(
        "read the database `{path}`: its version {found} is newer than this program knows ({known}); upgrade the-loop"
    )]
    Newer {
        /// Where it is.
        path: PathBuf,
        /// The version in the file.
        found: i64,
        /// The newest version we know.
        known: i64,
    },
    /// An older program wrote this file, and a reader does not change it.
    #[error(
        "read the database `{path}`: its version {found} is older than this program's ({known}); start this version's server once"
    )]
    Older {
        /// Where it is.
        path: PathBuf,
        /// The version in the file.
        found: i64,
        /// The version we read.
        known: i64,
    },
    /// The file is no database, or it is damaged.
    #[error("read the database `{path}`: it is damaged ({why}); nothing was changed")]
    Damaged {
        /// Where it is.
        path: PathBuf,
        /// What SQLite found.
        why: String,
    },
    /// A statement failed.
    #[error("{doing}")]
    Query {
        /// What was being done, as a verb.
        doing: &'static str,
        /// SQLite's reason.
        #[source]
        source: rusqlite::Error,
    },
    /// A stored value is not what this program writes.
    #[error("understand a stored {what}: {why}")]
    Content {
        /// What kind of value.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// What was to be told was taken out of its inbox meanwhile.
    #[error("tell a notice: it left its inbox meanwhile")]
    Gone,
    /// The group that this write was in could not be committed.
    #[error("commit to the database: {0}")]
    Commit(String),
    /// The writer has stopped.
    #[error("write to the database: it is closed")]
    Closed,
}

impl Error {
    fn content(what: &'static str, why: impl std::fmt::Display) -> Self {
        Self::Content { what, why: why.to_string() }
    }
}

/// The server's handle to the database. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    path: Arc<PathBuf>,
    writer: writer::Writer,
    readers: Arc<Mutex<Vec<Db>>>,
}

impl Store {
    /// The database's file in a state directory.
    pub fn file(state_dir: &Path) -> PathBuf {
        state_dir.join("the-loop.db")
    }

    /// Opens or makes the database in `state_dir`, migrates it and starts the writer.
    pub fn open(state_dir: &Path) -> Result<Self, Error> {
        let path = Self::file(state_dir);
        let mut db = Db::open(state_dir, Access::Write)?;
        let checkpoints = checkpoint::Checkpoints::start(&path, &mut db)?;
        let writer = writer::Writer::start(db, checkpoints)?;
        Ok(Self { path: Arc::new(path), writer, readers: Arc::default() })
    }

    /// Opens the database beside a server that may run: for reading, made and migrated where needed.
    pub fn beside(state_dir: &Path) -> Result<Self, Error> {
        let path = Self::file(state_dir);
        drop(Db::open(state_dir, Access::Write)?);
        Ok(Self { path: Arc::new(path), writer: writer::Writer::closed(), readers: Arc::default() })
    }

    /// Runs `work` on the writer, in a transaction that is on disk when this returns.
    ///
    /// Several callers' work shares one commit; an error of one undoes only its own part.
    pub async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.submit(work)?.done().await
    }

    /// Hands `work` to the writer at once, without waiting for it. Work that is handed over first is done first.
    pub fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> Result<T, Error> + Send + 'static,
    ) -> Result<Submitted<T>, Error> {
        self.writer.submit(work).map(Submitted)
    }

    /// Runs `work` in a transaction on a connection of its own, also beside a server: for what is written seldom.
    pub async fn write_apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let path = Arc::clone(&self.path);
        let written = tokio::task::spawn_blocking(move || Db::open_file(&path, Access::Write)?.transaction(work));
        written.await.map_err(|_| Error::Closed)?
    }

    /// Runs `work` on a reading connection, off the async threads.
    pub async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let this = self.clone();
        tokio::task::spawn_blocking(move || this.read_here(work)).await.map_err(|_| Error::Closed)?
    }

    /// Runs `work` on a reading connection, on this thread.
    pub fn read_here<T>(&self, work: impl FnOnce(&Db) -> Result<T, Error>) -> Result<T, Error> {
        let kept = self.readers.lock().ok().and_then(|mut readers| readers.pop());
        let db = match kept {
            Some(db) => db,
            None => Db::open_file(&self.path, Access::Read)?,
        };
        let result = work(&db);
        if let Ok(mut readers) = self.readers.lock()
            && readers.len() < 2
        {
            readers.push(db);
        }
        result
    }

    /// Commits what is under way, empties the WAL into the database and stops the writer.
    pub async fn close(&self) {
        self.writer.close().await;
    }
}

/// Work that the writer has been handed.
pub struct Submitted<T>(tokio::sync::oneshot::Receiver<Result<T, Error>>);

impl<T> Submitted<T> {
    /// Its result, once it is on disk.
    pub async fn done(self) -> Result<T, Error> {
        self.0.await.map_err(|_| Error::Closed)?
    }
}
