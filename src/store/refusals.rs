//! The last refusals: what the person who sets a webhook up wants to know. They hold nothing of a body.

use jiff::Timestamp;
use rusqlite::params;
use serde::Serialize;

use super::db::{millis, moment};
use super::{Db, Error};

/// How many are kept.
const KEPT: i64 = 50;

/// A request that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// When.
    pub at: Timestamp,
    /// The HTTP status.
    pub status: u16,
    /// What the sender was told.
    pub reason: String,
    /// What the cause may be; empty where there is nothing to guess.
    pub hint: String,
}

impl Db {
    /// Keeps a refusal, and no more than the last fifty.
    pub fn note_refusal(&self, refused: &Refused) -> Result<(), Error> {
        self.execute(
            "keep a refusal",
            "INSERT INTO refusals (at, status, reason, hint) VALUES (?1, ?2, ?3, ?4)",
            params![millis(refused.at), refused.status, refused.reason, refused.hint],
        )?;
        self.execute(
            "let old refusals go",
            "DELETE FROM refusals WHERE id <= (SELECT max(id) FROM refusals) - ?1",
            [KEPT],
        )
        .map(|_| ())
    }

    /// The last refusals, newest first.
    pub fn last_refusals(&self, limit: usize) -> Result<Vec<Refused>, Error> {
        self.all(
            "read the last refusals",
            "SELECT at, status, reason, hint FROM refusals ORDER BY id DESC LIMIT ?1",
            [limit as i64],
            |row| Ok(Refused { at: moment(row.get(0)?), status: row.get(1)?, reason: row.get(2)?, hint: row.get(3)? }),
        )
    }
}
