//! Stand-ins for `routing::{OnClosed, PromptSettings, Settings, Trust}` and `harness::{Definition, Harnesses}`, until
//! those floors are in. Then: delete this file, and let `settings.rs` and `harness_tables.rs` use the real ones.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::{Size, Span};

/// `[routing]`: what wakes a session and how news are gathered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `EVENT` or `EVENT.ACTION` each.
    pub wake_on: Vec<String>,
    /// How long to wait for more news of the same session.
    pub debounce: Span,
    /// How long at most.
    pub max_wait: Span,
    /// How many notices one turn tells at most.
    pub max_events_per_turn: usize,
    /// What the closing of a session's own item does.
    pub on_closed: OnClosed,
}

impl Default for Settings {
    fn default() -> Self {
        let wake_on = [
            "issue_comment.created",
            "pull_request_review.submitted",
            "pull_request_review_comment.created",
            "workflow_run.completed",
            "check_suite.completed",
            "status",
            "issues.closed",
            "pull_request.closed",
        ];
        Self {
            wake_on: wake_on.map(String::from).to_vec(),
            debounce: Span::secs(1),
            max_wait: Span::secs(30),
            max_events_per_turn: 50,
            on_closed: OnClosed::Close,
        }
    }
}

/// What the closing of a session's own item does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnClosed {
    /// The session is closed.
    Close,
    /// The session is told, then closed.
    Tell,
    /// The session stays and is told.
    Keep,
}

/// `[trust]`: whose words may wake an agent. Logins compare without case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trust {
    /// GitHub's `author_association` values that are enough for an author's own words.
    pub associations: Vec<String>,
    /// Logins that are trusted whatever their association.
    pub actors: Vec<String>,
    /// Logins of bots that are trusted. No bot is, otherwise.
    pub bots: Vec<String>,
    /// The agent's own logins: their comments and acts wake nobody.
    pub ignore_actors: Vec<String>,
}

impl Default for Trust {
    fn default() -> Self {
        Self {
            associations: ["OWNER", "MEMBER", "COLLABORATOR"].map(String::from).to_vec(),
            actors: Vec::new(),
            bots: Vec::new(),
            ignore_actors: Vec::new(),
        }
    }
}

/// `[prompt]`: how much text from outside one turn may be given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PromptSettings {
    /// The most that one field may take, as it stands in the prompt.
    pub max_field: Size,
    /// The most that a prompt of several notices may take.
    pub max_prompt: Size,
}

impl Default for PromptSettings {
    fn default() -> Self {
        Self { max_field: Size(8 << 10), max_prompt: Size(64 << 10) }
    }
}

/// The harnesses that need no definition: `Harnesses::new(&BTreeMap::new())?.names()`.
pub(super) const BUILT_IN_HARNESSES: &[&str] = &["claude", "codex", "copilot", "cursor", "gemini", "opencode"];

/// One `[harness.NAME]` table. Every field is optional: over a built-in harness, what is given replaces what is built
/// in, field by field. A new harness needs `command` and `resume`; the rest makes its verdicts better.
///
/// ```toml
/// [harness.mine]
/// command = "my-agent"
/// resume = ["run", "--json", "--resume", "{session_id}", "{args}"]   # the prompt comes on stdin
/// output = "jsonl"
/// session_id = ["/session"]
/// done = [{ "/type" = "done" }]
/// failed = [{ "/type" = "error" }]
/// error = ["/message"]
/// last_words = [{ at = "/text", where = { "/type" = "reply" } }]
/// gone = ["unknown session"]
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The program: a name to look up on `PATH`, or a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// A person's own arguments, such as a model or permissions. They stand where `resume` says `{args}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Variables to set. Over a built-in harness they are added to its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// The arguments that resume a conversation. `{session_id}` and `{cwd}` may stand anywhere in one, `{args}` stands
    /// alone and becomes all of `args`. The prompt comes on stdin, never as an argument.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<Vec<String>>,
    /// What it prints; `text` where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    /// Where its output names the conversation, as JSON pointers. Another id than the one asked for is a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Vec<String>>,
    /// A regular expression that a whole conversation id must match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id_pattern: Option<String>,
    /// The variable by which an agent inside learns its conversation's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_env: Option<String>,
    /// JSON that must be in the output of a success. Any one of the marks is enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<Vec<Mark>>,
    /// JSON that means failure, whatever the exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Vec<Mark>>,
    /// Set where the program may print its `done` mark and never exit: it is then ended for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_when_done: Option<bool>,
    /// Where the words of a failure are. The last found counts; stderr is read where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Vec<Place>>,
    /// Where the agent's answer is. The last found counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_words: Option<Vec<Place>>,
    /// Where it says what a turn took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsagePlaces>,
    /// Words of a failure that mean: there is no such conversation. Regular expressions, without case; besides the
    /// words they are shown a last line `exit code N`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone: Option<Vec<String>>,
    /// Words that mean: somebody else holds the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<Vec<String>>,
    /// Words that mean: a person must sign in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_out: Option<Vec<String>>,
    /// Words that mean: too many requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limited: Option<Vec<String>>,
    /// Words that mean: the model's service is in trouble.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overloaded: Option<Vec<String>>,
    /// Words that mean: what was asked for is refused, and asking again is no use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Vec<String>>,
    /// Where conversations lie on disk, with `{home}` and `{session_id}`; `*` stands for any one name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transcripts: Option<Vec<String>>,
}

/// What a program prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Output {
    /// Words; the exit code alone tells success.
    #[default]
    Text,
    /// One JSON document at the end.
    Json,
    /// One JSON document per line, as it works.
    Jsonl,
}

/// A JSON document in which every pointer (RFC 6901) holds the given value.
type Mark = BTreeMap<String, Value>;

/// A place in JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Place {
    /// A JSON pointer, in any document that has it.
    Anywhere(String),
    /// A JSON pointer in documents that bear a mark.
    Marked {
        /// The pointer.
        at: String,
        /// The mark.
        #[serde(rename = "where")]
        mark: Mark,
    },
}

/// Where a turn's numbers are, as JSON pointers; the last found counts. Leave out what a program counts over the whole
/// conversation, except for `session_cost`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsagePlaces {
    /// This turn's cost in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
    /// The conversation's cost so far in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_cost: Option<String>,
    /// Tokens sent to the model in this turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<String>,
    /// Tokens that the model answered with in this turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<String>,
}
