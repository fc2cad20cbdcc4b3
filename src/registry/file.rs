//! One session's file: read without trust, written whole.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::Value;

use super::{Error, file_name, io_error};
use crate::crash_point;
use crate::domain::Session;

/// A session takes less than one KiB; more than this is no session, and not worth reading.
const LARGEST: u64 = 1 << 20;
/// The file that becomes a session's. Only the holder of the lock writes, so one name is enough, and what a killed
/// writer left is taken away by the next.
const UNFINISHED: &str = ".unfinished";

/// What a file turned out to hold.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Content {
    /// A session that belongs to this name.
    Session(Box<Session>),
    /// Nothing that we understand, and why.
    Damaged(String),
    /// The file is not there.
    Gone,
}

/// Reads one file, whatever it is.
pub(super) fn read(path: &Path) -> Content {
    read_with(path).0
}

/// [`read`], with the metadata of exactly the file that was read.
pub(super) fn read_with(path: &Path) -> (Content, Option<Metadata>) {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound if path.symlink_metadata().is_err() => Content::Gone,
        _ => Content::Damaged(format!("cannot be read ({error})")),
    };
    // Looked at before it is opened: to open a pipe would wait for its writer.
    let found = match path.metadata() {
        Ok(found) if !found.is_file() => return (Content::Damaged("is not a file".into()), Some(found)),
        Ok(found) => found,
        Err(error) => return (unreadable(error), None),
    };
    let (metadata, file) = match File::open(path).and_then(|file| Ok((file.metadata()?, file))) {
        Ok(opened) => opened,
        Err(error) => return (unreadable(error), Some(found)),
    };
    let mut bytes = Vec::new();
    let content = match file.take(LARGEST + 1).read_to_end(&mut bytes) {
        Ok(_) => understand(&bytes, path).map_or_else(Content::Damaged, |s| Content::Session(Box::new(s))),
        Err(error) => unreadable(error),
    };
    (content, Some(metadata))
}

fn understand(bytes: &[u8], path: &Path) -> Result<Session, String> {
    if bytes.is_empty() {
        return Err("is empty".into());
    }
    if bytes.len() as u64 > LARGEST {
        return Err("is too large to be a session".into());
    }
    if bytes.iter().all(|b| *b == 0) {
        return Err("holds only NUL bytes".into());
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|error| format!("is not complete JSON ({error})"))?;
    let Value::Object(fields) = &value else {
        return Err("holds JSON, but not an object".into());
    };
    match fields.get("version").map(Value::as_u64) {
        Some(Some(version)) if version == u64::from(Session::VERSION) => {}
        Some(Some(version)) if version > u64::from(Session::VERSION) => {
            return Err(format!("was written by a newer the-loop (version {version} of the format)"));
        }
        Some(_) => return Err("has a `version` that was never in use".into()),
        None => return Err("has no `version`".into()),
    }
    let session: Session = serde_json::from_value(value).map_err(|error| format!("holds no session ({error})"))?;
    let right = file_name(&session.work_item);
    if path.file_name().is_some_and(|name| name == right.as_str()) {
        Ok(session)
    } else {
        Err(format!("is about `{}`, whose file is `{right}`", session.work_item))
    }
}

/// Puts a session in the place of whatever `name` holds: all of it or, if that fails or the power does, nothing.
pub(super) fn write(dir: &Path, name: &str, session: &Session) -> Result<(), Error> {
    let (unfinished, path) = (dir.join(UNFINISHED), dir.join(name));
    let mut text = serde_json::to_vec_pretty(session).map_err(|e| io_error("write", &path)(e.into()))?;
    text.push(b'\n');
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error("remove", &unfinished)(error)),
        _ => {}
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)
        .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
        .map_err(io_error("write", &unfinished))?;
    crash_point::reached("before-rename");
    std::fs::rename(&unfinished, &path).map_err(io_error("write", &path))?;
    crash_point::reached("after-rename");
    // The new name is on disk only when its directory is.
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error("save", dir))
}
