//! Turns: one run of a harness for one or more notices.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{SessionKey, WorkItem};

/// A turn's number, as `turns show` takes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct TurnId(pub i64);

impl fmt::Display for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a turn stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnState {
    /// Its harness runs under a shim.
    Running,
    /// The harness took the notices.
    Succeeded,
    /// The harness said that it failed, or did not say that it succeeded.
    Failed,
    /// A limit ended it.
    TimedOut,
    /// Nobody knows how it ended: the machine or the shim went away.
    Interrupted,
    /// A person ended it.
    Cancelled,
}

impl TurnState {
    /// The word that the store, tables and JSON use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Interrupted => "interrupted",
            Self::Cancelled => "cancelled",
        }
    }

    /// Reads [`as_str`](Self::as_str) back.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Running, Self::Succeeded, Self::Failed, Self::TimedOut, Self::Interrupted, Self::Cancelled]
            .into_iter()
            .find(|state| state.as_str() == word)
    }
}

/// One run of a harness, as the store keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Its number.
    pub id: TurnId,
    /// Whose turn it is.
    pub session: SessionKey,
    /// The work item as the session's file spells it.
    pub work_item: WorkItem,
    /// The agent program.
    pub harness: String,
    /// The conversation that was resumed.
    pub session_id: String,
    /// Where it runs.
    pub cwd: String,
    /// Where it stands.
    pub state: TurnState,
    /// The first attempt at its notices is 1.
    pub attempt: u32,
    /// The message id that makes a repeat after a crash harmless, for harnesses that know such ids.
    pub message_id: String,
    /// When it was begun.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The exit code of the harness, where it exited.
    pub exit_code: Option<i32>,
    /// Why it did not succeed.
    pub error: Option<String>,
    /// What kind of failure that was.
    pub failure: Option<FailureKind>,
    /// What it took.
    pub usage: Usage,
    /// The agent's last words.
    pub last_words: Option<String>,
}

/// What a turn cost, as far as its harness says so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// This turn's cost in US dollars.
    pub cost_usd: Option<f64>,
    /// The conversation's cost so far, where the harness counts that.
    pub session_cost_usd: Option<f64>,
    /// Tokens sent to the model.
    pub input_tokens: Option<u64>,
    /// Tokens the model answered with.
    pub output_tokens: Option<u64>,
}

/// What a finished run meant.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnOutcome {
    /// How it ended; never `Running`.
    pub state: TurnState,
    /// What was wrong, unless it succeeded.
    pub failure: Option<Failure>,
    /// The conversation to resume next time, where the harness named another one than it was asked for.
    pub new_session_id: Option<String>,
    /// What it took.
    pub usage: Usage,
    /// The agent's last words.
    pub last_words: Option<String>,
    /// What a person should know though the turn succeeded, such as denied permissions.
    pub remarks: Vec<String>,
}

/// Why a turn did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure it is, which decides what happens next.
    pub kind: FailureKind,
    /// The harness's own words, cut to a line or two.
    pub message: String,
    /// The time before which trying again is pointless, where the harness says so.
    pub not_before: Option<Timestamp>,
}

/// The kinds of failure that call for different answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The model's service is overloaded or failing: try again later.
    Overloaded,
    /// Too many requests: try again, later still.
    RateLimited,
    /// Somebody else holds the conversation: try again soon, and count no attempt.
    Busy,
    /// The harness ended by itself in an unexpected way: try again.
    Crashed,
    /// A limit of time ended it: try again.
    TimedOut,
    /// It said nothing at all until a limit ended it: try again.
    Hung,
    /// Nobody knows how it ended: try again with the same message id.
    Interrupted,
    /// It never ran, for a reason of ours, such as a full disk or a server that was killed: try again, and count no
    /// attempt.
    NotBegun,
    /// A person ended it: not tried again by itself.
    Cancelled,
    /// The harness is not signed in: a person must mend that.
    NotSignedIn,
    /// The conversation does not exist any more: a person must register another one.
    ConversationGone,
    /// A budget of the harness is used up: a person must decide.
    OverBudget,
    /// The harness refused its arguments, model or input: a person must look.
    Refused,
    /// The harness's program was not found or could not be run.
    HarnessMissing,
    /// The session's directory is not there.
    DirectoryMissing,
}

impl FailureKind {
    const ALL: [Self; 15] = [
        Self::Overloaded,
        Self::RateLimited,
        Self::Busy,
        Self::Crashed,
        Self::TimedOut,
        Self::Hung,
        Self::Interrupted,
        Self::NotBegun,
        Self::Cancelled,
        Self::NotSignedIn,
        Self::ConversationGone,
        Self::OverBudget,
        Self::Refused,
        Self::HarnessMissing,
        Self::DirectoryMissing,
    ];

    /// The word that the store and JSON use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Overloaded => "overloaded",
            Self::RateLimited => "rate_limited",
            Self::Busy => "busy",
            Self::Crashed => "crashed",
            Self::TimedOut => "timed_out",
            Self::Hung => "hung",
            Self::Interrupted => "interrupted",
            Self::NotBegun => "not_begun",
            Self::Cancelled => "cancelled",
            Self::NotSignedIn => "not_signed_in",
            Self::ConversationGone => "conversation_gone",
            Self::OverBudget => "over_budget",
            Self::Refused => "refused",
            Self::HarnessMissing => "harness_missing",
            Self::DirectoryMissing => "directory_missing",
        }
    }

    /// Reads [`as_str`](Self::as_str) back.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// Whether only a person can mend it.
    pub fn needs_a_person(self) -> bool {
        matches!(
            self,
            Self::NotSignedIn
                | Self::ConversationGone
                | Self::OverBudget
                | Self::Refused
                | Self::HarnessMissing
                | Self::DirectoryMissing
        )
    }
}
