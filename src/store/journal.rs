//! The journal: deliveries as they were handed to us, and what became of them.

use std::cell::RefCell;

use bytes::Bytes;
use jiff::Timestamp;
use rusqlite::params;

use super::db::{millis, moment};
use super::decisions::Ruling;
use super::{Db, Error};
use crate::domain::{Delivery, DeliverySeq, NoticeState, Outcome, Receipt, Source};
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
}
