//! One look at one repository: what is asked for, in which order, and what it makes.

mod branches;
mod checks;
mod issues;
mod pulls;
mod verdicts;
mod words;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::asking::{Asking, Got, Stop};
use super::needs::Need;
use super::seen::{Item, Seen};
use super::trim;
use crate::clients::GithubApi;
use crate::domain::Delivery;
use crate::payload::{Polled, from_github_poll};

/// How long a repository's name and number are believed.
const HOME_FOR: SignedDuration = SignedDuration::from_hours(1);
/// How many pages one look takes of one collection.
const MAX_PAGES: usize = 10;

/// What a look brought.
pub(super) struct Looked {
    /// What is known now.
    pub(super) seen: Seen,
    /// What happened, in the order in which it is to be told.
    pub(super) deliveries: Vec<Delivery>,
    /// Why it ended early, if it did.
    pub(super) stop: Option<Stop>,
    /// What the token may not see, while the rest is seen.
    pub(super) refused: Vec<String>,
    /// How it was asked.
    pub(super) asking: Asking,
}

/// Looks once. What was learned before a stop is kept; the rest is asked for again by the next look.
pub(super) async fn look(api: Arc<GithubApi>, need: &Need, seen: Seen, max_age: Duration, now: Timestamp) -> Looked {
    let asking = Asking::new(api, seen.etags.clone());
    let base = format!("/repos/{}", need.repo.full_name());
    let (first, then, last) = (Vec::new(), Vec::new(), Vec::new());
    let mut look = Look { need, base, seen, asking, max_age, now, first, then, last, refused: Vec::new() };
    let began = look.seen.theirs(now);
    let stop = look.run().await.err();
    let Look { mut seen, asking, first, then, last, refused, .. } = look;
    if let Some(ahead) = asking.ahead_ms {
        seen.ahead_ms = ahead;
    }
    if stop.is_none() {
        seen.looked_at = Some(began);
        // Pages that are not asked for any more are forgotten.
        seen.etags.clone_from(&asking.etags);
    } else {
        seen.etags.extend(asking.etags.clone());
    }
    let deliveries = first.into_iter().chain(then).chain(last).collect();
    Looked { seen, deliveries, stop, refused, asking }
}

struct Look<'a> {
    need: &'a Need,
    base: String,
    seen: Seen,
    asking: Asking,
    max_age: Duration,
    now: Timestamp,
    /// What teaches.
    first: Vec<Delivery>,
    /// What happened.
    then: Vec<Delivery>,
    /// What ends something.
    last: Vec<Delivery>,
    /// What the token may not see.
    refused: Vec<String>,
}

/// Where a delivery stands among those of one look.
#[derive(Clone, Copy)]
enum When {
    First,
    Then,
    Last,
}

impl Look<'_> {
    async fn run(&mut self) -> Result<(), Stop> {
        self.home().await?;
        let sections = self.sections().await;
        if !self.refused.is_empty() && self.asking.good == 0 {
            // Perhaps it is gone, or moved: the next look begins with that.
            self.seen.home_at = None;
            return Err(Stop::Hidden(self.refused.join("; ")));
        }
        sections
    }

    /// What is refused to this token is noted, and the rest goes on.
    fn or_refused<T>(&mut self, result: Result<T, Stop>) -> Result<Option<T>, Stop> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Stop::Hidden(why)) => {
                self.refused.push(why);
                Ok(None)
            }
            Err(stop) => Err(stop),
        }
    }

    async fn sections(&mut self) -> Result<(), Stop> {
        let branches = self.branch_pulls().await;
        self.or_refused(branches)?;
        let of_branches = self.seen.branch_pulls.values().any(|pulls| !pulls.is_empty());
        // A delivery about a comment shows its issue, so comments wait until that was asked for.
        let whole = self.need.whole;
        let comments = match self.need.numbers.is_empty() && !of_branches && !whole.comments {
            true => None,
            false => {
                let comments = self.comments("issues/comments").await;
                self.or_refused(comments)?
            }
        };
        self.items().await?;
        let discovered = self.discover().await;
        let changed = self.or_refused(discovered)?.unwrap_or_default();
        let issues = self.whole_issues().await;
        self.or_refused(issues)?;
        if let Some((comments, mut stream, etag)) = comments {
            self.tell_comments(&comments, &mut stream).await?;
            self.commit_stream("issues/comments", stream, etag);
        } else {
            self.seen.comments = None;
        }
        let is_asked = |(number, item): &(&u64, &Item)| {
            item.is_pull && (!item.is_listed || whole.reviews && changed.contains(number))
        };
        let pulls: Vec<u64> = self.seen.items.iter().filter(is_asked).map(|(number, _)| *number).collect();
        let is_polled = |item: &Item| item.is_pull && !item.is_listed;
        if !whole.line_comments && !self.seen.items.values().any(is_polled) {
            self.seen.review_comments = None;
        } else {
            let comments = self.comments("pulls/comments").await;
            if let Some((comments, mut stream, etag)) = self.or_refused(comments)? {
                self.tell_review_comments(&comments, &mut stream).await?;
                self.commit_stream("pulls/comments", stream, etag);
            }
        }
        for number in pulls {
            self.reviews(number).await?;
        }
        let runs = self.runs().await;
        self.or_refused(runs)?;
        self.checks().await
    }

    fn tell(&mut self, when: When, polled: &Polled<'_>) {
        let Some(home) = &self.seen.home else { return };
        match from_github_poll(home, polled, self.now) {
            Ok(delivery) => match when {
                When::First => self.first.push(delivery),
                When::Then => self.then.push(delivery),
                When::Last => self.last.push(delivery),
            },
            Err(error) => tracing::warn!(%error, "could not make a delivery of what GitHub showed"),
        }
    }

    fn tell_gap(&mut self, what: &str, from: Option<Timestamp>, to: Timestamp) {
        tracing::warn!(repository = %self.need.repo, what, "news may have been missed");
        let need = self.need;
        self.tell(When::Then, &Polled::Gap { what, from, to, items: &need.items });
    }

    async fn home(&mut self) -> Result<(), Stop> {
        let is_known =
            self.seen.home.is_some() && self.seen.home_at.is_some_and(|at| self.now.duration_since(at) < HOME_FOR);
        let path = self.base.clone();
        if is_known {
            if let Some(etag) = self.seen.etags.get(&path).cloned() {
                self.asking.dealt_with(&path, Some(etag));
            }
            return Ok(());
        }
        if let Got::Fresh(home, etag) = self.asking.must(&path).await? {
            let home = trim::repository(&home);
            let id = |home: &Value| home.get("id").and_then(Value::as_u64);
            if id(&home).is_none() {
                return Err(Stop::Broken(format!("what GitHub shows at {path} is no repository")));
            }
            if self.seen.home.as_ref().is_some_and(|before| id(before) != id(&home)) {
                // Another repository has taken the name.
                self.seen = Seen::default();
            }
            self.seen.home = Some(home);
            self.asking.dealt_with(&path, etag);
        }
        self.seen.home_at = Some(self.now);
        Ok(())
    }

    /// By GitHub's clock, as far as it is known.
    fn github_now(&self) -> Timestamp {
        let ahead = SignedDuration::from_millis(self.asking.ahead_ms.unwrap_or(self.seen.ahead_ms));
        self.now.checked_add(ahead).unwrap_or(self.now)
    }
}
