//! Comments on issues and pull requests, and on lines of pull requests.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::asking::{Got, Stop, list};
use super::super::seen::Stream;
use super::super::{stream, trim};
use super::{Look, MAX_PAGES, When};
use crate::payload::Polled;

impl Look<'_> {
    /// Asks for the changed comments of a collection: them, what is known, and the version once they are dealt with.
    pub(super) async fn comments(
        &mut self,
        collection: &str,
    ) -> Result<(Vec<Value>, Taking, Option<(String, Option<String>)>), Stop> {
        let now = self.github_now();
        let (known, only_pulls) = match collection {
            "issues/comments" => (self.seen.comments.clone(), false),
            _ => (self.seen.review_comments.clone(), true),
        };
        let is_first = known.is_none();
        let mut stream =
            known.unwrap_or_else(|| Stream { floor: self.begin_comments(only_pulls, now), done: BTreeMap::new() });
        let horizon = now.checked_sub(self.max_age).unwrap_or(stream.floor);
        if self.seen.looked_at.is_some_and(|at| at < horizon) && stream.floor < horizon {
            self.tell_gap("comments", self.seen.looked_at, horizon);
            stream.floor = horizon;
        }
        let path = stream::path(&format!("{}/{collection}", self.base), &stream);
        let mut found = Vec::new();
        let mut taking = Taking { stream, is_first, all: true };
        let etag = match self.asking.must_since(&path, !is_first).await? {
            Got::Fresh(page, etag) => {
                let mut full = list(&page).len() >= stream::PAGE;
                found.extend_from_slice(list(&page));
                let mut number = 1;
                while full && number < MAX_PAGES {
                    number += 1;
                    let Got::Fresh(page, _) = self.asking.anew(&format!("{path}&page={number}")).await? else { break };
                    full = list(&page).len() >= stream::PAGE;
                    found.extend_from_slice(list(&page));
                }
                taking.all = !full;
                Some((path, etag))
            }
            _ => None,
        };
        Ok((found, taking, etag))
    }

    pub(super) fn commit_stream(&mut self, collection: &str, taking: Taking, etag: Option<(String, Option<String>)>) {
        if let Some((path, etag)) = etag {
            self.asking.dealt_with(&path, etag);
        }
        match collection {
            "issues/comments" => self.seen.comments = Some(taking.stream),
            _ => self.seen.review_comments = Some(taking.stream),
        }
    }

    pub(super) fn tell_comments(&mut self, comments: &[Value], taking: &mut Taking) {
        for changed in taking.take(comments) {
            let Some(item) = number_at(changed.comment, "issue_url").and_then(|n| self.seen.items.get(&n)) else {
                continue;
            };
            let issue = if item.is_pull { trim::as_issue(&item.shown) } else { item.shown.clone() };
            self.tell(When::Then, &Polled::Comment { action: changed.action, issue: &issue, comment: changed.comment });
        }
    }

    pub(super) fn tell_review_comments(&mut self, comments: &[Value], taking: &mut Taking) {
        for changed in taking.take(comments) {
            let number = number_at(changed.comment, "pull_request_url");
            let Some(item) = number.and_then(|n| self.seen.items.get(&n)).filter(|item| item.is_pull) else { continue };
            let pull = item.shown.clone();
            self.tell(
                When::Then,
                &Polled::ReviewComment { action: changed.action, pull: &pull, comment: changed.comment },
            );
        }
    }
}

/// A stream while its pages are taken in.
pub(super) struct Taking {
    stream: Stream,
    is_first: bool,
    all: bool,
}

impl Taking {
    fn take<'a>(&mut self, comments: &'a [Value]) -> Vec<stream::Changed<'a>> {
        let changed = stream::take(comments, &mut self.stream, self.is_first);
        stream::advance(&mut self.stream, comments.len(), self.all);
        changed
    }
}

/// The number at the end of an address of the API, such as a comment's `issue_url`.
fn number_at(comment: &Value, name: &str) -> Option<u64> {
    comment.get(name)?.as_str()?.rsplit_once('/')?.1.parse().ok()
}
