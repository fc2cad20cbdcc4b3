//! Inboxes: what waits for each session.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::params;

use super::db::moment;
use super::{Db, Error};
use crate::domain::{DeliverySeq, Event, Notice, NoticeId, NoticeState, SessionKey, TurnId};

/// One session's inbox, as the dispatcher looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inbox {
    /// Whose it is.
    pub session: SessionKey,
    /// How many notices wait, up to as many as were asked for.
    pub waiting: u64,
    /// The first of them: first come, first served.
    pub first: NoticeId,
    /// When the oldest came.
    pub oldest: Timestamp,
    /// When the newest came.
    pub newest: Timestamp,
}

/// A notice and the event it is about.
pub type WaitingNotice = Notice;

impl Db {
    /// Every inbox in which something waits, in order of their oldest notice. They are counted up to `most`: an inbox may
    /// hold a million, and this is asked whenever one comes.
    pub fn inboxes(&self, most: usize) -> Result<Vec<Inbox>, Error> {
        self.all(
            "look at the inboxes",
            // From one session to the next in the index, and in each only to its ends.
            "WITH RECURSIVE held(session) AS (
                 SELECT min(session) FROM notices WHERE state = 'waiting'
                 UNION ALL
                 SELECT (SELECT min(session) FROM notices WHERE state = 'waiting' AND session > held.session)
                 FROM held WHERE held.session IS NOT NULL),
             ends(session, first, last) AS (
                 SELECT session,
                        (SELECT min(id) FROM notices n WHERE n.session = held.session AND n.state = 'waiting'),
                        (SELECT max(id) FROM notices n WHERE n.session = held.session AND n.state = 'waiting')
                 FROM held WHERE session IS NOT NULL)
             SELECT e.session,
                    (SELECT count(*) FROM (SELECT 1 FROM notices n WHERE n.session = e.session AND n.state = 'waiting' LIMIT ?1)),
                    e.first, o.created_at, l.created_at
             FROM ends e JOIN notices o ON o.id = e.first JOIN notices l ON l.id = e.last ORDER BY e.first",
            [i64::try_from(most).unwrap_or(i64::MAX)],
            |row| {
                Ok(Inbox {
                    session: SessionKey(row.get(0)?),
                    waiting: u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0),
                    first: NoticeId(row.get(2)?),
                    oldest: moment(row.get(3)?),
                    newest: moment(row.get(4)?),
                })
            },
        )
    }

    /// What waits for one session, in order of arrival.
    pub fn waiting(&self, session: &SessionKey, limit: usize) -> Result<Vec<WaitingNotice>, Error> {
        let rows = self.all(
            "read an inbox",
            "SELECT n.id, n.seq, d.id, d.read, n.how, n.created_at, n.attempts, n.turn
             FROM notices n JOIN deliveries d ON d.seq = n.seq
             WHERE n.session = ?1 AND n.state = 'waiting' ORDER BY n.id LIMIT ?2",
            params![session.0, limit as i64],
            |row| {
                Ok((
                    row.get::<_, Option<String>>(3)?,
                    NoticeId(row.get(0)?),
                    DeliverySeq(row.get(1)?),
                    row.get::<_, String>(2)?,
                    row.get::<_, String>(4)?,
                    moment(row.get(5)?),
                    row.get::<_, u32>(6)?,
                    row.get::<_, Option<i64>>(7)?.map(TurnId),
                ))
            },
        )?;
        rows.into_iter()
            .map(|(read, id, seq, delivery, how, created_at, attempts, last_turn)| {
                let text = read.ok_or_else(|| Error::content("event", format!("delivery {delivery} has none")))?;
                let event: Event = serde_json::from_str(&text).map_err(|error| Error::content("event", error))?;
                Ok(Notice { id, session: session.clone(), seq, delivery, event, how, created_at, attempts, last_turn })
            })
            .collect()
    }

    /// How many notices wait, per session.
    pub fn count_waiting(&self) -> Result<BTreeMap<SessionKey, u64>, Error> {
        let rows = self.all(
            "count what waits",
            "SELECT session, count(*) FROM notices WHERE state = 'waiting' GROUP BY session",
            (),
            |row| Ok((SessionKey(row.get(0)?), u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0))),
        )?;
        Ok(rows.into_iter().collect())
    }

    /// Puts the notices of a delivery that are in one of `states` back into their inboxes, with fresh attempts.
    /// Gives the number of notices that wait now.
    pub fn requeue(&self, seq: DeliverySeq, states: &[NoticeState]) -> Result<usize, Error> {
        let mut moved = 0;
        for state in states {
            moved += self.execute(
                "put notices back into their inboxes",
                "UPDATE notices SET state = 'waiting', attempts = 0, reason = NULL WHERE seq = ?1 AND state = ?2",
                params![seq.0, state.as_str()],
            )?;
        }
        self.execute(
            "end a session's wait",
            "UPDATE session_states SET retry_at = NULL WHERE session IN (SELECT session FROM notices WHERE seq = ?1)",
            [seq.0],
        )?;
        self.settle(seq)?;
        Ok(moved)
    }

    /// Takes back the decision about a delivery, so that it is decided anew.
    pub fn undecide(&self, seq: DeliverySeq) -> Result<(), Error> {
        self.execute(
            "take a decision back",
            "UPDATE deliveries SET outcome = 'pending', reason = 'to be decided anew'
             WHERE seq = ?1 AND EXISTS (SELECT 1 FROM bodies b WHERE b.seq = ?1)",
            [seq.0],
        )
        .map(|_| ())
    }

    /// Takes the waiting and failed notices of a delivery out of their inboxes for good.
    pub fn drop_notices(&self, seq: DeliverySeq, reason: &str) -> Result<usize, Error> {
        let dropped = self.execute(
            "drop notices",
            "UPDATE notices SET state = 'dropped', reason = ?2 WHERE seq = ?1 AND state IN ('waiting', 'failed')",
            params![seq.0, reason],
        )?;
        self.settle(seq)?;
        Ok(dropped)
    }

    /// Empties the inbox of a session that was closed.
    pub fn drop_inbox(&self, session: &SessionKey, reason: &str) -> Result<usize, Error> {
        let affected = self.all(
            "find the notices of a session",
            "SELECT DISTINCT seq FROM notices WHERE session = ?1 AND state = 'waiting'",
            [&session.0],
            |row| row.get(0).map(DeliverySeq),
        )?;
        let dropped = self.execute(
            "empty an inbox",
            "UPDATE notices SET state = 'dropped', reason = ?2 WHERE session = ?1 AND state = 'waiting'",
            params![session.0, reason],
        )?;
        for seq in affected {
            self.settle(seq)?;
        }
        Ok(dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Access;

    #[test]
    fn inboxes_come_in_the_order_of_their_oldest_notice_and_are_counted_as_far_as_asked() {
        let dir = tempfile::tempdir().expect("dir");
        let db = Db::open(dir.path(), Access::Write).expect("a database");
        let rows =
            [("b", 1, "told"), ("b", 2, "waiting"), ("c", 3, "waiting"), ("a", 4, "waiting"), ("b", 5, "waiting")];
        for (session, at, state) in rows {
            let sql = "INSERT INTO notices (session, seq, fingerprint, work_item, how, state, created_at)
                       VALUES (?1, ?2, ?2, 'x', 'y', ?3, ?2)";
            db.execute("note", sql, params![session, at, state]).expect("a notice");
        }
        let look = |most: usize| {
            let all = db.inboxes(most).expect("inboxes").into_iter();
            all.map(|i| (i.session.0, i.waiting, i.first.0, i.oldest.as_millisecond(), i.newest.as_millisecond()))
                .collect::<Vec<_>>()
        };
        let wanted = |b: u64| vec![("b".to_owned(), b, 2, 2, 5), ("c".into(), 1, 3, 3, 3), ("a".into(), 1, 4, 4, 4)];
        assert_eq!((look(50), look(1)), (wanted(2), wanted(1)));
        assert_eq!(db.count_waiting().expect("counts").get(&SessionKey("b".into())), Some(&2));
        db.execute("end", "UPDATE notices SET state = 'delivered'", ()).expect("ended");
        assert!(look(50).is_empty());
    }
}
