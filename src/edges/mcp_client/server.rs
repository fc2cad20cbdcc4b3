//! One server: connected while it has watches, and connected again when it was lost.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::domain::{Watch, WatchId};
use crate::engine::{ServerState, Watches};

use super::Server;
use super::answers::{CallError, Refusal};
use super::callback::Making;
use super::follow::{Follower, Left, follow};
use super::link::Link;

/// The first wait after a connection failed; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A connection that lasted this long was a good one: the next wait is the first again.
const GOOD: Duration = Duration::from_secs(10);

/// What a server is wanted for.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) watches: Vec<Watch>,
    /// Subscriptions that are to be ended, with where the server posts to.
    pub(super) ending: Vec<(Watch, String)>,
    /// Somebody wants to know what it offers.
    pub(super) look: bool,
}

impl Wanted {
    /// Whether the same watches are served and ended: their cursors move all the time.
    pub(super) fn same(&self, other: &Self) -> bool {
        let ids = |all: &Self| {
            let served = all.watches.iter().map(|watch| watch.id.clone()).collect::<Vec<_>>();
            (served, all.ending.iter().map(|(watch, _)| watch.id.clone()).collect::<Vec<_>>(), all.look)
        };
        ids(self) == ids(other)
    }

    /// Whether there is nothing to do: a subscription is ended once.
    fn is_empty(&self, unsubscribed: &HashSet<WatchId>) -> bool {
        !self.look && self.watches.is_empty() && self.ending.iter().all(|(watch, _)| unsubscribed.contains(&watch.id))
    }
}

