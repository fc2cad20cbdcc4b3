//! One look at one repository: what is asked for, in which order, and what it makes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::asking::{Asking, Got, Stop, list};
use super::items::{self, Change};
use super::needs::Need;
use super::runs::{self, Question};
use super::seen::{Item, Reviews, Runs, Seen, Stream};
use super::{stream, trim};
use crate::clients::GithubApi;
use crate::domain::{Delivery, LinkKind};
use crate::payload::{self, OBSERVED, Polled, from_github_poll};

/// How long a repository's name and number are believed.
const HOME_FOR: SignedDuration = SignedDuration::from_hours(1);
/// How many pages one look takes of one collection.
const MAX_PAGES: usize = 10;
/// How many runs that are too old for their page are asked for one by one.
const MAX_SINGLE: usize = 10;
/// How many open pull requests are looked at for what they close, the most recently changed first.
const PULLS: usize = 50;

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
        // A delivery about a comment shows its issue, so comments wait until that was asked for.
        let comments = match self.need.numbers.is_empty() {
            true => None,
            false => {
                let comments = self.comments("issues/comments").await;
                self.or_refused(comments)?
            }
        };
        self.items().await?;
        let discovered = self.discover().await;
        self.or_refused(discovered)?;
        if let Some((comments, mut stream, etag)) = comments {
            self.tell_comments(&comments, &mut stream);
            self.commit_stream("issues/comments", stream, etag);
        } else {
            self.seen.comments = None;
        }
        let pulls: Vec<u64> = self.seen.items.iter().filter(|(_, item)| item.is_pull).map(|(n, _)| *n).collect();
        if pulls.is_empty() {
            self.seen.review_comments = None;
        } else {
            let comments = self.comments("pulls/comments").await;
            if let Some((comments, mut stream, etag)) = self.or_refused(comments)? {
                self.tell_review_comments(&comments, &mut stream);
                self.commit_stream("pulls/comments", stream, etag);
            }
        }
        for number in pulls {
            self.reviews(number).await?;
        }
        let runs = self.runs().await;
        self.or_refused(runs).map(drop)
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

    /// Asks for the changed comments of a collection: them, what is known, and the version once they are dealt with.
    async fn comments(
        &mut self,
        collection: &str,
    ) -> Result<(Vec<Value>, Taking, Option<(String, Option<String>)>), Stop> {
        let now = self.github_now();
        let known = match collection {
            "issues/comments" => self.seen.comments.clone(),
            _ => self.seen.review_comments.clone(),
        };
        let is_first = known.is_none();
        let mut stream = known.unwrap_or_else(|| Stream { floor: now, done: BTreeMap::new() });
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

    fn commit_stream(&mut self, collection: &str, taking: Taking, etag: Option<(String, Option<String>)>) {
        if let Some((path, etag)) = etag {
            self.asking.dealt_with(&path, etag);
        }
        match collection {
            "issues/comments" => self.seen.comments = Some(taking.stream),
            _ => self.seen.review_comments = Some(taking.stream),
        }
    }

    fn tell_comments(&mut self, comments: &[Value], taking: &mut Taking) {
        for changed in taking.take(comments) {
            let Some(item) = number_at(changed.comment, "issue_url").and_then(|n| self.seen.items.get(&n)) else {
                continue;
            };
            let issue = if item.is_pull { trim::as_issue(&item.shown) } else { item.shown.clone() };
            self.tell(When::Then, &Polled::Comment { action: changed.action, issue: &issue, comment: changed.comment });
        }
    }

    fn tell_review_comments(&mut self, comments: &[Value], taking: &mut Taking) {
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

    /// The issues and pull requests that sessions wait for.
    async fn items(&mut self) -> Result<(), Stop> {
        let need = self.need;
        let before = std::mem::take(&mut self.seen.items);
        // What was discovered may not be known to the router yet.
        self.seen.items = before.clone();
        let shown = &self.seen.shown;
        self.seen.items.retain(|number, _| need.numbers.contains_key(number) || shown.contains_key(number));
        for (number, own) in &need.numbers {
            // A closed pull request that merely belongs to an item says nothing any more.
            if !own && before.get(number).is_some_and(Item::is_closed) {
                continue;
            }
            self.item(*number).await?;
        }
        Ok(())
    }

    async fn item(&mut self, number: u64) -> Result<(), Stop> {
        let known = self.seen.items.get(&number).map(|item| item.is_pull);
        let issue_path = format!("{}/issues/{number}", self.base);
        let pull_path = format!("{}/pulls/{number}", self.base);
        if known != Some(true) {
            match self.asking.may_since(&issue_path, known.is_some()).await? {
                Got::Fresh(issue, etag) if !issue.get("pull_request").is_some_and(Value::is_object) => {
                    if issue.is_object() {
                        self.changed(number, Item::new(false, trim::issue(&issue)), None);
                    }
                    self.asking.dealt_with(&issue_path, etag);
                    return Ok(());
                }
                // It is a pull request.
                Got::Fresh(..) => {}
                Got::Same | Got::Missing => return Ok(()),
            }
        }
        if let Got::Fresh(pull, etag) = self.asking.may_since(&pull_path, known.is_some()).await?
            && pull.is_object()
        {
            self.pull(number, &pull).await?;
            self.asking.dealt_with(&pull_path, etag);
        }
        Ok(())
    }

    /// Takes a pull request in. One that was made since the first session began to wait is news from its beginning.
    async fn pull(&mut self, number: u64, pull: &Value) -> Result<(), Stop> {
        let mut item = Item::new(true, trim::pull(pull));
        let created = item.text("/created_at").and_then(|text| text.parse::<Timestamp>().ok());
        item.is_new = created.is_some_and(|at| at > self.seen.theirs(self.need.since));
        let mut closed_by = item.shown.get("merged_by").filter(|by| by.is_object()).cloned();
        let closes = self.seen.items.get(&number).is_some_and(|before| !before.is_closed()) && item.is_closed();
        if closes && closed_by.is_none() {
            // Only the issue's view of a pull request tells who closed it.
            if let Got::Fresh(issue, _) = self.asking.anew(&format!("{}/issues/{number}", self.base)).await? {
                closed_by = issue.get("closed_by").filter(|by| by.is_object()).cloned();
            }
        }
        self.changed(number, item, closed_by.as_ref());
        Ok(())
    }

    fn changed(&mut self, number: u64, mut item: Item, actor: Option<&Value>) {
        let before = self.seen.items.get(&number);
        let changes = items::changes(before, &item);
        if let Some(before) = before {
            item.reviews.clone_from(&before.reviews);
            let same_head = before.text("/head/sha") == item.text("/head/sha");
            // A head that came while we watched has only new runs.
            item.is_new = before.is_new || !same_head;
        }
        for change in changes {
            let when = match change {
                Change::Observed | Change::Pushed(_) => When::First,
                Change::Closed | Change::Reopened => When::Last,
            };
            let before = if let Change::Pushed(before) = &change { Some(before.as_str()) } else { None };
            let (action, shown) = (change.action(), &item.shown);
            let polled = match item.is_pull {
                true => Polled::Pull { action, pull: shown, actor: actor.filter(|_| change == Change::Closed), before },
                false => Polled::Issue { action, issue: shown },
            };
            self.tell(when, &polled);
        }
        self.seen.items.insert(number, item);
    }

    /// Looks for open pull requests that say that they close an issue which a session waits for.
    async fn discover(&mut self) -> Result<(), Stop> {
        let need = self.need;
        let is_issue = |number: &u64| self.seen.items.get(number).is_none_or(|item| !item.is_pull);
        let issues: BTreeSet<u64> =
            need.numbers.iter().filter(|(number, own)| **own && is_issue(number)).map(|(number, _)| *number).collect();
        let is_same = self.seen.shown_for == issues;
        if !is_same {
            self.seen.shown.clear();
            self.seen.shown_for.clone_from(&issues);
        }
        if issues.is_empty() {
            return Ok(());
        }
        let path = format!("{}/pulls?state=open&sort=updated&direction=desc&per_page={PULLS}", self.base);
        let Got::Fresh(pulls, etag) = self.asking.must_since(&path, is_same).await? else { return Ok(()) };
        for pull in list(&pulls) {
            let Some(number) = pull.get("number").and_then(Value::as_u64) else { continue };
            let version = items::version(pull);
            if self.seen.shown.get(&number) == Some(&version) || !self.closes_one(pull) {
                continue;
            }
            // The list shows less than the pull request itself, but all that links are made of.
            if self.seen.items.get(&number).is_none_or(Item::is_closed) {
                self.pull(number, pull).await?;
            }
            self.seen.shown.insert(number, version);
        }
        let listed =
            |number: &u64| list(&pulls).iter().any(|pull| pull.get("number").and_then(Value::as_u64) == Some(*number));
        self.seen.shown.retain(|number, _| listed(number));
        self.asking.dealt_with(&path, etag);
        Ok(())
    }

    /// Whether a pull request says that it closes an item that a session waits for, as routing reads it.
    fn closes_one(&self, pull: &Value) -> bool {
        let shown = trim::pull(pull);
        let polled = Polled::Pull { action: OBSERVED, pull: &shown, actor: None, before: None };
        let made = self.seen.home.as_ref().and_then(|home| from_github_poll(home, &polled, self.now).ok());
        let event = made.and_then(|delivery| payload::read(&delivery).ok());
        event.is_some_and(|event| {
            event.links.iter().any(|link| link.kind == LinkKind::Closes && self.need.has(&link.to.key()))
        })
    }

    /// The reviews of a pull request, oldest first.
    async fn reviews(&mut self, number: u64) -> Result<(), Stop> {
        let Some(item) = self.seen.items.get(&number) else { return Ok(()) };
        if item.is_closed() && !self.need.numbers.get(&number).is_some_and(|own| *own) {
            return Ok(());
        }
        let (shown, is_new) = (item.shown.clone(), item.is_new);
        let is_first = item.reviews.is_none() && !is_new;
        // Only the page that was dealt with last has a version that means anything.
        let item_reviews: Vec<u32> = item.reviews.iter().map(|reviews| reviews.page).collect();
        let mut reviews = item.reviews.clone().unwrap_or(Reviews { page: 1, states: BTreeMap::new() });
        for _ in 0..MAX_PAGES {
            let path = format!("{}/pulls/{number}/reviews?per_page=100&page={}", self.base, reviews.page);
            let is_known = item_reviews.contains(&reviews.page);
            let Got::Fresh(page, etag) = self.asking.may_since(&path, is_known).await? else { break };
            for review in list(&page) {
                let word =
                    |name: &str| review.get(name).and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
                let (Some(id), state) = (review.get("id").and_then(Value::as_u64), word("state")) else { continue };
                if state == "pending" {
                    continue;
                }
                let action = match reviews.states.insert(id, state.clone()) {
                    Some(before) if before == state => continue,
                    _ if is_first => continue,
                    _ if state == "dismissed" => "dismissed",
                    None => "submitted",
                    Some(_) => continue,
                };
                self.tell(When::Then, &Polled::Review { action, pull: &shown, review });
            }
            if list(&page).len() < 100 {
                self.asking.dealt_with(&path, etag);
                break;
            }
            reviews.page += 1;
        }
        if let Some(item) = self.seen.items.get_mut(&number) {
            item.reviews = Some(reviews);
        }
        Ok(())
    }

    async fn runs(&mut self) -> Result<(), Stop> {
        let pulls = self.seen.items.iter().filter(|(_, item)| item.is_pull).map(|(n, item)| (*n, item)).collect();
        let questions = runs::questions(self.need, &self.seen, &pulls);
        let before = self.seen.clone();
        for question in &questions {
            if let Some(now) = self.ask_runs(question, &before).await? {
                self.seen.runs.insert(question.query.clone(), now);
            }
        }
        self.seen.runs.retain(|query, _| questions.iter().any(|question| question.query == *query));
        Ok(())
    }

    /// Asks one question; what is seen of it now, unless it has not changed.
    async fn ask_runs(&mut self, question: &Question, before: &Seen) -> Result<Option<Runs>, Stop> {
        let and = if question.query.is_empty() { "" } else { "&" };
        let path = format!("{}/actions/runs?{}{and}per_page={}", self.base, question.query, runs::PAGE);
        let known = before.runs.get(&question.query);
        let mut page = match self.asking.must_since(&path, known.is_some()).await? {
            Got::Fresh(answer, etag) => {
                let mut found = list(answer.get("workflow_runs").unwrap_or(&Value::Null)).to_vec();
                let mut page = runs::page(&found, question, before);
                let mut number = 1;
                while page.is_open_ended && number < MAX_PAGES / 2 {
                    number += 1;
                    let Got::Fresh(more, _) = self.asking.anew(&format!("{path}&page={number}")).await? else { break };
                    let more = list(more.get("workflow_runs").unwrap_or(&Value::Null));
                    found.extend_from_slice(more);
                    page = runs::page(&found, question, before);
                    page.is_open_ended &= more.len() >= runs::PAGE;
                }
                if page.is_open_ended {
                    self.tell_gap("workflow runs", before.looked_at, self.github_now());
                }
                self.asking.dealt_with(&path, etag);
                page
            }
            _ => runs::same(known.cloned().unwrap_or_default()),
        };
        for id in page.off_page.iter().take(MAX_SINGLE).copied().collect::<Vec<_>>() {
            if let Got::Fresh(run, _) = self.asking.anew(&format!("{}/actions/runs/{id}", self.base)).await? {
                let state = runs::state(&run);
                if !state.is_empty() {
                    page.news.push(run);
                }
                page.runs.0.insert(id, state);
            }
        }
        for run in &page.news {
            self.tell(When::Then, &Polled::Run(run));
        }
        Ok(Some(page.runs))
    }
}

/// A stream while its pages are taken in.
struct Taking {
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

impl Item {
    fn new(is_pull: bool, shown: Value) -> Self {
        Self { is_pull, shown, reviews: None, is_new: false }
    }
}

/// The number at the end of an address of the API, such as a comment's `issue_url`.
fn number_at(comment: &Value, name: &str) -> Option<u64> {
    comment.get(name)?.as_str()?.rsplit_once('/')?.1.parse().ok()
}
