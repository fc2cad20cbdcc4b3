//! A turn's directory, seen from the server: prepare it, start its shim, ask how it stands, wait, cancel.
//!
//! The lock file says who runs the turn. `start` takes it before the shim exists and hands the locked file to it as
//! its stdin: a lock of this kind belongs to the open file, so there is no moment at which nobody holds it, and it is
//! free exactly when the shim is gone.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Ending, Error, Finished, Invocation, Limits, TURN_MARK};
use crate::domain::FailureKind;

/// The subcommand of our own executable that runs [`shim`](super::shim) on the directory that follows.
pub const SHIM_COMMAND: &str = "turn-shim";

/// What to run and within which limits; without the prompt, which lies beside it.
const TURN: &str = "turn.json";
/// What the harness reads.
pub(super) const PROMPT: &str = "prompt";
/// Held as long as the turn runs; holds the shim's process id.
pub(super) const LOCK: &str = "lock";
/// Its presence asks the shim to end the turn.
pub(super) const CANCEL: &str = "cancel";
/// How it ended; written once, atomically.
const RESULT: &str = "result.json";
/// What was kept of the harness's output.
pub(super) const STDOUT: &str = "stdout";
pub(super) const STDERR: &str = "stderr";
/// The shim's own words.
const LOG: &str = "shim.log";

/// How a turn stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// Its shim lives.
    Running,
    /// It is over, and this is how it ended.
    Done(Finished),
    /// It does not run and left no result.
    Lost,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) invocation: Invocation,
    pub(super) limits: Limits,
}

/// Writes what the shim needs into `dir`, which is made if need be. A directory serves one turn once.
pub fn prepare(dir: &Path, invocation: &Invocation, limits: &Limits) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(file_error("make", dir))?;
    write_new(&dir.join(PROMPT), invocation.stdin.as_bytes())?;
    let plan = Plan { invocation: Invocation { stdin: String::new(), ..invocation.clone() }, limits: *limits };
    let text = serde_json::to_vec(&plan).map_err(|error| damaged(&dir.join(TURN), &error))?;
    write_new(&dir.join(TURN), &text)
}

/// Starts `program turn-shim DIR` with exactly `env`, and hands the turn's lock to it. The caller reaps the child.
pub fn start(program: &Path, dir: &Path, env: Vec<(OsString, OsString)>) -> Result<Child, Error> {
    let dir = dir.canonicalize().map_err(file_error("find", dir))?;
    let lock = open_lock(&dir)?;
    if !take(&lock).map_err(file_error("lock", &dir.join(LOCK)))? {
        return Err(Error::Running { dir });
    }
    if has_result(&dir) {
        return Err(Error::Over { dir });
    }
    let log = private().create(true).append(true).open(dir.join(LOG)).map_err(file_error("open", &dir.join(LOG)))?;
    Command::new(program)
        .arg(SHIM_COMMAND)
        .arg(&dir)
        .env_clear()
        .envs(env)
        .env(TURN_MARK, &dir)
        .current_dir(&dir)
        .stdin(lock)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(|source| Error::Start { program: program.into(), source })
}

/// How the turn stands at this moment. Takes nothing from anybody.
pub fn standing(dir: &Path) -> Result<Standing, Error> {
    let path = dir.join(LOCK);
    let lock = match File::open(&path) {
        Ok(lock) => Some(lock),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(file_error("open", &path)(error)),
    };
    // The result is read only once the lock is known to be free: before that it may still come.
    if let Some(lock) = &lock
        && is_held(lock).map_err(file_error("lock", &path))?
    {
        return Ok(Standing::Running);
    }
    Ok(read_result(dir)?.map_or(Standing::Lost, Standing::Done))
}

/// Waits until nobody runs the turn, and says how it ended. Blocks for as long as the turn takes: call it on a thread
/// of its own. A turn without a result is [`Ending::Lost`] from then on ([`Ending::Cancelled`] where a person had asked
/// for its end): what is left of its processes is ended (on Linux), and a shim that comes late runs nothing. Where it is
/// certain that no shim ever began, nothing was run: that is [`Ending::NotStarted`], and no repeat is to be feared.
pub fn wait(dir: &Path) -> Result<Finished, Error> {
    if !dir.exists() {
        // The server ended before it made the directory; or somebody removed it under a running turn.
        let had_begun = super::shim::end_orphans(dir);
        return Ok(without_result(dir, had_begun));
    }
    let lock = open_lock(dir)?;
    lock.lock().map_err(file_error("lock", &dir.join(LOCK)))?;
    if let Some(finished) = read_result(dir)? {
        return Ok(finished);
    }
    let left_some = super::shim::end_orphans(dir);
    // A shim writes its process id before anything else that it does.
    let had_begun = lock.metadata().map_err(file_error("look at", &dir.join(LOCK)))?.len() > 0;
    let mut lost = without_result(dir, had_begun || left_some);
    write_result(dir, &lost)?;
    read_output(dir, &mut lost)?;
    Ok(lost)
}

