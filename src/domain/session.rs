//! Sessions: conversations of a harness about one work item.

use std::fmt;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::WorkItem;

/// Which session: the key of the work item that it is registered for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct SessionKey(pub String);

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a session may be woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// Woken by what concerns it.
    Active,
    /// Not woken, but its inbox fills.
    Paused,
    /// Over; nothing reaches it.
    Closed,
}

impl SessionStatus {
    /// The word that files, tables and JSON use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Closed => "closed",
        }
    }
}

/// One registered session: the content of its file in `sessions/`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Session {
    /// The file format's version, [`Session::VERSION`].
    pub version: u32,
    /// What it works on.
    pub work_item: WorkItem,
    /// The agent program that holds the conversation.
    pub harness: String,
    /// The conversation's id, as the harness knows it.
    pub session_id: String,
    /// The directory in which its turns run.
    pub cwd: PathBuf,
    /// Whether it may be woken.
    pub status: SessionStatus,
    /// When it was registered.
    pub created_at: Timestamp,
    /// Why it was closed, once it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_reason: Option<String>,
    /// GitHub's number for the repository, once a delivery has shown it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository_id: Option<u64>,
    /// Fields that this version does not know: kept as they are.
    #[serde(flatten)]
    pub unknown: serde_json::Map<String, serde_json::Value>,
}

impl Session {
    /// The version of the file format that this program writes.
    pub const VERSION: u32 = 1;

    /// Which session this is.
    pub fn key(&self) -> SessionKey {
        SessionKey(self.work_item.key())
    }

    /// Whether news for it are kept: active or paused.
    pub fn is_open(&self) -> bool {
        self.status != SessionStatus::Closed
    }
}

/// What a session needs a person for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attention {
    /// What is the matter, in plain words.
    pub reason: String,
    /// The command that mends it.
    pub mend: String,
}

impl fmt::Display for Attention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.reason, self.mend)
    }
}
