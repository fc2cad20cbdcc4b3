//! GitHub without a webhook: asking for what open sessions wait for and readers of the feed read, and handing it over as
//! the webhook would.
//!
//! One observation per repository, however many wait in it; nothing is asked for nobody. What to ask for
//! ([`needs`]), what an answer means ([`runs`], [`heads`], [`stream`], [`items`]) and when to ask again ([`pace`]) are pure; one
//! [`look`] asks. What was seen and the deliveries that it led to are kept in one transaction. Specification:
//! `docs/specs/github-poll.md`.

mod asking;
mod heads;
mod items;
mod look;
mod needs;
mod pace;
mod runs;
mod seen;
mod stream;
mod trim;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::clients::{self, GithubApi};
use crate::domain::chain;
use crate::engine::{Error, Observing, PollRow};

pub use needs::Checks;

use asking::Stop;
use needs::Need;
use seen::Seen;

/// How many repositories are looked at at once.
const AT_ONCE: usize = 4;
/// Where a session was registered and nobody told us, it is found by then.
const UNTOLD: Duration = Duration::from_secs(300);
/// What is the matter with a host and not with one repository.
const NO_TOKEN: &str = "GitHub does not take the token";

/// The same for a host that wants to be left alone for a while.
const LIMITED: &str = "GitHub's rate limit";

/// Looks a variable of an environment up.
pub type Variable = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What polling goes by.
pub struct Settings {
    /// How often a repository is looked at, unless GitHub asks for patience.
    pub interval: Duration,
    /// What happened longer ago is told as a gap.
    pub max_age: Duration,
    /// Which checks of commits wake sessions.
    pub checks: Checks,
    /// The API of github.com.
    pub api_url: String,
    /// The value of a variable of our environment: where tokens are looked for.
    pub variable: Variable,
}

/// Polls until it is dropped. Cheap to clone.
#[derive(Clone)]
pub struct GithubPoll {
    settings: Arc<Settings>,
    observing: Observing,
    hosts: Arc<Mutex<BTreeMap<String, Host>>>,
    places: Arc<Semaphore>,
    /// How many repositories share the rate.
    repositories: Arc<AtomicU64>,
}

/// What is known of one host.
#[derive(Clone, Default)]
struct Host {
    api: Option<Arc<GithubApi>>,
    /// Nothing is asked before this, and why.
    closed: Option<(Timestamp, String)>,
}

/// One repository between looks.
#[derive(Default)]
struct Plan {
    due: Option<Timestamp>,
    failures: u32,
    is_under_way: bool,
    trouble: Option<String>,
}

/// How a look went.
struct Done {
    repository: String,
    next: Timestamp,
    trouble: Option<String>,
    failed: bool,
}

impl GithubPoll {
    /// A poller whose observations go to `observing`.
    pub fn new(settings: Settings, observing: Observing) -> Self {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        Self { settings: Arc::new(settings), observing, hosts: Arc::default(), places, repositories: Arc::default() }
    }

    /// Looks whenever something is due, for ever. With nobody waiting it sleeps until somebody is.
    pub async fn run(self) {
        let mut plans: BTreeMap<String, Plan> = BTreeMap::new();
        let mut looks: JoinSet<Done> = JoinSet::new();
        loop {
            let next = match self.begin(&mut plans, &mut looks).await {
                Ok(next) => next,
                Err(error) => {
                    tracing::error!(error = %chain(&error), "could not see who waits; trying again");
                    Some(later(Timestamp::now(), self.settings.interval))
                }
            };
            let sleep =
                next.map_or(UNTOLD, |at| Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default());
            tokio::select! {
                Some(done) = looks.join_next() => match done {
                    Ok(done) => note(&mut plans, done),
                    Err(error) => {
                        tracing::error!(%error, "a look at GitHub panicked");
                        plans.values_mut().for_each(|plan| plan.is_under_way = false);
                    }
                },
                () = self.observing.changed() => {}
                () = tokio::time::sleep(sleep.min(UNTOLD)) => {}
            }
        }
    }

