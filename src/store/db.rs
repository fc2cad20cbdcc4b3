//! One connection to the database, with small wrappers that say what was being done when a statement fails.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Params, Row};

use super::{Error, Store, schema};

/// What a connection is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reading only: it makes nothing and migrates nothing.
    Read,
    /// Reading and writing; makes and migrates the file where needed.
    Write,
}

/// One connection. All verbs of the store are methods of it, a file per subject.
pub struct Db {
    pub(super) connection: Connection,
}

impl Db {
    /// Opens the database of a state directory, making both where `access` allows.
    pub fn open(state_dir: &Path, access: Access) -> Result<Self, Error> {
        if access == Access::Write {
            private_dir(state_dir).map_err(|source| Error::Directory { path: state_dir.to_path_buf(), source })?;
        }
        Self::open_file(&Store::file(state_dir), access)
    }

    /// Whether a database has been made in this state directory.
    pub fn exists(state_dir: &Path) -> bool {
        Store::file(state_dir).exists()
    }

    pub(super) fn open_file(path: &Path, access: Access) -> Result<Self, Error> {
        let open_error = |source| Error::Open { path: path.to_path_buf(), source };
        if access == Access::Write && !path.exists() {
            private_file(path).map_err(|source| Error::Directory { path: path.to_path_buf(), source })?;
        }
        // A reader opens for writing too: in WAL mode even reading may have to recover the shared index.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(open_error)?;
        connection.busy_timeout(Duration::from_secs(10)).map_err(open_error)?;
        let db = Self { connection };
        schema::prepare(&db, path, access)?;
        Ok(db)
    }

    /// Runs `work` in one transaction of its own: for command-line tools.
    pub fn transaction<T>(&self, work: impl FnOnce(&Self) -> Result<T, Error>) -> Result<T, Error> {
        self.execute("begin a transaction", "BEGIN IMMEDIATE", ())?;
        match work(self) {
            Ok(value) => self.execute("commit", "COMMIT", ()).map(|_| value),
            Err(error) => {
                self.execute("undo a transaction", "ROLLBACK", ())?;
                Err(error)
            }
        }
    }

    /// Runs `work` in a transaction within the one that is under way: where it fails, its part alone is undone.
    pub fn apart<T>(&self, work: impl FnOnce(&Self) -> Result<T, Error>) -> Result<T, Error> {
        self.execute("begin a part of a transaction", "SAVEPOINT part", ())?;
        let result = work(self);
        // On a full disk SQLite may have undone the whole transaction by itself; the writer sees that.
        if !self.connection.is_autocommit() {
            if result.is_err() {
                self.execute("undo a part of a transaction", "ROLLBACK TO part", ())?;
            }
            self.execute("end a part of a transaction", "RELEASE part", ())?;
        }
        result
    }

    /// Whether the database is sound, as far as a quick look can tell.
    pub fn check(&self) -> Result<(), Error> {
        let found = self.all("check the database", "PRAGMA quick_check(1)", (), |row| row.get::<_, String>(0))?;
        match found.first().map(String::as_str) {
            Some("ok") | None => Ok(()),
            Some(why) => Err(Error::content("database", why)),
        }
    }

    /// When the newest delivery came.
    pub fn newest_delivery(&self) -> Result<Option<Timestamp>, Error> {
        let newest = self.one("look at the newest delivery", "SELECT max(received_at) FROM deliveries", (), |row| {
            row.get::<_, Option<i64>>(0)
        })?;
        Ok(newest.flatten().map(moment))
    }

    pub(super) fn execute(&self, doing: &'static str, sql: &str, params: impl Params) -> Result<usize, Error> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(params))
            .map_err(|source| Error::Query { doing, source })
    }

    pub(super) fn one<T>(
        &self,
        doing: &'static str,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Error> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row(params, read).optional())
            .map_err(|source| Error::Query { doing, source })
    }

    pub(super) fn all<T>(
        &self,
        doing: &'static str,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Error> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_map(params, read)?.collect())
            .map_err(|source| Error::Query { doing, source })
    }
}

/// A moment as the database keeps it: milliseconds since 1970.
pub(super) fn millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

/// Reads [`millis`] back. A number outside of the calendar can only be damage; it is shown as the epoch.
pub(super) fn moment(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn private_dir(path: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn private_file(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(|_| ())
}
