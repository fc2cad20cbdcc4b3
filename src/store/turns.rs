//! Turns: begun, finished, listed.

use jiff::Timestamp;
use rusqlite::{Row, ToSql, params};

use super::db::{millis, moment};
use super::{Db, Error};
use crate::catalogue;
use crate::domain::{
    Attention, DeliverySeq, FailureKind, NoticeId, SessionKey, Turn, TurnId, TurnOutcome, TurnState, Usage, WorkItem,
};

/// What a new turn is made of.
#[derive(Debug, Clone)]
pub struct NewTurn {
    /// Whose turn it is.
    pub session: SessionKey,
    /// The work item as the session's file spells it.
    pub work_item: WorkItem,
    /// The agent program.
    pub harness: String,
    /// The conversation to resume.
    pub session_id: String,
    /// Where it runs.
    pub cwd: String,
    /// The first attempt at its notices is 1.
    pub attempt: u32,
    /// See [`Turn::message_id`].
    pub message_id: String,
    /// When it is begun.
    pub started_at: Timestamp,
    /// What it tells, in order.
    pub tell: Vec<NoticeId>,
    /// Older states that are not told because of a newer one: (old, newer).
    pub superseded: Vec<(NoticeId, NoticeId)>,
}

/// What becomes of a finished turn's notices.
#[derive(Debug, Clone, PartialEq)]
pub enum Settlement {
    /// They were told.
    Delivered,
    /// They wait again, and their session until `at`.
    Retry {
        /// Not before this.
        at: Timestamp,
        /// Whether the attempt counts.
        counts: bool,
    },
    /// Those that have had all their attempts are kept as failed; the others, which joined later, wait again.
    GiveUp {
        /// Why, for the delivery's reason.
        reason: String,
        /// How many attempts each has; 0 gives all of them up.
        max_attempts: u32,
        /// When the others are tried again.
        at: Timestamp,
    },
    /// They wait until a person has mended what is the matter.
    Hold(Attention),
}

/// Which turns to list.
#[derive(Debug, Default, Clone)]
pub struct TurnFilter {
    /// Only those in this state.
    pub state: Option<TurnState>,
    /// Only those of this session.
    pub session: Option<SessionKey>,
    /// At most so many, the newest.
    pub limit: usize,
}

const COLUMNS: &str = "id, session, work_item, harness, session_id, cwd, state, attempt, message_id, started_at, \
                       ended_at, exit_code, error, cost_usd, session_cost_usd, input_tokens, output_tokens, last_words, \
                       failure";

impl Db {
    /// Begins a turn: its notices leave the inbox. They were looked at before; if one has left it meanwhile, because it
    /// was dropped or its session was closed, nothing is begun.
    pub fn start_turn(&self, new: &NewTurn) -> Result<TurnId, Error> {
        self.execute(
            "begin a turn",
            "INSERT INTO turns (session, work_item, harness, session_id, cwd, state, attempt, message_id, started_at)
             VALUES (?1, ?2, ?3, ?4, ?5, 'running', ?6, ?7, ?8)",
            params![
                new.session.0,
                new.work_item.to_string(),
                new.harness,
                new.session_id,
                new.cwd,
                new.attempt,
                new.message_id,
                millis(new.started_at)
            ],
        )?;
        let turn = TurnId(self.connection.last_insert_rowid());
        for notice in &new.tell {
            let told = self.execute(
                "tell a notice",
                "UPDATE notices SET state = 'told', turn = ?2, reason = NULL WHERE id = ?1 AND state = 'waiting'",
                params![notice.0, turn.0],
            )?;
            if told != 1 {
                return Err(Error::Gone);
            }
            self.execute(
                "note what a turn tells",
                "INSERT OR IGNORE INTO turn_notices (turn, notice, seq) SELECT ?2, id, seq FROM notices WHERE id = ?1",
                params![notice.0, turn.0],
            )?;
        }
        for (old, newer) in &new.superseded {
            self.execute(
                "supersede a notice",
                "UPDATE notices SET state = 'superseded', turn = ?2, reason = 'superseded by delivery ' ||
                     (SELECT d.id FROM notices n JOIN deliveries d ON d.seq = n.seq WHERE n.id = ?3)
                 WHERE id = ?1 AND state = 'waiting'",
                params![old.0, turn.0, newer.0],
            )?;
            let seq = self.one("read a notice", "SELECT seq FROM notices WHERE id = ?1", [old.0], |row| {
                row.get(0).map(DeliverySeq)
            })?;
            if let Some(seq) = seq {
                self.settle(seq)?;
            }
        }
        let deliveries = self.delivery_ids_of(turn)?;
        let started =
            catalogue::turn_started(turn, &new.work_item, &new.harness, new.attempt, deliveries, new.started_at);
        self.publish_own(started, new.started_at)?;
        Ok(turn)
    }