    /// Begins what is due; gives the time at which more is.
    async fn begin(
        &self,
        plans: &mut BTreeMap<String, Plan>,
        looks: &mut JoinSet<Done>,
    ) -> Result<Option<Timestamp>, Error> {
        let needs =
            needs::needs(&self.observing.waiting().await?, &self.observing.readers().await?, self.settings.checks);
        let wanted: BTreeSet<String> = needs.keys().cloned().collect();
        let had = plans.len();
        plans.retain(|repository, plan| wanted.contains(repository) || plan.is_under_way);
        if plans.len() != had || plans.is_empty() || plans.keys().any(|known| !wanted.contains(known)) {
            self.observing.forget_all_but(wanted).await?;
        }
        self.repositories.store(needs.len() as u64, Ordering::Relaxed);
        let now = Timestamp::now();
        for (repository, need) in needs {
            let plan = plans.entry(repository.clone()).or_default();
            if plan.is_under_way || plan.due.is_some_and(|due| due > now) {
                continue;
            }
            plan.is_under_way = true;
            let (this, failures) = (self.clone(), plan.failures);
            looks.spawn(async move { this.look(repository, need, failures).await });
        }
        Ok(plans.values().filter(|plan| !plan.is_under_way).filter_map(|plan| plan.due).min())
    }

    /// One look at one repository, from the token to the transaction.
    async fn look(&self, repository: String, need: Need, failures: u32) -> Done {
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
        let done = self.try_look(&repository, &need, failures).await;
        done.unwrap_or_else(|error| {
            tracing::error!(repository, error = %chain(&error), "could not keep what GitHub showed; it is asked for again");
            let next = later(Timestamp::now(), pace::backoff(self.settings.interval, failures + 1, jitter()));
            Done { repository, next, trouble: Some(chain(&error)), failed: true }
        })
    }

    async fn try_look(&self, repository: &str, need: &Need, failures: u32) -> Result<Done, Error> {
        let now = Timestamp::now();
        let row = self.observing.seen(repository).await?;
        // What came while nobody waited is nobody's news.
        let known = row.as_ref().filter(|row| row.checked_at.is_some_and(|at| at >= need.since));
        let since = known.map_or(now, |row| row.since);
        let seen: Seen = known.and_then(|row| serde_json::from_str(&row.state).ok()).unwrap_or_default();
        let checked = known.and_then(|row| row.checked_at);
        let keep = |state: &Seen, checked_at, next, trouble: &Option<String>| PollRow {
            repository: repository.to_owned(),
            state: serde_json::to_string(state).unwrap_or_default(),
            since,
            checked_at,
            next_at: Some(next),
            trouble: trouble.clone(),
        };
        let host = need.repo.host().to_ascii_lowercase();
        // A restart is no reason to ask earlier than GitHub said.
        if let Some((until, why)) = known.and_then(|row| Some((row.next_at?, row.trouble.as_ref()?)))
            && why.starts_with(LIMITED)
            && until > now
            && !self.hosts().contains_key(&host)
        {
            self.close(&host, until, why, false);
        }
        let api = match self.api(&host, now).await {
            Ok(api) => api,
            Err((until, why)) => {
                let trouble = Some(why);
                self.observing.keep(keep(&seen, checked, until, &trouble), Vec::new()).await?;
                return Ok(Done { repository: repository.to_owned(), next: until, trouble, failed: false });
            }
        };
        let looked = look::look(api, need, seen, self.settings.max_age, now).await;
        let (next, trouble) = self.judge(&host, &looked, failures);
        let failed = matches!(looked.stop, Some(Stop::Broken(_)));
        let checked = if looked.stop.is_none() { Some(now) } else { checked };
        let count = looked.deliveries.len();
        let new = self.observing.keep(keep(&looked.seen, checked, next, &trouble), looked.deliveries).await?;
        if count > 0 {
            tracing::info!(repository, deliveries = count, new, "GitHub had news");
        }
        Ok(Done { repository: repository.to_owned(), next, trouble, failed })
    }

