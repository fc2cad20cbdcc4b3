//! The MCP Events server and its courier, put together; and the one on stdio, which stands alone.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Error, ServerLock};
use crate::clients::{Exception, Poster};
use crate::config::Settings;
use crate::domain::{Access, Principal, Secret};
use crate::edges::listener::Routes;
use crate::edges::mcp_server::{self, Parts};
use crate::engine::{
    Bells, Courier, Decider, Feed, Observing, Readers, Router, Sessions, SubscriptionSettings, Subscriptions,
};
use crate::registry::Registry;
use crate::retry::Policy;
use crate::routing::Rules;
use crate::store::Store;

/// A stream that has nothing to say says so this often: clients give one up after a minute.
const HEARTBEAT: Duration = Duration::from_secs(25);
/// How often subscriptions are looked at for their end.
const EXPIRY: Duration = Duration::from_secs(30);
/// A suspended subscription that nobody revives goes after this.
const STALE: Duration = Duration::from_secs(7 * 24 * 3600);

/// The principals of the configuration.
pub fn principals(settings: &Settings) -> Vec<Principal> {
    let principal = |token: &crate::config::McpToken| Principal {
        name: token.principal.clone(),
        access: Access { repositories: token.repositories.clone(), acts_as: token.acts_as.clone() },
    };
    settings.mcp.tokens.iter().map(principal).collect()
}

/// The server's routes, and the tasks that it needs.
pub(super) async fn start(
    settings: &Settings,
    tokens: Vec<Secret>,
    store: &Store,
    bells: &Bells,
    stop: &CancellationToken,
) -> Result<(Routes, Vec<JoinHandle<()>>), Error> {
    let all = &settings.mcp;
    let principals = principals(settings);
    let known = principals.clone();
    let ended = store.write(move |db| db.set_principals(&known, Timestamp::now())).await?;
    if ended > 0 {
        tracing::warn!(ended, "subscriptions were ended: their principals may not have them any more");
    }
    let exceptions: Vec<_> = all.allow_callbacks.iter().filter_map(|text| Exception::parse(text).ok()).collect();
    let granting = SubscriptionSettings {
        exceptions: exceptions.clone(),
        min_ttl: all.min_ttl.0,
        default_ttl: all.default_ttl.0,
        max_ttl: all.max_ttl.0,
        max_subscriptions: all.max_subscriptions,
    };
    let poster = Poster::new()?;
    let policy =
        Policy { max_attempts: all.max_attempts, backoff: all.retry_backoff.0, max_backoff: all.max_retry_backoff.0 };
    let feed = Feed::new(store.clone());
    let courier = Arc::clone(&bells.courier);
    let subscriptions = Subscriptions::new(store.clone(), poster.clone(), Arc::new(granting), bells);
    let courier = Courier::new(store.clone(), poster, policy, exceptions, courier);
    let tasks = vec![
        tokio::spawn(feed.clone().run(Arc::clone(&bells.feed))),
        tokio::spawn(courier.run()),
        tokio::spawn(expire(store.clone())),
    ];
    let serving = mcp_server::Settings {
        tokens: principals.into_iter().zip(tokens).collect(),
        public_url: all.public_url.clone(),
        oauth_issuer: all.oauth_issuer.clone(),
        host: settings.gh_webhook.host.clone(),
        max_streams: all.max_streams,
        heartbeat: HEARTBEAT,
    };
    let observers = Arc::clone(&bells.observers);
    let readers = Readers::new(store.clone(), Arc::new(move || observers.notify_one()));
    let parts = Parts { feed, readers, subscriptions: Some(subscriptions), stop: stop.clone() };
    Ok((mcp_server::routes(&serving, parts), tasks))
}

