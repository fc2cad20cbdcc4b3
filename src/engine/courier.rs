//! The courier: posts what is owed, one endpoint apart from the other, until it is taken.
//!
//! The store has the rows; the courier keeps only their numbers, in a lane per endpoint with a place in time. A lane
//! has a few posts under way at most, so an endpoint that is slow or dead fills its own lane and nobody else's.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::clients::{Callback, Exception, Poster};
use crate::domain::{Cursor, SubscriptionId};
use crate::retry;
use crate::signing::{StandardSecret, sign_standard};
use crate::store::{AttemptRow, Parcel, Post, PostEnd, Store};

use super::Error;
use super::subscriptions::post_error;

/// Posts under way at once, over all endpoints …
const AT_ONCE: usize = 128;
/// … to one endpoint …
const PER_ENDPOINT: usize = 8;
/// … and to one whose last post failed.
const PER_FAILING: usize = 1;
/// How many rows are read at a time.
const BATCH: usize = 2048;
/// The largest body that receivers have to take.
const MAX_BODY: usize = 256 << 10;
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// No sleep is longer, so that a clock that is set or a machine that slept is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// No endpoint's `Retry-After` puts a post off for longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// The courier's parts.
pub struct Courier {
    store: Store,
    poster: Poster,
    policy: retry::Policy,
    exceptions: Vec<Exception>,
    bell: Arc<Notify>,
}

#[derive(Default)]
struct Lane {
    /// What waits: when it is due, and its number.
    waiting: BinaryHeap<Reverse<(Timestamp, i64)>>,
    under_way: usize,
    failing: bool,
}

impl Lane {
    fn has_room(&self) -> bool {
        self.under_way < if self.failing { PER_FAILING } else { PER_ENDPOINT }
    }
}

/// What came of one post.
struct Done {
    endpoint: String,
    id: i64,
    /// When it is due again; `None` is never.
    again: Option<Timestamp>,
    /// Whether the endpoint took it; `None` where it was not asked.
    taken: Option<bool>,
}

impl Courier {
    /// A courier for what `store` says is owed; `bell` rings when there is more.
    pub fn new(
        store: Store,
        poster: Poster,
        policy: retry::Policy,
        exceptions: Vec<Exception>,
        bell: Arc<Notify>,
    ) -> Self {
        Self { store, poster, policy, exceptions, bell }
    }

    /// Posts what is owed; for ever.
    pub async fn run(self) {
        let this = Arc::new(self);
        let mut lanes: HashMap<String, Lane> = HashMap::new();
        let mut posts: JoinSet<Done> = JoinSet::new();
        let mut last = 0;
        loop {
            if let Err(error) = this.load(&mut lanes, &mut last).await {
                tracing::error!(error = %crate::domain::chain(&error), "could not read what is owed; trying again");
                tokio::time::sleep(AFTER_FAILURE).await;
                continue;
            }
            let due = this.start(&mut lanes, &mut posts);
            let wait = due.map_or(LONGEST_SLEEP, |at| {
                Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or(Duration::ZERO).min(LONGEST_SLEEP)
            });
            tokio::select! {
                () = this.bell.notified() => {}
                () = tokio::time::sleep(wait) => {}
                Some(done) = posts.join_next() => this.settle(done, &mut lanes),
            }
            while let Some(done) = posts.try_join_next() {
                this.settle(done, &mut lanes);
            }
        }
    }

    /// Takes up rows that were put down since the last look.
    async fn load(&self, lanes: &mut HashMap<String, Lane>, last: &mut i64) -> Result<(), Error> {
        loop {
            let after = *last;
            let found = self.store.read(move |db| db.due_after(after, BATCH)).await?;
            let count = found.len();
            for due in found {
                *last = due.id;
                let endpoint = Callback::check(&due.url, &self.exceptions).map(|callback| callback.endpoint());
                // What may not be posted to any more is found out, and recorded, when it is tried.
                let lane = lanes.entry(endpoint.unwrap_or_default()).or_default();
                lane.waiting.push(Reverse((due.at, due.id)));
            }
            if count < BATCH {
                return Ok(());
            }
        }
    }

    /// Starts what is due and has room; gives when the next is due that has room.
    fn start(self: &Arc<Self>, lanes: &mut HashMap<String, Lane>, posts: &mut JoinSet<Done>) -> Option<Timestamp> {
        let now = Timestamp::now();
        let mut next: Option<Timestamp> = None;
        for (endpoint, lane) in lanes.iter_mut() {
            while lane.has_room()
                && posts.len() < AT_ONCE
                && let Some(Reverse((at, id))) = lane.waiting.peek().copied()
            {
                if at > now {
                    next = Some(next.map_or(at, |next| next.min(at)));
                    break;
                }
                lane.waiting.pop();
                lane.under_way += 1;
                let (this, endpoint) = (Arc::clone(self), endpoint.clone());
                posts.spawn(async move { this.deliver(endpoint, id).await });
            }
        }
        lanes.retain(|_, lane| lane.under_way > 0 || !lane.waiting.is_empty());
        next
    }

    fn settle(&self, done: Result<Done, tokio::task::JoinError>, lanes: &mut HashMap<String, Lane>) {
        let Ok(done) = done else {
            tracing::error!("a post ended in a panic; what it owed is found at the next start");
            return;
        };
        let lane = lanes.entry(done.endpoint).or_default();
        lane.under_way = lane.under_way.saturating_sub(1);
        lane.failing = done.taken.map_or(lane.failing, |taken| !taken);
        if let Some(at) = done.again {
            lane.waiting.push(Reverse((at, done.id)));
        }
    }

