//! The dispatcher: wakes the sessions whose inboxes are ready, within the limits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::domain::{Session, SessionKey, Turn};
use crate::retry;
use crate::routing::{PromptSettings, Settings};
use crate::store::{Db, Inbox, SessionState, Store};

use super::schedule::{Readiness, Running, readiness, turn_budget};
use super::turn_run::TurnRunner;
use super::{Bells, Error, Sessions, schedule};

/// The wait after the store failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// No sleep is longer, so that a clock that is set or a machine that slept is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(300);

/// The limits and rules that the dispatcher goes by.
#[derive(Debug, Clone)]
pub struct DispatcherSettings {
    /// How news is gathered.
    pub routing: Settings,
    /// How much one prompt may hold.
    pub prompt: PromptSettings,
    /// Turns at once, over all sessions.
    pub max_concurrent_turns: usize,
    /// Turns of one session in an hour.
    pub max_turns_per_hour: u32,
    /// US dollars of all sessions in a day, where their harnesses say what turns cost.
    pub max_cost_per_day_usd: Option<f64>,
    /// US dollars of one session in a day.
    pub max_session_cost_per_day_usd: Option<f64>,
    /// How failures are retried.
    pub retry: retry::Policy,
    /// When turns are ended.
    pub limits: crate::harness::Limits,
}

/// The dispatcher's parts.
pub struct Dispatcher {
    store: Store,
    sessions: Sessions,
    settings: Arc<DispatcherSettings>,
    bells: Bells,
    runner: TurnRunner,
    /// Sessions whose turns are being begun and may not be in the store yet.
    starting: Arc<Mutex<BTreeMap<SessionKey, Session>>>,
}

impl Dispatcher {
    /// Inboxes in `store` become turns that `runner` runs.
    pub fn new(
        store: Store,
        sessions: Sessions,
        settings: Arc<DispatcherSettings>,
        bells: Bells,
        runner: TurnRunner,
    ) -> Self {
        Self { store, sessions, settings, bells, runner, starting: Arc::default() }
    }

    /// Takes over the turns that an earlier server left running or did not record. Call once, before [`run`](Self::run).
    pub async fn recover(&self) -> Result<usize, Error> {
        let left = self.store.read(Db::running_turns).await?;
        let count = left.len();
        for turn in left {
            tracing::info!(turn = turn.id.0, session = %turn.session, "taking a turn over");
            self.runner.watch(turn, None);
        }
        Ok(count)
    }

    /// Wakes what is ready, then sleeps until something changes or becomes due; for ever.
    pub async fn run(self) {
        loop {
            let wake_at = match self.step().await {
                Ok(wake_at) => wake_at,
                Err(error) => {
                    tracing::error!(error = %crate::domain::chain(&error), "could not look at the inboxes; trying again");
                    Timestamp::now().checked_add(AFTER_FAILURE).ok()
                }
            };
            let until =
                |at: Timestamp| Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or(Duration::ZERO);
            let sleep = tokio::time::sleep(wake_at.map_or(LONGEST_SLEEP, until).min(LONGEST_SLEEP));
            tokio::select! {
                () = sleep => {}
                () = self.bells.dispatcher.notified() => {}
            }
        }
    }

    /// Starts whatever is ready; gives the time at which something else may be.
    async fn step(&self) -> Result<Option<Timestamp>, Error> {
        // What is being started is looked at before the store: what is in neither then has not been begun.
        let starting: Vec<Session> = self.starting().values().cloned().collect();
        let most = self.settings.routing.max_events_per_turn;
        let (inboxes, states, turns) =
            self.store.read(move |db| Ok((db.inboxes(most)?, db.session_states()?, db.running_turns()?))).await?;
        let mut running = Running::of(&turns);
        for session in starting {
            running.add(&session.key().0, &session.harness, &session.session_id, session.cwd);
        }
        let registered: Vec<_> = {
            let sessions = self.sessions.now()?;
            inboxes.iter().map(|inbox| sessions.get(&inbox.session).cloned()).collect()
        };
        let mut wake_at: Option<Timestamp> = None;
        let mut due = |at: Timestamp| wake_at = Some(wake_at.map_or(at, |now: Timestamp| now.min(at)));
        let none = SessionState::default();
        for (inbox, session) in inboxes.iter().zip(registered) {
            if running.count() >= self.settings.max_concurrent_turns {
                // The end of a turn rings the bell.
                break;
            }
            let state = states.get(&inbox.session).unwrap_or(&none);
            let now = Timestamp::now();
            match readiness(inbox, session.as_ref(), state, &running, &self.settings.routing, now) {
                Readiness::Until(at, _) => due(at),
                Readiness::Occupied(_) | Readiness::Held(_) => {}
                Readiness::Closed => self.let_go(inbox).await?,
                Readiness::Ready => {
                    let Some(session) = session else { continue };
                    if let Some((until, why)) = self.budget(&inbox.session, now).await? {
                        tracing::info!(session = %inbox.session, %why, "held by its budget");
                        due(until);
                        continue;
                    }
                    let key = session.key();
                    running.add(&key.0, &session.harness, &session.session_id, session.cwd.clone());
                    self.start(session);
                }
            }
        }
        Ok(wake_at)
    }

