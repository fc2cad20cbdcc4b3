//! The MCP Events server on standard input and output, for one client: beside a running server, or alone, and then it
//! polls GitHub itself.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::mcp::HEARTBEAT;
use super::{Error, ServerLock};
use crate::config::Settings;
use crate::edges::mcp_server;
use crate::engine::{Bells, Decider, Feed, Observing, Readers, Router, Sessions};
use crate::registry::Registry;
use crate::routing::Rules;
use crate::store::Store;

/// How often somebody who observes for want of a server looks whether there is one.
const SERVER_COMES: Duration = Duration::from_millis(500);
/// How often somebody who could observe looks whether the server, or another like it, has gone.
const SERVER_GOES: Duration = Duration::from_secs(5);

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
