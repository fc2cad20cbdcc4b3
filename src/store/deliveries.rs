//! Deliveries as people look at them: in lists, with what became of them and why.

use jiff::Timestamp;
use rusqlite::{Row, ToSql};
use serde::Serialize;

use super::db::{millis, moment};
use super::{Db, Error};
use crate::domain::{Decision, DeliverySeq, NoticeState, Outcome, TurnId, WorkItem};

/// Which deliveries to list.
#[derive(Debug, Default, Clone)]
pub struct DeliveryFilter {
    /// Only those with this outcome.
    pub outcome: Option<Outcome>,
    /// Only those that concern this work item.
    pub work_item: Option<WorkItem>,
    /// Only those after this one.
    pub after: Option<DeliverySeq>,
    /// At most so many, the newest.
    pub limit: usize,
}

/// A delivery as lists show it.
#[derive(Debug, Clone, Serialize)]
pub struct DeliveryRow {
    /// Its place in the journal.
    pub seq: DeliverySeq,
    /// The source's id for it.
    pub delivery: String,
    /// Who handed it over.
    pub source: String,
    /// The event's name.
    pub event: String,
    /// The payload's action.
    pub action: Option<String>,
    /// `OWNER/REPO`.
    pub repository: Option<String>,
    /// When it reached us.
    pub received_at: Timestamp,
    /// What became of it.
    pub outcome: Outcome,
    /// Why.
    pub reason: String,
    /// The work items that it may concern, strongest first.
    pub work_items: Vec<WorkItem>,
    /// The conversations that it went to.
    pub sessions: Vec<String>,
    /// The body's length in bytes, as JSON text.
    pub body_size: u64,
    /// The decision, where one was made.
    #[serde(skip)]
    pub decision: Option<Decision>,
}

/// One inbox entry of a delivery, as `deliveries show` shows it.
#[derive(Debug, Clone, Serialize)]
pub struct NoticeRow {
    /// The session's key.
    pub session: String,
    /// How the event reached it.
    pub how: String,
    /// Where it stands.
    pub state: &'static str,
    /// How many turns failed to tell it.
    pub attempts: u32,
    /// The turn that told it last.
    pub turn: Option<TurnId>,
    /// Why it stands where it stands.
    pub reason: Option<String>,
}

const COLUMNS: &str = "seq, id, source, event, action, repository, received_at, outcome, reason, decision, body_size";

impl Db {
    /// Deliveries, newest first.
    pub fn list_deliveries(&self, filter: &DeliveryFilter) -> Result<Vec<DeliveryRow>, Error> {
        let outcome = filter.outcome.map(Outcome::as_str);
        // The decision's JSON names its work items; LIKE narrows, the exact comparison below decides.
        let item = filter.work_item.as_ref().map(|item| format!("%{}%", item.key().replace(['%', '_'], "_")));
        let after = filter.after.map_or(0, |seq| seq.0);
        let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
        let params: [&dyn ToSql; 4] = [&outcome, &item, &after, &limit];
        let sql = format!(
            "SELECT {COLUMNS} FROM deliveries
             WHERE (?1 IS NULL OR outcome = ?1) AND (?2 IS NULL OR lower(decision) LIKE lower(?2)) AND seq > ?3
             ORDER BY seq DESC LIMIT ?4"
        );
        let rows = self.all("list deliveries", &sql, &params[..], raw_row)?;
        let mut rows = rows.into_iter().map(RawRow::read).collect::<Result<Vec<_>, _>>()?;
        if let Some(item) = &filter.work_item {
            rows.retain(|row| row.work_items.contains(item));
        }
        for row in &mut rows {
            row.sessions = self.sessions_of(row.seq)?;
        }
        Ok(rows)
    }

    /// One delivery as lists show it.
    pub fn delivery_row(&self, seq: DeliverySeq) -> Result<Option<DeliveryRow>, Error> {
        let sql = format!("SELECT {COLUMNS} FROM deliveries WHERE seq = ?1");
        let Some(raw) = self.one("read a delivery", &sql, [seq.0], raw_row)? else { return Ok(None) };
        let mut row = raw.read()?;
        row.sessions = self.sessions_of(seq)?;
        Ok(Some(row))
    }

    /// The inbox entries that a delivery made.
    pub fn notices_of(&self, seq: DeliverySeq) -> Result<Vec<NoticeRow>, Error> {
        let rows = self.all(
            "read notices",
            "SELECT session, how, state, attempts, turn, reason FROM notices WHERE seq = ?1 ORDER BY id",
            [seq.0],
            |row| {
                Ok((
                    row.get::<_, String>(2)?,
                    NoticeRow {
                        session: row.get(0)?,
                        how: row.get(1)?,
                        state: "",
                        attempts: row.get(3)?,
                        turn: row.get::<_, Option<i64>>(4)?.map(TurnId),
                        reason: row.get(5)?,
                    },
                ))
            },
        )?;
        rows.into_iter()
            .map(|(state, mut row)| {
                row.state =
                    NoticeState::from_word(&state).ok_or_else(|| Error::content("notice state", &state))?.as_str();
                Ok(row)
            })
            .collect()
    }

    /// How many deliveries there are per outcome since `since`.
    pub fn count_outcomes(&self, since: Timestamp) -> Result<Vec<(Outcome, u64)>, Error> {
        let rows = self.all(
            "count deliveries",
            "SELECT outcome, count(*) FROM deliveries WHERE received_at >= ?1 GROUP BY outcome",
            [millis(since)],
            |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)),
        )?;
        rows.into_iter()
            .map(|(word, count)| {
                let outcome = Outcome::from_word(&word).ok_or_else(|| Error::content("outcome", &word))?;
                Ok((outcome, u64::try_from(count).unwrap_or(0)))
            })
            .collect()
    }

    fn sessions_of(&self, seq: DeliverySeq) -> Result<Vec<String>, Error> {
        self.all(
            "read the sessions of a delivery",
            "SELECT DISTINCT coalesce((SELECT t.session_id FROM turns t WHERE t.id = n.turn), n.session)
             FROM notices n WHERE n.seq = ?1",
            [seq.0],
            |row| row.get(0),
        )
    }
}

struct RawRow {
    row: DeliveryRow,
    outcome: String,
    decision: Option<String>,
}

fn raw_row(row: &Row<'_>) -> rusqlite::Result<RawRow> {
    Ok(RawRow {
        outcome: row.get(7)?,
        decision: row.get(9)?,
        row: DeliveryRow {
            seq: DeliverySeq(row.get(0)?),
            delivery: row.get(1)?,
            source: row.get(2)?,
            event: row.get(3)?,
            action: row.get(4)?,
            repository: row.get(5)?,
            received_at: moment(row.get(6)?),
            outcome: Outcome::Pending,
            reason: row.get(8)?,
            work_items: Vec::new(),
            sessions: Vec::new(),
            body_size: u64::try_from(row.get::<_, i64>(10)?).unwrap_or(0),
            decision: None,
        },
    })
}

impl RawRow {
    fn read(self) -> Result<DeliveryRow, Error> {
        let mut row = self.row;
        row.outcome = Outcome::from_word(&self.outcome).ok_or_else(|| Error::content("outcome", &self.outcome))?;
        if let Some(text) = self.decision {
            let decision: Decision = serde_json::from_str(&text).map_err(|error| Error::content("decision", error))?;
            row.work_items.clone_from(&decision.work_items);
            row.decision = Some(decision);
        }
        Ok(row)
    }
}
