//! The open pull requests of branches that sessions wait for: their news is the branch's.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::super::asking::{Got, Stop, list};
use super::super::seen::Item;
use super::Look;

impl Look<'_> {
    pub(super) async fn branch_pulls(&mut self) -> Result<(), Stop> {
        let need = self.need;
        self.seen.branch_pulls.retain(|branch, _| need.pull_branches.contains(branch));
        for branch in &need.pull_branches {
            let before = self.seen.branch_pulls.get(branch).cloned();
            let path = self.branch_pulls_path(branch);
            // Those that are still polled: one that is gone from the list says itself that it was closed.
            let is_open = |number: &u64| !self.seen.items.get(number).is_none_or(Item::is_closed);
            let mut now: BTreeSet<u64> = before.iter().flatten().copied().filter(is_open).collect();
            if let Got::Fresh(found, etag) = self.asking.must_since(&path, before.is_some()).await? {
                for pull in list(&found) {
                    let Some(number) = pull.get("number").and_then(Value::as_u64) else { continue };
                    if !self.is_from(pull, branch) {
                        continue;
                    }
                    now.insert(number);
                    if self.seen.items.get(&number).is_none_or(|item| !item.is_pull || item.is_closed()) {
                        self.pull(number, pull, false).await?;
                    }
                }
                self.asking.dealt_with(&path, etag);
            }
            self.seen.branch_pulls.insert(branch.clone(), now);
        }
        Ok(())
    }

    fn branch_pulls_path(&self, branch: &str) -> String {
        let owner = self.seen.home.as_ref().and_then(|home| home.pointer("/owner/login")?.as_str());
        let owner = owner.unwrap_or(self.need.repo.owner());
        let head = format!("{owner}:{branch}");
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("head", &head)
            .append_pair("state", "open")
            .append_pair("per_page", "100")
            .finish();
        format!("{}/pulls?{query}", self.base)
    }

    /// Whether a pull request comes from this branch of this repository: the owner may have forks of it.
    fn is_from(&self, pull: &Value, branch: &str) -> bool {
        let home = self.seen.home.as_ref().and_then(|home| home.get("id")).and_then(Value::as_u64);
        let of = pull.pointer("/head/repo/id").and_then(Value::as_u64);
        of.is_some() && of == home && pull.pointer("/head/ref").and_then(Value::as_str) == Some(branch)
    }

    /// From when on comments are news where none were asked for before: now, unless all that can be commented on was
    /// made since the last look.
    pub(super) fn begin_comments(&self, only_pulls: bool, now: Timestamp) -> Timestamp {
        let Some(last) = self.seen.looked_at else { return now };
        if self.need.numbers.keys().any(|number| !self.seen.items.contains_key(number)) {
            return now;
        }
        let items = self.seen.items.values().filter(|item| item.is_pull || !only_pulls);
        let made = items.map(|item| item.created_at().unwrap_or(Timestamp::MIN)).min();
        // GitHub tells whole seconds.
        let before = |at: Timestamp| at.checked_sub(SignedDuration::from_secs(2)).unwrap_or(at);
        made.filter(|made| *made > before(last)).map_or(now, before)
    }
}
