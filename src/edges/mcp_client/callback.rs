//! `POST /mcp-events`: what servers post to us, for the subscriptions that we made.
//!
//! Nothing of a body is believed before its signature is: the watch in the query says which secret it must be signed
//! with. A challenge is answered only while we ask for the very subscription that it is of.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use jiff::Timestamp;
use serde_json::json;

use crate::crash_point;
use crate::domain::WatchId;
use crate::engine::{Hook, Told, Watches};
use crate::signing::{StandardHeaders, StandardSecret, verify_standard};

use super::reading::Said;

/// Where servers post to.
pub const CALLBACK_PATH: &str = "/mcp-events";
/// The protocol's own limit of a body.
const MAX_BODY: usize = 262_144;

/// The subscriptions that are being asked for. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Making(Arc<Mutex<HashMap<WatchId, usize>>>);

impl Making {
    /// From now until the guard is dropped, this watch's subscription is being asked for.
    pub(super) fn begin(&self, id: &WatchId) -> MakingGuard {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(id.clone()).or_default() += 1;
        MakingGuard { making: self.clone(), id: id.clone() }
    }

    fn has(&self, id: &WatchId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(id)
    }
}

/// Ends the asking when it is dropped.
pub(super) struct MakingGuard {
    making: Making,
    id: WatchId,
}

impl Drop for MakingGuard {
    fn drop(&mut self) {
        let mut all = self.making.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.id);
            }
        }
    }
}

#[derive(Clone)]
struct Callback {
    watches: Watches,
    making: Making,
}

/// The route of the callback.
pub fn routes(watches: Watches, making: Making) -> Router {
    Router::new().route(CALLBACK_PATH, post(receive)).with_state(Callback { watches, making })
}

/// Why a post is not taken.
struct No(StatusCode, &'static str);

impl IntoResponse for No {
    fn into_response(self) -> Response {
        (self.0, axum::Json(json!({"status": "refused", "reason": self.1}))).into_response()
    }
}

const UNKNOWN: No = No(StatusCode::UNAUTHORIZED, "the signature does not fit a subscription of ours");

async fn receive(State(callback): State<Callback>, request: Request) -> Result<Response, No> {
    let (parts, body) = request.into_parts();
    let query = parts.uri.query().unwrap_or_default();
    let watch = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "watch");
    let watch = watch.map(|(_, id)| id.into_owned());
    let taken = callback.take(watch, &parts.headers, body).await;
    if let Err(No(status, reason)) = &taken {
        tracing::warn!(status = status.as_u16(), reason, "refused a post of an event");
    }
    taken
}

impl Callback {
    async fn take(&self, watch: Option<String>, headers: &HeaderMap, body: Body) -> Result<Response, No> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let is_json = text("content-type").is_some_and(|kind| kind.trim_start().starts_with("application/json"));
        if !is_json {
            return Err(No(StatusCode::UNSUPPORTED_MEDIA_TYPE, "events are posted as application/json"));
        }
        let bytes = to_bytes(body, MAX_BODY)
            .await
            .map_err(|_| No(StatusCode::PAYLOAD_TOO_LARGE, "no event is larger than 262144 bytes"))?;
        let id = WatchId(watch.ok_or(UNKNOWN)?);
        let hook = self.watches.hook(&id).await.map_err(|error| store(&error))?.ok_or(UNKNOWN)?;
        let now = Timestamp::now();
        let headers = StandardHeaders {
            id: text("webhook-id"),
            timestamp: text("webhook-timestamp"),
            signature: text("webhook-signature"),
        };
        let proven = verify_standard(&secrets(&hook, now), headers, now, &bytes).map_err(|error| {
            tracing::info!(watch = %id, %error, "a post to the callback is not believed");
            UNKNOWN
        })?;
        let said = Said::posted(proven.bytes()).ok_or(No(StatusCode::BAD_REQUEST, "the body is not JSON"))?;
        let making = self.making.has(&id);
        match said {
            Said::Verification(Some(challenge)) if making => {
                return Ok(axum::Json(json!({"challenge": challenge})).into_response());
            }
            Said::Verification(_) => return Err(No(StatusCode::FORBIDDEN, "no subscription is being made")),
            _ => {}
        }
        if making && hook.url.is_none() {
            return Err(No(StatusCode::SERVICE_UNAVAILABLE, "the answer to the subscription is still on its way"));
        }
        self.told(&id, said).await
    }

    async fn told(&self, id: &WatchId, said: Said) -> Result<Response, No> {
        let watch = self.watches.get(id).await.map_err(|error| store(&error))?;
        if !watch.is_some_and(|watch| watch.is_active()) {
            return Err(No(StatusCode::GONE, "nobody waits for this any more"));
        }
        let told = match said {
            Said::Event(event, cursor) => Told { occurrences: vec![event], cursor, ..Told::default() },
            Said::Reached { cursor, truncated } => Told { cursor, truncated, ..Told::default() },
            Said::Terminated(why) => {
                self.watches.end(id, &why).await.map_err(|error| store(&error))?;
                return Ok(StatusCode::NO_CONTENT.into_response());
            }
            Said::Heartbeat(_) | Said::PassedOver | Said::Verification(_) | Said::Other => {
                return Err(No(StatusCode::BAD_REQUEST, "a control body of an unknown type"));
            }
        };
        // The one that ends a watch is taken too; only what comes after it is not wanted.
        self.watches.take(id, told).await.map_err(|error| store(&error))?;
        crash_point::reached("before-callback-answer");
        Ok(StatusCode::NO_CONTENT.into_response())
    }
}

/// The secrets that a post may be signed with now.
fn secrets(hook: &Hook, now: Timestamp) -> Vec<StandardSecret> {
    let old = hook.old_secret.as_ref().filter(|(_, until)| *until > now).map(|(secret, _)| secret);
    hook.secret.iter().chain(old).filter_map(|text| StandardSecret::parse(text).ok()).collect()
}

fn store(error: &crate::engine::Error) -> No {
    tracing::error!(error = %crate::domain::chain(error), "could not keep an event");
    No(StatusCode::SERVICE_UNAVAILABLE, "the event could not be stored; post it again later")
}
