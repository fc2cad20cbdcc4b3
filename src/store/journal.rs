//! The journal: deliveries as they were handed to us, and what became of them.

use std::cell::RefCell;

use bytes::Bytes;
use jiff::Timestamp;
use rusqlite::{Row, ToSql, params};
use serde::Serialize;

use super::db::{millis, moment};
use super::decisions::Ruling;
use super::{Db, Error};
use crate::domain::{Decision, Delivery, DeliverySeq, NoticeState, Outcome, Receipt, Source, TurnId, WorkItem};
use crate::room::Room;

/// The quickest level: it takes GitHub's payloads to a tenth.
const LEVEL: i32 = 1;

thread_local! {
    /// A compressor's tables are larger than most bodies, so each thread keeps one.
    static COMPRESSOR: RefCell<std::io::Result<zstd::bulk::Compressor<'static>>> =
        RefCell::new(zstd::bulk::Compressor::new(LEVEL));
}

/// A delivery made ready for the journal: its body compressed, off the writer's thread.
pub struct Accepting {
    delivery: Delivery,
    compressed: Bytes,
}

impl Accepting {
    /// Compresses the body. Takes about 1 ms per MB.
    pub fn new(delivery: Delivery) -> Result<Self, Error> {
        let most = zstd::zstd_safe::compress_bound(delivery.body.len());
        let compressed = COMPRESSOR
            .with_borrow_mut(|compressor| match compressor {
                Ok(compressor) => Room::written(most, |room| compressor.compress_to_buffer(&delivery.body, room)),
                Err(_) => Room::written(most, |room| zstd::bulk::compress_to_buffer(&delivery.body, room, LEVEL)),
            })
            .map_err(|error| Error::content("body", error))?;
        Ok(Self { delivery, compressed: compressed.into_bytes() })
    }

    /// Who handed it over.
    pub fn source(&self) -> &Source {
        &self.delivery.source
    }

    /// The source's id for it.
    pub fn id(&self) -> &str {
        &self.delivery.id
    }

    pub(super) fn received_at(&self) -> Timestamp {
        self.delivery.received_at
    }
}

