//! When a session with something in its inbox is woken. Pure; `sessions list` and the dispatcher ask the same questions.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::domain::{Session, SessionStatus, Turn};
use crate::routing::Settings;
use crate::store::{Inbox, SessionState};

/// The hour of `max_turns_per_hour`.
pub const HOUR: Duration = Duration::from_secs(3600);

/// What runs now. A conversation and a directory take one turn at a time.
#[derive(Debug, Default)]
pub struct Running {
    conversations: HashSet<(String, String)>,
    directories: HashSet<PathBuf>,
    sessions: HashSet<String>,
    count: usize,
}

impl Running {
    /// What these turns occupy.
    pub fn of(turns: &[Turn]) -> Self {
        let mut running = Self::default();
        for turn in turns {
            running.add(&turn.session.0, &turn.harness, &turn.session_id, PathBuf::from(&turn.cwd));
        }
        running
    }

    /// How many turns run.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Notes a turn that begins.
    pub fn add(&mut self, session: &str, harness: &str, session_id: &str, cwd: PathBuf) {
        // One that is being begun may be in the store already.
        self.count += usize::from(self.sessions.insert(session.into()));
        self.conversations.insert((harness.into(), session_id.into()));
        self.directories.insert(cwd);
    }

    fn occupies(&self, session: &Session) -> Option<&'static str> {
        if self.sessions.contains(&session.key().0)
            || self.conversations.contains(&(session.harness.clone(), session.session_id.clone()))
        {
            Some("a turn of this session runs")
        } else if self.directories.contains(&session.cwd) {
            Some("a turn runs in its directory")
        } else {
            None
        }
    }
}

/// Whether a session with something in its inbox may be woken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// Now.
    Ready,
    /// Not before this; the reason where a person would want to know it.
    Until(Timestamp, Option<String>),
    /// When what runs now has ended.
    Occupied(&'static str),
    /// When a person does something.
    Held(String),
    /// Never: the session is over.
    Closed,
}

/// Whether `inbox` may become a turn, budgets aside.
pub fn readiness(
    inbox: &Inbox,
    session: Option<&Session>,
    state: &SessionState,
    running: &Running,
    settings: &Settings,
    now: Timestamp,
) -> Readiness {
    let Some(session) = session else {
        return Readiness::Held("its session file is missing or damaged".into());
    };
    match session.status {
        SessionStatus::Closed => return Readiness::Closed,
        SessionStatus::Paused => return Readiness::Held("the session is paused".into()),
        SessionStatus::Active => {}
    }
    if let Some(attention) = &state.attention {
        return Readiness::Held(attention.to_string());
    }
    if let Some(why) = running.occupies(session) {
        return Readiness::Occupied(why);
    }
    // No wait is set for longer than a day: one that is, was set before the clock went back.
    if let Some(at) = state.retry_at.filter(|at| *at > now && *at <= after(now, HOUR * 24)) {
        return Readiness::Until(at, Some("its last turn failed; it will be tried again".into()));
    }
    // News from the future came before the clock went back: nobody knows how long they have waited.
    if inbox.waiting >= settings.max_events_per_turn as u64 || inbox.newest > now {
        return Readiness::Ready;
    }
    let settled = after(inbox.newest, settings.debounce.0).min(after(inbox.oldest, settings.max_wait.0));
    if settled > now { Readiness::Until(settled, None) } else { Readiness::Ready }
}

/// Whether the hour's turns are used up: until when, and why, in words.
pub fn turn_budget(starts: &[Timestamp], max: u32, now: Timestamp) -> Option<(Timestamp, String)> {
    let since = now.checked_sub(HOUR).unwrap_or(Timestamp::MIN);
    let recent: Vec<_> = starts.iter().copied().filter(|at| *at > since && *at <= now).collect();
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    if recent.len() < max {
        return None;
    }
    let frees = recent.get(recent.len().checked_sub(max)?).copied()?;
    let why = format!("max_turns_per_hour: {} turns in the last hour, {max} are allowed", recent.len());
    Some((after(frees, HOUR), why))
}

