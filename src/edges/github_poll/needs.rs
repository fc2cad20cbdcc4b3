//! What to ask for, given who waits. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::domain::{Reader, RepoName, Target, WorkItem};
use crate::engine::Waiting;

/// Which checks of commits somebody wants to hear of; what nobody wants is not asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// `check_suite`.
    pub suites: bool,
    /// Those of GitHub Actions, too.
    pub of_actions: bool,
    /// `check_run`.
    pub runs: bool,
    /// `status`.
    pub statuses: bool,
}

impl Checks {
    /// These and those.
    fn and(self, other: Self) -> Self {
        Self {
            suites: self.suites || other.suites,
            of_actions: self.of_actions || other.of_actions,
            runs: self.runs || other.runs,
            statuses: self.statuses || other.statuses,
        }
    }
}

/// What readers of the feed want to know of a whole repository.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Whole {
    /// All workflow runs.
    pub(super) runs: bool,
    /// The checks of the default branch and of open pull requests.
    pub(super) heads: bool,
    /// Comments on every issue and pull request.
    pub(super) comments: bool,
    /// Comments on lines of every pull request.
    pub(super) line_comments: bool,
    /// Issues, as they come and go.
    pub(super) issues: bool,
    /// Pull requests, as they come and go.
    pub(super) pulls: bool,
    /// Their reviews.
    pub(super) reviews: bool,
}

/// What sessions and readers need to know of one repository.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Need {
    /// Which.
    pub(super) repo: RepoName,
    /// The branches whose workflow runs are asked for.
    pub(super) run_branches: BTreeSet<String>,
    /// The branches whose head's checks are asked for.
    pub(super) head_branches: BTreeSet<String>,
    /// The branches whose open pull requests are asked for.
    pub(super) pull_branches: BTreeSet<String>,
    /// The issues and pull requests, and whether somebody waits for the very number.
    pub(super) numbers: BTreeMap<u64, bool>,
    /// The work items of the sessions themselves.
    pub(super) items: Vec<WorkItem>,
    /// When the first of them began to wait, by our clock.
    pub(super) since: Timestamp,
    /// Which checks matter.
    pub(super) checks: Checks,
    /// What of it all matters.
    pub(super) whole: Whole,
}

impl Need {
    /// Whether `key` is the work item of one of the sessions.
    pub(super) fn has(&self, key: &str) -> bool {
        self.items.iter().any(|item| item.key() == key)
    }
}

/// The needs by repository. A repository is observed once, however many wait in it. `checks` is what wakes sessions.
pub(super) fn needs(waiting: &[Waiting], readers: &[Reader], checks: Checks) -> BTreeMap<String, Need> {
    let mut needs: BTreeMap<String, Need> = BTreeMap::new();
    for Waiting { item, since, own } in waiting {
        let WorkItem::Github { repo, target } = item else { continue };
        let need = need_of(&mut needs, repo, *since);
        need.checks = need.checks.and(checks);
        match target {
            Target::Branch(branch) if *own => {
                for branches in [&mut need.run_branches, &mut need.head_branches, &mut need.pull_branches] {
                    branches.insert(branch.clone());
                }
            }
            Target::Branch(_) => continue,
            Target::Number(number) => *need.numbers.entry(*number).or_insert(false) |= own,
        }
        if *own {
            need.items.push(item.clone());
        }
    }
    for reader in readers {
        // Without a repository there is nothing to ask for.
        let Some(repo) = reader.arguments.get("repository").and_then(|name| RepoName::deserialize(name).ok()) else {
            continue;
        };
        if let Some(read) = read(reader) {
            read(need_of(&mut needs, &repo, reader.since));
        }
    }
    needs
}

fn need_of<'a>(needs: &'a mut BTreeMap<String, Need>, repo: &RepoName, since: Timestamp) -> &'a mut Need {
    let need = needs.entry(repo.key()).or_insert_with(|| Need {
        repo: repo.clone(),
        run_branches: BTreeSet::new(),
        head_branches: BTreeSet::new(),
        pull_branches: BTreeSet::new(),
        numbers: BTreeMap::new(),
        items: Vec::new(),
        since,
        checks: Checks::default(),
        whole: Whole::default(),
    });
    need.since = need.since.min(since);
    need
}

