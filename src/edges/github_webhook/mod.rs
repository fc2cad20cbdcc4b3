//! GitHub's webhook: verify the raw bytes, keep them, answer.
//!
//! The answers are listed in `docs/specs/wire.md`. What GitHub sends: <https://docs.github.com/en/webhooks/webhook-events-and-payloads>.

mod body;
mod refusal;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use jiff::Timestamp;
use serde_json::json;

use crate::crash_point;
use crate::domain::{Receipt, Secret};
use crate::engine::Intake;
use crate::payload::{self, GithubHeaders, Received};
use crate::signing;

use body::{BodyLimits, Budget};
use refusal::Refusal;

/// What the receiver goes by.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where GitHub posts to, such as `/gh-webhook`.
    pub path: String,
    /// Every secret that verifies; several while one is being replaced.
    pub secrets: Vec<Secret>,
    /// The largest body, in bytes.
    pub max_body: u64,
    /// How many bytes of bodies may be in memory at once.
    pub max_in_flight: u64,
    /// A body must have arrived by then.
    pub read_timeout: Duration,
}

struct Receiver {
    path: String,
    secrets: Arc<Vec<Secret>>,
    limits: BodyLimits,
    intake: Intake,
}

/// Bodies above this are verified off the async threads: 25 MB take some 20 ms.
const LARGE: usize = 256 << 10;
/// How much of a refused request's body is still read, so that the sender gets to see the answer.
const DRAIN: u64 = 256 << 10;

/// The receiver's routes.
pub fn routes(settings: Settings, intake: Intake) -> Router {
    let limits = BodyLimits {
        max_body: settings.max_body,
        timeout: settings.read_timeout,
        budget: Budget::new(settings.max_in_flight),
    };
    let path = settings.path.trim_end_matches('/').to_owned();
    let receiver = Arc::new(Receiver { path: path.clone(), secrets: Arc::new(settings.secrets), limits, intake });
    let mut router = Router::new();
    // One trailing slash is the same place; the root has no other spelling.
    let spellings = if path.is_empty() { vec!["/".to_owned()] } else { vec![path.clone(), format!("{path}/")] };
    for spelling in spellings {
        router = router.route(&spelling, axum::routing::any(receive));
    }
    router
        .route("/healthz", get(|| async { (StatusCode::OK, axum::Json(json!({"status": "ok"}))) }))
        .route("/readyz", get(ready))
        .fallback(elsewhere)
        .with_state(receiver)
}

async fn ready(State(receiver): State<Arc<Receiver>>) -> Response {
    match receiver.intake.ready().await {
        Ok(()) => (StatusCode::OK, axum::Json(json!({"status": "ready"}))).into_response(),
        Err(error) => {
            tracing::error!(error = %crate::domain::chain(&error), "not ready");
            Refusal::store().into_response()
        }
    }
}

async fn elsewhere(State(receiver): State<Arc<Receiver>>, uri: Uri) -> Refusal {
    tracing::debug!(path = ?uri.path(), "a request to a path that is not served");
    Refusal::path(&receiver.path)
}

async fn receive(State(receiver): State<Arc<Receiver>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let delivery = header(&parts.headers, "x-github-delivery");
    let event = header(&parts.headers, "x-github-event");
    match receiver.take(&parts.method, &parts.headers, body).await {
        Ok(answer) => answer,
        Err(refusal) => {
            // Header values are shown escaped and cut: they come from whoever could reach us.
            let show = |text: Option<String>| text.map(|t| t.chars().take(64).collect::<String>());
            tracing::warn!(
                status = refusal.status().as_u16(),
                reason = refusal.reason(),
                hint = refusal.hint(),
                delivery = ?show(delivery),
                event = ?show(event),
                "refused a delivery"
            );
            receiver.intake.note_refusal(refusal.status().as_u16(), refusal.reason(), refusal.hint());
            refusal.into_response()
        }
    }
}

impl Receiver {
    async fn take(&self, method: &Method, headers: &HeaderMap, body: Body) -> Result<Response, Refusal> {
        if method != Method::POST {
            return Err(Refusal::method());
        }
        let signature = header(headers, "x-hub-signature-256");
        let sha1 = headers.contains_key("x-hub-signature");
        // What fails by its form fails before its body is read: an unsigned sender costs no memory.
        if let Err(error) = signing::github_signature(signature.as_deref(), sha1) {
            body::drain(body, DRAIN).await;
            return Err(Refusal::signature(&error, None));
        }
        let (bytes, _share) = body::read(body, content_length(headers), &self.limits).await?;
        let received = self.prove(headers, signature, sha1, bytes).await?;
        let (id, event) = (received.delivery.id.clone(), received.delivery.event.clone());
        if event == "ping" {
            tracing::info!(delivery = id, "GitHub's ping: the webhook reaches us and its secret is right");
        }
        let receipt = self.intake.accept(received).await.map_err(|error| {
            tracing::error!(error = %crate::domain::chain(&error), "could not keep a delivery");
            Refusal::store()
        })?;
        crash_point::reached("before-answer");
        Ok(answer(&event, &id, receipt))
    }

    /// Proves the bytes, then reads them: never the other way round.
    async fn prove(
        &self,
        headers: &HeaderMap,
        signature: Option<String>,
        sha1: bool,
        bytes: Bytes,
    ) -> Result<Received, Refusal> {
        let secrets = Arc::clone(&self.secrets);
        let github = GithubHeaders::read(&|name| header(headers, name));
        let large = bytes.len() > LARGE;
        let work = move || {
            let verified = signing::verify_github(&secrets, signature.as_deref(), sha1, &bytes)
                .map_err(|error| Refusal::signature(&error, Some(&bytes)))?;
            if verified.secret() > 0 {
                let name = secrets.get(verified.secret()).map_or("", Secret::name);
                tracing::warn!(secret = name, "a delivery was signed with an older secret; finish the rotation");
            }
            let github = github.map_err(|error| Refusal::payload(&error))?;
            payload::from_github(&github, &verified, Timestamp::now()).map_err(|error| Refusal::payload(&error))
        };
        if large { tokio::task::spawn_blocking(work).await.map_err(|_| Refusal::store())? } else { work() }
    }
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    header(headers, "content-length").and_then(|text| text.parse().ok())
}

fn answer(event: &str, id: &str, receipt: Receipt) -> Response {
    let (status, word) = match receipt {
        Receipt::Accepted(_) if event == "ping" => (StatusCode::OK, "pong"),
        Receipt::Accepted(_) => (StatusCode::ACCEPTED, "accepted"),
        Receipt::Requeued(_) => (StatusCode::ACCEPTED, "requeued"),
        Receipt::Duplicate(_) => (StatusCode::OK, "duplicate"),
    };
    let (Receipt::Accepted(seq) | Receipt::Requeued(seq) | Receipt::Duplicate(seq)) = receipt;
    (status, axum::Json(json!({"status": word, "delivery": id, "seq": seq.0}))).into_response()
}
