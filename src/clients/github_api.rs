//! GitHub's REST API, read only.
//!
//! Reference: <https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api>.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use url::Url;

use crate::domain::Secret;

/// An answer takes GitHub a second at most; beyond this something is wrong.
const TIMEOUT: Duration = Duration::from_secs(20);
/// A page of a hundred pull requests takes about 3 MB.
const MAX_ANSWER: u64 = 32 << 20;
/// A renamed repository is one redirection away.
const MAX_REDIRECTS: usize = 3;

/// Why GitHub gave no answer. The token is in none of these.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is not one.
    #[error("ask GitHub at `{0}`: it is not an address")]
    Address(String),
    /// The token cannot be sent.
    #[error("use the token from {0}: it holds characters that no token has")]
    Token(String),
    /// There was no answer.
    #[error("ask {url}")]
    Asking {
        /// What was asked for.
        url: String,
        /// The reason.
        #[source]
        source: Box<ureq::Error>,
    },
    /// The answer is not JSON.
    #[error("read the answer of {url}: it is not JSON")]
    NotJson {
        /// What was asked for.
        url: String,
        /// Where it ends to be JSON.
        #[source]
        source: serde_json::Error,
    },
    /// The answer leads to another host, which must not get the token.
    #[error("ask {url}: it leads to another host")]
    Elsewhere {
        /// What was asked for.
        url: String,
    },
}

/// What GitHub answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApiAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The body; null where there is none.
    pub body: Value,
    /// The version of what was asked for.
    pub etag: Option<String>,
    /// When it was given, by GitHub's clock.
    pub date: Option<Timestamp>,
    /// How many seconds GitHub wants us to wait between two looks.
    pub poll_interval: Option<u64>,
    /// When to ask again, where GitHub says so.
    pub retry_after: Option<Duration>,
    /// How many requests are left until `reset`.
    pub remaining: Option<u64>,
    /// When there are more.
    pub reset: Option<Timestamp>,
    /// The next page's path and query, where there is one.
    pub next: Option<String>,
}

/// The API of one host, with its token.
#[derive(Debug)]
pub struct GithubApi {
    base: Url,
    agent: ureq::Agent,
    token: Secret,
    authorization: String,
}

/// The address of a host's API. `configured` is that of github.com.
pub fn api_url(host: &str, configured: &str) -> String {
    let host = host.to_ascii_lowercase();
    match host.as_str() {
        "github.com" => configured.trim_end_matches('/').to_owned(),
        // GitHub Enterprise Cloud with data residency.
        cloud if cloud.ends_with(".ghe.com") => format!("https://api.{cloud}"),
        server => format!("https://{server}/api/v3"),
    }
}

impl GithubApi {
    /// The API at `base`, asked with `token`.
    pub fn new(base: &str, token: Secret) -> Result<Self, Error> {
        let mut url = Url::parse(base).map_err(|_| Error::Address(base.into()))?;
        if url.host_str().is_none() || url.cannot_be_a_base() {
            return Err(Error::Address(base.into()));
        }
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        let text = std::str::from_utf8(token.expose()).ok().filter(|text| text.bytes().all(|b| b.is_ascii_graphic()));
        let authorization =
            text.map(|text| format!("Bearer {text}")).ok_or_else(|| Error::Token(token.name().into()))?;
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            .build()
            .into();
        Ok(Self { base: url, agent, token, authorization })
    }

    /// Where the token came from: safe to show.
    pub fn token_name(&self) -> &str {
        self.token.name()
    }

