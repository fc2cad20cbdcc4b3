//! Posting a test delivery as GitHub would.

use std::time::Duration;

use crate::domain::Secret;
use crate::signing;

/// GitHub gives up after ten seconds, and so do we.
const TIMEOUT: Duration = Duration::from_secs(10);
/// An answer is a line of JSON; no more of it is read.
const MAX_ANSWER: u64 = 64 << 10;

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
#[error("post to {url}")]
pub struct Error {
    /// Where to.
    pub url: String,
    /// The reason.
    #[source]
    source: Box<ureq::Error>,
}

/// What the receiver said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The answer's text.
    pub text: String,
}

/// Signs `body` with `secret` and posts it to `url` as the event `event` with the delivery id `delivery`.
pub fn send(url: &str, secret: &Secret, event: &str, delivery: &str, body: &[u8]) -> Result<Answer, Error> {
    let failed = |source| Error { url: url.into(), source: Box::new(source) };
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        .max_redirects(0)
        .build()
        .into();
    let mut response = agent
        .post(url)
        .header("content-type", "application/json")
        .header("user-agent", "the-loop-test-delivery")
        .header("x-github-event", event)
        .header("x-github-delivery", delivery)
        .header("x-hub-signature-256", signing::sign_github(secret, body))
        .send(body)
        .map_err(failed)?;
    let status = response.status().as_u16();
    let text = response.body_mut().with_config().limit(MAX_ANSWER).read_to_string().map_err(failed)?;
    Ok(Answer { status, text })
}
