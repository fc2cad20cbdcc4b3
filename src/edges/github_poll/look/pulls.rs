//! Issues and pull requests, and the reviews of pull requests.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::asking::{Got, Stop, list};
use super::super::items::{self, Change};
use super::super::seen::{Item, Reviews};
use super::super::trim;
use super::{Look, MAX_PAGES, When};
use crate::domain::LinkKind;
use crate::payload::{self, OBSERVED, Polled, from_github_poll};

/// How many open pull requests are looked at for what they close, the most recently changed first.
const PULLS: usize = 50;

impl Look<'_> {
    /// The issues and pull requests that sessions wait for.
    pub(super) async fn items(&mut self) -> Result<(), Stop> {
        let need = self.need;
        let before = std::mem::take(&mut self.seen.items);
        // What was discovered may not be known to the router yet.
        self.seen.items = before.clone();
        let of_branches = self.seen.branch_pulls.values().flatten().map(|number| (*number, false));
        let mut numbers: BTreeMap<u64, bool> = of_branches.collect();
        numbers.extend(&need.numbers);
        let shown = &self.seen.shown;
        self.seen.items.retain(|number, _| numbers.contains_key(number) || shown.contains_key(number));
        for (number, own) in numbers {
            // A closed pull request that merely belongs to an item says nothing any more.
            if !own && before.get(&number).is_some_and(Item::is_closed) {
                continue;
            }
            self.item(number, false).await?;
        }
        Ok(())
    }

    async fn item(&mut self, number: u64, is_listed: bool) -> Result<(), Stop> {
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
            self.pull(number, &pull, is_listed).await?;
            self.asking.dealt_with(&pull_path, etag);
        }
        Ok(())
    }

    /// Takes a pull request in. One that was made since the first session began to wait is news from its beginning.
    pub(super) async fn pull(&mut self, number: u64, pull: &Value, is_listed: bool) -> Result<(), Stop> {
        let mut item = Item::new(true, trim::pull(pull));
        item.is_listed = is_listed;
        item.is_new = match is_listed {
            true => self.seen.is_since_last(item.created_at()) && self.seen.shown_all,
            false => item.created_at().is_some_and(|at| at > self.seen.theirs(self.need.since)),
        };
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
        // Somebody waits from now on for what was in the list of all: what it was before is no news to him.
        let is_taken_up = before.is_some_and(|before| before.is_listed && !item.is_listed);
        let before = before.filter(|_| !is_taken_up);
        let (changes, is_first) = (items::changes(before, &item), before.is_none());
        item.is_new &= !is_taken_up;
        if let Some(before) = before {
            item.reviews.clone_from(&before.reviews);
            let same_head = before.text("/head/sha") == item.text("/head/sha");
            // A head that came while we watched has only new runs.
            item.is_new = before.is_new || !same_head;
        }
        for change in changes {
            // Who reads of all pull requests hears when one is made, and what belongs together is no matter to him.
            let is_opened = change == Change::Observed && item.is_listed && is_first && item.is_new;
            if change == Change::Observed && item.is_listed && !is_opened {
                continue;
            }
            let when = match change {
                Change::Observed | Change::Pushed(_) => When::First,
                Change::Closed | Change::Reopened => When::Last,
            };
            let pushed = if let Change::Pushed(before) = &change { Some(before.as_str()) } else { None };
            let (action, shown) = (if is_opened { "opened" } else { change.action() }, &item.shown);
            let actor = match is_opened {
                true => shown.get("user"),
                false => actor.filter(|_| change == Change::Closed),
            };
            let polled = match item.is_pull {
                true => Polled::Pull { action, pull: shown, actor, before: pushed },
                false => Polled::Issue { action, issue: shown },
            };
            self.tell(when, &polled);
        }
        self.seen.items.insert(number, item);
    }

    /// Looks for open pull requests that say that they close an issue which a session waits for, or for all where
    /// somebody reads of all. Gives those that have changed.
    pub(super) async fn discover(&mut self) -> Result<BTreeSet<u64>, Stop> {
        let need = self.need;
        let is_issue = |number: &u64| self.seen.items.get(number).is_none_or(|item| !item.is_pull);
        let is_waited_for = |number: &u64| need.has(&need.repo.item(*number).key());
        let numbers = need.numbers.keys().filter(|number| is_waited_for(number) && is_issue(number));
        let (issues, all): (BTreeSet<u64>, bool) = (numbers.copied().collect(), need.whole.pulls);
        let is_same = self.seen.shown_for == issues && self.seen.shown_all == all;
        // Until the whole list was dealt with once, nothing in it is new.
        let goes_on = all && self.seen.shown_all;
        let mut changed = BTreeSet::new();
        if !is_same && !goes_on {
            self.seen.shown.clear();
        }
        if issues.is_empty() && !all {
            (self.seen.shown_for, self.seen.shown_all) = (issues, false);
            return Ok(changed);
        }
        let path = format!("{}/pulls?state=open&sort=updated&direction=desc&per_page={PULLS}", self.base);
        let Got::Fresh(pulls, etag) = self.asking.must_since(&path, is_same).await? else { return Ok(changed) };
        for pull in list(&pulls) {
            let Some(number) = pull.get("number").and_then(Value::as_u64) else { continue };
            let version = items::version(pull);
            let is_changed = self.seen.shown.get(&number) != Some(&version);
            if !is_changed && is_same {
                continue;
            }
            let closes = self.closes_one(pull);
            let is_told = closes || all && is_changed;
            if !is_told {
                continue;
            }
            // The list shows less than the pull request itself, but all that links and states are made of.
            let known = self.seen.items.get(&number);
            if known.is_none_or(|item| item.is_closed() || item.is_listed) {
                self.pull(number, pull, !closes).await?;
            }
            if goes_on && is_changed {
                changed.insert(number);
            }
            self.seen.shown.insert(number, version);
        }
        let listed =
            |number: &u64| list(&pulls).iter().any(|pull| pull.get("number").and_then(Value::as_u64) == Some(*number));
        // One that is gone from the list says itself what became of it.
        let is_gone = |(number, item): &(&u64, &Item)| item.is_listed && !item.is_closed() && !listed(number);
        let gone: Vec<u64> = self.seen.items.iter().filter(is_gone).map(|(number, _)| *number).collect();
        for number in gone {
            self.item(number, true).await?;
        }
        self.seen.shown.retain(|number, _| listed(number));
        // Not before: a list that could not be read is read anew as a whole.
        (self.seen.shown_for, self.seen.shown_all) = (issues, all);
        self.asking.dealt_with(&path, etag);
        Ok(changed)
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
    pub(super) async fn reviews(&mut self, number: u64) -> Result<(), Stop> {
        let Some(item) = self.seen.items.get(&number) else { return Ok(()) };
        if item.is_closed() && !self.need.numbers.get(&number).is_some_and(|own| *own) {
            return Ok(());
        }
        let (shown, is_new, is_listed) = (item.shown.clone(), item.is_new, item.is_listed);
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
                let at = review.get("submitted_at").and_then(Value::as_str).and_then(|text| text.parse().ok());
                // One whose reviews are asked for because it changed: what is as young as the change is news.
                let is_news = !is_first || is_listed && self.seen.is_since_last(at);
                let action = match reviews.states.insert(id, state.clone()) {
                    Some(before) if before == state => continue,
                    _ if !is_news => continue,
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
}

impl Item {
    fn new(is_pull: bool, shown: Value) -> Self {
        Self { is_pull, shown, reviews: None, is_new: false, is_listed: false }
    }
}
