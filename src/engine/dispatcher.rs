//! The dispatcher: wakes the sessions whose inboxes are ready, within the limits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::domain::{Session, SessionKey, Turn};
use crate::retry;
use crate::routing::{PromptSettings, Settings};
use crate::store::{Db, SessionState, Store};

use super::schedule::{Readiness, Running, readiness, turn_budget};
use super::turn_run::TurnRunner;
use super::{Bells, Error, Sessions, decider, schedule};

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
        let (sessions, settings) = (self.sessions.clone(), Arc::clone(&self.settings));
        let picked = self.store.read(move |db| pick(db, &sessions, &settings, starting)).await?;
        for key in picked.closed {
            self.store.write(move |db| db.drop_inbox(&key, "its session was closed").map(|_| ())).await?;
        }
        for session in picked.ready {
            self.start(session);
        }
        Ok(picked.wake_at)
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
            // Also for a turn that has begun: it may have ended since, while it still stood among those that start.
            bells.dispatcher.notify_one();
        });
    }

    fn starting(&self) -> MutexGuard<'_, BTreeMap<SessionKey, Session>> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a look at the inboxes has found.
#[derive(Default)]
struct Picked {
    /// Sessions to be woken now.
    ready: Vec<Session>,
    /// Sessions that are over and have something in their inboxes.
    closed: Vec<SessionKey>,
    /// When something else may be ready.
    wake_at: Option<Timestamp>,
}

/// Looks for sessions to be woken: as many as there are free places, the longest waiting first.
fn pick(
    db: &Db,
    sessions: &Sessions,
    settings: &DispatcherSettings,
    starting: Vec<Session>,
) -> Result<Picked, crate::store::Error> {
    let mut picked = Picked::default();
    let mut running = Running::of(&db.running_turns()?);
    for session in starting {
        running.add(&session.key().0, &session.harness, &session.session_id, session.cwd);
    }
    // The end of a turn rings the bell. In a storm most looks end here.
    if running.count() >= settings.max_concurrent_turns {
        return Ok(picked);
    }
    let (inboxes, states) = (db.inboxes(settings.routing.max_events_per_turn)?, db.session_states()?);
    let none = SessionState::default();
    // What commands have changed is seen; so is, within a second, what a person has written into a file.
    let sessions = sessions.since(Instant::now()).map_err(decider::unreadable)?;
    for inbox in &inboxes {
        if running.count() >= settings.max_concurrent_turns {
            break;
        }
        let session = sessions.get(&inbox.session);
        let state = states.get(&inbox.session).unwrap_or(&none);
        let now = Timestamp::now();
        let until = match readiness(inbox, session, state, &running, &settings.routing, now) {
            Readiness::Until(at, _) => at,
            Readiness::Occupied(_) | Readiness::Held(_) => continue,
            Readiness::Closed => {
                picked.closed.push(inbox.session.clone());
                continue;
            }
            Readiness::Ready => {
                let Some(session) = session else { continue };
                match over_budget(db, &inbox.session, settings, now)? {
                    Some((until, why)) => {
                        tracing::info!(session = %inbox.session, %why, "held by its budget");
                        until
                    }
                    None => {
                        running.add(&inbox.session.0, &session.harness, &session.session_id, session.cwd.clone());
                        picked.ready.push(session.clone());
                        continue;
                    }
                }
            }
        };
        picked.wake_at = Some(picked.wake_at.map_or(until, |earlier| earlier.min(until)));
    }
    Ok(picked)
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
