//! What polling has seen of each repository, and how it fares.

use jiff::Timestamp;
use rusqlite::{Row, params};

use super::db::{millis, moment};
use super::{Db, Error};

/// One repository that is polled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollRow {
    /// The repository's key.
    pub repository: String,
    /// What was seen, as the poller writes it.
    pub state: String,
    /// Since when it is polled.
    pub since: Timestamp,
    /// When it was last asked with success.
    pub checked_at: Option<Timestamp>,
    /// When it is asked again.
    pub next_at: Option<Timestamp>,
    /// Why it cannot be asked now.
    pub trouble: Option<String>,
}

const COLUMNS: &str = "repository, state, since, checked_at, next_at, trouble";

impl Db {
    /// Every repository that is polled.
    pub fn polls(&self) -> Result<Vec<PollRow>, Error> {
        let sql = format!("SELECT {COLUMNS} FROM github_polls ORDER BY repository");
        self.all("read what is polled", &sql, (), row)
    }

    /// One of them.
    pub fn poll(&self, repository: &str) -> Result<Option<PollRow>, Error> {
        let sql = format!("SELECT {COLUMNS} FROM github_polls WHERE repository = ?1");
        self.one("read what is polled", &sql, [repository], row)
    }

    /// Keeps what was seen. The deliveries that it led to belong into the same transaction.
    pub fn put_poll(&self, poll: &PollRow) -> Result<(), Error> {
        self.execute(
            "keep what was polled",
            "INSERT INTO github_polls (repository, state, since, checked_at, next_at, trouble)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT DO UPDATE SET state = excluded.state, since = excluded.since,
                 checked_at = excluded.checked_at, next_at = excluded.next_at, trouble = excluded.trouble",
            params![
                poll.repository,
                poll.state,
                millis(poll.since),
                poll.checked_at.map(millis),
                poll.next_at.map(millis),
                poll.trouble
            ],
        )
        .map(|_| ())
    }

    /// Forgets a repository that nobody waits for any more; `false` where it was not known.
    pub fn forget_poll(&self, repository: &str) -> Result<bool, Error> {
        self.execute("forget what was polled", "DELETE FROM github_polls WHERE repository = ?1", [repository])
            .map(|gone| gone > 0)
    }

    /// Whether a delivery with this id came from `source`.
    pub fn has_delivery(&self, source: &str, id: &str) -> Result<bool, Error> {
        let sql = "SELECT 1 FROM deliveries WHERE source = ?1 AND id = ?2";
        self.one("look a delivery up", sql, [source, id], |_| Ok(())).map(|found| found.is_some())
    }
}

fn row(row: &Row<'_>) -> rusqlite::Result<PollRow> {
    let time = |at: Option<i64>| at.map(moment);
    Ok(PollRow {
        repository: row.get(0)?,
        state: row.get(1)?,
        since: moment(row.get(2)?),
        checked_at: time(row.get(3)?),
        next_at: time(row.get(4)?),
        trouble: row.get(5)?,
    })
}
