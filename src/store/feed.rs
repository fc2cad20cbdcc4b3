//! The feed: occurrences in the order of their commits, and what they put down as owed.

use jiff::Timestamp;
use rusqlite::{Row, ToSql, params};

use super::db::{millis, moment};
use super::{Db, Error};
use crate::catalogue;
use crate::domain::{Arguments, Cursor, DeliverySeq, Occurrence, Place, Placed};

const COLUMNS: &str = "place, event_id, name, repository, actor, happened_at, fingerprint, data";

/// What a scan of the feed looks for.
#[derive(Debug, Clone)]
pub struct Scan {
    /// The event type.
    pub name: String,
    /// Texts that the payload's JSON holds.
    pub needles: Vec<String>,
    /// Only after this place.
    pub after: Place,
    /// Only up to this place.
    pub until: Place,
    /// Only what was recorded since.
    pub since: Option<Timestamp>,
}

impl Db {
    /// Adds an occurrence to the feed, unless this happening is there already, and puts it down for every subscription
    /// that it fits: in the transaction that it belongs to.
    pub fn publish(
        &self,
        occurrence: &Occurrence,
        seq: Option<DeliverySeq>,
        now: Timestamp,
    ) -> Result<Option<Place>, Error> {
        let data = serde_json::to_string(&occurrence.data).map_err(|error| Error::content("payload", error))?;
        let added = self.execute(
            "publish an occurrence",
            "INSERT INTO occurrences (seq, event_id, name, repository, actor, happened_at, recorded_at, fingerprint, data)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (fingerprint) DO NOTHING",
            params![
                seq.map(|seq| seq.0),
                occurrence.event_id,
                occurrence.name,
                occurrence.repository,
                occurrence.actor,
                millis(occurrence.at),
                millis(now),
                occurrence.fingerprint,
                data
            ],
        )?;
        if added == 0 {
            return Ok(None);
        }
        let place = Place(self.connection.last_insert_rowid());
        self.owe_to_all(place, occurrence, now)?;
        Ok(Some(place))
    }

    /// Adds an occurrence of our own. The journal's id stands in the event's id, so that two journals never share one.
    pub(super) fn publish_own(&self, mut occurrence: Occurrence, now: Timestamp) -> Result<(), Error> {
        occurrence.event_id = format!("{}_{}", occurrence.event_id, self.head()?.journal);
        self.publish(&occurrence, None, now).map(|_| ())
    }

