//! Floor 2: events to decisions, notices to prompts. Pure.

mod coalesce;
mod echo;
mod names;
mod prompt;
mod quote;
mod route;
mod search;
mod settings;
#[cfg(test)]
mod tests;
mod trust;
mod wake;
mod watch;

pub use coalesce::{Batch, coalesce};
pub use echo::{MARKER, carries_marker};
pub use prompt::prompt;
pub use route::route;
pub use settings::{OnClosed, PromptSettings, Rules, Settings, Trust};
pub use watch::{Look, look, watched};

use jiff::Timestamp;

use crate::domain::{Link, Node, RepoName, Repository, Session, SessionKey};

/// What is known of what belongs together.
pub trait Links {
    /// Every link that leads on from `node`.
    fn from(&self, node: &Node) -> Vec<Link>;
    /// The other names under which the same repository id was seen, without names that belong to another id now.
    fn names(&self, repo: &Repository) -> Vec<RepoName>;
    /// When the issue or pull request whose states have this topic ([`Event::supersedes`](crate::domain::Event)) was last
    /// reopened, as far as is known.
    fn reopened_at(&self, _topic: &str) -> Option<Timestamp> {
        None
    }
}

/// The registered sessions.
pub trait Sessions {
    /// The session registered for a work item's key, whatever its status.
    fn find(&self, key: &SessionKey) -> Option<Session>;
}
