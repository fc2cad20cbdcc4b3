//! Events: what a delivery says, read into the fields that routing and prompts may use.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Link, Node, RepoName};

/// The name of the event by which polling says that it may have missed something. No name of GitHub's has a dot.
pub const GITHUB_GAP: &str = "github_poll.gap";

/// What a delivery says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The event's name: `issue_comment`, `workflow_run` … or an MCP event's.
    pub name: String,
    /// The payload's `action`, where it has one.
    pub action: Option<String>,
    /// Where it happened.
    pub repository: Option<Repository>,
    /// Who acted. `None` where the payload names nobody: nobody is trusted then.
    pub sender: Option<Person>,
    /// Who wrote the words that this event is about, for [`Nature::Words`].
    pub author: Option<Author>,
    /// What kind of thing happened, which decides whose trust is asked for.
    pub nature: Nature,
    /// What the event is about, strongest first.
    pub subjects: Vec<Subject>,
    /// What this event teaches about what belongs together.
    pub links: Vec<Link>,
    /// The identity of the happening, whoever reports it and however often.
    pub fingerprint: String,
    /// Events with one such key supersede each other: of several waiting ones, the newest is told.
    pub supersedes: Option<String>,
    /// When it happened, by the source's clock.
    pub happened_at: Option<Timestamp>,
    /// The useful fields, in the order in which a reader wants them.
    pub facts: Vec<Fact>,
}

impl Event {
    /// `issue_comment.created`, or the name alone where there is no action.
    pub fn title(&self) -> String {
        match &self.action {
            Some(action) => format!("{}.{action}", self.name),
            None => self.name.clone(),
        }
    }

    /// The fact called `name`.
    pub fn fact(&self, name: &str) -> Option<&Value> {
        self.facts.iter().find(|f| f.name == name).map(|f| &f.value)
    }

    /// The fact called `name`, as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.fact(name).and_then(Value::as_str)
    }
}

/// A repository as a delivery names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repository {
    /// GitHub's number for it, which outlives renames and transfers.
    pub id: Option<u64>,
    /// Its name at that time.
    pub name: RepoName,
}

/// An account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// The login. Compared without case.
    pub login: String,
    /// Whether GitHub says that the account's type is `Bot`. A name that ends in `[bot]` proves nothing.
    pub bot: bool,
}

/// The author of some words, with what GitHub says of the relation to the repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    /// Who. `None` is a deleted account, which nobody trusts.
    pub person: Option<Person>,
    /// GitHub's `author_association`.
    pub association: Option<Association>,
}

/// GitHub's `author_association` as text, `OWNER`, `MEMBER`, `NONE` …
pub type Association = String;

/// What kind of thing an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nature {
    /// Somebody's words: a comment, a review. Sender and author must both be trusted.
    Words,
    /// A change of state that takes rights in the repository, or the author's own act: closed, labelled, pushed.
    State,
    /// A verdict of a machine: a run, a check, a commit status.
    Verdict,
    /// An event of a watch: the person who set the watch vouches for the server.
    Watched,
    /// Accepted and kept, but it concerns no work item that we could name.
    Unmapped,
}

/// One thing an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The issue, pull request, commit or branch.
    pub node: Node,
    /// How the payload names it.
    pub kind: SubjectKind,
}

/// How a payload names a subject: the order is the order of trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubjectKind {
    /// The event's own issue or pull request.
    Object,
    /// A pull request that a run or check names in its list.
    Attached,
    /// The commit that a verdict is about.
    Commit,
    /// A branch of the base repository.
    Branch,
}

/// One useful field of a payload: what it is called and what it says. Its text is untrusted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// The field's path, such as `comment.body`.
    pub name: String,
    /// Its value: text, a number, a truth value or a short list.
    pub value: Value,
}
