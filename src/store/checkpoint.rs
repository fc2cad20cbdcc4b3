//! Checkpoints: moving the WAL into the database, outside of the commits that a sender waits for.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use super::{Access, Db, Error};

/// A passive checkpoint is asked for once the WAL has grown by this much.
const STEP: u64 = 4 << 20;
/// ... or after so many commits: a WAL that was begun anew does not grow, it is written over.
const COMMITS: u32 = 256;
/// Beyond this a commit does wait for a checkpoint that empties the WAL: passive ones cannot while writes go on.
const BOUND: u64 = 48 << 20;

/// The thread that runs passive checkpoints, and the writer's own bound on the WAL.
pub(super) struct Checkpoints {
    wal: PathBuf,
    asked_at: u64,
    commits: u32,
    ask: Option<mpsc::SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    pub(super) fn start(database: &Path) -> Result<Self, Error> {
        let db = Db::open_file(database, Access::Write)?;
        let (ask, asked) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".into())
            .spawn(move || {
                while asked.recv().is_ok() {
                    checkpoint(&db, "PASSIVE");
                }
            })
            .map_err(|error| Error::Commit(error.to_string()))?;
        let mut wal = database.as_os_str().to_owned();
        wal.push("-wal");
        Ok(Self { wal: wal.into(), asked_at: 0, commits: 0, ask: Some(ask), thread: Some(thread) })
    }

    /// Called by the writer after each commit.
    pub(super) fn after_commit(&mut self, db: &Db) {
        self.commits += 1;
        let size = std::fs::metadata(&self.wal).map_or(0, |meta| meta.len());
        if size > BOUND {
            checkpoint(db, "TRUNCATE");
            (self.asked_at, self.commits) = (0, 0);
        } else if size >= self.asked_at + STEP || self.commits >= COMMITS {
            (self.asked_at, self.commits) = (size, 0);
            if let Some(ask) = &self.ask {
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
