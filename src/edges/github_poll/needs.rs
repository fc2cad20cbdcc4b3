//! What to ask for, given who waits. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::domain::{RepoName, Target, WorkItem};
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

/// What the open sessions need to know of one repository.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Need {
    /// Which.
    pub(super) repo: RepoName,
    /// The branches that sessions are registered for.
    pub(super) branches: BTreeSet<String>,
    /// The issues and pull requests, and whether a session is registered for the very number.
    pub(super) numbers: BTreeMap<u64, bool>,
    /// The work items of the sessions themselves.
    pub(super) items: Vec<WorkItem>,
    /// When the first of these sessions was registered, by our clock.
    pub(super) since: Timestamp,
    /// Which checks matter.
    pub(super) checks: Checks,
}

impl Need {
    /// Whether `key` is the work item of one of the sessions.
    pub(super) fn has(&self, key: &str) -> bool {
        self.items.iter().any(|item| item.key() == key)
    }
}

/// The needs by repository. A repository is observed once, however many sessions wait in it.
/// `checks` is what wakes sessions.
pub(super) fn needs(waiting: &[Waiting], checks: Checks) -> BTreeMap<String, Need> {
    let mut needs: BTreeMap<String, Need> = BTreeMap::new();
    for Waiting { item, since, own } in waiting {
        let WorkItem::Github { repo, target } = item else { continue };
        let need = needs.entry(repo.key()).or_insert_with(|| Need {
            repo: repo.clone(),
            branches: BTreeSet::new(),
            numbers: BTreeMap::new(),
            items: Vec::new(),
            since: *since,
            checks,
        });
        need.since = need.since.min(*since);
        match target {
            Target::Branch(branch) if *own => drop(need.branches.insert(branch.clone())),
            Target::Branch(_) => continue,
            Target::Number(number) => *need.numbers.entry(*number).or_insert(false) |= own,
        }
        if *own {
            need.items.push(item.clone());
        }
    }
    needs
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
        let needs = needs(&all, Checks::default());
        assert_eq!(needs.keys().collect::<Vec<_>>(), ["ghe.example.com/o/r", "o/r"]);
        let need = &needs["o/r"];
        assert_eq!(need.branches.iter().collect::<Vec<_>>(), ["main"]);
        assert_eq!(need.numbers, BTreeMap::from([(15, true), (20, false)]));
        assert!(need.has("github:o/r#15") && !need.has("github:o/r#20"));
    }
}
