//! Whatever happens in whatever order: a delivery has one outcome, a session hears its news in order and once, and
//! nothing that is owed is ever let go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use the_loop::domain::{
    Assignment, Attention, Decision, Delivery, DeliverySeq, Event, Failure, FailureKind, Nature, NoticeState, Outcome,
    Receipt, Session, SessionKey, SessionStatus, Source, Span, TurnId, TurnOutcome, TurnState, Usage, WorkItem,
};
use the_loop::engine::schedule::{self, Readiness, Running};
use the_loop::retry::{self, Next, Policy};
use the_loop::routing::{self, PromptSettings, Settings};
use the_loop::store::{Accepting, Access, Db, DeliveryFilter, Inbox, NewTurn, Retention, SessionState, Settlement};

const SESSIONS: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    /// A delivery of a happening, for some sessions; `state` is about one thing that states supersede.
    Deliver {
        happening: u8,
        state: bool,
        sessions: u8,
        minute: u8,
    },
    Redeliver(u8),
    Begin(u8),
    End(u8, u8),
    Replay(u8),
    Drop(u8),
    Close(u8),
    Retain,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..12_u8, any::<bool>(), 1..4_u8, 0..6_u8)
            .prop_map(|(happening, state, sessions, minute)| Step::Deliver { happening, state, sessions, minute }),
        1 => any::<u8>().prop_map(Step::Redeliver),
        5 => (0..2_u8).prop_map(Step::Begin),
        5 => (0..2_u8, 0..5_u8).prop_map(|(session, how)| Step::End(session, how)),
        1 => any::<u8>().prop_map(Step::Replay),
        1 => any::<u8>().prop_map(Step::Drop),
        1 => (0..2_u8).prop_map(Step::Close),
        1 => Just(Step::Retain),
    ]
}

fn key(session: usize) -> SessionKey {
    SessionKey(item(session).key())
}

fn item(session: usize) -> WorkItem {
    WorkItem::parse(&format!("o/r#{}", session + 1)).expect("a work item")
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).expect("in range")
}

fn event(happening: u8, state: bool, minute: u8) -> Event {
    Event {
        name: "x".into(),
        action: None,
        repository: None,
        sender: None,
        author: None,
        nature: if state { Nature::Verdict } else { Nature::Words },
        subjects: Vec::new(),
        links: Vec::new(),
        fingerprint: format!("{state} {happening}"),
        supersedes: state.then(|| "the one thing".into()),
        happened_at: Some(at(i64::from(minute) * 60)),
        facts: Vec::new(),
    }
}

