//! Decisions: kept together with the notices they make and the links they teach, in one transaction.

use jiff::Timestamp;
use rusqlite::params;

use super::db::{millis, moment};
use super::{Accepting, Db, Error};
use crate::catalogue;
use crate::domain::{Decision, DeliverySeq, Event, LinkKind, Nature, NoticeState, Outcome, SessionKey};

/// What a delivery's row holds of its decision.
pub(super) struct Ruling {
    pub(super) outcome: Outcome,
    pub(super) reason: String,
    pub(super) action: Option<String>,
    pub(super) repository: Option<String>,
    /// The decision, as JSON.
    pub(super) decision: Option<String>,
    /// The event, as JSON: only of what will be told, which is needed again soon. Everything else can be read anew.
    pub(super) read: Option<String>,
}

impl Ruling {
    /// Of what is to be decided later.
    pub(super) fn pending() -> Self {
        Self::without_decision(Outcome::Pending, "not yet decided")
    }

    fn without_decision(outcome: Outcome, reason: &str) -> Self {
        Self { outcome, reason: reason.into(), action: None, repository: None, decision: None, read: None }
    }

    fn of(event: &Event, decision: &Decision) -> Result<Self, Error> {
        let read = match decision.outcome {
            Outcome::Queued => Some(serde_json::to_string(event).map_err(|error| Error::content("event", error))?),
            _ => None,
        };
        Ok(Self {
            outcome: decision.outcome,
            reason: decision.reason.clone(),
            action: event.action.clone(),
            repository: event.repository.as_ref().map(|repository| repository.name.to_string()),
            decision: Some(serde_json::to_string(decision).map_err(|error| Error::content("decision", error))?),
            read,
        })
    }
}

impl Db {
    /// Takes a new delivery in together with its decision and all that follows from it.
    pub fn accept_decided(
        &self,
        accepting: &Accepting,
        event: &Event,
        decision: &Decision,
        now: Timestamp,
    ) -> Result<DeliverySeq, Error> {
        let seq = self.keep(accepting, &Ruling::of(event, decision)?)?;
        self.follow(seq, (accepting.id(), accepting.received_at()), event, decision, now)?;
        Ok(seq)
    }

    /// Takes a new delivery in that cannot be read, which ends its way.
    pub fn accept_unreadable(&self, accepting: &Accepting, reason: &str) -> Result<DeliverySeq, Error> {
        self.keep(accepting, &Ruling::without_decision(Outcome::Filtered, reason))
    }

    /// Records what was decided about a delivery that waited for it, and all that follows.
    pub fn record_decision(
        &self,
        seq: DeliverySeq,
        event: &Event,
        decision: &Decision,
        now: Timestamp,
    ) -> Result<(), Error> {
        let ruling = Ruling::of(event, decision)?;
        self.execute(
            "record a decision",
            "UPDATE deliveries SET outcome = ?2, reason = ?3, action = ?4, repository = ?5, decision = ?6, read = ?7
             WHERE seq = ?1",
            params![
                seq.0,
                ruling.outcome.as_str(),
                ruling.reason,
                ruling.action,
                ruling.repository,
                ruling.decision,
                ruling.read
            ],
        )?;
        let receipt =
            self.one("read a receipt", "SELECT id, received_at FROM deliveries WHERE seq = ?1", [seq.0], |row| {
                Ok((row.get::<_, String>(0)?, moment(row.get(1)?)))
            })?;
        let Some((id, received_at)) = receipt else { return Err(Error::content("delivery", "it is not there")) };
        self.follow(seq, (&id, received_at), event, decision, now)
    }

    /// What follows from a decision: links learned, the feed, notices in their inboxes.
    fn follow(
        &self,
        seq: DeliverySeq,
        (id, received_at): (&str, Timestamp),
        event: &Event,
        decision: &Decision,
        now: Timestamp,
    ) -> Result<(), Error> {
        self.learn_from(seq, event, now)?;
        if let Some(occurrence) = catalogue::occurrence(event, id, received_at) {
            self.publish(&occurrence, Some(seq), now)?;
        }
        for assignment in &decision.assignments {
            self.notify(seq, event, &assignment.session, &assignment.work_item.to_string(), &assignment.how, now)?;
        }
        if decision.outcome == Outcome::Queued { self.settle(seq) } else { Ok(()) }
    }

    /// Records that a delivery cannot be read, which ends its way.
    pub fn record_unreadable(&self, seq: DeliverySeq, reason: &str) -> Result<(), Error> {
        self.pass_by(seq, reason)
    }