/// Serves one server's watches; for ever.
pub(super) async fn serve(server: Arc<Server>, watches: Watches, mut wanted: watch::Receiver<Wanted>, making: Making) {
    let mut wait = FIRST_WAIT;
    let mut unsubscribed = HashSet::new();
    loop {
        while wanted.borrow_and_update().is_empty(&unsubscribed) {
            if wanted.changed().await.is_err() {
                return;
            }
        }
        let began = Instant::now();
        let problem = match Link::open(&server).await {
            Err(error) => crate::domain::chain(&error),
            Ok(link) => {
                tracing::info!(server = server.name, "connected");
                note(&watches, &server, Some(Timestamp::now()), None, None).await;
                let link = Arc::new(link);
                let ended = with(&server, &watches, &link, &mut wanted, &making, &mut unsubscribed).await;
                let said = link.last_words();
                if let Ok(link) = Arc::try_unwrap(link) {
                    link.close().await;
                }
                match ended {
                    Ok(()) => {
                        // Nobody waits for it any more.
                        note(&watches, &server, None, None, None).await;
                        wait = FIRST_WAIT;
                        continue;
                    }
                    Err(why) if said.is_empty() => why,
                    Err(why) => format!("{why}; it said: {said}"),
                }
            }
        };
        if began.elapsed() > GOOD {
            wait = FIRST_WAIT;
        }
        let pause = wait.mul_f64(0.75 + jitter() / 2.0);
        tracing::warn!(
            server = server.name,
            problem,
            pause_ms = pause.as_millis(),
            "a server cannot be used; trying again"
        );
        note(&watches, &server, None, Timestamp::now().checked_add(pause).ok(), Some(problem)).await;
        wait = (wait * 2).min(LONGEST_WAIT);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // Who makes a watch now has just reached the server.
            changed = wanted.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

/// Serves watches over one connection. `Ok` when nobody waits any more, `Err` with why the connection is of no use.
async fn with(
    server: &Arc<Server>,
    watches: &Watches,
    link: &Arc<Link>,
    wanted: &mut watch::Receiver<Wanted>,
    making: &Making,
    unsubscribed: &mut HashSet<WatchId>,
) -> Result<(), String> {
    let offers = link.offers(&server.name).await.map_err(|error| match error {
        CallError::Refused { refusal: Refusal::NoMethod, .. } => "it has no events".to_owned(),
        other => format!("its events cannot be listed: {other}"),
    })?;
    let offers = Arc::new(offers);
    let mut tasks: JoinSet<(WatchId, Left)> = JoinSet::new();
    let mut following: HashMap<WatchId, AbortHandle> = HashMap::new();
    loop {
        let now = wanted.borrow_and_update().clone();
        following.retain(|id, task| {
            let kept = now.watches.iter().any(|watch| watch.id == *id);
            if !kept {
                task.abort();
            }
            kept
        });
        for (watch, url) in &now.ending {
            if !unsubscribed.contains(&watch.id) {
                unsubscribe(watches, link, watch, url).await?;
                unsubscribed.insert(watch.id.clone());
            }
        }
        if now.look {
            looked(server, watches, link).await?;
        }
        if now.watches.is_empty() {
            return Ok(());
        }
        for watch in &now.watches {
            if !following.contains_key(&watch.id) {
                let follower = Follower {
                    server: Arc::clone(server),
                    link: Arc::clone(link),
                    watches: watches.clone(),
                    making: making.clone(),
                    offers: Arc::clone(&offers),
                    took: AtomicBool::new(false),
                };
                let id = watch.id.clone();
                let task = tasks.spawn(async move { (id.clone(), follow(follower, id).await) });
                following.insert(watch.id.clone(), task);
            }
        }
        loop {
            tokio::select! {
                changed = wanted.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return Ok(()),
                },
                Some(ended) = tasks.join_next() => match ended {
                    Ok((_, Left::Done)) => {}
                    Ok((_, Left::Lost(why))) => return Err(why),
                    Err(error) if error.is_cancelled() => {}
                    Err(_) => return Err("following a watch panicked".into()),
                },
                () = link.closed() => return Err("the connection ended".into()),
            }
        }
    }
}

/// Says what the server offers to those who asked; that they were answered is known before anything else is done.
async fn looked(server: &Server, watches: &Watches, link: &Link) -> Result<(), String> {
    let offers = link.offers(&server.name).await.map_err(|error| format!("its events cannot be listed: {error}"))?;
    if let Err(error) = watches.keep_offers(&server.name, offers).await {
        tracing::error!(error = %crate::domain::chain(&error), "could not keep what a server offers");
    }
    watches.look_again();
    Ok(())
}

/// Ends a subscription at the server. One that it does not know any more is ended too.
async fn unsubscribe(watches: &Watches, link: &Link, watch: &Watch, url: &str) -> Result<(), String> {
    let params =
        json!({"name": watch.event, "arguments": watch.arguments, "delivery": {"mode": "webhook", "url": url}});
    match link.ask("events/unsubscribe", params).await {
        Err(CallError::Lost(why)) => return Err(why),
        Err(error) => tracing::info!(watch = %watch.id, %error, "a subscription was over already"),
        Ok(_) => tracing::info!(watch = %watch.id, "unsubscribed"),
    }
    if let Err(error) = ended(watches, &watch.id).await {
        tracing::error!(error = %crate::domain::chain(&error), "could not note the end of a subscription");
    }
    Ok(())
}

/// Notes that a server posts no more. The secret stays: what is posted late is answered as what it is.
async fn ended(watches: &Watches, id: &WatchId) -> Result<(), crate::engine::Error> {
    let hook = watches.hook(id).await?.unwrap_or_default();
    watches.keep_hook(id, crate::engine::Hook { url: None, refresh_before: None, ..hook }).await
}

async fn note(
    watches: &Watches,
    server: &Server,
    since: Option<Timestamp>,
    next_at: Option<Timestamp>,
    problem: Option<String>,
) {
    let state =
        ServerState { server: server.name.clone(), connected_since: since, checked_at: since, next_at, problem };
    if let Err(error) = watches.server_is(state).await {
        tracing::error!(error = %crate::domain::chain(&error), "could not note how a server stands");
    }
}

/// A number from 0 to 1, so that many do not come back at once.
pub(super) fn jitter() -> f64 {
    f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 255.0
}
