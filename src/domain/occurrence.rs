//! Occurrences: what a delivery or a turn is to those outside who watch, and where it stands in the feed.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde_json::{Map, Value};

/// A place in the feed. Places are given in the order of commits, so that whoever has read up to one has missed nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Place(pub i64);

/// Something that happened, as subscribers are told it.
#[derive(Clone, Debug, PartialEq)]
pub struct Occurrence {
    /// The id by which receivers tell repeats: GitHub's delivery id, or one of our own.
    pub event_id: String,
    /// The event type's name, such as `github.workflow_run`.
    pub name: String,
    /// When it happened.
    pub at: Timestamp,
    /// The key of the repository where it happened.
    pub repository: Option<String>,
    /// The login of who did it.
    pub actor: Option<String>,
    /// The identity of the happening: told once, however often it is reported.
    pub fingerprint: String,
    /// The payload.
    pub data: Map<String, Value>,
}

/// An occurrence and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Where it stands.
    pub place: Place,
    /// What happened.
    pub occurrence: Occurrence,
}

/// A place in the feed of one journal, as it is handed to others: opaque to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The journal's own id: a cursor of another journal means nothing here.
    pub journal: String,
    /// Everything up to this place has been read.
    pub place: Place,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.journal, self.place.0)
    }
}

impl FromStr for Cursor {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "it is not a cursor that a server like this one gave out";
        let (journal, place) = text.split_once('-').ok_or(wrong)?;
        let plain = (1..=64).contains(&journal.len()) && journal.bytes().all(|b| b.is_ascii_alphanumeric());
        let place = place.parse().ok().filter(|place| plain && *place >= 0).ok_or(wrong)?;
        Ok(Self { journal: journal.into(), place: Place(place) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_read_back_and_nothing_else_does() {
        let cursor = Cursor { journal: "0a1b".into(), place: Place(42) };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", "-", "x", "x-", "x--1", "x-1x", "é-1", "-1", " a-1"] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }
}