/// Removes subscriptions whose time is over; for ever.
async fn expire(store: Store) {
    loop {
        let now = Timestamp::now();
        let stale = now.checked_sub(STALE).unwrap_or(Timestamp::MIN);
        match store.write(move |db| db.expire_subscriptions(now, stale)).await {
            Ok(0) => {}
            Ok(gone) => tracing::info!(gone, "subscriptions are over"),
            Err(error) => tracing::warn!(error = %crate::domain::chain(&error), "could not expire subscriptions"),
        }
        tokio::time::sleep(EXPIRY).await;
    }
}

/// Serves the feed of a state directory on standard input and output until the input ends. While no server runs there,
/// GitHub is polled from here, where that is enabled.
pub async fn run_stdio(
    state_dir: &Path,
    settings: Settings,
    environment: Vec<(OsString, OsString)>,
) -> Result<(), Error> {
    if super::holder(state_dir).is_none() && !settings.github_poll.enabled {
        tracing::warn!(
            "no server runs in this state directory and `github_poll.enabled` is not set: nothing new comes until \
             `the-loop serve` does"
        );
    }
    let store = Store::beside(state_dir)?;
    let feed = Feed::new(store.clone());
    let bells = Bells::default();
    let (server, observers) = (state_dir.to_path_buf(), Arc::clone(&bells.observers));
    let readers = Readers::new(
        store,
        Arc::new(move || {
            observers.notify_one();
            super::poke(&server);
        }),
    );
    let follow = tokio::spawn(feed.clone().run_beside());
    let stop = CancellationToken::new();
    let observe = tokio::spawn(observe_alone(state_dir.to_path_buf(), settings, environment, bells, stop.clone()));
    let served = mcp_server::serve_stdio(feed, readers, HEARTBEAT).await;
    follow.abort();
    stop.cancel();
    if observe.await.is_err() {
        tracing::error!("observing GitHub ended in a panic");
    }
    Ok(served?)
}

/// How often somebody who observes for want of a server looks whether there is one.
const SERVER_COMES: Duration = Duration::from_millis(500);
/// How often somebody who could observe looks whether the server, or another like it, has gone.
const SERVER_GOES: Duration = Duration::from_secs(5);

/// Polls GitHub and decides what comes of it, while nobody else does; until `stop`.
async fn observe_alone(
    state_dir: PathBuf,
    settings: Settings,
    environment: Vec<(OsString, OsString)>,
    bells: Bells,
    stop: CancellationToken,
) {
    while settings.github_poll.enabled && !stop.is_cancelled() {
        match ServerLock::take_deciding_if_free(&state_dir) {
            Ok(Some(lock)) => {
                let observed = observe_until_server(&state_dir, &settings, &environment, &bells, &stop).await;
                drop(lock);
                if let Err(error) = observed {
                    tracing::error!(error = %crate::domain::chain(&error), "could not observe GitHub; trying again");
                }
            }
            Ok(None) => {}
            Err(error) => tracing::error!(error = %crate::domain::chain(&error), "could not look for a server"),
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(SERVER_GOES) => {}
        }
    }
}

async fn observe_until_server(
    state_dir: &Path,
    settings: &Settings,
    environment: &[(OsString, OsString)],
    bells: &Bells,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let store = Store::open(state_dir)?;
    let sessions = Sessions::new(Registry::open(state_dir)?);
    let rules = Rules { routing: settings.routing.clone(), trust: settings.trust.clone() };
    let decider = Decider::new(sessions.clone(), Arc::new(rules));
    let observing = Observing::new(store.clone(), sessions, bells.clone(), false);
    let mut tasks = vec![tokio::spawn(Router::new(store.clone(), decider, bells.clone()).run())];
    let polling = super::github_poll(settings, environment, observing);
    tasks.extend(polling.map(|polling| tokio::spawn(polling.run())));
    tracing::info!("no server runs in this state directory: GitHub is polled from here until one does");
    while super::holder(state_dir).is_none() && !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(SERVER_COMES) => {}
        }
    }
    for task in tasks {
        task.abort();
        // What it was writing is written, or undone, before the server may begin.
        drop(task.await);
    }
    store.close().await;
    Ok(())
}
