//! Deliveries: what is handed to us, perhaps again.

use std::fmt;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A delivery's place in the journal. Sequence numbers only grow; the number is the cursor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct DeliverySeq(pub i64);

impl fmt::Display for DeliverySeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who handed a delivery to us. Delivery ids are unique within one source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// GitHub's webhook, verified.
    GithubWebhook,
    /// GitHub's API, asked by us.
    GithubPoll,
    /// An MCP server's event, by the server's configured name.
    Mcp(String),
}

impl Source {
    /// The text that stands in the journal. GitHub's two ways share one id space only where the ids are GitHub's own.
    pub fn key(&self) -> String {
        match self {
            Self::GithubWebhook => "github".into(),
            Self::GithubPoll => "github-poll".into(),
            Self::Mcp(server) => format!("mcp:{server}"),
        }
    }

    /// Reads [`key`](Self::key) back.
    pub fn from_key(key: &str) -> Option<Self> {
        match key {
            "github" => Some(Self::GithubWebhook),
            "github-poll" => Some(Self::GithubPoll),
            other => other.strip_prefix("mcp:").map(|server| Self::Mcp(server.into())),
        }
    }
}

/// One thing handed to us: proven bytes and what came with them. Only `payload` makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Who handed it over.
    pub source: Source,
    /// The source's own id for it; `X-GitHub-Delivery` at GitHub.
    pub id: String,
    /// The event's name as the source gave it (`X-GitHub-Event`). Not signed by GitHub: the body must fit it.
    pub event: String,
    /// The body as JSON text, exactly as it was received (after form decoding).
    pub body: Bytes,
    /// When it reached us.
    pub received_at: Timestamp,
}

/// What intake says of a delivery once its fate is on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receipt {
    /// New, and kept.
    Accepted(DeliverySeq),
    /// Known already; nothing was done.
    Duplicate(DeliverySeq),
    /// Known, its turns had failed, and it now waits to be tried again.
    Requeued(DeliverySeq),
}
