//! What is kept how long. Nothing that is still owed is ever let go.

use jiff::Timestamp;
use rusqlite::params;

use super::db::millis;
use super::{Db, Error};

/// What to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Deliveries and turns that came before this go.
    pub before: Timestamp,
    /// Beyond so many bytes of compressed bodies, the oldest bodies go; their deliveries stay.
    pub body_bytes: u64,
}

/// What was let go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    /// How many deliveries went.
    pub deliveries: usize,
    /// How many bodies went, of deliveries that stay.
    pub bodies: usize,
    /// How many turns went.
    pub turns: usize,
    /// How many places of the feed went.
    pub occurrences: usize,
}

/// So many rows in one transaction, so that senders do not wait for us.
const STEP: i64 = 500;

/// Deliveries that nobody waits for any more.
const DONE: &str = "outcome NOT IN ('pending', 'queued', 'failed')";

impl Db {
    /// Lets go of one step's worth of what is older or larger than `retention` says. All zero means done.
    pub fn retain(&self, retention: Retention) -> Result<Kept, Error> {
        let before = millis(retention.before);
        let old = format!("SELECT seq FROM deliveries WHERE received_at < ?1 AND {DONE} ORDER BY received_at LIMIT ?2");
        self.execute("let bodies go", &format!("DELETE FROM bodies WHERE seq IN ({old})"), params![before, STEP])?;
        self.execute("let notices go", &format!("DELETE FROM notices WHERE seq IN ({old})"), params![before, STEP])?;
        let deliveries = self.execute(
            "let deliveries go",
            &format!("DELETE FROM deliveries WHERE seq IN ({old})"),
            params![before, STEP],
        )?;
        let turns = self.execute(
            "let turns go",
            "DELETE FROM turns WHERE id IN (SELECT id FROM turns
                 WHERE started_at < ?1 AND state <> 'running'
                   AND NOT EXISTS (SELECT 1 FROM notices n WHERE n.turn = turns.id) LIMIT ?2)",
            params![before, STEP],
        )?;
        self.execute("let turns go", "DELETE FROM turn_notices WHERE turn NOT IN (SELECT id FROM turns)", ())?;
        let bodies = self.retain_bodies(retention.body_bytes)?;
        let occurrences = self.retain_occurrences(retention.before, STEP)?;
        self.retain_attempts()?;
        self.retain_watches(retention.before)?;
        Ok(Kept { deliveries, bodies, turns, occurrences })
    }

    fn retain_bodies(&self, limit: u64) -> Result<usize, Error> {
        let total = self
            .one("measure bodies", "SELECT coalesce(sum(length(body)), 0) FROM bodies", (), |row| row.get::<_, i64>(0))?
            .unwrap_or(0);
        let mut surplus = total - i64::try_from(limit).unwrap_or(i64::MAX);
        if surplus <= 0 {
            return Ok(0);
        }
        let sql = format!(
            "SELECT b.seq, length(b.body) FROM bodies b JOIN deliveries d ON d.seq = b.seq WHERE {DONE} ORDER BY b.seq LIMIT ?1"
        );
        let oldest =
            self.all("find old bodies", &sql, [STEP], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
        let mut gone = 0;
        for (seq, size) in oldest {
            if surplus <= 0 {
                break;
            }
            gone += self.execute("let a body go", "DELETE FROM bodies WHERE seq = ?1", [seq])?;
            surplus -= size;
        }
        Ok(gone)
    }
}