    /// The journal's own id and the newest place.
    pub fn head(&self) -> Result<Cursor, Error> {
        let found = self.one(
            "find the head of the feed",
            "SELECT (SELECT value FROM meta WHERE key = 'store'),
                    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'occurrences'), 0)",
            (),
            |row| Ok(Cursor { journal: row.get(0)?, place: Place(row.get(1)?) }),
        )?;
        found.ok_or_else(|| Error::content("journal", "it has no id"))
    }

    /// Up to which place occurrences of this type have been let go.
    pub fn feed_floor(&self, name: &str) -> Result<Place, Error> {
        let sql = "SELECT place FROM occurrence_floors WHERE name = ?1";
        let found = self.one("find the floor of the feed", sql, [name], |row| row.get(0).map(Place))?;
        Ok(found.unwrap_or_default())
    }

    /// Shows what may be looked for to `take`, in order, until it says that it has enough.
    pub fn scan(&self, scan: &Scan, mut take: impl FnMut(Placed) -> bool) -> Result<(), Error> {
        let mut sql = format!("SELECT {COLUMNS} FROM occurrences WHERE name = ?1 AND place > ?2 AND place <= ?3");
        let since = scan.since.map(millis);
        let mut values: Vec<&dyn ToSql> = vec![&scan.name, &scan.after.0, &scan.until.0];
        if let Some(since) = &since {
            values.push(since);
            sql.push_str(&format!(" AND recorded_at >= ?{}", values.len()));
        }
        for needle in &scan.needles {
            values.push(needle);
            sql.push_str(&format!(" AND instr(data, ?{})", values.len()));
        }
        sql.push_str(" ORDER BY place");
        let failed = |source| Error::Query { doing: "read the feed", source };
        let mut statement = self.connection.prepare_cached(&sql).map_err(failed)?;
        let mut rows = statement.query(&values[..]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            if !take(read(raw(row).map_err(failed)?)?) {
                break;
            }
        }
        Ok(())
    }

    /// Everything after a place, in order.
    pub fn occurrences_after(&self, after: Place, limit: usize) -> Result<Vec<Placed>, Error> {
        let sql = format!("SELECT {COLUMNS} FROM occurrences WHERE place > ?1 ORDER BY place LIMIT ?2");
        self.all("read the feed", &sql, params![after.0, limit as i64], raw)?.into_iter().map(read).collect()
    }

    /// The newest before a place, of one type or of all, newest first.
    pub fn recent_occurrences(&self, name: Option<&str>, before: Place, limit: usize) -> Result<Vec<Placed>, Error> {
        let sql = match name {
            Some(_) => {
                format!("SELECT {COLUMNS} FROM occurrences WHERE name = ?1 AND place < ?2 ORDER BY place DESC LIMIT ?3")
            }
            None => {
                format!(
                    "SELECT {COLUMNS} FROM occurrences WHERE ?1 IS NULL AND place < ?2 ORDER BY place DESC LIMIT ?3"
                )
            }
        };
        let values = params![name, before.0, limit as i64];
        self.all("read the feed", &sql, values, raw)?.into_iter().map(read).collect()
    }

    /// One occurrence by the id that its event has, with its delivery where it has one.
    pub fn occurrence(&self, event_id: &str) -> Result<Option<(Placed, Option<DeliverySeq>)>, Error> {
        let sql = format!("SELECT {COLUMNS}, seq FROM occurrences WHERE event_id = ?1 ORDER BY place DESC LIMIT 1");
        let found = self.one("read an occurrence", &sql, [event_id], |row| {
            Ok((raw(row)?, row.get::<_, Option<i64>>(8)?.map(DeliverySeq)))
        })?;
        found.map(|(raw, seq)| Ok((read(raw)?, seq))).transpose()
    }

    pub(super) fn occurrence_at(&self, place: Place) -> Result<Option<Placed>, Error> {
        let sql = format!("SELECT {COLUMNS} FROM occurrences WHERE place = ?1");
        self.one("read an occurrence", &sql, [place.0], raw)?.map(read).transpose()
    }

    /// Shows every gap after `after` and up to `until` to `take`, in order.
    pub fn gaps(&self, after: Place, until: Place, mut take: impl FnMut(Placed)) -> Result<(), Error> {
        let scan = Scan { name: catalogue::GAP.into(), needles: Vec::new(), after, until, since: None };
        self.scan(&scan, |placed| {
            take(placed);
            true
        })
    }

    /// Shows every occurrence after a place that fits a type and arguments to `take`, in order.
    pub(super) fn fitting(
        &self,
        name: &str,
        arguments: &Arguments,
        after: Place,
        since: Option<Timestamp>,
        mut take: impl FnMut(Placed) -> bool,
    ) -> Result<(), Error> {
        let Some(kind) = catalogue::event_type(name) else { return Ok(()) };
        let needles = catalogue::needles(kind, arguments);
        let scan = Scan { name: name.into(), needles, after, until: Place(i64::MAX), since };
        self.scan(&scan, |placed| !kind.matches(arguments, &placed.occurrence) || take(placed))
    }

    /// Lets go of occurrences that were recorded before `before`, unless they are owed; how many.
    pub(super) fn retain_occurrences(&self, before: Timestamp, limit: i64) -> Result<usize, Error> {
        let old = "SELECT place FROM occurrences o WHERE recorded_at < ?1
                   AND NOT EXISTS (SELECT 1 FROM owed WHERE owed.place = o.place) ORDER BY recorded_at LIMIT ?2";
        let values = params![millis(before), limit];
        self.execute(
            "note what is let go",
            &format!(
                "INSERT INTO occurrence_floors (name, place)
                 SELECT name, max(place) FROM occurrences WHERE place IN ({old}) GROUP BY name
                 ON CONFLICT (name) DO UPDATE SET place = max(place, excluded.place)"
            ),
            values,
        )?;
        self.execute("let occurrences go", &format!("DELETE FROM occurrences WHERE place IN ({old})"), values)
    }
}

type Raw = (Placed, String);

fn raw(row: &Row<'_>) -> rusqlite::Result<Raw> {
    let occurrence = Occurrence {
        event_id: row.get(1)?,
        name: row.get(2)?,
        repository: row.get(3)?,
        actor: row.get(4)?,
        at: moment(row.get(5)?),
        fingerprint: row.get(6)?,
        data: serde_json::Map::new(),
    };
    Ok((Placed { place: Place(row.get(0)?), occurrence }, row.get(7)?))
}

fn read((mut placed, data): Raw) -> Result<Placed, Error> {
    placed.occurrence.data = serde_json::from_str(&data).map_err(|error| Error::content("payload", error))?;
    Ok(placed)
}
