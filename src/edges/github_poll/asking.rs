//! The asking of one look: one request after the other, each with the version that is known, until one says stop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::pace::{self, Verdict};
use crate::clients::{ApiAnswer, GithubApi};
use crate::domain::chain;

/// Why a look ended early. What it learned until then counts.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stop {
    /// The host wants no more requests until then.
    Limited(Timestamp),
    /// The token is not taken.
    BadToken,
    /// The repository is not shown to this token.
    Hidden(String),
    /// No answer, or none of use.
    Broken(String),
}

/// What one answer brought.
pub(super) enum Got {
    /// It is another than before.
    Fresh(Value, Option<String>),
    /// It is what we know.
    Same,
    /// It is not there.
    Missing,
}

/// Asks, and keeps account.
pub(super) struct Asking {
    api: Arc<GithubApi>,
    before: BTreeMap<String, String>,
    /// The versions of what was asked for in this look.
    pub(super) etags: BTreeMap<String, String>,
    /// How far GitHub's clock is ahead of ours, where an answer told.
    pub(super) ahead_ms: Option<i64>,
    /// The longest wait between looks that an answer asked for.
    pub(super) patience: Duration,
    /// How many answers counted against the rate; unchanged pages do not.
    pub(super) cost: u64,
    /// How many answers were what was asked for, new or not.
    pub(super) good: u64,
    /// The last answer that told of the rate.
    pub(super) rate: Option<ApiAnswer>,
}

impl Asking {
    pub(super) fn new(api: Arc<GithubApi>, before: BTreeMap<String, String>) -> Self {
        Self {
            api,
            before,
            etags: BTreeMap::new(),
            ahead_ms: None,
            patience: Duration::ZERO,
            cost: 0,
            good: 0,
            rate: None,
        }
    }

    /// Asks for a path whose absence means that something of the repository cannot be observed.
    pub(super) async fn must(&mut self, path: &str) -> Result<Got, Stop> {
        self.must_since(path, true).await
    }

    /// The same; `known` is whether what its version stands for is still known.
    pub(super) async fn must_since(&mut self, path: &str, known: bool) -> Result<Got, Stop> {
        match self.get(path, known).await? {
            Got::Missing => Err(Stop::Hidden(format!("GitHub shows nothing at {path} to this token"))),
            got => Ok(got),
        }
    }

    /// Asks for a path that may not be there; `known` is whether what its version stands for is still known.
    pub(super) async fn may_since(&mut self, path: &str, known: bool) -> Result<Got, Stop> {
        self.get(path, known).await
    }

    /// Asks for the whole of a path, whatever is known.
    pub(super) async fn anew(&mut self, path: &str) -> Result<Got, Stop> {
        self.get(path, false).await
    }

    async fn get(&mut self, path: &str, with_etag: bool) -> Result<Got, Stop> {
        let etag = self.before.get(path).filter(|_| with_etag).cloned();
        let (api, asked) = (Arc::clone(&self.api), path.to_owned());
        let known = etag.clone();
        let answered = tokio::task::spawn_blocking(move || api.get(&asked, known.as_deref())).await;
        let answer = match answered {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(Stop::Broken(format!("could not {}", chain(&error)))),
            Err(_) => return Err(Stop::Broken("asking GitHub panicked".into())),
        };
        let now = Timestamp::now();
        tracing::debug!(path, status = answer.status, remaining = ?answer.remaining, "asked GitHub");
        if let Some(date) = answer.date {
            self.ahead_ms = i64::try_from(date.duration_since(now).as_millis()).ok();
        }
        self.patience = self.patience.max(Duration::from_secs(answer.poll_interval.unwrap_or(0).min(3600)));
        if answer.remaining.is_some() {
            self.rate = Some(ApiAnswer { body: Value::Null, ..answer.clone() });
        }
        let verdict = pace::judge(&answer, now);
        self.cost += u64::from(verdict != Verdict::Same);
        self.good += u64::from(matches!(verdict, Verdict::Fresh | Verdict::Same));
        match verdict {
            Verdict::Fresh => Ok(Got::Fresh(answer.body, answer.etag)),
            Verdict::Same => {
                if let Some(etag) = etag {
                    self.etags.insert(path.to_owned(), etag);
                }
                Ok(Got::Same)
            }
            Verdict::Missing => Ok(Got::Missing),
            Verdict::BadToken => Err(Stop::BadToken),
            Verdict::Forbidden => Err(Stop::Hidden(format!("the token may not read {path}"))),
            Verdict::Limited(until) => Err(Stop::Limited(until)),
            Verdict::Broken => Err(Stop::Broken(format!("GitHub answered {} to {path}", answer.status))),
        }
    }

    /// Keeps the version of a path that this look need not ask for.
    pub(super) fn keep(&mut self, path: &str) {
        if let Some(etag) = self.before.get(path) {
            self.etags.insert(path.to_owned(), etag.clone());
        }
    }

    /// Remembers the version of what was wholly dealt with.
    pub(super) fn dealt_with(&mut self, path: &str, etag: Option<String>) {
        if let Some(etag) = etag {
            self.etags.insert(path.to_owned(), etag);
        }
    }
}

/// The elements of a list; anything else has none.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
