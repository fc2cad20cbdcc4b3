//! Floor 3: sessions as JSON files, atomic and lockable; one bad file never hurts another.
//!
//! Each work item has one file in `sessions/` of the state directory, named after it. A file is replaced whole, by
//! renaming a complete one over it, so a reader without a lock sees the old or the new. Writers of all processes take
//! turns by the lock file `sessions/.lock`. A file that cannot be understood is told of and left as it is.

mod file;
mod file_name;
mod view;

use std::cmp::Ordering;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::domain::{Session, Target, WorkItem};
pub use file_name::file_name;
pub use view::View;

/// The sessions of one state directory.
#[derive(Clone, Debug)]
pub struct Registry {
    dir: PathBuf,
}

/// What the directory holds.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Every session that can be read, by repository and number.
    pub sessions: Vec<Session>,
    /// Every file that cannot, by path.
    pub damaged: Vec<Damaged>,
}

/// A file that holds no session that we understand. It is skipped and never overwritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Which file.
    pub path: PathBuf,
    /// What is wrong with it, in words that follow "it".
    pub why: String,
}

/// What [`Registry::register`] did.
#[derive(Clone, Debug)]
pub struct Registered {
    /// The session as it now stands on disk.
    pub session: Session,
    /// The session whose place it took: a closed one, or any with force.
    pub replaced: Option<Session>,
}

/// Why the registry could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("{doing} `{path}`")]
    Io {
        /// What was being done, as in "read".
        doing: &'static str,
        /// To which path.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The work item has an open session.
    #[error(
        "register a session for `{}`: {} session `{}` is {} for it",
        existing.work_item, existing.harness, existing.session_id, existing.status.as_str()
    )]
    Taken {
        /// That session.
        existing: Box<Session>,
    },
    /// No session was ever registered for the work item.
    #[error("find a session for `{0}`: none is registered")]
    Unknown(WorkItem),
    /// The work item's file is there and cannot be understood.
    #[error("use `{}`: it {}", .0.path.display(), .0.why)]
    Damaged(Damaged),
    /// A change gave the session another work item, which is another file.
    #[error("change the session of `{from}`: it would belong to `{to}` then")]
    Moved {
        /// The work item that was asked for.
        from: Box<WorkItem>,
        /// The one that the change wrote.
        to: Box<WorkItem>,
    },
}

impl Registry {
    /// The registry of a state directory. Both directories are made, readable by their owner only, where they are not
    /// there.
    pub fn open(state_dir: &Path) -> Result<Self, Error> {
        let dir = state_dir.join("sessions");
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(io_error("create", &dir))?;
        let mode = std::fs::metadata(&dir).map_err(io_error("look at", &dir))?.permissions().mode();
        if mode & 0o077 != 0 {
            let private = std::fs::Permissions::from_mode(0o700);
            std::fs::set_permissions(&dir, private).map_err(io_error("make private", &dir))?;
        }
        Ok(Self { dir })
    }

    /// Where the files are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the work item's file is or would be.
    pub fn path_of(&self, item: &WorkItem) -> PathBuf {
        self.dir.join(file_name(item))
    }

    /// Every session and every damaged file.
    pub fn read(&self) -> Result<Listing, Error> {
        let mut view = View::default();
        view.refresh(self)?;
        Ok(view.into_listing())
    }

    /// The session of a work item, whatever its status.
    pub fn find(&self, item: &WorkItem) -> Result<Option<Session>, Error> {
        let path = self.path_of(item);
        match file::read(&path) {
            file::Content::Session(session) => Ok(Some(*session)),
            file::Content::Gone => Ok(None),
            file::Content::Damaged(why) => Err(Error::Damaged(Damaged { path, why })),
        }
    }

    /// Registers a session. Where its work item has an open one, that is refused, or with `force` replaced.
    pub fn register(&self, session: Session, force: bool) -> Result<Registered, Error> {
        let _lock = self.lock()?;
        let replaced = self.find(&session.work_item)?;
        match replaced {
            Some(existing) if existing.is_open() && !force => Err(Error::Taken { existing: Box::new(existing) }),
            replaced => {
                self.write(&session)?;
                Ok(Registered { session, replaced })
            }
        }
    }

    /// Changes the session of a work item and gives it as it then is.
    pub fn update(&self, item: &WorkItem, change: impl FnOnce(&mut Session)) -> Result<Session, Error> {
        let _lock = self.lock()?;
        let before = self.find(item)?.ok_or_else(|| Error::Unknown(item.clone()))?;
        let mut session = before.clone();
        change(&mut session);
        if session.work_item != *item {
            return Err(Error::Moved { from: Box::new(item.clone()), to: Box::new(session.work_item) });
        }
        if session != before {
            self.write(&session)?;
        }
        Ok(session)
    }

    fn write(&self, session: &Session) -> Result<(), Error> {
        file::write(&self.dir, &file_name(&session.work_item), session)
    }

    /// Waits until no other process writes. The lock ends when the file is dropped, or its process dies.
    fn lock(&self) -> Result<File, Error> {
        let path = self.dir.join(".lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(io_error("open", &path))?;
        file.lock().map_err(io_error("lock", &path))?;
        Ok(file)
    }
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { doing, path, source }
}

/// The order in which people look for sessions: by repository, then numbers as numbers, then branches.
fn by_item(a: &Session, b: &Session) -> Ordering {
    fn place(item: &WorkItem) -> (Option<String>, u64, &str) {
        let repo = item.repo().map(crate::domain::RepoName::key);
        match item {
            WorkItem::Github { target: Target::Number(number), .. } => (repo, *number, ""),
            WorkItem::Github { target: Target::Branch(branch), .. } => (repo, u64::MAX, branch),
            WorkItem::Local(name) => (repo, u64::MAX, name),
        }
    }
    place(&a.work_item).cmp(&place(&b.work_item))
}