    /// Makes sure that new turns have numbers above `last`, as where an older or a new database meets the files of turns
    /// that it does not know.
    pub fn number_turns_above(&self, last: TurnId) -> Result<(), Error> {
        self.execute(
            "number turns",
            "INSERT INTO sqlite_sequence (name, seq) SELECT 'turns', 0
             WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'turns')",
            (),
        )?;
        self.execute("number turns", "UPDATE sqlite_sequence SET seq = max(seq, ?1) WHERE name = 'turns'", [last.0])
            .map(|_| ())
    }

    /// Records how a turn ended and what becomes of its notices, in one transaction.
    pub fn finish_turn(
        &self,
        turn: TurnId,
        outcome: &TurnOutcome,
        exit_code: Option<i32>,
        settlement: &Settlement,
        now: Timestamp,
    ) -> Result<(), Error> {
        let Some(row) = self.turn(turn)? else { return Err(Error::content("turn", "it is not there")) };
        if row.state != TurnState::Running {
            // It was finished before, by us or by another recovery: the first word stands.
            return Ok(());
        }
        let mut error = outcome.failure.as_ref().map(|failure| failure.message.clone());
        if error.is_none() && !outcome.remarks.is_empty() {
            error = Some(outcome.remarks.join("; "));
        }
        let usage = self.price(&row, outcome)?;
        self.execute(
            "finish a turn",
            "UPDATE turns SET state = ?2, ended_at = ?3, exit_code = ?4, error = ?5, cost_usd = ?6,
                 session_cost_usd = ?7, input_tokens = ?8, output_tokens = ?9, last_words = ?10, failure = ?11 WHERE id = ?1",
            params![
                turn.0,
                outcome.state.as_str(),
                millis(now),
                exit_code,
                error,
                usage.cost_usd,
                usage.session_cost_usd,
                usage.input_tokens.and_then(|n| i64::try_from(n).ok()),
                usage.output_tokens.and_then(|n| i64::try_from(n).ok()),
                outcome.last_words,
                outcome.failure.as_ref().map(|failure| failure.kind.as_str())
            ],
        )?;
        self.settle_notices(turn, settlement)?;
        match settlement {
            Settlement::Delivered => self.set_retry(&row.session, None)?,
            Settlement::Retry { at, .. } => self.set_retry(&row.session, Some(*at))?,
            Settlement::GiveUp { at, .. } => {
                let others = self.one(
                    "look for notices that wait again",
                    "SELECT 1 FROM notices WHERE turn = ?1 AND state = 'waiting' LIMIT 1",
                    [turn.0],
                    |_| Ok(()),
                )?;
                self.set_retry(&row.session, others.map(|()| *at))?;
            }
            Settlement::Hold(attention) => self.set_attention(&row.session, attention, now)?,
        }
        for seq in self.deliveries_of(turn)? {
            self.settle(seq)?;
        }
        let times = (row.started_at, now);
        let ended = catalogue::turn_finished(turn, &row.work_item, &row.harness, row.attempt, outcome, times);
        self.publish_own(ended, now)
    }

    fn settle_notices(&self, turn: TurnId, settlement: &Settlement) -> Result<(), Error> {
        let tried_again = || Some("its turn failed; it will be tried again".into());
        if let Settlement::GiveUp { max_attempts, .. } = settlement {
            self.execute(
                "settle a turn's notices",
                "UPDATE notices SET state = 'waiting', attempts = attempts + 1, reason = ?3
                 WHERE turn = ?1 AND state = 'told' AND attempts + 1 < ?2",
                params![turn.0, max_attempts, tried_again()],
            )?;
        }
        let (state, counted, reason): (_, _, Option<String>) = match settlement {
            Settlement::Delivered => ("delivered", 0, None),
            Settlement::Retry { counts, .. } => ("waiting", i64::from(*counts), tried_again()),
            Settlement::GiveUp { reason, .. } => ("failed", 1, Some(reason.clone())),
            Settlement::Hold(attention) => ("waiting", 0, Some(format!("held: {attention}"))),
        };
        self.execute(
            "settle a turn's notices",
            "UPDATE notices SET state = ?2, attempts = attempts + ?3, reason = ?4 WHERE turn = ?1 AND state = 'told'",
            params![turn.0, state, counted, reason],
        )
        .map(|_| ())
    }

    /// One turn.
    pub fn turn(&self, id: TurnId) -> Result<Option<Turn>, Error> {
        let sql = format!("SELECT {COLUMNS} FROM turns WHERE id = ?1");
        self.one("read a turn", &sql, [id.0], raw_turn)?.map(read_turn).transpose()
    }

    /// Turns, newest first.
    pub fn list_turns(&self, filter: &TurnFilter) -> Result<Vec<Turn>, Error> {
        let state = filter.state.map(TurnState::as_str);
        let session = filter.session.as_ref().map(|key| key.0.as_str());
        let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
        let params: [&dyn ToSql; 3] = [&state, &session, &limit];
        let sql = format!(
            "SELECT {COLUMNS} FROM turns WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR session = ?2)
             ORDER BY id DESC LIMIT ?3"
        );
        self.all("list turns", &sql, &params[..], raw_turn)?.into_iter().map(read_turn).collect()
    }

    /// Every turn that is not known to have ended, oldest first.
    pub fn running_turns(&self) -> Result<Vec<Turn>, Error> {
        let sql = format!("SELECT {COLUMNS} FROM turns WHERE state = 'running' ORDER BY id");
        self.all("list running turns", &sql, (), raw_turn)?.into_iter().map(read_turn).collect()
    }

    /// The deliveries that a turn told, in order.
    pub fn deliveries_of(&self, turn: TurnId) -> Result<Vec<DeliverySeq>, Error> {
        self.all(
            "read the deliveries of a turn",
            "SELECT seq FROM turn_notices WHERE turn = ?1 ORDER BY notice",
            [turn.0],
            |row| row.get(0).map(DeliverySeq),
        )
    }

    /// The ids of the deliveries that a turn told, as people type them.
    pub fn delivery_ids_of(&self, turn: TurnId) -> Result<Vec<String>, Error> {
        self.all(
            "read the deliveries of a turn",
            "SELECT d.id FROM turn_notices t JOIN deliveries d ON d.seq = t.seq WHERE t.turn = ?1 ORDER BY t.notice",
            [turn.0],
            |row| row.get(0),
        )
    }

    /// When a session's turns since `since` were begun, oldest first: for the budget of turns. One that found its
    /// conversation busy has taken nothing.
    pub fn turn_starts(&self, session: &SessionKey, since: Timestamp) -> Result<Vec<Timestamp>, Error> {
        self.all(
            "count a session's turns",
            "SELECT started_at FROM turns
             WHERE session = ?1 AND started_at > ?2 AND failure IS NOT ?3 AND failure IS NOT ?4 ORDER BY started_at",
            params![session.0, millis(since), FailureKind::Busy.as_str(), FailureKind::NotBegun.as_str()],
            |row| row.get(0).map(moment),
        )
    }
}