    async fn deliver(&self, endpoint: String, id: i64) -> Done {
        match self.attempt(id).await {
            Ok((again, taken)) => Done { endpoint, id, again, taken },
            Err(error) => {
                tracing::error!(error = %crate::domain::chain(&error), "could not record a post; it will be made again");
                let again = Timestamp::now().checked_add(AFTER_FAILURE).ok();
                Done { endpoint, id, again, taken: None }
            }
        }
    }

    /// Makes one attempt and records it: when it is to be made again, and whether it was taken.
    async fn attempt(&self, id: i64) -> Result<(Option<Timestamp>, Option<bool>), Error> {
        let now = Timestamp::now();
        let Some(post) = self.store.read(move |db| db.post(id, now)).await? else {
            self.store.write(move |db| db.forget_owed(id)).await?;
            return Ok((None, None));
        };
        let (event_id, body) = body(&post);
        let began = Instant::now();
        let (status, error, pause) = self.send(&post, &event_id, body).await;
        let attempt = post.attempts + 1;
        let end = match (status, error) {
            (_, None) => PostEnd::Taken,
            // "Gone" and "too large" are the endpoint's last words on this event.
            (Some(410 | 413), _) | (None, Some("too_large")) => PostEnd::Refused,
            _ if attempt >= self.policy.max_attempts => PostEnd::Suspend,
            _ => {
                let jitter = (Uuid::new_v4().as_u128() % 1000) as f64 / 1000.0;
                let wait = retry::backoff(&self.policy, attempt, jitter).max(pause.min(LONGEST_PAUSE));
                PostEnd::Again(Timestamp::now().checked_add(wait).unwrap_or(Timestamp::MAX))
            }
        };
        let subscription = post.subscription.id;
        match error {
            None => tracing::debug!(%subscription, event = event_id, "posted an event"),
            Some(error) => {
                tracing::warn!(%subscription, event = event_id, attempt, status, error, ?end, "an event was not taken");
            }
        }
        let row = AttemptRow {
            event_id,
            attempt,
            at: now,
            took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            status,
            error: error.map(String::from),
        };
        self.store.write(move |db| db.record_attempt(id, &subscription, &row, end)).await?;
        let again = if let PostEnd::Again(at) = end { Some(at) } else { None };
        Ok((again, Some(error.is_none())))
    }

    /// The status, the category of the failure, and the pause that the endpoint asks for.
    async fn send(&self, post: &Post, event_id: &str, body: Vec<u8>) -> (Option<u16>, Option<&'static str>, Duration) {
        let none = Duration::ZERO;
        // The callback is checked again each time: what was allowed may not be any more.
        let Ok(callback) = Callback::check(&post.subscription.url, &self.exceptions) else {
            return (None, Some("connection_refused"), none);
        };
        if body.len() > MAX_BODY {
            return (None, Some("too_large"), none);
        }
        let secrets: Vec<_> = post.secrets.iter().filter_map(|secret| StandardSecret::parse(secret).ok()).collect();
        let headers = signed_headers(&secrets, event_id, Timestamp::now(), &body, &post.subscription.id);
        match self.poster.post(&callback, &headers, body).await {
            Ok(posted) => {
                let pause = Duration::from_secs(posted.retry_after.unwrap_or(0));
                let error = match posted.status {
                    200..=299 => None,
                    500..=599 => Some("http_5xx"),
                    // A redirect is not followed: to us it is as wrong as a request that is.
                    _ => Some("http_4xx"),
                };
                (Some(posted.status), error, pause)
            }
            Err(error) => (None, Some(post_error(error)), none),
        }
    }
}

/// The message's id and its body.
fn body(post: &Post) -> (String, Vec<u8>) {
    match &post.parcel {
        Parcel::Event { placed, watermark } => {
            let o = &placed.occurrence;
            let cursor = Cursor { journal: post.journal.clone(), place: *watermark }.to_string();
            let at = o.at.to_string();
            let body =
                json!({"eventId": o.event_id, "name": o.name, "timestamp": at, "data": o.data, "cursor": cursor});
            (o.event_id.clone(), body.to_string().into_bytes())
        }
        Parcel::Gap { place, watermark } => {
            let cursor = Cursor { journal: post.journal.clone(), place: *watermark }.to_string();
            let body = json!({"type": "gap", "cursor": cursor}).to_string().into_bytes();
            // The same for each attempt, so that the receiver can tell repeats.
            (format!("msg_gap_{}_{}", post.subscription.id, place.0), body)
        }
        Parcel::Terminated => {
            let error = json!({"code": -32012, "message": "the subscription was ended by the server"});
            let body = json!({"type": "terminated", "error": error}).to_string().into_bytes();
            // The same for each attempt, so that the receiver can tell repeats.
            (
                format!("msg_terminated_{}_{}", post.subscription.id, post.subscription.refreshed_at.as_millisecond()),
                body,
            )
        }
    }
}

/// The headers of a message that is signed now.
pub(super) fn signed_headers(
    secrets: &[StandardSecret],
    id: &str,
    now: Timestamp,
    body: &[u8],
    subscription: &SubscriptionId,
) -> Vec<(&'static str, String)> {
    let seconds = now.as_second();
    vec![
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", seconds.to_string()),
        ("webhook-signature", sign_standard(secrets, id, seconds, body)),
        ("x-mcp-subscription-id", subscription.0.clone()),
    ]
}
