//! A listing that a server keeps: it reads again only what changed.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use super::file::{self, Content};
use super::{Damaged, Error, Listing, Registry, by_item, io_error};
use crate::domain::{Session, SessionKey};

/// A file whose time stamp was this young when it was read may change once more without a new time stamp: clocks of
/// file systems tick every few milliseconds.
const TICK: Duration = Duration::from_millis(50);
/// The same for file systems that keep whole seconds.
const COARSE_TICK: Duration = Duration::from_secs(2);

/// So long a look at the directory stands for a look at each file.
const GLANCES_FOR: Duration = Duration::from_secs(1);

/// A cached listing. What another process wrote before [`refresh`](Self::refresh) is seen by it.
#[derive(Debug, Default)]
pub struct View {
    files: BTreeMap<OsString, Known>,
    sessions: Vec<Session>,
    damaged: Vec<Damaged>,
    places: HashMap<SessionKey, usize>,
    /// The directory as it was before it was last listed; `None` asks for it to be listed again.
    dir: Option<Identity>,
    listed: Option<Instant>,
}

#[derive(Debug)]
struct Known {
    /// What the file was when it was read; `None` asks for it to be read again.
    identity: Option<Identity>,
    content: Content,
}

/// Two equal identities are one content, unless the file was read in the tick in which it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Identity {
    inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    /// The one time stamp that no program can set back.
    changed: (i64, i64),
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether the file was last changed long enough before `now` that a further change would show.
    fn is_settled(&self, now: SystemTime) -> bool {
        let (seconds, nanos) = self.changed;
        let tick = if nanos == 0 { COARSE_TICK } else { TICK };
        let changed = u64::try_from(seconds).ok().zip(u32::try_from(nanos).ok());
        changed.is_some_and(|(seconds, nanos)| {
            let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos);
            now.duration_since(changed).is_ok_and(|age| age > tick)
        })
    }
}

impl View {
    /// As [`refresh`](Self::refresh), at the cost of one look where nothing changed. Every change by this program's
    /// commands is seen, since they rename; one that a person wrote into a file in place is seen a second later.
    pub fn glance(&mut self, registry: &Registry) -> Result<bool, Error> {
        let fresh = self.listed.is_some_and(|listed| listed.elapsed() < GLANCES_FOR);
        if fresh && self.dir.is_some() && self.dir == dir_identity(registry.dir())? {
            return Ok(false);
        }
        self.refresh(registry)
    }

    /// Takes in what changed since the last time, and says whether anything did.
    pub fn refresh(&mut self, registry: &Registry) -> Result<bool, Error> {
        let dir = registry.dir();
        let (listed, identity) = (Instant::now(), dir_identity(dir)?);
        let found = list(dir)?;
        let mut before = std::mem::take(&mut self.files);
        let mut changed = false;
        for (name, now) in found {
            let known = before.remove(&name);
            let known = match known {
                Some(known) if known.identity.is_some() && known.identity == now => known,
                known => {
                    let read = read(&dir.join(&name));
                    changed |= known.is_none_or(|known| known.content != read.content);
                    read
                }
            };
            if known.content != Content::Gone {
                self.files.insert(name, known);
            }
        }
        changed |= !before.is_empty();
        if changed {
            self.arrange(dir);
        }
        // A file that was written in this very tick must be looked at again.
        self.dir = identity.filter(|_| self.files.values().all(|known| known.identity.is_some()));
        self.listed = Some(listed);
        Ok(changed)
    }

    /// The session of this key.
    pub fn find(&self, key: &SessionKey) -> Option<&Session> {
        self.places.get(key).and_then(|place| self.sessions.get(*place))
    }

    /// Every session, by repository and number.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.iter()
    }

    /// Every file that could not be understood, by path.
    pub fn damaged(&self) -> &[Damaged] {
        &self.damaged
    }

    pub(super) fn into_listing(self) -> Listing {
        Listing { sessions: self.sessions, damaged: self.damaged }
    }

    fn arrange(&mut self, dir: &Path) {
        self.sessions.clear();
        self.damaged.clear();
        for (name, known) in &self.files {
            match &known.content {
                Content::Session(session) => self.sessions.push(Session::clone(session)),
                Content::Damaged(why) => self.damaged.push(Damaged { path: dir.join(name), why: why.clone() }),
                Content::Gone => {}
            }
        }
        self.sessions.sort_by(by_item);
        self.places = self.sessions.iter().enumerate().map(|(place, session)| (session.key(), place)).collect();
    }
}

/// What the directory is now; `None` where it was changed so lately that a further change might not show.
fn dir_identity(dir: &Path) -> Result<Option<Identity>, Error> {
    let now = SystemTime::now();
    let metadata = dir.metadata().map_err(io_error("list", dir))?;
    Ok(Some(Identity::of(&metadata)).filter(|identity| identity.is_settled(now)))
}

fn read(path: &Path) -> Known {
    // The clock is read first: a change while we read must leave the file unsettled.
    let now = SystemTime::now();
    let (content, metadata) = file::read_with(path);
    let identity = metadata.map(|m| Identity::of(&m)).filter(|identity| identity.is_settled(now));
    Known { identity, content }
}

/// The files that may be sessions', with what they are now; `None` where that cannot be told.
fn list(dir: &Path) -> Result<Vec<(OsString, Option<Identity>)>, Error> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(io_error("list", dir))? {
        let entry = entry.map_err(io_error("list", dir))?;
        let name = entry.file_name();
        let bytes = name.as_encoded_bytes();
        if !bytes.ends_with(b".json") || bytes.starts_with(b".") {
            continue;
        }
        // Relative to the open directory, which is cheaper than by path; but what a link leads to is asked by path.
        let metadata = match entry.metadata() {
            Ok(metadata) if metadata.is_symlink() => entry.path().metadata(),
            metadata => metadata,
        };
        found.push((name, metadata.ok().map(|metadata| Identity::of(&metadata))));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_trusted_only_after_the_tick_in_which_it_was_written() {
        let changed_at =
            |seconds, nanos| Identity { inode: (1, 1), size: 1, modified: (0, 0), changed: (seconds, nanos) };
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(10_000_600);
        for (identity, settled) in [
            (changed_at(10_000, 500_000_000), true),
            (changed_at(10_000, 560_000_000), false),
            (changed_at(10_001, 1), false),
            // Whole seconds may be all that this file system keeps.
            (changed_at(10_000, 0), false),
            (changed_at(9_998, 0), true),
            (changed_at(-5, 1), false),
        ] {
            assert_eq!(identity.is_settled(now), settled, "{identity:?}");
        }
    }
}
