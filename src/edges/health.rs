//! Whether we are well, for those who watch over us, where no webhook is served.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use serde_json::json;

use crate::engine::Intake;

/// `/healthz` and `/readyz`; anything else is not there.
pub fn routes(intake: Intake) -> Router {
    Router::new()
        .route("/healthz", get(|| async { (StatusCode::OK, axum::Json(json!({"status": "ok"}))) }))
        .route("/readyz", get(ready))
        .with_state(intake)
}

async fn ready(State(intake): State<Intake>) -> (StatusCode, axum::Json<serde_json::Value>) {
    match intake.ready().await {
        Ok(()) => (StatusCode::OK, axum::Json(json!({"status": "ready"}))),
        Err(error) => {
            tracing::error!(error = %crate::domain::chain(&error), "not ready");
            (StatusCode::SERVICE_UNAVAILABLE, axum::Json(json!({"status": "the store cannot be written"})))
        }
    }
}