    /// Begins a turn on a task of its own, so that many sessions do not wait for each other's disk and processes.
    fn start(&self, session: Session) {
        let key = session.key();
        self.starting().insert(key.clone(), session.clone());
        let (runner, starting, bells) = (self.runner.clone(), Arc::clone(&self.starting), self.bells.clone());
        tokio::spawn(async move {
            match runner.start(&session).await {
                // `Gone`: it was dropped while we looked; the rest is looked at again.
                Ok(_) | Err(Error::Store(crate::store::Error::Gone)) => {}
                Err(error) => {
                    // Whatever is wrong with one session, the others do not wait for it.
                    tracing::error!(session = %key, error = %crate::domain::chain(&error), "could not begin a turn; trying again");
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
            starting.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            bells.dispatcher.notify_one();
        });
    }

    fn starting(&self) -> MutexGuard<'_, BTreeMap<SessionKey, Session>> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn budget(&self, key: &SessionKey, now: Timestamp) -> Result<Option<(Timestamp, String)>, Error> {
        let (key, settings) = (key.clone(), Arc::clone(&self.settings));
        Ok(self.store.read(move |db| over_budget(db, &key, &settings, now)).await?)
    }

    async fn let_go(&self, inbox: &Inbox) -> Result<(), Error> {
        let key = inbox.session.clone();
        self.store.write(move |db| db.drop_inbox(&key, "its session was closed").map(|_| ())).await?;
        Ok(())
    }
}

/// Whether a session has used up its turns or its money: until when, and why.
pub fn over_budget(
    db: &Db,
    key: &SessionKey,
    settings: &DispatcherSettings,
    now: Timestamp,
) -> Result<Option<(Timestamp, String)>, crate::store::Error> {
    let hour_ago = now.checked_sub(schedule::HOUR).unwrap_or(Timestamp::MIN);
    if let Some(over) = turn_budget(&db.turn_starts(key, hour_ago)?, settings.max_turns_per_hour, now) {
        return Ok(Some(over));
    }
    if settings.max_cost_per_day_usd.is_none() && settings.max_session_cost_per_day_usd.is_none() {
        return Ok(None);
    }
    let day_ago = now.checked_sub(schedule::HOUR * 24).unwrap_or(Timestamp::MIN);
    let spent = db.spending(key, day_ago)?;
    let checks = [
        ("max_cost_per_day_usd", settings.max_cost_per_day_usd, spent.all_usd),
        ("max_session_cost_per_day_usd", settings.max_session_cost_per_day_usd, spent.session_usd),
    ];
    let over = checks.into_iter().find_map(|(name, limit, spent)| {
        let limit = limit.filter(|limit| spent >= *limit)?;
        Some(format!("{name}: ${spent:.2} spent in the last day, ${limit:.2} are allowed"))
    });
    // Money frees up bit by bit as the day moves on; a look every few minutes is near enough.
    Ok(over.map(|why| (now.checked_add(LONGEST_SLEEP).unwrap_or(Timestamp::MAX), why)))
}

/// The turns that run, for anybody who wants to wait for their end.
pub async fn running(store: &Store) -> Result<Vec<Turn>, Error> {
    Ok(store.read(Db::running_turns).await?)
}
