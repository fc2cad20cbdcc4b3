//! Subscribing: prove the endpoint, then keep the subscription.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, Semaphore};
use uuid::Uuid;

use crate::catalogue::{self, EventType};
use crate::clients::{Callback, Exception, PostError, Poster, Refused};
use crate::domain::{Arguments, Cursor, Principal, Subscription, SubscriptionId};
use crate::signing::{self, StandardSecret};
use crate::store::{Store, Subscribe, Subscribed};

use super::courier::signed_headers;
use super::{Bells, Error, feed};

/// How long a proof of an endpoint counts.
const PROOF: Duration = Duration::from_secs(24 * 3600);
/// How long a replaced secret signs beside the new one: longer than a post is retried.
const ROTATION: Duration = Duration::from_secs(3600);
/// How many endpoints are asked for proof at once …
const CHALLENGES: usize = 16;
/// … and how often one endpoint in a minute, so that nobody is flooded through us.
const CHALLENGES_A_MINUTE: u32 = 30;

/// The lifetimes and limits that are granted.
#[derive(Debug, Clone)]
pub struct SubscriptionSettings {
    /// Exceptions to "https and public addresses only".
    pub exceptions: Vec<Exception>,
    /// No lifetime is shorter.
    pub min_ttl: Duration,
    /// What is granted where nothing is asked for.
    pub default_ttl: Duration,
    /// No lifetime is longer, except for those who ask for no end.
    pub max_ttl: Duration,
    /// How many subscriptions a principal may have.
    pub max_subscriptions: usize,
}

/// How long a subscription is to last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Nothing was said.
    Unsaid,
    /// For ever.
    Endless,
    /// So long.
    For(Duration),
}

/// A request to subscribe, whose event, arguments, access and secret have been checked.
pub struct Request {
    /// Who asks.
    pub principal: Principal,
    /// The event type.
    pub kind: &'static EventType,
    /// The filters.
    pub arguments: Arguments,
    /// Where to post to.
    pub url: String,
    /// What to sign with.
    pub secret: StandardSecret,
    /// From where on; `None` is now.
    pub cursor: Option<Cursor>,
    /// Nothing older is sent.
    pub max_age: Option<Duration>,
    /// For how long.
    pub lifetime: Lifetime,
}

/// What is granted.
#[derive(Debug, Clone)]
pub struct Granted {
    /// The subscription's id.
    pub id: SubscriptionId,
    /// It ends then unless refreshed; `None` is never.
    pub refresh_before: Option<Timestamp>,
    /// Nothing at or before this is still owed.
    pub cursor: Cursor,
    /// Something after the request's cursor is lost.
    pub truncated: bool,
    /// How it stood before, where it was refreshed.
    pub before: Option<Box<Subscription>>,
}

