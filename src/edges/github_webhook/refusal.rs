//! Refusals: what the person who reads GitHub's delivery page is told, and what our own log adds.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::{payload, signing};

/// A request that was not taken, and why. Neither text ever holds a digest, a secret or anything of the body.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    reason: String,
    hint: &'static str,
}

impl Refusal {
    fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), hint: "" }
    }

    pub(super) fn signature(error: &signing::Error, body: Option<&[u8]>) -> Self {
        let hint = match (error, body) {
            (signing::Error::Mismatch, Some(body)) if looks_printed_again(body) => {
                "the body is not as GitHub prints it (white space between its tokens): a relay may have parsed and \
                 printed it again; use one that forwards the raw body"
            }
            (signing::Error::Mismatch, _) => {
                "is the webhook's secret at GitHub the one that the server was started with?"
            }
            (signing::Error::Missing, _) => "the webhook has no secret at GitHub, or somebody else is posting here",
            (signing::Error::Sha1Only, _) => "a relay dropped X-Hub-Signature-256, or the sender is not GitHub",
            (signing::Error::Malformed, _) => "the sender is not GitHub, or a relay changed the header",
        };
        Self { hint, ..Self::new(StatusCode::UNAUTHORIZED, error.to_string()) }
    }

    pub(super) fn payload(error: &payload::Error) -> Self {
        let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
        Self::new(status, error.to_string())
    }

    pub(super) fn method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "webhook deliveries are posted: use POST")
    }

    pub(super) fn path(right: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("nothing is served here; webhook deliveries go to {right}"))
    }

    pub(super) fn too_large(max: u64) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {}", crate::domain::Size(max)))
    }

    pub(super) fn too_slow() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")
    }

    pub(super) fn cut_off() -> Self {
        Self::new(StatusCode::BAD_REQUEST, "the body ended before it was complete")
    }

    pub(super) fn no_room() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "too many large deliveries at once; deliver it again in a minute")
    }

    pub(super) fn store() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the delivery could not be stored; deliver it again later")
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn reason(&self) -> &str {
        &self.reason
    }

    pub(super) fn hint(&self) -> &'static str {
        self.hint
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = Json(json!({"status": "refused", "reason": self.reason}));
        let mut response = (self.status, body).into_response();
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert("allow", axum::http::HeaderValue::from_static("POST"));
        }
        response
    }
}

/// GitHub prints JSON without white space between tokens. A body with `": ` or `, "` outside of its strings, near its
/// beginning, was printed by somebody else.
fn looks_printed_again(body: &[u8]) -> bool {
    let mut in_string = false;
    let mut escaped = false;
    for byte in body.iter().take(512) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b' ' | b'\n' | b'\t' if !in_string => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_was_printed_again_is_recognized() {
        assert!(!looks_printed_again(br#"{"a":"x: y, z","b":[1,2]}"#));
        assert!(looks_printed_again(br#"{"a": 1}"#));
        assert!(looks_printed_again(b"{\n  \"a\":1}"));
        let hint = Refusal::signature(&signing::Error::Mismatch, Some(br#"{"a": 1}"#)).hint();
        assert!(hint.contains("relay"), "{hint}");
    }
}
