//! The HTTP listener: connections within a bound, headers within a time, an orderly end.

use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// A sender that has not sent its request's head by then is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Answers that are under way when we stop get so long to finish.
const FAREWELL: Duration = Duration::from_secs(3);
/// The wait after `accept` failed, as when no more files may be open.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// What is served.
pub type Routes = Router;

/// A connection's place among those that may be open. A request that will take long and do little gives it back.
#[derive(Clone, Debug)]
pub struct Place(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Place {
    /// Makes room for another connection.
    pub fn release(&self) {
        if let Ok(mut permit) = self.0.lock() {
            permit.take();
        }
    }
}

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
        let place = Place(Arc::new(Mutex::new(place.ok())));
        let held = place.clone();
        let app = app.clone().map_request(move |mut request: hyper::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(held.clone());
            request
        });
        let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
            place.release();
        });
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = tokio::time::sleep(FAREWELL) => tracing::info!("some senders were slow to finish; their deliveries were not answered"),
    }
}