/// A delivery that waits for its decision.
pub struct Undecided {
    /// Its place in the journal.
    pub seq: DeliverySeq,
    /// What was handed to us; or why that cannot be read back, which must not keep others from their decisions.
    pub delivery: Result<Delivery, Error>,
}

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
    /// Takes a delivery in, once, to be decided later. What this returns is on disk after the commit.
    pub fn accept(&self, accepting: &Accepting) -> Result<Receipt, Error> {
        match self.known(accepting)? {
            Some(receipt) => Ok(receipt),
            None => self.keep(accepting, &Ruling::pending()).map(Receipt::Accepted),
        }
    }

    /// What is to be said of a delivery that came before; `None` for a new one.
    pub fn known(&self, accepting: &Accepting) -> Result<Option<Receipt>, Error> {
        let known = self.one(
            "look a delivery up",
            "SELECT seq, outcome FROM deliveries WHERE source = ?1 AND id = ?2",
            params![accepting.delivery.source.key(), accepting.delivery.id],
            |row| Ok((DeliverySeq(row.get(0)?), row.get::<_, String>(1)?)),
        )?;
        match known {
            // GitHub's Redeliver of what failed is a person asking for another try.
            Some((seq, outcome)) if outcome == Outcome::Failed.as_str() => {
                self.requeue(seq, &[NoticeState::Failed])?;
                Ok(Some(Receipt::Requeued(seq)))
            }
            Some((seq, _)) => Ok(Some(Receipt::Duplicate(seq))),
            None => Ok(None),
        }
    }

    /// Puts a new delivery into the journal with what is known of its decision.
    pub(super) fn keep(&self, accepting: &Accepting, ruling: &Ruling) -> Result<DeliverySeq, Error> {
        let d = &accepting.delivery;
        self.execute(
            "journal a delivery",
            "INSERT INTO deliveries
                 (source, id, event, received_at, body_size, outcome, reason, action, repository, decision, read)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            params![
                d.source.key(),
                d.id,
                d.event,
                millis(d.received_at),
                d.body.len() as i64,
                ruling.outcome.as_str(),
                ruling.reason,
                ruling.action,
                ruling.repository,
                ruling.decision,
                ruling.read
            ],
        )?;
        let seq = DeliverySeq(self.connection.last_insert_rowid());
        let body = params![seq.0, accepting.compressed.as_ref()];
        self.execute("keep a body", "INSERT INTO bodies (seq, body) VALUES (?1, ?2)", body)?;
        Ok(seq)
    }

    /// The oldest deliveries without a decision: at most `limit`, and no more bodies than `bytes` beyond the first.
    pub fn undecided(&self, limit: usize, bytes: u64) -> Result<Vec<Undecided>, Error> {
        let heads = self.all(
            "find undecided deliveries",
            "SELECT seq, body_size FROM deliveries WHERE outcome = 'pending' ORDER BY seq LIMIT ?1",
            [limit as i64],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
        )?;
        let mut total = 0;
        let mut found = Vec::with_capacity(heads.len());
        for (seq, size) in heads {
            total += u64::try_from(size).unwrap_or(0);
            if !found.is_empty() && total > bytes {
                break;
            }
            let seq = DeliverySeq(seq);
            let delivery = match self.delivery(seq) {
                Ok(delivery) => delivery.ok_or_else(|| Error::content("delivery", "an undecided one has no body")),
                Err(error @ Error::Content { .. }) => Err(error),
                Err(error) => return Err(error),
            };
            found.push(Undecided { seq, delivery });
        }
        Ok(found)
    }

    /// Whether anything waits for its decision.
    pub fn has_undecided(&self) -> Result<bool, Error> {
        self.one(
            "look for undecided deliveries",
            "SELECT 1 FROM deliveries WHERE outcome = 'pending' LIMIT 1",
            (),
            |_| Ok(()),
        )
        .map(|one| one.is_some())
    }

    /// A delivery as it was handed to us; `None` if it is unknown or its body has been let go.
    pub fn delivery(&self, seq: DeliverySeq) -> Result<Option<Delivery>, Error> {
        let row = self.one(
            "read a delivery",
            "SELECT d.source, d.id, d.event, d.received_at, d.body_size, b.body
             FROM deliveries d JOIN bodies b ON b.seq = d.seq WHERE d.seq = ?1",
            [seq.0],
            |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, i64>(3)?,
                    row.get::<_, i64>(4)?,
                    row.get::<_, Vec<u8>>(5)?,
                ))
            },
        )?;
        let Some((source, id, event, received, size, body)) = row else { return Ok(None) };
        let body =
            Room::written(usize::try_from(size).unwrap_or(0), |room| zstd::bulk::decompress_to_buffer(&body, room))
                .map_err(|error| Error::content("body", error))?
                .into_bytes();
        let source = Source::from_key(&source).ok_or_else(|| Error::content("source", &source))?;
        Ok(Some(Delivery { source, id, event, body, received_at: moment(received) }))
    }

    /// The place of a delivery that a person names: its id, or its sequence number.
    pub fn find_delivery(&self, name: &str) -> Result<Option<DeliverySeq>, Error> {
        let by_id = self.one(
            "look a delivery up",
            "SELECT seq FROM deliveries WHERE id = ?1 ORDER BY seq DESC LIMIT 1",
            [name],
            |row| row.get(0).map(DeliverySeq),
        )?;
        match (by_id, name.parse::<i64>()) {
            (None, Ok(seq)) => {
                self.one("look a delivery up", "SELECT seq FROM deliveries WHERE seq = ?1", [seq], |row| {
                    row.get(0).map(DeliverySeq)
                })
            }
            (found, _) => Ok(found),
        }
    }

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

    /// Settles a delivery's outcome from what became of its notices.
    pub(super) fn settle(&self, seq: DeliverySeq) -> Result<(), Error> {
        let states = self.notices_of(seq)?;
        let with = |wanted: &[&str]| states.iter().find(|notice| wanted.contains(&notice.state));
        let (outcome, reason) = if let Some(notice) = with(&["waiting", "told"]) {
            let reason = notice.reason.clone().unwrap_or_else(|| format!("wakes {}: {}", notice.session, notice.how));
            (Outcome::Queued, reason)
        } else if let Some(notice) = with(&["failed"]) {
            (Outcome::Failed, notice.reason.clone().unwrap_or_else(|| "every attempt failed".into()))
        } else if let Some(notice) = with(&["delivered", "superseded"]) {
            let told = notice.turn.map_or_else(|| "told".into(), |turn| format!("told in turn {turn}"));
            (Outcome::Delivered, notice.reason.clone().unwrap_or(told))
        } else if let Some(notice) = with(&["dropped"]) {
            (Outcome::Filtered, notice.reason.clone().unwrap_or_else(|| "dropped".into()))
        } else {
            return Ok(());
        };
        self.execute(
            "settle a delivery",
            "UPDATE deliveries SET outcome = ?2, reason = ?3 WHERE seq = ?1",
            params![seq.0, outcome.as_str(), reason],
        )
        .map(|_| ())
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
