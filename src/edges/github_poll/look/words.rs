//! Comments on issues and pull requests, and on lines of pull requests.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::asking::{Got, Stop, list};
use super::super::seen::Stream;
use super::super::{stream, trim};
use super::{Look, MAX_PAGES, When};
use crate::payload::Polled;

/// How many issues and pull requests are asked for in one look because somebody commented on them.
const MAX_OTHERS: usize = 20;

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

    pub(super) async fn tell_comments(&mut self, comments: &[Value], taking: &mut Taking) -> Result<(), Stop> {
        let mut others = BTreeMap::new();
        for changed in taking.take(comments) {
            let Some(number) = number_at(changed.comment, "issue_url") else { continue };
            let known = self.seen.items.get(&number).filter(|item| !item.is_listed);
            let issue = match known {
                Some(item) if item.is_pull => trim::as_issue(&item.shown),
                Some(item) => item.shown.clone(),
                None if !self.need.whole.comments => continue,
                None => trim::issue(&self.other("issues", number, &mut others).await?),
            };
            self.tell(When::Then, &Polled::Comment { action: changed.action, issue: &issue, comment: changed.comment });
        }
        Ok(())
    }

    pub(super) async fn tell_review_comments(&mut self, comments: &[Value], taking: &mut Taking) -> Result<(), Stop> {
        let mut others = BTreeMap::new();
        for changed in taking.take(comments) {
            let Some(number) = number_at(changed.comment, "pull_request_url") else { continue };
            let known = self.seen.items.get(&number).filter(|item| item.is_pull && !item.is_listed);
            let pull = match known {
                Some(item) => item.shown.clone(),
                None if !self.need.whole.line_comments => continue,
                None => trim::pull(&self.other("pulls", number, &mut others).await?),
            };
            self.tell(
                When::Then,
                &Polled::ReviewComment { action: changed.action, pull: &pull, comment: changed.comment },
            );
        }
        Ok(())
    }

    /// What a comment is on that nobody waits for, asked for once in a look. Beyond some it is known by its number only.
    async fn other(&mut self, collection: &str, number: u64, others: &mut BTreeMap<u64, Value>) -> Result<Value, Stop> {
        if let Some(known) = others.get(&number) {
            return Ok(known.clone());
        }
        let path = format!("{}/{collection}/{number}", self.base);
        let asked = match others.len() < MAX_OTHERS {
            true => self.asking.anew(&path).await,
            false => Ok(Got::Missing),
        };
        let found = match asked {
            Ok(Got::Fresh(found, _)) if found.is_object() => found,
            Err(stop) if !matches!(stop, Stop::Hidden(_)) => return Err(stop),
            _ => json!({"number": number}),
        };
        others.insert(number, found.clone());
        Ok(found)
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