/// The store, and what a model of it remembers.
struct World {
    _dir: tempfile::TempDir,
    db: Db,
    clock: i64,
    deliveries: Vec<DeliverySeq>,
    running: BTreeMap<usize, TurnId>,
    ended: Vec<TurnId>,
    /// The notices that each session was told in a turn that it took, in order.
    heard: BTreeMap<usize, Vec<DeliverySeq>>,
    /// Replayed by hand or taken up again: these may be heard once more, and out of order.
    again: BTreeSet<DeliverySeq>,
    /// States: an older one steps back behind the newer that replaces it, and is told late if that one is dropped.
    states: BTreeSet<DeliverySeq>,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let db = Db::open(dir.path(), Access::Write).expect("a database");
        Self {
            _dir: dir,
            db,
            clock: 0,
            deliveries: Vec::new(),
            running: BTreeMap::new(),
            ended: Vec::new(),
            heard: BTreeMap::new(),
            again: BTreeSet::new(),
            states: BTreeSet::new(),
        }
    }

    fn pick(&self, number: u8) -> Option<DeliverySeq> {
        let count = self.deliveries.len();
        (count > 0).then(|| self.deliveries[usize::from(number) % count])
    }

    fn outcome(&self, seq: DeliverySeq) -> Outcome {
        self.db.delivery_row(seq).expect("a row").expect("it is there").outcome
    }

    fn take(&mut self, step: &Step) {
        self.clock += 1;
        let now = at(self.clock);
        match step {
            Step::Deliver { happening, state, sessions, minute } => {
                self.deliver(event(*happening, *state, *minute), *sessions, now);
            }
            Step::Redeliver(number) => {
                let Some(seq) = self.pick(*number) else { return };
                let before = self.outcome(seq);
                let delivery = self.db.delivery(seq).expect("readable").expect("kept");
                let receipt = self.db.accept(&Accepting::new(delivery).expect("compressed")).expect("accepted");
                let wanted = if before == Outcome::Failed { Receipt::Requeued(seq) } else { Receipt::Duplicate(seq) };
                assert_eq!(receipt, wanted);
                if before == Outcome::Failed {
                    self.again.insert(seq);
                    assert_eq!(self.outcome(seq), Outcome::Queued, "requeued, and nothing waits");
                }
            }
            Step::Begin(session) => self.begin(usize::from(*session), now),
            Step::End(session, how) => self.end(usize::from(*session), *how, now),
            Step::Replay(number) => {
                let Some(seq) = self.pick(*number) else { return };
                let told = [NoticeState::Failed, NoticeState::Delivered, NoticeState::Superseded, NoticeState::Dropped];
                if !self.db.notices_of(seq).expect("notices").is_empty() {
                    self.db.transaction(|db| db.requeue(seq, &told)).expect("requeued");
                    self.again.insert(seq);
                    assert_eq!(self.outcome(seq), Outcome::Queued);
                }
            }
            Step::Drop(number) => {
                let Some(seq) = self.pick(*number) else { return };
                self.db.transaction(|db| db.drop_notices(seq, "dropped")).expect("dropped");
            }
            Step::Close(session) => {
                self.db.transaction(|db| db.drop_inbox(&key(usize::from(*session)), "closed")).expect("closed");
                assert!(self.db.waiting(&key(usize::from(*session)), 100).expect("an inbox").is_empty());
            }
            Step::Retain => {
                let owed = self.owed();
                let retention = Retention { before: at(1_000_000), body_bytes: 0 };
                self.db.transaction(|db| db.retain(retention)).expect("retained");
                assert_eq!(self.owed(), owed, "something that is owed was let go");
                let db = &self.db;
                self.deliveries.retain(|seq| db.delivery_row(*seq).expect("a row").is_some());
            }
        }
    }

    /// Every notice that waits or is being told, and every delivery that is not done with.
    fn owed(&self) -> Vec<String> {
        let mut owed = Vec::new();
        for seq in &self.deliveries {
            let Some(row) = self.db.delivery_row(*seq).expect("a row") else { continue };
            if matches!(row.outcome, Outcome::Pending | Outcome::Queued | Outcome::Failed) {
                let body = self.db.delivery(*seq).expect("readable").is_some();
                owed.push(format!("{seq} {} {body} {:?}", row.outcome, self.db.notices_of(*seq).expect("notices")));
            }
        }
        for session in 0..SESSIONS {
            owed.push(format!("{:?}", self.db.waiting(&key(session), 100).expect("an inbox")));
        }
        owed
    }

    fn deliver(&mut self, event: Event, sessions: u8, now: Timestamp) {
        let delivery = Delivery {
            source: Source::GithubWebhook,
            id: format!("d-{}", self.clock),
            event: "x".into(),
            body: "{}".into(),
            received_at: now,
        };
        let Receipt::Accepted(seq) = self.db.accept(&Accepting::new(delivery).expect("compressed")).expect("accepted")
        else {
            panic!("a new id is no duplicate")
        };
        assert_eq!(self.outcome(seq), Outcome::Pending);
        let failed_before = self.failed_notices();
        let told = (0..SESSIONS).filter(|session| sessions & (1 << session) != 0);
        let assignments =
            told.map(|s| Assignment { session: key(s), work_item: item(s), how: "test".into() }).collect();
        let decision = Decision {
            outcome: Outcome::Queued,
            reason: "test".into(),
            work_items: Vec::new(),
            assignments,
            closes: Vec::new(),
            steps: Vec::new(),
        };
        self.db.transaction(|db| db.record_decision(seq, &event, &decision, now)).expect("decided");
        // The same happening again is another chance for what had failed, under the new delivery.
        if self.failed_notices() < failed_before {
            self.again.insert(seq);
        }
        if event.nature != Nature::Words {
            self.states.insert(seq);
        }
        self.deliveries.push(seq);
    }

    fn failed_notices(&self) -> usize {
        let notices = self.deliveries.iter().flat_map(|seq| self.db.notices_of(*seq).expect("notices"));
        notices.filter(|notice| notice.state == "failed").count()
    }

    fn begin(&mut self, session: usize, now: Timestamp) {
        if self.running.contains_key(&session) {
            return;
        }
        let waiting = self.db.waiting(&key(session), 100).expect("an inbox");
        let settings = Settings { max_events_per_turn: 3, ..Settings::default() };
        let batch = routing::coalesce(&waiting, &settings, &PromptSettings::default());
        let Some(last) = batch.tell.last().map(|notice| notice.id) else {
            assert!(waiting.is_empty(), "something waits and nothing is told");
            return;
        };
        for notice in waiting.iter().filter(|notice| notice.id < last && notice.event.nature == Nature::Words) {
            assert!(batch.tell.contains(notice), "words were passed over");
        }
        let new = NewTurn {
            session: key(session),
            work_item: item(session),
            harness: "claude".into(),
            session_id: "s".into(),
            cwd: "/".into(),
            attempt: 1,
            message_id: "m".into(),
            started_at: now,
            tell: batch.tell.iter().map(|notice| notice.id).collect(),
            superseded: batch.superseded,
        };
        let turn = self.db.transaction(|db| db.start_turn(&new)).expect("begun");
        self.running.insert(session, turn);
        // What was looked at before and has left the inbox since is not begun a second time.
        assert!(self.db.transaction(|db| db.start_turn(&new)).is_err(), "notices were told twice");
    }

    fn end(&mut self, session: usize, how: u8, now: Timestamp) {
        let Some(turn) = self.running.remove(&session) else { return };
        let settlement = match how {
            0..=1 => Settlement::Delivered,
            2 => Settlement::Retry { at: now, counts: true },
            3 => Settlement::GiveUp { reason: "test".into(), max_attempts: 0, at: now },
            _ => Settlement::Hold(Attention { reason: "test".into(), mend: "test".into() }),
        };
        let deliveries = self.db.deliveries_of(turn).expect("deliveries");
        self.finish(turn, &settlement, now);
        if settlement == Settlement::Delivered {
            self.heard.entry(session).or_default().extend(deliveries);
        } else {
            assert!(!deliveries.iter().any(|seq| self.outcome(*seq) == Outcome::Pending));
        }
        self.ended.push(turn);
        // A second word about the same turn, as from another recovery, changes nothing.
        let before = self.everything();
        self.finish(turn, &Settlement::GiveUp { reason: "again".into(), max_attempts: 0, at: now }, now);
        self.finish(turn, &Settlement::Delivered, now);
        assert_eq!(self.everything(), before, "a turn was finished twice");
    }

    fn finish(&self, turn: TurnId, settlement: &Settlement, now: Timestamp) {
        let outcome = TurnOutcome {
            state: TurnState::Succeeded,
            failure: None,
            new_session_id: None,
            usage: Usage::default(),
            last_words: None,
            remarks: Vec::new(),
        };
        self.db.transaction(|db| db.finish_turn(turn, &outcome, Some(0), settlement, now)).expect("finished");
    }

    fn everything(&self) -> String {
        let rows = self.db.list_deliveries(&DeliveryFilter { limit: 1000, ..DeliveryFilter::default() }).expect("rows");
        let notices: Vec<_> = rows.iter().map(|row| self.db.notices_of(row.seq).expect("notices")).collect();
        format!("{rows:?} {notices:?} {:?}", self.db.session_states().expect("states"))
    }

    /// Every delivery has the one outcome that its notices give it.
    fn check(&self) {
        let running: BTreeSet<_> = self.running.values().copied().collect();
        for seq in &self.deliveries {
            let outcome = self.outcome(*seq);
            let notices = self.db.notices_of(*seq).expect("notices");
            let any = |states: &[&str]| notices.iter().any(|notice| states.contains(&notice.state));
            let wanted = if any(&["waiting", "told"]) {
                Outcome::Queued
            } else if any(&["failed"]) {
                Outcome::Failed
            } else if any(&["delivered", "superseded"]) {
                Outcome::Delivered
            } else {
                Outcome::Filtered
            };
            assert_eq!(outcome, wanted, "{seq}: {notices:?}");
            for notice in notices.iter().filter(|notice| notice.state == "told") {
                assert!(
                    notice.turn.is_some_and(|turn| running.contains(&turn)),
                    "{seq} is told by no turn: {notice:?}"
                );
            }
        }
    }

    /// Lets everything that waits be told, and checks what every session has heard.
    fn drain(&mut self) {
        for _ in 0..200 {
            for session in 0..SESSIONS {
                self.clock += 1;
                self.begin(session, at(self.clock));
                self.end(session, 0, at(self.clock));
            }
        }
        self.check();
        assert!(self.db.inboxes(1).expect("inboxes").is_empty(), "something is never told");
        for seq in &self.deliveries {
            assert_ne!(self.outcome(*seq), Outcome::Queued, "{seq} waits, and nothing of it does");
        }
        for heard in self.heard.values() {
            let once: Vec<_> = heard.iter().filter(|seq| !self.again.contains(seq)).collect();
            let unique: BTreeSet<_> = once.iter().collect();
            assert_eq!(unique.len(), once.len(), "something was heard twice: {heard:?}");
            assert!(once.iter().filter(|seq| !self.states.contains(seq)).is_sorted(), "out of order: {heard:?}");
        }
    }
}

