//! What servers answer: results by their fields, errors in both dialects.

use std::time::Duration;

use jiff::Timestamp;
use rmcp::model::ErrorData;
use serde::Deserialize;
use serde_json::Value;

use super::reading::cut;

/// Why a server refused, as far as that decides what happens next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// There is no such event type, for us at least.
    NotFound,
    /// We may not have it.
    Forbidden,
    /// Too much at once: later, perhaps.
    Exhausted,
    /// Not in this way.
    Unsupported,
    /// Our callback did not prove itself.
    Callback,
    /// What we asked is wrong.
    Invalid,
    /// It does not know the method.
    NoMethod,
    /// Something went wrong there.
    Other,
}

impl Refusal {
    /// Both dialects' codes (`docs/specs/watches.md`).
    fn of(code: i32) -> Self {
        match code {
            -32011 | -32023 => Self::NotFound,
            -32012 | -32024 => Self::Forbidden,
            -32013 | -32025 => Self::Exhausted,
            -32014 | -32026 => Self::Unsupported,
            -32015 | -32027 => Self::Callback,
            -32602 => Self::Invalid,
            -32601 => Self::NoMethod,
            _ => Self::Other,
        }
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// The server said no.
    #[error("the server refused: {message}")]
    Refused {
        refusal: Refusal,
        /// The server's words, cut.
        message: String,
    },
    /// The connection is of no use.
    #[error("{0}")]
    Lost(String),
    /// There was no answer in this time.
    #[error("the server did not answer in {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// The answer is larger than any that is taken.
    #[error("the server's answer is larger than {} MiB", .0 >> 20)]
    TooLarge(usize),
    /// The answer is not what the protocol says.
    #[error("the server's answer is not what the protocol says: {0}")]
    Odd(String),
}

impl CallError {
    pub(super) fn refused(error: &ErrorData) -> Self {
        let reason = error.data.as_ref().and_then(|data| data.get("reason")).and_then(Value::as_str);
        let message = match reason {
            Some(reason) => format!("{} ({reason})", error.message),
            None => error.message.to_string(),
        };
        Self::Refused { refusal: Refusal::of(error.code.0), message: cut(&message, 200) }
    }
}

/// `events/list`.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
pub(super) struct Listed {
    pub(super) events: Vec<ListedEvent>,
    pub(super) next_cursor: Option<String>,
}

/// One event type of `events/list`.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListedEvent {
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) delivery: Vec<String>,
    #[serde(default)]
    pub(super) input_schema: Value,
}

/// `events/subscribe`.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
pub(super) struct Subscribed {
    #[serde(default)]
    pub(super) refresh_before: Option<Timestamp>,
    #[serde(default)]
    pub(super) cursor: Option<String>,
    #[serde(default)]
    pub(super) truncated: bool,
}

/// Reads a result.
pub(super) fn read<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, CallError> {
    serde_json::from_value(value).map_err(|error| CallError::Odd(cut(&error.to_string(), 200)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_dialects_mean_the_same() {
        for (at, refusal) in
            [Refusal::NotFound, Refusal::Forbidden, Refusal::Exhausted, Refusal::Unsupported, Refusal::Callback]
                .into_iter()
                .enumerate()
        {
            let at = i32::try_from(at).expect("small");
            assert_eq!((Refusal::of(-32011 - at), Refusal::of(-32023 - at)), (refusal, refusal));
        }
        assert_eq!(Refusal::of(-32602), Refusal::Invalid);
        assert_eq!(cut("a\nbc", 3), "a b…");
    }

    #[test]
    fn what_is_absent_has_a_meaning() {
        let subscribed: Subscribed =
            read(serde_json::json!({"id": "x", "refreshBefore": null})).expect("a subscription");
        assert!(subscribed.refresh_before.is_none() && !subscribed.truncated);
        assert!(matches!(read::<Listed>(serde_json::json!({"events": 5})), Err(CallError::Odd(_))));
    }
}