type RawTurn = (Turn, String, String);

fn raw_turn(row: &Row<'_>) -> rusqlite::Result<RawTurn> {
    let unsigned = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok());
    let turn = Turn {
        id: TurnId(row.get(0)?),
        session: SessionKey(row.get(1)?),
        work_item: WorkItem::Local(String::new()),
        harness: row.get(3)?,
        session_id: row.get(4)?,
        cwd: row.get(5)?,
        state: TurnState::Running,
        attempt: row.get(7)?,
        message_id: row.get(8)?,
        started_at: moment(row.get(9)?),
        ended_at: row.get::<_, Option<i64>>(10)?.map(moment),
        exit_code: row.get(11)?,
        error: row.get(12)?,
        usage: Usage {
            cost_usd: row.get(13)?,
            session_cost_usd: row.get(14)?,
            input_tokens: unsigned(row.get(15)?),
            output_tokens: unsigned(row.get(16)?),
        },
        last_words: row.get(17)?,
        failure: row.get::<_, Option<String>>(18)?.and_then(|word| FailureKind::from_word(&word)),
    };
    Ok((turn, row.get(2)?, row.get(6)?))
}

fn read_turn((mut turn, work_item, state): RawTurn) -> Result<Turn, Error> {
    turn.work_item = WorkItem::parse(&work_item).map_err(|error| Error::content("work item", error))?;
    turn.state = TurnState::from_word(&state).ok_or_else(|| Error::content("turn state", &state))?;
    Ok(turn)
}
