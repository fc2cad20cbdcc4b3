//! The MCP Events server: the feed for whoever speaks MCP (`docs/specs/mcp-events.md`).
//!
//! rmcp carries the protocol: negotiation, headers, SSE, stdio. Ours is what it does not know: the `events/*` methods,
//! the top-level `events` capability, two dialects of error codes, and who may see what.

mod advertise;
mod auth;
mod dialect;
mod events;
mod handler;
mod params;
mod stdio;
mod stream;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware;
use axum::routing::get;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::domain::{Principal, Secret};
use crate::engine::{Feed, Readers, Subscriptions};

use auth::Doors;
use handler::Events;

pub use stdio::{StdioError, serve as serve_stdio};

/// Where the server is mounted.
pub const PATH: &str = "/mcp";
/// No request of this protocol is larger.
const MAX_BODY: usize = 1 << 20;

/// What the server goes by.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Who may come in, each with a token.
    pub tokens: Vec<(Principal, Secret)>,
    /// The address under which the world reaches us, such as `https://loop.example.com`.
    pub public_url: Option<String>,
    /// The OAuth issuer whose tokens are named in the protected-resource metadata.
    pub oauth_issuer: Option<String>,
    /// The host that the listener is bound to.
    pub host: String,
    /// How many streams may be open at once.
    pub max_streams: usize,
    /// How often a stream that has nothing to say says so.
    pub heartbeat: Duration,
}

/// The parts of the server that requests use.
pub struct Parts {
    /// What is read.
    pub feed: Feed,
    /// Who reads it.
    pub readers: Readers,
    /// Who is posted to; none on stdio.
    pub subscriptions: Option<Subscriptions>,
    /// The end of streams.
    pub stop: CancellationToken,
}

/// The server's routes.
pub fn routes(settings: &Settings, parts: Parts) -> Router {
    let doors = Arc::new(Doors::new(settings));
    let events = Events::new(parts, Arc::new(Semaphore::new(settings.max_streams)), settings.heartbeat);
    // A name that points at this machine must not turn a browser into a client: only names that we know are answered.
    let public = settings.public_url.as_deref().and_then(|url| url::Url::parse(url).ok());
    let public = public.and_then(|url| url.host_str().map(str::to_owned));
    let known = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let hosts = known.into_iter().chain(public).chain([settings.host.clone()]);
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_sse_retry(None)
        .with_allowed_hosts(hosts)
        .with_max_request_body_bytes(MAX_BODY);
    let service =
        StreamableHttpService::new(move || Ok(events.clone()), Arc::new(NeverSessionManager::default()), config);
    let mut router = Router::new()
        .route_service(PATH, service)
        .layer(middleware::from_fn(advertise::http))
        .layer(middleware::from_fn_with_state(Arc::clone(&doors), auth::bearer));
    if let Some(metadata) = doors.metadata() {
        // Both the address that the header names and the plain one, where clients look by themselves.
        for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"] {
            let metadata = metadata.clone();
            router = router.route(path, get(move || async move { axum::Json(metadata) }));
        }
    }
    router
}
