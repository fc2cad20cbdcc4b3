//! Who reads the feed of a repository by polling or by stream, so that what they read is observed.

use jiff::Timestamp;
use rusqlite::{Row, params};

use super::db::{millis, moment};
use super::{Db, Error};
use crate::catalogue;
use crate::domain::{Arguments, Reader};

impl Db {
    /// Notes that somebody reads this until `until`, unless they say so again.
    pub fn note_reader(
        &self,
        name: &str,
        arguments: &Arguments,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<(), Error> {
        self.execute("forget who read", "DELETE FROM readers WHERE until <= ?1", [millis(now)])?;
        self.execute(
            "note who reads",
            "INSERT INTO readers (name, arguments, since, until) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT DO UPDATE SET until = max(until, excluded.until)",
            params![name, catalogue::canonical(arguments), millis(now), millis(until)],
        )
        .map(|_| ())
    }

    /// Everybody who reads now; `posts` says whether subscribers are posted to.
    pub fn readers(&self, now: Timestamp, posts: bool) -> Result<Vec<Reader>, Error> {
        let sql = "SELECT name, arguments, since FROM readers WHERE until > ?1
                   UNION ALL SELECT name, arguments, created_at FROM subscriptions
                       WHERE ?2 AND state = 'active' AND (expires_at IS NULL OR expires_at > ?1)";
        let rows = self.all("see who reads", sql, params![millis(now), posts], raw)?;
        rows.into_iter()
            .map(|(name, arguments, since)| {
                let arguments = serde_json::from_str(&arguments).map_err(|error| Error::content("arguments", error))?;
                Ok(Reader { name, arguments, since })
            })
            .collect()
    }
}

fn raw(row: &Row<'_>) -> rusqlite::Result<(String, String, Timestamp)> {
    Ok((row.get(0)?, row.get(1)?, moment(row.get(2)?)))
}
