//! Watches: our subscriptions at other MCP servers, each for one session.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Arguments, SessionKey, WorkItem};

/// A watch's id, as commands and agents take it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct WatchId(pub String);

impl fmt::Display for WatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How events reach us.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One long request, answered as events come.
    Stream,
    /// Posted to us, signed.
    Webhook,
    /// Asked for again and again.
    Poll,
}

impl Mode {
    /// The word that the store and JSON use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Webhook => "webhook",
            Self::Poll => "poll",
        }
    }

    /// The word that the protocol uses.
    pub fn in_protocol(self) -> &'static str {
        match self {
            Self::Stream => "push",
            Self::Webhook => "webhook",
            Self::Poll => "poll",
        }
    }

    /// Reads [`as_str`](Self::as_str) back.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Stream, Self::Webhook, Self::Poll].into_iter().find(|mode| mode.as_str() == word)
    }
}

/// Whether a watch is looked after.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchState {
    /// Its events are asked for.
    Active,
    /// Over, for a reason.
    Ended,
}

impl WatchState {
    /// The word that the store and JSON use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Ended => "ended",
        }
    }
}

/// `FIELD=VALUE`: a field of an event's data, by its dotted path, has this value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Condition {
    /// The dotted path.
    pub field: String,
    /// The value as text.
    pub value: String,
}

impl Condition {
    /// Reads `FIELD=VALUE`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((field, value)) if !field.trim().is_empty() => {
                Ok(Self { field: field.trim().to_owned(), value: value.to_owned() })
            }
            _ => Err(format!("`{text}` is not FIELD=VALUE")),
        }
    }

    /// Whether an event with this data fulfils it. A field that is not there has no value.
    pub fn holds(&self, data: &Value) -> bool {
        // A field whose own name has dots counts before the path.
        let found = data.get(&self.field).or_else(|| self.field.split('.').try_fold(data, |at, name| at.get(name)));
        match found {
            Some(Value::Array(items)) => items.iter().any(|item| self.says(item)),
            Some(value) => self.says(value),
            None => false,
        }
    }

    fn says(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => *text == self.value,
            Value::Number(_) | Value::Bool(_) | Value::Null => {
                let text = value.to_string();
                text == self.value
            }
            Value::Array(_) | Value::Object(_) => false,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.field, self.value)
    }
}

impl From<Condition> for String {
    fn from(condition: Condition) -> Self {
        condition.to_string()
    }
}

impl TryFrom<String> for Condition {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

/// An event type that a server offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventOffer {
    /// The server's configured name.
    pub server: String,
    /// The event type.
    pub name: String,
    /// What it tells, in the server's words.
    pub description: String,
    /// How its events can be had.
    pub delivery: Vec<Mode>,
    /// The JSON Schema of the arguments by which the server filters.
    pub arguments: Value,
}

/// What is asked of a server, for whom, and what of it wakes a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    /// Its id.
    #[serde(rename = "watch")]
    pub id: WatchId,
    /// The server's configured name.
    pub server: String,
    /// The event type.
    pub event: String,
    /// What the server filters by.
    pub arguments: Arguments,
    /// What we filter by: all must hold, or the session is not told.
    #[serde(rename = "where")]
    pub only: Vec<Condition>,
    /// When all hold, the watch ends.
    pub until: Vec<Condition>,
    /// It ends with the first event that is told.
    pub once: bool,
    /// Whose session is told.
    pub work_item: WorkItem,
    /// How events reach us, once that is known.
    pub delivery: Option<Mode>,
    /// Whether it is looked after.
    pub state: WatchState,
    /// Why it ended.
    pub reason: Option<String>,
    /// Up to where the server has told us everything; its own text.
    pub cursor: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When the server last told us that there is nothing, or something.
    pub checked_at: Option<Timestamp>,
    /// When an event last came.
    pub last_event_at: Option<Timestamp>,
    /// Why nothing comes, though it is active.
    pub problem: Option<String>,
}

impl Watch {
    /// The session that is told.
    pub fn session(&self) -> SessionKey {
        SessionKey(self.work_item.key())
    }

    /// Whether it is looked after.
    pub fn is_active(&self) -> bool {
        self.state == WatchState::Active
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_look_into_data() {
        let data = json!({"a": "x", "b": {"c": 3, "d": true}, "l": ["p", 2], "e.f": "dots", "n": null});
        for (text, wanted) in [
            ("a=x", true),
            ("a=y", false),
            ("b.c=3", true),
            ("b.d=true", true),
            ("b=3", false),
            ("l=p", true),
            ("l=2", true),
            ("e.f=dots", true),
            ("z=", false),
            ("n=null", true),
            ("a=x=y", false),
        ] {
            assert_eq!(Condition::parse(text).expect(text).holds(&data), wanted, "{text}");
        }
        assert!(Condition::parse("nothing").is_err() && Condition::parse("=x").is_err());
    }
}