    /// Asks for `path`, such as `/repos/O/R`, unless it still is what `etag` names. Blocks.
    pub fn get(&self, path: &str, etag: Option<&str>) -> Result<ApiAnswer, Error> {
        let mut url = format!("{}{path}", self.base.as_str().trim_end_matches('/'));
        for _ in 0..=MAX_REDIRECTS {
            let failed = |source: ureq::Error| Error::Asking { url: url.clone(), source: Box::new(source) };
            let mut request = self
                .agent
                .get(&url)
                .header("accept", "application/vnd.github+json")
                .header("user-agent", "the-loop")
                .header("x-github-api-version", "2022-11-28")
                .header("authorization", &self.authorization);
            if let Some(etag) = etag {
                request = request.header("if-none-match", etag);
            }
            let mut response = request.call().map_err(failed)?;
            let status = response.status().as_u16();
            let header = |name: &str| {
                response.headers().get(name).and_then(|value| value.to_str().ok()).map(|text| text.trim().to_owned())
            };
            if matches!(status, 301 | 302 | 307 | 308) {
                url = self.same_host(&url, header("location"))?;
                continue;
            }
            let number = |name: &str| header(name).and_then(|text| text.parse::<u64>().ok());
            let date = header("date").and_then(|text| http_date(&text));
            let mut answer = ApiAnswer {
                status,
                body: Value::Null,
                etag: header("etag"),
                date,
                poll_interval: number("x-poll-interval"),
                retry_after: header("retry-after").and_then(|text| retry_after(&text, date)),
                remaining: number("x-ratelimit-remaining"),
                reset: number("x-ratelimit-reset").and_then(|s| Timestamp::from_second(i64::try_from(s).ok()?).ok()),
                next: header("link").and_then(|link| next_page(&link)).and_then(|link| self.path_of(&link)),
            };
            let text = response.body_mut().with_config().limit(MAX_ANSWER).read_to_string().map_err(failed)?;
            if (200..300).contains(&status) {
                answer.body =
                    serde_json::from_str(&text).map_err(|source| Error::NotJson { url: url.clone(), source })?;
            } else if let Ok(body) = serde_json::from_str(&text) {
                answer.body = body;
            }
            return Ok(answer);
        }
        Err(Error::Elsewhere { url })
    }

    /// Where a redirection leads, if it stays at this host.
    fn same_host(&self, from: &str, to: Option<String>) -> Result<String, Error> {
        let target = to.and_then(|to| self.base.join(&to).ok()).filter(|target| target.origin() == self.base.origin());
        target.map(String::from).ok_or_else(|| Error::Elsewhere { url: from.into() })
    }

    /// The path and query of an address below our base.
    fn path_of(&self, link: &str) -> Option<String> {
        let rest = link.strip_prefix(self.base.as_str().trim_end_matches('/'))?;
        rest.starts_with('/').then(|| rest.to_owned())
    }
}

/// The address of the next page in a `Link` header.
fn next_page(link: &str) -> Option<String> {
    link.split(',').find_map(|part| {
        let (address, rest) = part.trim().strip_prefix('<')?.split_once('>')?;
        rest.contains("rel=\"next\"").then(|| address.to_owned())
    })
}

fn http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::parse(text).ok().map(|zoned| zoned.timestamp())
}

/// Seconds, or a date, which is a distance from the answer's own.
fn retry_after(text: &str, date: Option<Timestamp>) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    Duration::try_from(http_date(text)?.duration_since(date?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_its_api() {
        let base = "https://api.github.com/";
        assert_eq!(api_url("github.com", base), "https://api.github.com");
        assert_eq!(api_url("GHE.example.com", base), "https://ghe.example.com/api/v3");
        assert_eq!(api_url("octo.ghe.com", base), "https://api.octo.ghe.com");
    }

    #[test]
    fn a_token_goes_nowhere_else_and_is_not_shown() {
        let api = GithubApi::new("https://ghe.example.com/api/v3/", Secret::new("GH_TOKEN", "gho_1")).expect("api");
        let to = |text: &str| api.same_host("x", Some(text.into())).ok();
        assert_eq!(
            to("https://ghe.example.com/api/v3/repositories/1").as_deref(),
            Some("https://ghe.example.com/api/v3/repositories/1")
        );
        for other in ["https://evil.example.com/", "http://ghe.example.com/", "https://ghe.example.com:8443/", "//e/x"]
        {
            assert_eq!(to(other), None, "{other}");
        }
        assert!(GithubApi::new("https://api.github.com", Secret::new("GH_TOKEN", "a\nb")).is_err());
    }

    #[test]
    fn headers_are_read() {
        let link = "<https://api.github.com/x?page=1>; rel=\"prev\", <https://api.github.com/x?page=3>; rel=\"next\"";
        assert_eq!(next_page(link).as_deref(), Some("https://api.github.com/x?page=3"));
        let date = http_date("Tue, 01 Dec 2026 10:00:00 GMT");
        assert_eq!(date.map(|at| at.to_string()).as_deref(), Some("2026-12-01T10:00:00Z"));
        assert_eq!(retry_after("4", None), Some(Duration::from_secs(4)));
        assert_eq!(retry_after("Tue, 01 Dec 2026 10:01:00 GMT", date), Some(Duration::from_secs(60)));
    }
}
