//! Links: a pull request, commit or branch belongs to a work item, and how we know.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Author, RepoName, WorkItem};

/// Something that can belong to a work item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Node {
    /// An issue, a pull request or a branch.
    Item(WorkItem),
    /// A commit of a repository.
    Commit {
        /// The repository that saw it.
        repo: RepoName,
        /// The full hash, lower case.
        sha: String,
    },
}

impl Node {
    /// The one text that all spellings of this node share.
    pub fn key(&self) -> String {
        match self {
            Self::Item(item) => item.key(),
            Self::Commit { repo, sha } => format!("commit:{}:{}", repo.key(), sha.to_ascii_lowercase()),
        }
    }

    /// The repository it belongs to, unless it is a local work item.
    pub fn repo(&self) -> Option<&RepoName> {
        match self {
            Self::Item(item) => item.repo(),
            Self::Commit { repo, .. } => Some(repo),
        }
    }

    /// The same node under another name of its repository.
    pub fn in_repo(&self, repo: &RepoName) -> Self {
        match self {
            Self::Item(item) => Self::Item(item.in_repo(repo)),
            Self::Commit { sha, .. } => Self::Commit { repo: repo.clone(), sha: sha.clone() },
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Item(item) => item.fmt(f),
            Self::Commit { sha, .. } => write!(f, "commit {}", sha.get(..12).unwrap_or(sha)),
        }
    }
}

/// How a link is known: the order is the order of trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// A person recorded it with `sessions link`.
    Recorded,
    /// GitHub moved the issue there.
    Transferred,
    /// The pull request says that it closes the issue.
    Closes,
    /// The commit was seen as the pull request's head.
    HeadCommit,
    /// The branch of the base repository is the pull request's head. Each leads to the other.
    HeadBranch,
}

impl LinkKind {
    /// The word that stands in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Transferred => "transferred",
            Self::Closes => "closes",
            Self::HeadCommit => "head_commit",
            Self::HeadBranch => "head_branch",
        }
    }

    /// Reads [`as_str`](Self::as_str) back.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Recorded, Self::Transferred, Self::Closes, Self::HeadCommit, Self::HeadBranch]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }
}

/// `from` belongs to `to`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The pull request, commit or branch.
    pub from: Node,
    /// The work item that it belongs to.
    pub to: WorkItem,
    /// How we know.
    pub kind: LinkKind,
    /// Whose words or push the link rests on, where that is known. A verdict does not travel over a stranger's link.
    pub by: Option<Author>,
}