fn without_result(dir: &Path, had_begun: bool) -> Finished {
    let now = Timestamp::now();
    let ending = if dir.join(CANCEL).exists() {
        Ending::Cancelled
    } else if had_begun {
        Ending::Lost
    } else {
        let error = "the server ended before the turn began".into();
        Ending::NotStarted { error, kind: FailureKind::NotBegun }
    };
    Finished {
        ending,
        exit_code: None,
        stdout: String::new(),
        stderr: String::new(),
        started_at: modified(&dir.join(TURN)).unwrap_or(now),
        ended_at: now,
        dropped_bytes: 0,
    }
}

/// Writes down, so that it outlasts a power cut, that the turn has begun: from now on it may have had effects.
pub(super) fn note_begun(dir: &Path) -> Result<(), Error> {
    let path = dir.join(LOCK);
    let note = format!("{}\n", std::process::id());
    std::fs::write(&path, note).map_err(file_error("write", &path))?;
    for place in [Some(path.as_path()), Some(dir), dir.parent()].into_iter().flatten() {
        File::open(place).and_then(|file| file.sync_all()).map_err(file_error("sync", place))?;
    }
    Ok(())
}

/// Asks a running shim to end its turn; false where none runs.
pub fn cancel(dir: &Path) -> Result<bool, Error> {
    let path = dir.join(LOCK);
    let mut lock = match File::open(&path) {
        Ok(lock) => lock,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(file_error("open", &path)(error)),
    };
    let held = |lock: &File| is_held(lock).map_err(file_error("lock", &path));
    if !held(&lock)? {
        return Ok(false);
    }
    // The mark first: a shim that has not yet written its process id looks for the mark after it has.
    let mark = dir.join(CANCEL);
    private().create(true).truncate(true).open(&mark).map_err(file_error("write", &mark))?;
    let mut text = String::new();
    lock.read_to_string(&mut text).map_err(file_error("read", &path))?;
    let Some(pid) = text.trim().parse().ok().and_then(rustix::process::Pid::from_raw) else {
        return Ok(true);
    };
    super::shim::terminate(pid, || held(&lock))
}

/// The plan that `prepare` wrote.
pub(super) fn read_plan(dir: &Path) -> Result<Plan, Error> {
    let path = dir.join(TURN);
    let text = std::fs::read(&path).map_err(file_error("read", &path))?;
    serde_json::from_slice(&text).map_err(|error| damaged(&path, &error))
}

/// Writes the result so that it is there whole or not at all.
pub(super) fn write_result(dir: &Path, finished: &Finished) -> Result<(), Error> {
    let path = dir.join(RESULT);
    let text = serde_json::to_vec(finished).map_err(|error| damaged(&path, &error))?;
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(file_error("write", &path))?;
    file.write_all(&text).and_then(|()| file.as_file().sync_all()).map_err(file_error("write", &path))?;
    file.persist(&path).map_err(|error| file_error("write", &path)(error.error))?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(file_error("sync", dir))
}

/// Whether the turn has a result.
pub(super) fn has_result(dir: &Path) -> bool {
    dir.join(RESULT).exists()
}

fn read_result(dir: &Path) -> Result<Option<Finished>, Error> {
    let path = dir.join(RESULT);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(file_error("read", &path)(error)),
    };
    // It is written whole or not at all, so a damaged one was damaged since: nobody knows how the turn ended.
    let Ok(mut finished) = serde_json::from_slice::<Finished>(&text) else { return Ok(None) };
    read_output(dir, &mut finished)?;
    Ok(Some(finished))
}

fn read_output(dir: &Path, finished: &mut Finished) -> Result<(), Error> {
    for (name, text) in [(STDOUT, &mut finished.stdout), (STDERR, &mut finished.stderr)] {
        let path = dir.join(name);
        match std::fs::read(&path) {
            Ok(bytes) => *text = String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(file_error("read", &path)(error)),
        }
    }
    Ok(())
}

/// The lock file, made if need be.
pub(super) fn open_lock(dir: &Path) -> Result<File, Error> {
    let path = dir.join(LOCK);
    private().read(true).create(true).truncate(false).open(&path).map_err(file_error("open", &path))
}

/// Takes the lock; false where another holds it. Somebody who merely looks holds it for a moment, shared, so a few
/// tries are made.
pub(super) fn take(lock: &File) -> std::io::Result<bool> {
    for _ in 0..50 {
        match lock.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(false)
}

fn is_held(lock: &File) -> std::io::Result<bool> {
    match lock.try_lock_shared() {
        Ok(()) => lock.unlock().map(|()| false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Files of a turn are their owner's only.
pub(super) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    private().create_new(true).open(path).and_then(|mut file| file.write_all(bytes)).map_err(file_error("write", path))
}

fn modified(path: &Path) -> Option<Timestamp> {
    Timestamp::try_from(std::fs::metadata(path).ok()?.modified().ok()?).ok()
}

/// Names the file in an error.
pub(super) fn file_error(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error + use<> {
    let path = PathBuf::from(path);
    move |source| Error::File { what, path, source }
}

fn damaged(path: &Path, error: &serde_json::Error) -> Error {
    Error::Damaged { path: path.into(), why: error.to_string() }
}