    /// When to look again, and what is the matter.
    fn judge(&self, host: &str, looked: &look::Looked, failures: u32) -> (Timestamp, Option<String>) {
        let now = Timestamp::now();
        let asked = &looked.asking;
        match &looked.stop {
            None => {
                let interval = self.settings.interval.max(asked.patience);
                // The others take about as many.
                let cost = asked.cost.max(1).saturating_mul(self.repositories.load(Ordering::Relaxed).max(1));
                let stretch = asked.rate.as_ref().and_then(|rate| pace::stretch(rate, cost, now));
                let next = later(now, interval.max(stretch.unwrap_or_default()));
                (next, (!looked.refused.is_empty()).then(|| looked.refused.join("; ")))
            }
            Some(Stop::Limited(until)) => {
                let why = format!("{LIMITED}: {host} wants no request before {until}");
                self.close(host, *until, &why, false);
                (*until, Some(why))
            }
            Some(Stop::BadToken) => {
                let until = later(now, pace::PARKED);
                let why = format!("{NO_TOKEN} for {host}: it has ended, or is another host's");
                self.close(host, until, &why, true);
                (until, Some(why))
            }
            Some(Stop::Hidden(why)) => (later(now, pace::PARKED), Some(why.clone())),
            Some(Stop::Broken(why)) => {
                (later(now, pace::backoff(self.settings.interval, failures + 1, jitter())), Some(why.clone()))
            }
        }
    }

    /// The API of a host; or until when there is none, and why.
    async fn api(&self, host: &str, now: Timestamp) -> Result<Arc<GithubApi>, (Timestamp, String)> {
        let known = self.hosts().get(host).cloned().unwrap_or_default();
        if let Some((until, why)) = known.closed.filter(|(until, _)| *until > now) {
            return Err((until, why));
        }
        if let Some(api) = known.api {
            return Ok(api);
        }
        let (settings, name) = (Arc::clone(&self.settings), host.to_owned());
        let made = tokio::task::spawn_blocking(move || {
            let token = clients::github_token(&name, &*settings.variable)?;
            GithubApi::new(&clients::api_url(&name, &settings.api_url), token)
                .map_err(|error| format!("could not {error}"))
        });
        match made.await.unwrap_or_else(|_| Err("looking for a token panicked".into())) {
            Ok(api) => {
                tracing::info!(host, token = api.token_name(), "polling GitHub");
                let api = Arc::new(api);
                self.hosts().insert(host.to_owned(), Host { api: Some(Arc::clone(&api)), closed: None });
                Ok(api)
            }
            Err(why) => {
                let until = later(now, pace::PARKED);
                self.close(host, until, &why, true);
                Err((until, why))
            }
        }
    }

    /// Asks nothing more of a host for a while; `forget` its token, too.
    fn close(&self, host: &str, until: Timestamp, why: &str, forget: bool) {
        let mut hosts = self.hosts();
        let known = hosts.entry(host.to_owned()).or_default();
        known.closed = Some((until, why.to_owned()));
        if forget {
            known.api = None;
        }
    }

    fn hosts(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Host>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn note(plans: &mut BTreeMap<String, Plan>, done: Done) {
    let plan = plans.entry(done.repository.clone()).or_default();
    if plan.trouble != done.trouble {
        match &done.trouble {
            Some(trouble) => tracing::warn!(repository = done.repository, trouble, "polling is in trouble"),
            None => tracing::info!(repository = done.repository, "polling is well again"),
        }
    }
    plan.is_under_way = false;
    plan.due = Some(done.next);
    plan.failures = if done.failed { plan.failures + 1 } else { 0 };
    plan.trouble = done.trouble;
}

fn later(now: Timestamp, wait: Duration) -> Timestamp {
    now.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// Between 0 and 1, so that many pollers that failed together do not come back together.
fn jitter() -> f64 {
    f64::from(u32::try_from(Uuid::new_v4().as_u128() % 1000).unwrap_or(0)) / 1000.0
}
