//! The same server on standard input and output, for whoever can start us.

use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::{IntoTransport, stdio};
use rmcp::{RoleServer, ServiceExt};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::engine::{Feed, Readers};

use super::Parts;
use super::advertise::Advertising;
use super::handler::Events;

/// Streams of one client.
const STREAMS: usize = 1000;

/// Why the conversation could not be held.
#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    /// It did not begin as one.
    #[error("speak MCP on standard input and output: {0}")]
    Begin(String),
    /// Serving it ended in a panic, which is a defect.
    #[error("serve MCP on standard input and output: it panicked")]
    Panicked,
}

/// Serves until the input ends.
pub async fn serve(feed: Feed, readers: Readers, heartbeat: Duration) -> Result<(), StdioError> {
    let stop = CancellationToken::new();
    let parts = Parts { feed, readers, subscriptions: None, stop: stop.clone() };
    let events = Events::new(parts, Arc::new(Semaphore::new(STREAMS)), heartbeat);
    let inner = IntoTransport::<RoleServer, _, _>::into_transport(stdio());
    let transport = Advertising { inner, stop };
    let running = match events.serve(transport).await {
        Ok(running) => running,
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(StdioError::Begin(error.to_string())),
    };
    running.waiting().await.map(|_| ()).map_err(|_| StdioError::Panicked)
}
