//! Floor 2: proven bytes to a delivery, a delivery to an event.
//!
//! [`from_github`] takes proven bytes that are a JSON object, and reads them in the same pass; [`read`] reads what was
//! kept. Both are pure, so that `explain`, a replay and a dry run read a delivery as the router did.

mod closing;
mod delivery;
mod error;
mod event;
mod facts;
mod field;
mod fit;
mod gap;
mod items;
mod json;
mod occurrence;
mod polled;
mod pulls;
mod reading;
mod refs;
#[cfg(test)]
mod tests;
mod tree;
mod verdicts;
mod watched;

pub use delivery::{Encoding, GithubHeaders, Received, from_github};
pub use error::Error;
pub use event::read;
pub use json::{read_json, replace_lone_surrogates, weight};
pub use occurrence::{WATCH_ENDED, WATCH_GAP, from_end, from_gap, from_occurrence, occurrence_data};
pub use polled::{CommentAction, OBSERVED, Polled, from_github_list, from_github_poll};
