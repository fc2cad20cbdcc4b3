//! One server per state directory, and one process that decides deliveries: locks that the kernel holds, with a note of
//! who has them.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::Error;

/// A command that looks who holds the lock takes a shared one for an instant; a starting server waits that out.
const PATIENCE: Duration = Duration::from_millis(500);
/// An `mcp serve` that observes for want of a server lets go within a second or two of one that starts.
const HANDOVER: Duration = Duration::from_secs(10);

/// Who has the state directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The server's process id.
    pub pid: u32,
    /// When it was started.
    pub started_at: Timestamp,
    /// Where it listens, once it does.
    pub listening: Option<String>,
    /// The `PATH` on which it looks for agent programs.
    #[serde(default)]
    pub path: Option<String>,
}

impl Holder {
    /// This process, from now on.
    pub fn now(listening: Option<String>) -> Self {
        let path = std::env::var("PATH").ok();
        Self { pid: std::process::id(), started_at: Timestamp::now(), listening, path }
    }
}

/// The lock on a state directory. Let go when dropped or when the process ends, however it ends.
#[derive(Debug)]
pub struct ServerLock {
    path: PathBuf,
    file: File,
}

impl ServerLock {
    /// Takes the server's lock, or says who has it.
    pub fn take(state_dir: &Path) -> Result<Self, Error> {
        Self::take_file(state_dir, lock_path(state_dir), PATIENCE)
    }

    /// Takes the lock of who decides deliveries, which a server holds beside its own. Who holds it without a server's lets
    /// go of it when there is a server.
    pub fn take_deciding(state_dir: &Path) -> Result<Self, Error> {
        Self::take_file(state_dir, state_dir.join("deciding.lock"), HANDOVER)
    }

    /// The same where nobody has it, and no server runs.
    pub fn take_deciding_if_free(state_dir: &Path) -> Result<Option<Self>, Error> {
        if holder(state_dir).is_some() {
            return Ok(None);
        }
        match Self::take_file(state_dir, state_dir.join("deciding.lock"), Duration::ZERO) {
            Ok(lock) => Ok(Some(lock)),
            Err(Error::Held { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn take_file(state_dir: &Path, path: PathBuf, patience: Duration) -> Result<Self, Error> {
        let failed = |source| Error::Lock { path: path.clone(), source };
        make_private(state_dir).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.create(true).read(true).write(true).truncate(false);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path).map_err(failed)?;
        let deadline = Instant::now() + patience;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(TryLockError::WouldBlock) => {
                    let holder = read_holder(&file).unwrap_or(Holder {
                        pid: 0,
                        started_at: Timestamp::now(),
                        listening: None,
                        path: None,
                    });
                    return Err(Error::Held { path: state_dir.to_path_buf(), holder });
                }
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
        let lock = Self { path, file };
        lock.note(&Holder::now(None))?;
        Ok(lock)
    }

    /// Writes down who has the lock, for commands to read.
    pub fn note(&self, holder: &Holder) -> Result<(), Error> {
        let write = || -> std::io::Result<()> {
            let text = serde_json::to_string(holder)?;
            let mut file = &self.file;
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(text.as_bytes())
        };
        write().map_err(|source| Error::Lock { path: self.path.clone(), source })
    }
}

/// Who has the state directory now, if anybody.
pub fn holder(state_dir: &Path) -> Option<Holder> {
    let file = File::open(lock_path(state_dir)).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => read_holder(&file),
        _ => None,
    }
}

/// Tells a running server that something in its state has changed. `false` where none runs: the next one will see it.
pub fn poke(state_dir: &Path) -> bool {
    // The lock is held, so the process is alive and the number is not somebody else's.
    holder(state_dir)
        .and_then(|holder| i32::try_from(holder.pid).ok())
        .and_then(Pid::from_raw)
        .is_some_and(|pid| kill_process(pid, Signal::USR1).is_ok())
}

fn lock_path(state_dir: &Path) -> PathBuf {
    state_dir.join("server.lock")
}

fn make_private(dir: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// The note is rewritten in place, so it may be read half-written: a moment later it is whole.
fn read_holder(mut file: &File) -> Option<Holder> {
    for _ in 0..5 {
        let mut text = String::new();
        if file.rewind().and_then(|()| file.read_to_string(&mut text)).is_ok()
            && let Ok(holder) = serde_json::from_str(&text)
        {
            return Some(holder);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_server_is_told_who_has_the_first() {
        let dir = tempfile::tempdir().expect("dir");
        assert_eq!(holder(dir.path()), None);
        let lock = ServerLock::take(dir.path()).expect("free");
        assert_eq!(holder(dir.path()).map(|h| h.pid), Some(std::process::id()));
        let second = ServerLock::take(dir.path()).expect_err("held").to_string();
        assert!(second.contains(&std::process::id().to_string()), "{second}");
        drop(lock);
        assert_eq!(holder(dir.path()), None);
        ServerLock::take(dir.path()).expect("free again");
    }

    #[test]
    fn only_one_decides_and_a_server_goes_first() {
        let dir = tempfile::tempdir().expect("dir");
        let alone = ServerLock::take_deciding_if_free(dir.path()).expect("looked").expect("free");
        assert!(ServerLock::take_deciding_if_free(dir.path()).expect("looked").is_none());
        assert_eq!(holder(dir.path()), None, "that is no server");
        drop(alone);
        let _server = ServerLock::take(dir.path()).expect("free");
        assert!(ServerLock::take_deciding_if_free(dir.path()).expect("looked").is_none());
        ServerLock::take_deciding(dir.path()).expect("let go of");
    }
}