/// What one reader adds to a need; `None` for what the API does not show.
fn read(reader: &Reader) -> Option<impl FnOnce(&mut Need)> {
    let event = reader.name.strip_prefix("github.")?;
    let known = [
        "workflow_run",
        "check_suite",
        "check_run",
        "status",
        "issues",
        "issue_comment",
        "pull_request",
        "pull_request_review",
        "pull_request_review_comment",
    ];
    if !known.contains(&event) {
        return None;
    }
    let text = |name: &str| reader.arguments.get(name).and_then(Value::as_str).map(str::to_owned);
    let (number, branch, app) = (reader.arguments.get("number").and_then(Value::as_u64), text("branch"), text("app"));
    let event = event.to_owned();
    Some(move |need: &mut Need| {
        match event.as_str() {
            "check_suite" => {
                need.checks.suites = true;
                need.checks.of_actions |= app.is_none_or(|app| app.eq_ignore_ascii_case("github-actions"));
            }
            "check_run" => need.checks.runs = true,
            "status" => need.checks.statuses = true,
            _ => {}
        }
        if let Some(number) = number {
            need.numbers.insert(number, true);
            return;
        }
        let whole = &mut need.whole;
        match (event.as_str(), branch) {
            ("workflow_run", Some(branch)) => drop(need.run_branches.insert(branch)),
            ("workflow_run", None) => whole.runs = true,
            ("check_suite" | "check_run" | "status", Some(branch)) => drop(need.head_branches.insert(branch)),
            ("check_suite" | "check_run" | "status", None) => (whole.heads, whole.pulls) = (true, true),
            ("issues", _) => whole.issues = true,
            ("issue_comment", _) => whole.comments = true,
            (_, Some(branch)) => drop(need.pull_branches.insert(branch)),
            ("pull_request_review", None) => (whole.reviews, whole.pulls) = (true, true),
            ("pull_request_review_comment", None) => whole.line_comments = true,
            (_, None) => whole.pulls = true,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_asked_once_for_all_that_wait_in_it() {
        let waiting = |text: &str, since: i64, own: bool| Waiting {
            item: WorkItem::parse(text).expect(text),
            since: Timestamp::from_second(since).expect("time"),
            own,
        };
        let all = [
            waiting("o/r#15", 20, true),
            waiting("O/R@main", 10, true),
            waiting("o/r#20", 20, false),
            waiting("o/r@linked", 5, false),
            waiting("ghe.example.com/o/r#1", 30, true),
            waiting("local:x", 1, true),
        ];
        let needs = needs(&all, &[], Checks::default());
        assert_eq!(needs.keys().collect::<Vec<_>>(), ["ghe.example.com/o/r", "o/r"]);
        let need = &needs["o/r"];
        assert_eq!(need.run_branches.iter().collect::<Vec<_>>(), ["main"]);
        assert_eq!(need.numbers, BTreeMap::from([(15, true), (20, false)]));
        assert!(need.has("github:o/r#15") && !need.has("github:o/r#20"));
    }
    #[test]
    fn a_reader_needs_what_its_filters_let_through_and_no_more() {
        let reader = |name: &str, arguments: serde_json::Value| Reader {
            name: format!("github.{name}"),
            arguments: serde_json::from_value(arguments).expect("arguments"),
            since: Timestamp::UNIX_EPOCH,
        };
        let need = |readers: &[Reader]| {
            // What wakes sessions matters to sessions alone.
            let wakes = Checks { suites: true, statuses: true, ..Checks::default() };
            let found = needs(&[], readers, wakes);
            found.into_iter().next().map(|(_, need)| need)
        };
        let repo = serde_json::json!({"repository": "O/R"});
        let with = |name: &str, value: serde_json::Value| {
            let mut arguments = repo.clone();
            arguments[name] = value;
            arguments
        };
        assert_eq!(need(&[reader("workflow_run", serde_json::json!({"branch": "main"}))]), None, "nowhere");
        assert_eq!(need(&[reader("push", repo.clone())]), None, "the API does not show it");
        assert_eq!(need(&[reader("session.turn_started", repo.clone())]), None);
        let runs = need(&[reader("workflow_run", with("branch", "main".into()))]).expect("a need");
        assert_eq!(runs.run_branches.iter().collect::<Vec<_>>(), ["main"]);
        assert!(runs.head_branches.is_empty() && runs.pull_branches.is_empty() && runs.items.is_empty());
        assert_eq!((runs.checks, runs.whole), (Checks::default(), Whole::default()));
        let all = need(&[reader("workflow_run", repo.clone()), reader("issues", with("number", 5.into()))]);
        let all = all.expect("a need");
        assert_eq!(all.whole, Whole { runs: true, ..Whole::default() });
        assert_eq!(all.numbers, BTreeMap::from([(5, true)]));
        let status = need(&[reader("status", with("context", "ci".into()))]).expect("a need");
        assert_eq!(status.checks, Checks { statuses: true, ..Checks::default() });
        assert_eq!(status.whole, Whole { heads: true, pulls: true, ..Whole::default() });
        let suites = need(&[reader("check_suite", with("app", "buildkite".into()))]).expect("a need");
        assert!(suites.checks.suites && !suites.checks.of_actions);
        let review = need(&[reader("pull_request_review", with("branch", "x".into()))]).expect("a need");
        assert_eq!(review.pull_branches.iter().collect::<Vec<_>>(), ["x"]);
    }
}
