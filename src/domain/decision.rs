//! Decisions: where a delivery goes and why.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{SessionKey, WorkItem};

/// What became of a delivery. Every delivery has one, with a reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Kept, not yet decided.
    Pending,
    /// It concerns no session.
    Unmatched,
    /// It concerns a session that is not to be woken by it.
    Filtered,
    /// It waits in an inbox, or its turn runs.
    Queued,
    /// A turn took it.
    Delivered,
    /// Every attempt failed; kept until a person or the sender tries again.
    Failed,
}

impl Outcome {
    /// The word that the store, tables and JSON use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Unmatched => "unmatched",
            Self::Filtered => "filtered",
            Self::Queued => "queued",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }

    /// Reads [`as_str`](Self::as_str) back.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Pending, Self::Unmatched, Self::Filtered, Self::Queued, Self::Delivered, Self::Failed]
            .into_iter()
            .find(|outcome| outcome.as_str() == word)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One session that is told, and how the event reached it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// Which session.
    pub session: SessionKey,
    /// The work item by which it was found.
    pub work_item: WorkItem,
    /// How we know that the event concerns it, in words.
    pub how: String,
}

/// Where a delivery goes, and why: the same inputs always give the same decision.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Decision {
    /// `Unmatched`, `Filtered` or `Queued`.
    pub outcome: Outcome,
    /// One sentence that a person understands.
    pub reason: String,
    /// Every work item that the event may concern, strongest first.
    pub work_items: Vec<WorkItem>,
    /// Who is told.
    pub assignments: Vec<Assignment>,
    /// Sessions that this event ends.
    pub closes: Vec<SessionKey>,
    /// Every step of the way, for `deliveries explain`.
    pub steps: Vec<String>,
}
