//! The HTTP listener: connections within a bound, headers within a time, an orderly end.

use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// A sender that has not sent its request's head by then is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Answers that are under way when we stop get so long to finish.
const FAREWELL: Duration = Duration::from_secs(3);
/// The wait after `accept` failed, as when no more files may be open.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Serves `app` on `listener` until `stop`, at most `max_connections` at a time; the rest waits in the backlog.
pub async fn serve(listener: TcpListener, app: Router, max_connections: usize, stop: CancellationToken) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(max_connections));
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(64 << 10);
    loop {
        let place = tokio::select! {
            () = stop.cancelled() => break,
            place = Arc::clone(&places).acquire_owned() => place,
        };
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(AFTER_FAILURE).await;
                continue;
            }
        };
        // Answers are small and somebody waits for each.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "could not set TCP_NODELAY");
        }
        let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app.clone()));
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(place);
        });
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = tokio::time::sleep(FAREWELL) => tracing::info!("some senders were slow to finish; their deliveries were not answered"),
    }
}
