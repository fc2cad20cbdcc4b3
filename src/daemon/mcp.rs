//! The MCP Events server and its courier, put together.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Error;
use crate::clients::{Exception, Poster};
use crate::config::Settings;
use crate::domain::{Access, Principal, Secret};
use crate::edges::listener::Routes;
use crate::edges::mcp_server::{self, Parts};
use crate::engine::{Bells, Courier, Feed, Readers, SubscriptionSettings, Subscriptions};
use crate::retry::Policy;
use crate::store::Store;

/// A stream that has nothing to say says so this often: clients give one up after a minute.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(25);
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
