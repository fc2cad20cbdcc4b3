//! Checkpoints: moving the WAL into the database, outside of the commits that a sender waits for.
//!
//! A WAL that has been moved as a whole is written over from its beginning. It is not cut off meanwhile: that takes the
//! disk tens of milliseconds, and writing over what is there is quicker than growing (decision 0003).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use super::{Access, Db, Error};

/// A page of the database, in bytes: SQLite's default.
const PAGE: u32 = 4096;
/// A checkpoint is asked for each time the WAL has grown by so many pages.
const STEP: u32 = (4 << 20) / PAGE;
/// Beyond this the writer itself moves the little that the thread has left, so that the WAL can begin anew: while
/// writes go on, the thread alone is always a step behind.
const FULL: u32 = (48 << 20) / PAGE;
/// Beyond this a commit waits for readers too. They are quick, so that it does not come to this.
const BOUND: u32 = 4 * FULL;

/// The thread that makes checkpoints, and the writer's own bound on the WAL.
pub(super) struct Checkpoints {
    /// How many pages the WAL held after the last commit.
    pages: Arc<AtomicU32>,
    asked_at: u32,
    at_work: Arc<AtomicBool>,
    ask: Option<mpsc::SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    /// Checkpoints for what `writer` commits.
    pub(super) fn start(database: &Path, writer: &mut Db) -> Result<Self, Error> {
        let (pages, at_work) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let held = Arc::clone(&pages);
        writer
            .connection
            .wal_hook(Some(move |_: &mut _, pages: i32| {
                held.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed);
                Ok(())
            }))
            .map_err(|source| Error::Query { doing: "watch the WAL", source })?;
        let db = Db::open_file(database, Access::Write)?;
        let (ask, asked) = mpsc::sync_channel(1);
        let working = Arc::clone(&at_work);
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".into())
            .spawn(move || {
                while asked.recv().is_ok() {
                    working.store(true, Ordering::Relaxed);
                    checkpoint(&db, "PASSIVE");
                    working.store(false, Ordering::Relaxed);
                }
            })
            .map_err(|error| Error::Commit(error.to_string()))?;
        Ok(Self { pages, asked_at: 0, at_work, ask: Some(ask), thread: Some(thread) })
    }

    /// Called by the writer after each commit.
    pub(super) fn after_commit(&mut self, db: &Db) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.asked_at {
            // It has begun anew.
            self.asked_at = 0;
        }
        if pages > BOUND {
            checkpoint(db, "RESTART");
            self.asked_at = pages;
        } else if pages >= self.asked_at + STEP {
            self.asked_at = pages;
            if pages > FULL && !self.at_work.load(Ordering::Relaxed) {
                checkpoint(db, "PASSIVE");
            } else if let Some(ask) = &self.ask {
                // Full means that one is due already.
                let _due = ask.try_send(());
            }
        }
    }

    /// Called by the writer as its last act.
    pub(super) fn finish(mut self, db: &Db) {
        self.ask.take();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the checkpoint thread ended in a panic");
        }
        checkpoint(db, "TRUNCATE");
    }
}

/// A checkpoint that cannot be made now leaves the WAL longer, nothing else; the next one makes up for it.
fn checkpoint(db: &Db, mode: &str) {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    if let Err(error) = db.connection.query_row(&sql, (), |_| Ok(())) {
        tracing::warn!(%error, mode, "could not checkpoint the database");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[tokio::test]
    async fn a_wal_that_is_written_to_all_the_time_stays_bounded() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("a store");
        let wal = dir.path().join("the-loop.db-wal");
        // Three times what it may hold, with readers beside.
        for round in 0..150 {
            let write = store.write(move |db| {
                let sql = "INSERT INTO meta (key, value) VALUES ('x', hex(randomblob(500000)))
                           ON CONFLICT DO UPDATE SET value = excluded.value";
                db.execute("write", sql, ()).map(|_| ())
            });
            let read = store.read(|db| db.head());
            let (written, _) = tokio::join!(write, read);
            assert!(written.is_ok(), "round {round}: {written:?}");
        }
        let size = std::fs::metadata(&wal).expect("the WAL").len();
        assert!(size < 2 * u64::from(FULL) * u64::from(PAGE), "{size} bytes");
        store.close().await;
        assert_eq!(std::fs::metadata(&wal).map_or(0, |wal| wal.len()), 0);
    }
}
