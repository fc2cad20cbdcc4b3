//! Check suites, check runs and commit statuses of the heads that matter.

use serde_json::Value;

use super::super::asking::{Got, Stop, list};
use super::super::heads::{self, Judged};
use super::super::seen::{BranchHead, Head};
use super::{Look, MAX_PAGES, When};
use crate::payload::Polled;

/// How many checks a page holds.
const PAGE: usize = 100;
/// The app whose workflow runs are asked for anyway.
const ACTIONS: &str = "github-actions";

/// One kind of check.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Suites,
    Runs,
    Statuses,
}

impl Kind {
    /// The last part of its path.
    fn page(self) -> &'static str {
        match self {
            Self::Suites => "check-suites",
            Self::Runs => "check-runs",
            Self::Statuses => "statuses",
        }
    }

    /// Where its list stands in an answer.
    fn found(self, answer: &Value) -> &[Value] {
        match self {
            Self::Suites => list(answer.get("check_suites").unwrap_or(&Value::Null)),
            Self::Runs => list(answer.get("check_runs").unwrap_or(&Value::Null)),
            Self::Statuses => list(answer),
        }
    }
}

impl Look<'_> {
    pub(super) async fn checks(&mut self) -> Result<(), Stop> {
        let wanted = self.need.checks;
        let kinds = [(Kind::Suites, wanted.suites), (Kind::Runs, wanted.runs), (Kind::Statuses, wanted.statuses)];
        let kinds: Vec<Kind> = kinds.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(kind, _)| kind).collect();
        if kinds.is_empty() {
            self.seen.branches.clear();
            self.seen.heads.clear();
            return Ok(());
        }
        self.branch_heads().await?;
        let judged = heads::judged(self.need, &self.seen);
        let (due, rest): (Vec<_>, Vec<_>) =
            judged.iter().partition(|head| heads::is_due(self.seen.heads.get(&head.sha), self.now));
        for kind in kinds {
            for head in &rest {
                self.asking.keep(&self.checks_path(&head.sha, kind));
            }
            for head in &due {
                let asked = self.ask_checks(head, kind).await;
                if self.or_refused(asked)?.is_none() {
                    // The token may not read this kind at all.
                    break;
                }
            }
        }
        for head in due {
            let head = self.seen.heads.entry(head.sha.clone()).or_default();
            head.asked_at = Some(self.now);
            // One that GitHub does not show is settled as well in time.
            head.changed_at.get_or_insert(self.now);
        }
        self.seen.heads.retain(|sha, _| judged.iter().any(|head| head.sha == *sha));
        Ok(())
    }

    /// Looks where the branches are.
    async fn branch_heads(&mut self) -> Result<(), Stop> {
        let mut branches = self.need.head_branches.clone();
        if self.need.whole.heads {
            let default = self.seen.home.as_ref().and_then(|home| home.get("default_branch")?.as_str());
            branches.extend(default.map(str::to_owned));
        }
        self.seen.branches.retain(|branch, _| branches.contains(branch));
        for branch in &branches {
            let Some(path) = branch_path(&self.base, branch) else { continue };
            let known = self.seen.branches.get(branch).cloned();
            let asked = self.asking.may_since(&path, known.is_some()).await;
            match self.or_refused(asked)? {
                Some(Got::Fresh(found, etag)) => {
                    let Some(sha) = found.pointer("/commit/sha").and_then(Value::as_str) else { continue };
                    if known.as_ref().is_none_or(|known| known.sha != sha) {
                        let head = BranchHead { sha: sha.to_owned(), is_new: known.is_some() };
                        self.seen.branches.insert(branch.clone(), head);
                    }
                    self.asking.dealt_with(&path, etag);
                }
                Some(Got::Same) => {}
                // Once it is there, it came while we watched.
                Some(Got::Missing) => {
                    let nowhere = BranchHead { sha: String::new(), is_new: false };
                    self.seen.branches.insert(branch.clone(), nowhere);
                }
                None => break,
            }
        }
        Ok(())
    }

    fn checks_path(&self, sha: &str, kind: Kind) -> String {
        format!("{}/commits/{sha}/{}?per_page={PAGE}", self.base, kind.page())
    }

    async fn ask_checks(&mut self, judged: &Judged, kind: Kind) -> Result<(), Stop> {
        let path = self.checks_path(&judged.sha, kind);
        let head = self.seen.heads.get(&judged.sha).cloned().unwrap_or_default();
        let is_known = match kind {
            Kind::Suites => head.suites.is_some(),
            Kind::Runs => head.checks.is_some(),
            Kind::Statuses => head.statuses.is_some(),
        };
        let Got::Fresh(answer, etag) = self.asking.may_since(&path, is_known).await? else { return Ok(()) };
        let mut found = kind.found(&answer).to_vec();
        let (mut full, mut number) = (found.len() >= PAGE, 1);
        // Statuses come newest first, so what follows a known one is known.
        let reaches = |found: &[Value]| {
            let known = head.statuses.as_ref().filter(|_| kind == Kind::Statuses);
            known.is_some_and(|known| found.iter().any(|one| id(one).is_some_and(|id| known.contains(&id))))
        };
        while full && number < MAX_PAGES && !reaches(&found) {
            number += 1;
            let Got::Fresh(more, _) = self.asking.anew(&format!("{path}&page={number}")).await? else { break };
            let more = kind.found(&more);
            full = more.len() >= PAGE;
            found.extend_from_slice(more);
        }
        if full && is_known && kind == Kind::Statuses && !reaches(&found) {
            self.tell_gap("commit statuses", self.seen.looked_at, self.github_now());
        }
        // A check on a later page may change while the first page stays as it is.
        if number == 1 || kind == Kind::Statuses {
            self.asking.dealt_with(&path, etag);
        }
        self.take_checks(judged, kind, head, found);
        Ok(())
    }

    fn take_checks(&mut self, judged: &Judged, kind: Kind, mut head: Head, mut found: Vec<Value>) {
        let before = head.clone();
        let old_until = judged.old_until;
        match kind {
            Kind::Suites => {
                let of_actions = |suite: &Value| suite.pointer("/app/slug").and_then(Value::as_str) == Some(ACTIONS);
                let all = self.need.checks.of_actions;
                found.retain(|suite| all || !of_actions(suite));
                let (news, now) = heads::completed(&found, "updated_at", head.suites.as_ref(), old_until);
                news.iter().for_each(|suite| self.tell(When::Then, &Polled::Suite(suite)));
                head.suites = Some(now);
            }
            Kind::Runs => {
                let (news, now) = heads::completed(&found, "completed_at", head.checks.as_ref(), old_until);
                let branch = judged.branches.first().map(String::as_str);
                news.iter().for_each(|run| self.tell(When::Then, &Polled::Check { run, branch }));
                head.checks = Some(now);
            }
            Kind::Statuses => {
                let (news, now, is_pending) = heads::statuses(&found, head.statuses.as_ref(), old_until);
                for status in &news {
                    let (sha, branches) = (&judged.sha, &judged.branches);
                    self.tell(When::Then, &Polled::Status { status, sha, branches });
                }
                head.is_pending = is_pending;
                head.statuses = Some(now);
            }
        }
        if head != before {
            head.changed_at = Some(self.now);
        }
        self.seen.heads.insert(judged.sha.clone(), head);
    }
}

fn id(one: &Value) -> Option<u64> {
    one.get("id").and_then(Value::as_u64)
}

/// The path of a branch: its name may hold what means something else in an address.
fn branch_path(base: &str, branch: &str) -> Option<String> {
    let mut url = url::Url::parse("https://api.invalid/").ok()?;
    url.path_segments_mut().ok()?.clear().extend(branch.split('/'));
    Some(format!("{base}/branches{}", url.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_s_name_is_a_part_of_a_path_and_no_more() {
        let path = |branch: &str| branch_path("/repos/o/r", branch);
        assert_eq!(path("agent/issue-15").as_deref(), Some("/repos/o/r/branches/agent/issue-15"));
        assert_eq!(path("a#b?c%2e").as_deref(), Some("/repos/o/r/branches/a%23b%3Fc%252e"));
        assert!(path("../../x").is_some_and(|path| path.starts_with("/repos/o/r/branches/")));
    }
}
