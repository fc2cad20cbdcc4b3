//! The one writer: a thread that runs whatever waits in one transaction and answers when it is on disk.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::checkpoint::Checkpoints;
use super::{Db, Error};
use crate::crash_point;

/// How many callers' work may share one commit. A bound keeps the time from first to last answer short.
const GROUP: usize = 256;

/// Work that has been handed over: runs inside the transaction, answers after the commit.
trait Work: Send {
    /// Does the work; false if it failed and its part must be undone.
    fn run(&mut self, db: &Db) -> bool;
    /// Tells the caller, once the fate of the group is known.
    fn answer(self: Box<Self>, commit: Result<(), String>);
}

struct Call<T, F> {
    work: Option<F>,
    result: Option<Result<T, Error>>,
    caller: oneshot::Sender<Result<T, Error>>,
}

impl<T: Send, F: FnOnce(&Db) -> Result<T, Error> + Send> Work for Call<T, F> {
    fn run(&mut self, db: &Db) -> bool {
        // The writer outlives a defect in one caller's work, as everybody else's writes depend on it.
        self.result = self.work.take().map(|work| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(db)))
                .unwrap_or_else(|_| Err(Error::Commit("what was to be written panicked, which is a defect".into())))
        });
        matches!(self.result, Some(Ok(_)))
    }

    fn answer(self: Box<Self>, commit: Result<(), String>) {
        let result = match (commit, self.result) {
            (_, Some(Err(error))) => Err(error),
            (Ok(()), Some(Ok(value))) => Ok(value),
            (Err(why), _) => Err(Error::Commit(why)),
            (Ok(()), None) => Err(Error::Closed),
        };
        // The caller may have gone away; its work is done all the same.
        drop(self.caller.send(result));
    }
}

/// Where callers put their work; `None` once the writer is closed.
type Queue = Mutex<Option<mpsc::Sender<Box<dyn Work>>>>;

/// The handle to the writer's thread.
#[derive(Clone)]
pub(super) struct Writer {
    queue: Arc<Queue>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Writer {
    pub(super) fn start(db: Db, checkpoints: Checkpoints) -> Result<Self, Error> {
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || write_all(&db, &receiver, checkpoints))
            .map_err(|error| Error::Commit(error.to_string()))?;
        Ok(Self { queue: Arc::new(Mutex::new(Some(sender))), thread: Arc::new(Mutex::new(Some(thread))) })
    }

    /// A writer that takes no work.
    pub(super) fn closed() -> Self {
        Self { queue: Arc::default(), thread: Arc::default() }
    }

    pub(super) fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> Result<T, Error> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, Error>>, Error> {
        let (caller, answer) = oneshot::channel();
        let call = Box::new(Call { work: Some(work), result: None, caller });
        let queue = self.queue.lock().map_err(|_| Error::Closed)?;
        queue.as_ref().ok_or(Error::Closed)?.send(call).map_err(|_| Error::Closed)?;
        Ok(answer)
    }

    pub(super) async fn close(&self) {
        if let Ok(mut queue) = self.queue.lock() {
            queue.take();
        }
        let thread = self.thread.lock().ok().and_then(|mut thread| thread.take());
        if let Some(thread) = thread
            && tokio::task::spawn_blocking(move || thread.join()).await.is_err()
        {
            tracing::error!("the store's writer ended in a panic");
        }
    }
}

fn write_all(db: &Db, receiver: &mpsc::Receiver<Box<dyn Work>>, mut checkpoints: Checkpoints) {
    while let Ok(first) = receiver.recv() {
        let mut group = vec![first];
        while group.len() < GROUP
            && let Ok(next) = receiver.try_recv()
        {
            group.push(next);
        }
        let outcome = commit(db, &mut group);
        for work in group {
            work.answer(outcome.clone());
        }
        checkpoints.after_commit(db);
    }
    checkpoints.finish(db);
}

/// Runs the group in one transaction. An `Err` means that nothing of the group is on disk.
fn commit(db: &Db, group: &mut [Box<dyn Work>]) -> Result<(), String> {
    // Prepared once and kept: parsing these few words again for each delivery costs more than running them.
    let sql = |sql: &str| {
        db.connection
            .prepare_cached(sql)
            .and_then(|mut words| words.execute(()))
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let outcome = sql("BEGIN IMMEDIATE").and_then(|()| {
        for work in group {
            sql("SAVEPOINT work")?;
            let done = work.run(db);
            // On a full disk SQLite may undo the whole transaction by itself.
            if db.connection.is_autocommit() {
                return Err("the transaction was undone (is the disk full?)".into());
            }
            if !done {
                sql("ROLLBACK TO work")?;
            }
            sql("RELEASE work")?;
        }
        crash_point::reached("before-commit");
        sql("COMMIT")?;
        crash_point::reached("after-commit");
        Ok(())
    });
    if outcome.is_err() && !db.connection.is_autocommit() && sql("ROLLBACK").is_err() {
        tracing::error!("a failed transaction could not be undone");
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::super::{Access, Db, Error, Store};

    #[tokio::test]
    async fn one_failure_in_a_group_undoes_only_itself() {
        let dir = tempfile::tempdir().expect("dir");
        let store = Store::open(dir.path()).expect("store");
        let insert = |key: &'static str, fail: bool| {
            store.write(move |db| {
                db.execute("note", "INSERT INTO meta (key, value) VALUES (?1, '')", [key])?;
                if fail { Err(Error::content("test", "on purpose")) } else { Ok(()) }
            })
        };
        let (a, b, c) = tokio::join!(insert("a", false), insert("b", true), insert("c", false));
        assert!(a.is_ok() && b.is_err() && c.is_ok());
        let panicked = store.write(|_| -> Result<(), Error> { panic!("on purpose") }).await;
        assert!(panicked.is_err_and(|error| error.to_string().contains("defect")));
        store.write(|_| Ok(())).await.expect("the writer lives on");
        store.close().await;
        let db = Db::open(dir.path(), Access::Read).expect("reopen");
        let keys = db
            .all("read", "SELECT key FROM meta WHERE key IN ('a','b','c') ORDER BY key", (), |r| r.get::<_, String>(0))
            .expect("keys");
        assert_eq!(keys, ["a", "c"]);
        assert!(store.write(|_| Ok(())).await.is_err(), "a closed store took work");
    }
}
