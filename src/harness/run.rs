//! What is run and how it ended, as data: the words between adapters, shim and server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::domain::FailureKind;

/// One run of a harness. No shell is involved anywhere.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Invocation {
    /// The command or its path.
    pub program: String,
    /// Its arguments, without the program itself. Nothing of a prompt is ever among them.
    pub args: Vec<String>,
    /// The session's directory.
    pub cwd: PathBuf,
    /// What the harness reads: the prompt, in the harness's own form. It is a file on the other side, so that a
    /// harness that reads nothing blocks nobody.
    pub stdin: String,
    /// Variables set on top of the turn's environment.
    pub env: BTreeMap<String, String>,
    /// A line of output after which the harness is done even if it never exits.
    pub ends_with: Option<EndMark>,
    /// Whether it writes while it works. Only then do [`Limits::first_output`] and [`Limits::silence`] apply: a harness
    /// that prints one document at its end is silent until then.
    pub streams: bool,
}

/// A JSON line in which every pointer (RFC 6901) holds the given value.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct EndMark(pub BTreeMap<String, serde_json::Value>);

impl EndMark {
    /// Whether `document` bears the mark.
    pub fn is_in(&self, document: &serde_json::Value) -> bool {
        bears(document, &self.0)
    }
}

/// Whether every pointer of `mark` holds its value in `document`.
pub(super) fn bears(document: &serde_json::Value, mark: &BTreeMap<String, serde_json::Value>) -> bool {
    mark.iter().all(|(pointer, value)| document.pointer(pointer) == Some(value))
}

/// When a turn is ended from outside. A zero duration is no limit.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From start to end.
    pub total: Duration,
    /// From start to the first byte on stdout or stderr.
    pub first_output: Duration,
    /// From one byte to the next.
    pub silence: Duration,
    /// From SIGTERM to SIGKILL; zero kills at once.
    pub grace: Duration,
    /// Bytes kept of each of stdout and stderr: the first half and the last half of it.
    pub max_output: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            total: Duration::from_secs(30 * 60),
            first_output: Duration::from_secs(5 * 60),
            silence: Duration::ZERO,
            grace: Duration::from_secs(5),
            max_output: 4 << 20,
        }
    }
}

/// How a run ended.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case", tag = "how")]
pub enum Ending {
    /// By itself.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// By a signal that was not ours.
    Signalled {
        /// The signal's number.
        signal: i32,
    },
    /// We ended it at [`Limits::total`].
    TimedOut,
    /// We ended it at [`Limits::first_output`].
    NoFirstOutput,
    /// We ended it at [`Limits::silence`].
    Silent,
    /// We ended it because a person asked for it.
    Cancelled,
    /// We ended it because we were told to end: the machine or its service manager stops.
    Stopped,
    /// It had answered ([`Invocation::ends_with`]) and we ended it because it did not exit.
    AfterAnswer,
    /// It never ran.
    NotStarted {
        /// Why not.
        error: String,
        /// What kind of failure that is.
        kind: FailureKind,
    },
    /// Nobody knows: its supervisor went away without a result.
    Lost,
}

/// A run that is over.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Finished {
    /// How it ended.
    pub ending: Ending,
    /// The exit code, where it exited, whoever caused it.
    pub exit_code: Option<i32>,
    /// What was kept of stdout, as text. It lies in a file of its own and is not serialized with the rest.
    #[serde(skip)]
    pub stdout: String,
    /// What was kept of stderr, as text. Not serialized either.
    #[serde(skip)]
    pub stderr: String,
    /// When it was started.
    pub started_at: Timestamp,
    /// When its last process had ended.
    pub ended_at: Timestamp,
    /// Bytes of stdout and stderr that were read and not kept.
    pub dropped_bytes: u64,
}
