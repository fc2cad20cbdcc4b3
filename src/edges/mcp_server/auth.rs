//! Who comes in: one bearer token per principal, checked before a body is read.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::domain::{Principal, Secret};
use crate::signing;

use super::{PATH, Settings};

/// The tokens, and what a stranger is told.
pub(super) struct Doors {
    tokens: Vec<(Principal, Secret)>,
    public_url: Option<String>,
    issuer: Option<String>,
}

impl Doors {
    pub(super) fn new(settings: &Settings) -> Self {
        let public_url = settings.public_url.as_ref().map(|url| url.trim_end_matches('/').to_owned());
        Self { tokens: settings.tokens.clone(), public_url, issuer: settings.oauth_issuer.clone() }
    }

    /// Every token is compared, each in constant time.
    fn principal(&self, token: &[u8]) -> Option<&Principal> {
        let mut found = None;
        for (principal, secret) in &self.tokens {
            if signing::same(secret.expose(), token) && found.is_none() {
                found = Some(principal);
            }
        }
        found
    }

    /// The protected-resource metadata (RFC 9728), where an issuer is configured.
    pub(super) fn metadata(&self) -> Option<Value> {
        let (issuer, url) = (self.issuer.as_ref()?, self.public_url.as_ref()?);
        Some(json!({
            "resource": format!("{url}{PATH}"),
            "authorization_servers": [issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "the-loop",
        }))
    }

    fn refusal(&self, had_token: bool) -> Response {
        let mut challenge = "Bearer realm=\"the-loop\"".to_owned();
        if had_token {
            challenge.push_str(", error=\"invalid_token\"");
        }
        if let (Some(_), Some(url)) = (&self.issuer, &self.public_url) {
            challenge.push_str(&format!(", resource_metadata=\"{url}/.well-known/oauth-protected-resource{PATH}\""));
        }
        let reason = if had_token { "the bearer token is not one of ours" } else { "a bearer token is needed" };
        let mut response =
            (StatusCode::UNAUTHORIZED, axum::Json(json!({"status": "refused", "reason": reason}))).into_response();
        if let Ok(value) = HeaderValue::from_str(&challenge) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
        }
        response
    }
}

/// Lets those in whose token is known, and notes who they are.
pub(super) async fn bearer(State(doors): State<Arc<Doors>>, mut request: Request, next: Next) -> Response {
    if !request.uri().path().starts_with(PATH) {
        return next.run(request).await;
    }
    let given = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    let token = given.and_then(|value| {
        let (scheme, token) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
    });
    match token.filter(|token| !token.is_empty()).and_then(|token| doors.principal(token)) {
        Some(principal) => {
            let principal = principal.clone();
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        None => {
            tracing::debug!(had_token = given.is_some(), "refused an MCP request without a known token");
            doors.refusal(given.is_some())
        }
    }
}