/// Why a subscription is not granted.
#[derive(Debug, thiserror::Error)]
pub enum SubscribeError {
    /// The callback can be told to be wrong by its form.
    #[error(transparent)]
    Callback(#[from] Refused),
    /// The endpoint did not prove that it wants our posts; the category says why.
    #[error("the callback did not prove that it takes our posts: {0}")]
    Unproven(&'static str),
    /// The principal, or the endpoint, has used up what it may.
    #[error("{0}")]
    Exhausted(&'static str),
    /// Something on our side.
    #[error(transparent)]
    Engine(#[from] Error),
}

impl From<crate::store::Error> for SubscribeError {
    fn from(error: crate::store::Error) -> Self {
        Self::Engine(error.into())
    }
}

/// The subscriptions. Cheap to clone.
#[derive(Clone)]
pub struct Subscriptions {
    store: Store,
    poster: Poster,
    settings: Arc<SubscriptionSettings>,
    courier: Arc<Notify>,
    observers: Arc<Notify>,
    challenges: Arc<Semaphore>,
    asked: Arc<Mutex<HashMap<String, (Instant, u32)>>>,
}

impl Subscriptions {
    /// Subscriptions in `store`, proved through `poster`. The courier is told of what is owed from the start, observers
    /// of who comes and goes.
    pub fn new(store: Store, poster: Poster, settings: Arc<SubscriptionSettings>, bells: &Bells) -> Self {
        let challenges = Arc::new(Semaphore::new(CHALLENGES));
        let (courier, observers) = (Arc::clone(&bells.courier), Arc::clone(&bells.observers));
        Self { store, poster, settings, courier, observers, challenges, asked: Arc::default() }
    }

    /// Makes or refreshes a subscription.
    pub async fn subscribe(&self, request: Request) -> Result<Granted, SubscribeError> {
        let callback = Callback::check(&request.url, &self.settings.exceptions)?;
        let id = subscription_id(&request.principal.name, &request.url, request.kind.name(), &request.arguments);
        self.prove(&request, &callback, &id).await?;
        // The store keeps milliseconds, and no more is promised.
        let now = Timestamp::now().round(jiff::Unit::Millisecond).unwrap_or_else(|_| Timestamp::now());
        let expires_at = self.grant(request.lifetime).and_then(|ttl| now.checked_add(ttl).ok());
        let new = Subscribe {
            id: id.clone(),
            principal: request.principal.name,
            url: request.url,
            name: request.kind.name().into(),
            arguments: request.arguments,
            secret: request.secret.expose().into(),
            old_secret_until: now.checked_add(ROTATION).unwrap_or(Timestamp::MAX),
            expires_at,
            from: None,
            since: request.max_age.and_then(|age| now.checked_sub(age).ok()),
            limit: self.settings.max_subscriptions,
        };
        let cursor = request.cursor;
        let written = self.store.write(move |db| {
            let (from, truncated) = match &cursor {
                Some(cursor) => feed::begin(db, &new.name, cursor)?,
                None => (None, false),
            };
            Ok((db.subscribe(&Subscribe { from, ..new }, now)?, truncated))
        });
        match written.await? {
            (Subscribed::Full, _) => Err(SubscribeError::Exhausted("you have as many subscriptions as you may")),
            (Subscribed::Granted { cursor, before, truncated: cut }, truncated) => {
                let truncated = truncated || cut;
                self.courier.notify_one();
                self.observers.notify_one();
                Ok(Granted { id, refresh_before: expires_at, cursor, truncated, before })
            }
        }
    }

    /// Ends a subscription; one that is not there is as good.
    pub async fn unsubscribe(
        &self,
        principal: &str,
        url: &str,
        kind: &str,
        arguments: &Arguments,
    ) -> Result<(), Error> {
        let id = subscription_id(principal, url, kind, arguments);
        self.store.write(move |db| db.remove_subscription(&id)).await?;
        self.observers.notify_one();
        Ok(())
    }

    /// What is granted of a lifetime; `None` is no end.
    fn grant(&self, asked: Lifetime) -> Option<Duration> {
        let s = &self.settings;
        match asked {
            Lifetime::Endless => None,
            Lifetime::Unsaid => Some(s.default_ttl.min(s.max_ttl)),
            Lifetime::For(ttl) => Some(ttl.min(s.max_ttl).max(s.min_ttl)),
        }
    }

    /// Has the endpoint echo a challenge, unless it has lately.
    async fn prove(&self, request: &Request, callback: &Callback, id: &SubscriptionId) -> Result<(), SubscribeError> {
        let (principal, url) = (request.principal.name.clone(), request.url.clone());
        let known = self.store.read(move |db| db.is_verified(&principal, &url, Timestamp::now())).await?;
        if known {
            return Ok(());
        }
        self.count(&callback.endpoint())?;
        let _place = self.challenges.acquire().await.map_err(|_| Error::Panicked)?;
        let challenge = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let body = json!({"type": "verification", "challenge": challenge}).to_string().into_bytes();
        let message = format!("msg_verification_{}", Uuid::new_v4().simple());
        let secrets = std::slice::from_ref(&request.secret);
        let headers = signed_headers(secrets, &message, Timestamp::now(), &body, id);
        let posted = self
            .poster
            .post(callback, &headers, body)
            .await
            .map_err(|error| SubscribeError::Unproven(post_error(error)))?;
        let echoed = || {
            let answer: Value = serde_json::from_slice(&posted.body).ok()?;
            Some(signing::same(answer.get("challenge")?.as_str()?.as_bytes(), challenge.as_bytes()))
        };
        match posted.status {
            200..=299 if echoed() == Some(true) => {}
            400..=499 => return Err(SubscribeError::Unproven("http_4xx")),
            500..=599 => return Err(SubscribeError::Unproven("http_5xx")),
            _ => return Err(SubscribeError::Unproven("challenge_failed")),
        }
        let (principal, url) = (request.principal.name.clone(), request.url.clone());
        let until = Timestamp::now().checked_add(PROOF).unwrap_or(Timestamp::MAX);
        self.store.write(move |db| db.set_verified(&principal, &url, until)).await?;
        Ok(())
    }

    /// Counts a challenge to an endpoint, or refuses it.
    fn count(&self, endpoint: &str) -> Result<(), SubscribeError> {
        // What a panic left behind here is a count like any other.
        let mut asked = self.asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = Instant::now();
        asked.retain(|_, (since, _)| now.duration_since(*since) < Duration::from_secs(60));
        let (_, count) = asked.entry(endpoint.into()).or_insert((now, 0));
        *count += 1;
        if *count > CHALLENGES_A_MINUTE {
            return Err(SubscribeError::Exhausted("this endpoint was asked for proof too often; wait a minute"));
        }
        Ok(())
    }
}

/// The category of a post without an answer.
pub(super) fn post_error(error: PostError) -> &'static str {
    match error {
        PostError::ConnectionRefused => "connection_refused",
        PostError::Timeout => "timeout",
        PostError::Tls => "tls_error",
    }
}

/// The id that the same principal, url, event and arguments always have.
pub fn subscription_id(principal: &str, url: &str, name: &str, arguments: &Arguments) -> SubscriptionId {
    let mut hash = Sha256::new();
    for part in [principal, url, name, &catalogue::canonical(arguments)] {
        // Lengths keep two different lists of parts from being one text.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    SubscriptionId(format!("sub_{}", hex::encode(hash.finalize().get(..16).unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_counts_in_an_id() {
        let none = Arguments::new();
        let some = Arguments::from([("branch".to_owned(), Value::from("main"))]);
        let ids = [
            subscription_id("a", "b", "c", &none),
            subscription_id("ab", "", "c", &none),
            subscription_id("a", "bc", "", &none),
            subscription_id("a", "b", "c", &some),
        ];
        for (at, id) in ids.iter().enumerate() {
            assert!(ids.iter().skip(at + 1).all(|other| other != id), "{id}");
        }
        assert_eq!(ids[0], subscription_id("a", "b", "c", &none));
    }
}
