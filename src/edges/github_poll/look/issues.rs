//! The issues of a whole repository, as they come and go, for those who read of all.

use serde_json::Value;

use super::super::asking::{Got, Stop, list};
use super::super::trim;
use super::{Look, When};
use crate::payload::Polled;

/// How many are looked at, the most recently changed first.
const PAGE: usize = 50;

impl Look<'_> {
    pub(super) async fn whole_issues(&mut self) -> Result<(), Stop> {
        if !self.need.whole.issues {
            self.seen.issues = None;
            return Ok(());
        }
        let path = format!("{}/issues?state=all&sort=updated&direction=desc&per_page={PAGE}", self.base);
        let known = self.seen.issues.take();
        let got = self.asking.must_since(&path, known.is_some()).await;
        let Ok(Got::Fresh(found, etag)) = got else {
            self.seen.issues = known;
            return got.map(drop);
        };
        let is_first = known.is_none();
        let mut now = known.unwrap_or_default();
        let mut all_new = list(&found).len() >= PAGE;
        for issue in list(&found).iter().rev() {
            let (Some(number), Some(state)) = (issue.get("number").and_then(Value::as_u64), text(issue, "state"))
            else {
                continue;
            };
            let is_young = |name: &str| self.seen.is_since_last(text(issue, name).and_then(|at| at.parse().ok()));
            all_new &= is_young("updated_at");
            if issue.get("pull_request").is_some_and(Value::is_object) {
                continue;
            }
            let before = now.insert(number, state.to_owned());
            // Whoever is asked for by number tells it himself.
            if is_first || self.need.numbers.contains_key(&number) {
                continue;
            }
            let closed = state == "closed";
            let mut actions = Vec::new();
            match before.as_deref() {
                None if is_young("created_at") => actions.push("opened"),
                Some(before) if before != state && !closed => actions.push("reopened"),
                _ => {}
            }
            if closed && before.map_or_else(|| is_young("closed_at"), |before| before != state) {
                actions.push("closed");
            }
            for action in actions {
                self.tell_issue(number, action, issue).await?;
            }
        }
        if all_new && !is_first {
            self.tell_gap("issues", self.seen.looked_at, self.github_now());
        }
        self.seen.issues = Some(now);
        self.asking.dealt_with(&path, etag);
        Ok(())
    }

    /// Tells of an issue. Only its own page says who closed it.
    async fn tell_issue(&mut self, number: u64, action: &str, issue: &Value) -> Result<(), Stop> {
        let mut shown = trim::issue(issue);
        if action == "closed"
            && let Got::Fresh(whole, _) = self.asking.anew(&format!("{}/issues/{number}", self.base)).await?
        {
            shown = trim::issue(&whole);
        }
        self.tell(When::Then, &Polled::Issue { action, issue: &shown });
        Ok(())
    }
}

fn text<'a>(of: &'a Value, name: &str) -> Option<&'a str> {
    of.get(name).and_then(Value::as_str)
}