fn session() -> Session {
    Session {
        version: Session::VERSION,
        work_item: item(0),
        harness: "claude".into(),
        session_id: "s".into(),
        cwd: "/".into(),
        status: SessionStatus::Active,
        created_at: at(0),
        closed_reason: None,
        repository_id: None,
        unknown: serde_json::Map::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_interleaving_keeps_order_and_loses_nothing(steps in proptest::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
            world.check();
        }
        world.drain();
    }
}

proptest! {
    #[test]
    fn who_is_told_to_wait_is_ready_when_the_wait_is_over(
        oldest in -100_000..100_000_i64, gathered in 0..100_000_i64, waiting in 1..60_u64,
        now in -100_000..100_000_i64, retry in proptest::option::of(-200_000..200_000_i64),
    ) {
        let inbox = Inbox {
            session: key(0),
            waiting,
            first: the_loop::domain::NoticeId(1),
            oldest: at(oldest),
            newest: at(oldest + gathered),
        };
        let settings = Settings { debounce: Span::secs(10), max_wait: Span::secs(30), ..Settings::default() };
        let state = SessionState { retry_at: retry.map(at), ..SessionState::default() };
        let ask = |now| schedule::readiness(&inbox, Some(&session()), &state, &Running::default(), &settings, now);
        let mut now = at(now);
        let mut waits = 0;
        loop {
            match ask(now) {
                Readiness::Ready => break,
                Readiness::Until(until, _) => {
                    prop_assert!(until > now, "a wait that is over already");
                    prop_assert!(until <= now + SignedDuration::from_hours(24), "a wait without end");
                    now = until;
                }
                other => prop_assert!(false, "{other:?}"),
            }
            waits += 1;
            prop_assert!(waits <= 3, "it waits for ever");
        }
    }

    #[test]
    fn a_budget_that_is_used_up_frees_itself(
        mut starts in proptest::collection::vec(-7200..7200_i64, 0..30), max in 1..10_u32, now in -7200..7200_i64,
    ) {
        starts.sort_unstable();
        let starts: Vec<_> = starts.into_iter().map(at).collect();
        if let Some((until, _)) = schedule::turn_budget(&starts, max, at(now)) {
            prop_assert!(until > at(now) && until <= at(now) + schedule::HOUR);
            let past: Vec<_> = starts.iter().copied().filter(|start| *start <= at(now)).collect();
            prop_assert_eq!(schedule::turn_budget(&past, max, until), None);
        }
    }

    #[test]
    fn every_schedule_of_retries_ends(
        kinds in proptest::collection::vec(0..8_usize, 60), max in 1..8_u32, jitter in 0.0..1.0_f64,
        named in proptest::option::of(-1_000_000_000..1_000_000_000_i64),
    ) {
        const KINDS: [FailureKind; 8] = [
            FailureKind::Overloaded, FailureKind::RateLimited, FailureKind::Crashed, FailureKind::TimedOut,
            FailureKind::Hung, FailureKind::Interrupted, FailureKind::NotSignedIn, FailureKind::Cancelled,
        ];
        let backoff = Duration::from_secs(5);
        let policy = Policy { max_attempts: max, backoff, max_backoff: Duration::from_secs(900) };
        let not_before = named.map(at);
        let mut attempt = 1;
        for kind in kinds {
            let failure = Failure { kind: KINDS[kind], message: "x".into(), not_before };
            match retry::next(&policy, attempt, &failure, at(0), jitter) {
                Next::Again { at: then, counts } => {
                    prop_assert!(then > at(0) && then <= at(24 * 3600), "{then}");
                    attempt += u32::from(counts);
                }
                Next::Hold | Next::GiveUp => return Ok(()),
            }
        }
        prop_assert!(false, "it goes on for ever");
    }
}