    fn learn_from(&self, seq: DeliverySeq, event: &Event, now: Timestamp) -> Result<(), Error> {
        if let Some(repository) = &event.repository {
            self.learn_name(repository, seq)?;
        }
        // A pull request's own event shows its whole text: closing words that have gone count no more.
        if event.name == "pull_request"
            && let Some(subject) = event.subjects.first()
        {
            self.forget(&subject.node, LinkKind::Closes)?;
        }
        if let ("issues.reopened" | "pull_request.reopened", Some(topic), Some(at)) =
            (event.title().as_str(), &event.supersedes, event.happened_at)
        {
            self.learn_reopened(topic, at)?;
        }
        for link in &event.links {
            self.learn(link, now)?;
        }
        Ok(())
    }

    /// Puts one notice into an inbox, unless this happening has been put there before.
    pub(super) fn notify(
        &self,
        seq: DeliverySeq,
        event: &Event,
        session: &SessionKey,
        work_item: &str,
        how: &str,
        now: Timestamp,
    ) -> Result<(), Error> {
        self.execute(
            "note the time of a session's last event",
            "INSERT INTO session_states (session, last_event_at) VALUES (?1, ?2)
             ON CONFLICT DO UPDATE SET last_event_at = excluded.last_event_at",
            params![session.0, millis(now)],
        )?;
        if let Some(newer) = self.told_newer(session, event)? {
            return self
                .pass_by(seq, &format!("late: {session} was told a newer state of the same by delivery {newer}"));
        }
        let added = self.execute(
            "put a notice into an inbox",
            "INSERT INTO notices (session, seq, fingerprint, work_item, how, state, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, 'waiting', ?6) ON CONFLICT (session, fingerprint) DO NOTHING",
            params![session.0, seq.0, event.fingerprint, work_item, how, millis(now)],
        )?;
        if added == 1 {
            return Ok(());
        }
        let Some((first, state)) = self.one(
            "look a notice up",
            "SELECT seq, state FROM notices WHERE session = ?1 AND fingerprint = ?2",
            params![session.0, event.fingerprint],
            |row| Ok((DeliverySeq(row.get(0)?), row.get::<_, String>(1)?)),
        )?
        else {
            return Err(Error::content("notice", "it conflicts with a row that is not there"));
        };
        if state == NoticeState::Failed.as_str() {
            // The same happening under a new id is another chance for what has failed.
            self.execute(
                "take a failed notice up again",
                "UPDATE notices SET seq = ?3, state = 'waiting', attempts = 0, reason = NULL
                 WHERE session = ?1 AND fingerprint = ?2",
                params![session.0, event.fingerprint, seq.0],
            )?;
            return self.hand_over(first, seq);
        }
        let delivery = self.name_of(first)?;
        self.pass_by(seq, &format!("{session} has this happening already, from delivery {delivery}"))
    }

    /// The delivery by which a session was told a newer state of the same thing, if so: deliveries overtake each other,
    /// and what has been overtaken is no news. What is still in the inbox is for the batch to choose from.
    fn told_newer(&self, session: &SessionKey, event: &Event) -> Result<Option<String>, Error> {
        let (Some(topic), Some(at)) = (&event.supersedes, event.happened_at) else { return Ok(None) };
        if event.nature == Nature::Words {
            return Ok(None);
        }
        let told = self.all(
            "look for newer news",
            "SELECT d.id, json_extract(d.read, '$.happened_at') FROM deliveries d JOIN notices n ON n.seq = d.seq
             WHERE d.read IS NOT NULL AND json_extract(d.read, '$.supersedes') = ?1 AND n.session = ?2
               AND n.state IN ('told', 'delivered') AND n.fingerprint <> ?3
             ORDER BY d.seq DESC LIMIT 20",
            params![topic, session.0, event.fingerprint],
            |row| Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?)),
        )?;
        let is_newer = |then: &Option<String>| then.as_ref().and_then(|t| t.parse::<Timestamp>().ok()) > Some(at);
        Ok(told.into_iter().find(|(_, then)| is_newer(then)).map(|(delivery, _)| delivery))
    }

    /// Nobody is told of a delivery after all.
    fn pass_by(&self, seq: DeliverySeq, reason: &str) -> Result<(), Error> {
        self.execute(
            "record a decision",
            "UPDATE deliveries SET outcome = 'filtered', reason = ?2 WHERE seq = ?1",
            params![seq.0, reason],
        )
        .map(|_| ())
    }

    /// A notice of `from` is `to`'s now. Where it was the last, `from` has failed no longer: it is told by another.
    fn hand_over(&self, from: DeliverySeq, to: DeliverySeq) -> Result<(), Error> {
        if from == to || !self.notices_of(from)?.is_empty() {
            return self.settle(from);
        }
        let delivery = self.name_of(to)?;
        self.pass_by(from, &format!("delivery {delivery} brought the same happening, and is told instead"))
    }

    fn name_of(&self, seq: DeliverySeq) -> Result<String, Error> {
        Ok(self.delivery_row(seq)?.map_or_else(|| seq.to_string(), |row| row.delivery))
    }
}
