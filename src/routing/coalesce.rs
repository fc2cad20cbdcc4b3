//! Waiting notices to the batch of one turn.

use super::{PromptSettings, Settings};
use crate::domain::{Notice, NoticeId};

/// What one turn tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// The notices to tell, in order of arrival.
    pub tell: Vec<Notice>,
    /// Notices that a newer state of the same thing replaces: the old one, and which one of `tell` replaces it.
    pub superseded: Vec<(NoticeId, NoticeId)>,
}

/// Chooses from `waiting` (in order of arrival) what the next turn tells.
pub fn coalesce(waiting: &[Notice], settings: &Settings, _prompt: &PromptSettings) -> Batch {
    Batch { tell: waiting.iter().take(settings.max_events_per_turn.max(1)).cloned().collect(), superseded: Vec::new() }
}
