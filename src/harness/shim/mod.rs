//! The supervisor of one turn: a process of its own that outlives the server, watches the harness, ends everything
//! the harness left behind, and writes the result. Synchronous: a few threads that sleep until something happens.

mod output;
mod processes;
mod supervise;

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock, fstat};

use super::turn_dir::{self, LOCK, file_error};
use super::{Ending, Error, Finished};

pub(super) use processes::{end_orphans, terminate};

/// How long a result that cannot be written is kept for when there is room again.
const ROOM: Duration = Duration::from_secs(3600);
const LOOK_FOR_ROOM: Duration = Duration::from_secs(1);

/// What `turn-shim DIR` runs: the turn that `prepare` wrote into `dir`, unless another runs it or it is over.
pub fn shim(dir: &Path) -> ExitCode {
    // Fails only for the leader of a process group, which then has what it needs already.
    let _ = rustix::process::setsid();
    match run(dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // stderr is the turn's shim.log; where it is gone too there is nobody left to tell.
            let _ = writeln!(std::io::stderr(), "failed to {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(dir: &Path) -> Result<(), Error> {
    // Before anybody can learn our process id: a signal must not end us as it ends other programs.
    let signals = supervise::signals().map_err(file_error("watch signals for", dir))?;
    let Some(_lock) = hold(dir)? else {
        return Err(Error::Running { dir: dir.into() });
    };
    // A result means that the turn is over, or that its caller gave it up before this process came to life.
    if turn_dir::has_result(dir) {
        return Err(Error::Over { dir: dir.into() });
    }
    let started_at = Timestamp::now();
    let (ending, exit_code, dropped_bytes) = supervise::supervise(dir, signals);
    let finished = Finished {
        ending,
        exit_code,
        stdout: String::new(),
        stderr: String::new(),
        started_at,
        ended_at: Timestamp::now(),
        dropped_bytes,
    };
    // The lock is released by the end of this process, after the result is on disk.
    let begun = Instant::now();
    loop {
        match turn_dir::write_result(dir, &finished) {
            // A full disk: without a result the turn would be run again.
            Err(_) if dir.exists() && begun.elapsed() < ROOM => std::thread::sleep(LOOK_FOR_ROOM),
            written => return written,
        }
    }
}

/// What keeps the turn's lock.
enum Held {
    /// Our stdin: `start` handed it over locked.
    Stdin,
    /// A file that we opened; held until it is closed.
    Opened { _file: fs::File },
}

fn hold(dir: &Path) -> Result<Option<Held>, Error> {
    let path = dir.join(LOCK);
    let stdin = rustix::stdio::stdin();
    let found = fs::metadata(&path).map_err(file_error("find", &path))?;
    let held = match fstat(stdin) {
        // The field's type differs between systems.
        #[allow(clippy::unnecessary_cast)]
        Ok(ours) if (ours.st_dev as u64, ours.st_ino as u64) == (found.dev(), found.ino()) => {
            flock(stdin, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(Held::Stdin)
        }
        _ => {
            let file = turn_dir::open_lock(dir)?;
            turn_dir::take(&file).map_err(file_error("lock", &path))?.then_some(Held::Opened { _file: file })
        }
    };
    if held.is_some() {
        turn_dir::note_begun(dir)?;
    }
    Ok(held)
}

/// Never ran: the result that says so.
fn not_started(error: impl ToString, kind: crate::domain::FailureKind) -> Ending {
    Ending::NotStarted { error: error.to_string(), kind }
}
