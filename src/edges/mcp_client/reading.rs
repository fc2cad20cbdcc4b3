//! What servers send us, read: pages, frames of streams and posted bodies. Pure: whatever they hold, the outcome is a
//! value.

use serde::Deserialize;
use serde_json::Value;

use super::mended::PASSED_OVER;

/// The most that is repeated of a server's own words.
const WORDS: usize = 200;

/// One page of `events/poll`.
#[derive(Deserialize, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// What happened, in order.
    #[serde(default)]
    pub events: Vec<Value>,
    /// Up to where that was everything.
    #[serde(default)]
    pub cursor: Option<String>,
    /// Something before this is lost.
    #[serde(default)]
    pub truncated: bool,
    /// There is another page.
    #[serde(default)]
    pub has_more: bool,
    /// When the server wants to be asked again.
    #[serde(default)]
    pub next_poll_ms: Option<u64>,
}

impl Page {
    /// Reads the result of `events/poll`; why it is none, where it is none.
    pub fn read(result: Value) -> Result<Self, String> {
        serde_json::from_value(result).map_err(|error| cut(&error.to_string(), WORDS))
    }
}

/// What a frame of a stream or a posted body says.
#[derive(Debug, PartialEq)]
pub enum Said {
    /// Something happened: the occurrence as it came, and the cursor after it.
    Event(Value, Option<String>),
    /// Up to here everything was told; or not, where something is lost.
    Reached {
        /// Up to where.
        cursor: Option<String>,
        /// Whether something before it is lost.
        truncated: bool,
    },
    /// The server is still there.
    Heartbeat(Option<String>),
    /// A message was too large to be taken, so that something is lost.
    PassedOver,
    /// The receiver is to prove itself with this challenge.
    Verification(Option<String>),
    /// The server ended it, for this reason.
    Terminated(String),
    /// Something that has no meaning for us.
    Other,
}

impl Said {
    /// Reads the frame `notifications/events/KIND` of a stream.
    pub fn frame(kind: &str, params: Value) -> Self {
        match kind {
            "event" => {
                let cursor = text(&params, "cursor");
                Self::Event(params, cursor)
            }
            "active" => Self::Reached {
                cursor: text(&params, "cursor"),
                truncated: params.get("truncated").and_then(Value::as_bool).unwrap_or(false),
            },
            "heartbeat" => Self::Heartbeat(text(&params, "cursor")),
            "terminated" => Self::Terminated(why(&params)),
            PASSED_OVER => Self::PassedOver,
            _ => Self::Other,
        }
    }

    /// Reads a body that was posted to us; `None` where it is not JSON.
    pub fn posted(body: &[u8]) -> Option<Self> {
        let body: Value = crate::payload::read_json(body).ok()?;
        let cursor = text(&body, "cursor");
        Some(match body.get("type").filter(|kind| !kind.is_null()) {
            None => Self::Event(body, cursor),
            Some(kind) => match kind.as_str() {
                Some("verification") => Self::Verification(text(&body, "challenge")),
                Some("gap") => Self::Reached { cursor, truncated: true },
                Some("terminated") => Self::Terminated(why(&body)),
                _ => Self::Other,
            },
        })
    }
}

fn text(object: &Value, name: &str) -> Option<String> {
    object.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn why(object: &Value) -> String {
    let why = object.pointer("/error/message").and_then(Value::as_str).unwrap_or("it did not say why");
    format!("the server ended it: {}", cut(why, WORDS))
}

/// The first characters of what a server said, on one line.
pub(super) fn cut(text: &str, most: usize) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut cut: String = text.chars().take(most).map(plain).collect();
    if text.chars().nth(most).is_some() {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_absent_has_a_meaning() {
        let page = Page::read(json!({"events": []})).expect("a page");
        assert!(!page.has_more && page.cursor.is_none() && page.next_poll_ms.is_none());
        assert!(Page::read(json!({"events": 5})).is_err() && Page::read(json!({"cursor": 7})).is_err());
        assert_eq!(Said::frame("active", json!({})), Said::Reached { cursor: None, truncated: false });
        assert_eq!(Said::frame("error", json!({"error": {}})), Said::Other);
        let ended = json!({"error": {"message": "gone\nfor good"}});
        assert_eq!(Said::frame("terminated", ended), Said::Terminated("the server ended it: gone for good".into()));
    }

    #[test]
    fn a_type_marks_what_is_no_event() {
        let read = |text: &str| Said::posted(text.as_bytes());
        let event = json!({"eventId": "e", "type": null, "cursor": "7"});
        assert_eq!(read(&event.to_string()), Some(Said::Event(event, Some("7".into()))));
        assert_eq!(read(r#"{"type":"gap"}"#), Some(Said::Reached { cursor: None, truncated: true }));
        assert_eq!(read(r#"{"type":"verification","challenge":5}"#), Some(Said::Verification(None)));
        assert_eq!((read(r#"{"type":5}"#), read(r#"{"type":"odd"}"#)), (Some(Said::Other), Some(Said::Other)));
        assert_eq!(read("{"), None);
        let half = read(r#"{"data":{"text":"cut \ud83d"}}"#);
        assert_eq!(half, Some(Said::Event(json!({"data": {"text": "cut \u{fffd}"}}), None)));
    }
}
