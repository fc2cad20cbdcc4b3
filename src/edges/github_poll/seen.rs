//! What was seen of a repository, as it is kept between looks and restarts.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Everything that was seen of one repository.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Seen {
    /// The repository as deliveries name it.
    pub(super) home: Option<Value>,
    /// When it was looked up last, by our clock.
    pub(super) home_at: Option<Timestamp>,
    /// How far GitHub's clock is ahead of ours.
    pub(super) ahead_ms: i64,
    /// When the last whole look began, by GitHub's clock.
    pub(super) looked_at: Option<Timestamp>,
    /// The version of each page, by path.
    pub(super) etags: BTreeMap<String, String>,
    /// Workflow runs, by what was asked for.
    pub(super) runs: BTreeMap<String, Runs>,
    /// Comments on issues and pull requests.
    pub(super) comments: Option<Stream>,
    /// Comments on lines of pull requests.
    pub(super) review_comments: Option<Stream>,
    /// Issues and pull requests, by number.
    pub(super) items: BTreeMap<u64, Item>,
    /// Open pull requests that were dealt with in the list of all, with the version that was dealt with.
    pub(super) shown: BTreeMap<u64, String>,
    /// The issues for which these were looked for.
    pub(super) shown_for: BTreeSet<u64>,
    /// Whether all of them were looked at, for readers.
    pub(super) shown_all: bool,
    /// Issues that were seen in the list of all, with their states.
    pub(super) issues: Option<BTreeMap<u64, String>>,
    /// The open pull requests of each branch that is polled.
    pub(super) branch_pulls: BTreeMap<String, BTreeSet<u64>>,
    /// The head of each branch that is polled.
    pub(super) branches: BTreeMap<String, BranchHead>,
    /// What was seen of the checks of commits, by hash.
    pub(super) heads: BTreeMap<String, Head>,
}

impl Seen {
    /// Whether this happened after the last look, as far as whole seconds tell.
    pub(super) fn is_since_last(&self, at: Option<Timestamp>) -> bool {
        let last = self.looked_at.map(|last| last.checked_sub(SignedDuration::from_secs(2)).unwrap_or(last));
        last.zip(at).is_some_and(|(last, at)| at > last)
    }

    /// A time of our clock, by GitHub's.
    pub(super) fn theirs(&self, ours: Timestamp) -> Timestamp {
        ours.checked_add(SignedDuration::from_millis(self.ahead_ms)).unwrap_or(ours)
    }
}

/// The workflow runs of one question: each with its attempt and conclusion; an empty text is one that goes on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Runs(pub(super) BTreeMap<u64, String>);

/// Where a branch is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BranchHead {
    /// Its head; empty while there is no such branch.
    pub(super) sha: String,
    /// Whether it came there while we watched: then its checks are news.
    pub(super) is_new: bool,
}

/// The checks of one commit. What was never asked for is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Head {
    /// Check suites: conclusion and time; an empty text is one that goes on.
    pub(super) suites: Option<BTreeMap<u64, String>>,
    /// Check runs, likewise.
    pub(super) checks: Option<BTreeMap<u64, String>>,
    /// Commit statuses.
    pub(super) statuses: Option<BTreeSet<u64>>,
    /// Whether the newest status of some context is `pending`.
    pub(super) is_pending: bool,
    /// When they were last asked for, by our clock.
    pub(super) asked_at: Option<Timestamp>,
    /// When they were last found changed, by our clock.
    pub(super) changed_at: Option<Timestamp>,
}

/// Comments in the order of their last change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Stream {
    /// Everything that changed before this was dealt with, by GitHub's clock.
    pub(super) floor: Timestamp,
    /// What changed since then and was dealt with: the id and when it changed.
    pub(super) done: BTreeMap<u64, Timestamp>,
}

/// One issue or pull request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Item {
    /// Whether it is a pull request.
    pub(super) is_pull: bool,
    /// What of it deliveries need.
    pub(super) shown: Value,
    /// The first page of reviews that was not full, and the reviews on it and before with their states.
    pub(super) reviews: Option<Reviews>,
    /// Whether its first head's runs and its first reviews are news: it was made while we watched.
    pub(super) is_new: bool,
    /// Whether it is known from the list of all alone: neither its runs nor its checks are asked for by its own.
    #[serde(default)]
    pub(super) is_listed: bool,
}

impl Item {
    /// Text at a path of the item, such as `/head/sha`.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.shown.pointer(path).and_then(Value::as_str)
    }

    /// When it was made.
    pub(super) fn created_at(&self) -> Option<Timestamp> {
        self.text("/created_at")?.parse().ok()
    }

    /// Whether it is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.text("/state") == Some("closed")
    }
}

/// The reviews of one pull request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Reviews {
    /// The page that was last asked for; reviews come oldest first.
    pub(super) page: u32,
    /// Their states.
    pub(super) states: BTreeMap<u64, String>,
}
