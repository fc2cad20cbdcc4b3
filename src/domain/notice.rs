//! Notices: one thing to tell a session, waiting in its inbox.

use jiff::Timestamp;

use super::{DeliverySeq, Event, SessionKey, TurnId};

/// A notice's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NoticeId(pub i64);

/// Where a notice stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoticeState {
    /// In the inbox.
    Waiting,
    /// In the turn that runs.
    Told,
    /// A turn took it.
    Delivered,
    /// A newer state of the same thing was told in its place.
    Superseded,
    /// Every attempt failed.
    Failed,
    /// Not to be told any more: its session was closed, or a person dropped it.
    Dropped,
}

impl NoticeState {
    /// The word that stands in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Told => "told",
            Self::Delivered => "delivered",
            Self::Superseded => "superseded",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }

    /// Reads [`as_str`](Self::as_str) back.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Waiting, Self::Told, Self::Delivered, Self::Superseded, Self::Failed, Self::Dropped]
            .into_iter()
            .find(|state| state.as_str() == word)
    }
}

/// One thing to tell a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// Its number; order of numbers is order of arrival.
    pub id: NoticeId,
    /// Whose inbox it is in.
    pub session: SessionKey,
    /// The delivery that brought it.
    pub seq: DeliverySeq,
    /// The delivery's id at its source, as a person types it.
    pub delivery: String,
    /// What the delivery says.
    pub event: Event,
    /// How the event reached this session, in words.
    pub how: String,
    /// When it was put into the inbox.
    pub created_at: Timestamp,
    /// How many turns have failed to tell it.
    pub attempts: u32,
    /// The turn that told it last, whose outcome may be unknown.
    pub last_turn: Option<TurnId>,
}