fn after(at: Timestamp, wait: Duration) -> Timestamp {
    at.checked_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Attention, NoticeId, SessionKey, Span, WorkItem};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("in range")
    }

    fn session() -> Session {
        Session {
            version: Session::VERSION,
            work_item: WorkItem::parse("o/r#1").expect("item"),
            harness: "claude".into(),
            session_id: "s".into(),
            cwd: "/w".into(),
            status: SessionStatus::Active,
            created_at: at(0),
            closed_reason: None,
            repository_id: None,
            unknown: serde_json::Map::new(),
        }
    }

    fn inbox(oldest: i64, newest: i64, waiting: u64) -> Inbox {
        Inbox {
            session: SessionKey("github:o/r#1".into()),
            waiting,
            first: NoticeId(1),
            oldest: at(oldest),
            newest: at(newest),
        }
    }

    fn settings() -> Settings {
        Settings { debounce: Span::secs(10), max_wait: Span::secs(30), ..Settings::default() }
    }

    fn ask(inbox: &Inbox, session: &Session, state: &SessionState, now: i64) -> Readiness {
        readiness(inbox, Some(session), state, &Running::default(), &settings(), at(now))
    }

    #[test]
    fn news_is_gathered_but_never_for_longer_than_max_wait() {
        let none = SessionState::default();
        assert_eq!(ask(&inbox(100, 105, 2), &session(), &none, 106), Readiness::Until(at(115), None));
        assert_eq!(ask(&inbox(100, 105, 2), &session(), &none, 115), Readiness::Ready);
        assert_eq!(ask(&inbox(100, 129, 9), &session(), &none, 129), Readiness::Until(at(130), None));
        assert_eq!(ask(&inbox(100, 105, 50), &session(), &none, 106), Readiness::Ready);
    }

    #[test]
    fn a_clock_that_went_back_keeps_nobody_waiting() {
        let none = SessionState::default();
        assert_eq!(ask(&inbox(5000, 5000, 1), &session(), &none, 100), Readiness::Ready);
        assert_eq!(ask(&inbox(90, 5000, 2), &session(), &none, 100), Readiness::Ready);
        let failed = SessionState { retry_at: Some(at(100 * 24 * 3600)), ..none };
        assert_eq!(ask(&inbox(0, 0, 1), &session(), &failed, 100), Readiness::Ready);
    }

    #[test]
    fn pauses_holds_and_failures_are_waited_out() {
        let mut paused = session();
        paused.status = SessionStatus::Paused;
        assert!(matches!(ask(&inbox(0, 0, 1), &paused, &SessionState::default(), 99), Readiness::Held(_)));
        let held = SessionState {
            attention: Some(Attention { reason: "not signed in".into(), mend: "run x".into() }),
            ..SessionState::default()
        };
        assert!(matches!(ask(&inbox(0, 0, 1), &session(), &held, 99), Readiness::Held(why) if why.contains("run x")));
        let failed = SessionState { retry_at: Some(at(200)), ..SessionState::default() };
        assert!(
            matches!(ask(&inbox(0, 0, 1), &session(), &failed, 99), Readiness::Until(until, Some(_)) if until == at(200))
        );
    }

    #[test]
    fn one_turn_per_conversation_and_per_directory() {
        let mut running = Running::default();
        running.add("github:o/r#2", "claude", "s", "/elsewhere".into());
        let state = SessionState::default();
        let ask =
            |running: &Running| readiness(&inbox(0, 0, 1), Some(&session()), &state, running, &settings(), at(99));
        assert!(matches!(ask(&running), Readiness::Occupied(_)));
        let mut other = Running::default();
        other.add("github:o/r#3", "claude", "t", "/w".into());
        assert!(matches!(ask(&other), Readiness::Occupied(_)));
        let mut free = Running::default();
        free.add("github:o/r#3", "cursor", "s", "/x".into());
        assert_eq!(ask(&free), Readiness::Ready);
    }

    #[test]
    fn the_hour_s_budget_frees_up_when_its_oldest_turn_is_an_hour_old() {
        let starts = [at(100), at(200), at(300)];
        assert_eq!(turn_budget(&starts, 4, at(400)), None);
        assert_eq!(turn_budget(&starts, 3, at(400)).map(|b| b.0), Some(at(3700)));
        assert_eq!(turn_budget(&starts, 2, at(400)).map(|b| b.0), Some(at(3800)));
        assert_eq!(turn_budget(&starts, 3, at(3701)), None);
    }
}
