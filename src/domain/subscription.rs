//! Subscriptions: who is posted what, and how the posting fares.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::Place;

/// The arguments of a subscription: filters by name, in order of name.
pub type Arguments = BTreeMap<String, Value>;

/// Somebody who reads the feed of one type of event.
#[derive(Clone, Debug, PartialEq)]
pub struct Reader {
    /// The event type.
    pub name: String,
    /// The filters.
    pub arguments: Arguments,
    /// Since when.
    pub since: Timestamp,
}

/// A subscription's id: the same for the same principal, url, event and arguments.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct SubscriptionId(pub String);

impl fmt::Display for SubscriptionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a subscription stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SubscriptionState {
    /// It is posted to.
    Active,
    /// Every attempt at some event failed: what is owed is kept, and a refresh revives it.
    Suspended,
    /// It was ended by us; its endpoint is still to be told.
    Ending,
}

impl SubscriptionState {
    /// The word that stands in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
            Self::Ending => "ending",
        }
    }

    /// Reads [`as_str`](Self::as_str) back.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Active, Self::Suspended, Self::Ending].into_iter().find(|state| state.as_str() == word)
    }
}

/// One subscription, without its secrets.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscription {
    /// Its id.
    pub id: SubscriptionId,
    /// Whose it is.
    pub principal: String,
    /// Where it is posted to.
    pub url: String,
    /// The event type.
    pub name: String,
    /// The filters.
    pub arguments: Arguments,
    /// When it was first made.
    pub created_at: Timestamp,
    /// When it was last made or refreshed.
    pub refreshed_at: Timestamp,
    /// When it ends unless it is refreshed; `None` is never.
    pub expires_at: Option<Timestamp>,
    /// Where it stands.
    pub state: SubscriptionState,
    /// Up to where events have been put down as owed, for one that is suspended.
    pub through: Place,
    /// When an event was last taken.
    pub last_delivery_at: Option<Timestamp>,
    /// The category of the last failure.
    pub last_error: Option<String>,
    /// Since when every attempt has failed.
    pub failed_since: Option<Timestamp>,
}
