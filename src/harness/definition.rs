//! How a stranger's agent program is described: one `[harness.NAME]` table.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

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
pub type Mark = BTreeMap<String, Value>;

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

impl Definition {
    /// This definition with `over` laid on top, field by field; variables are joined.
    pub(super) fn overlaid(self, over: Self) -> Self {
        let env = match (self.env, over.env) {
            (Some(mut below), Some(above)) => {
                below.extend(above);
                Some(below)
            }
            (below, above) => above.or(below),
        };
        Self {
            command: over.command.or(self.command),
            args: over.args.or(self.args),
            env,
            resume: over.resume.or(self.resume),
            output: over.output.or(self.output),
            session_id: over.session_id.or(self.session_id),
            session_id_pattern: over.session_id_pattern.or(self.session_id_pattern),
            session_env: over.session_env.or(self.session_env),
            done: over.done.or(self.done),
            failed: over.failed.or(self.failed),
            ends_when_done: over.ends_when_done.or(self.ends_when_done),
            error: over.error.or(self.error),
            last_words: over.last_words.or(self.last_words),
            usage: over.usage.or(self.usage),
            gone: over.gone.or(self.gone),
            busy: over.busy.or(self.busy),
            signed_out: over.signed_out.or(self.signed_out),
            rate_limited: over.rate_limited.or(self.rate_limited),
            overloaded: over.overloaded.or(self.overloaded),
            refused: over.refused.or(self.refused),
            transcripts: over.transcripts.or(self.transcripts),
        }
    }
}
