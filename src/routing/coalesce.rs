//! Waiting notices to the batch of one turn.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::prompt::{FRAME, section};
use super::{PromptSettings, Settings};
use crate::domain::{Nature, Notice, NoticeId};

/// As long as the fences of real prompts.
const FENCE: &str = "00000000000000000000000000000000";

/// What one turn tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// The notices to tell, in order of arrival.
    pub tell: Vec<Notice>,
    /// Notices that a newer state of the same thing replaces: the old one, and which one of `tell` replaces it.
    pub superseded: Vec<(NoticeId, NoticeId)>,
}

/// Chooses from `waiting` (in order of arrival) what the next turn tells: at least one, at most what the settings allow.
///
/// Of several states of one thing the newest is told. Words are never merged.
pub fn coalesce(waiting: &[Notice], settings: &Settings, prompt: &PromptSettings) -> Batch {
    let newest = newest(waiting);
    let is_told = |notice: &Notice| key(notice).is_none_or(|key| newest.get(key).is_some_and(|n| n.id == notice.id));
    let most = usize::try_from(prompt.max_prompt.0).unwrap_or(usize::MAX);
    let mut size = FRAME;
    let mut batch = Batch::default();
    for notice in waiting.iter().filter(|notice| is_told(notice)) {
        size = size.saturating_add(section(batch.tell.len() + 1, notice, waiting.len(), FENCE, prompt).len());
        let full = batch.tell.len() >= settings.max_events_per_turn.max(1) || size > most;
        if full && !batch.tell.is_empty() {
            break;
        }
        batch.tell.push(notice.clone());
    }
    // What replaces a notice may itself have to wait; the old one waits with it then.
    let tells = |id: NoticeId| batch.tell.iter().any(|notice| notice.id == id);
    let replaced = |notice: &Notice| Some((notice.id, newest.get(key(notice)?)?.id));
    let pairs = waiting.iter().filter_map(replaced).filter(|(old, by)| old != by && tells(*by)).collect();
    Batch { superseded: pairs, ..batch }
}

/// What states of one thing share; words have no such key.
fn key(notice: &Notice) -> Option<&str> {
    notice.event.supersedes.as_deref().filter(|_| notice.event.nature != Nature::Words)
}

/// The newest notice of each thing: by the source's clock where both have it and it tells them apart, else by arrival,
/// since deliveries may overtake each other.
fn newest(waiting: &[Notice]) -> HashMap<&str, &Notice> {
    let mut newest: HashMap<&str, &Notice> = HashMap::new();
    for notice in waiting {
        let Some(key) = key(notice) else { continue };
        let is_older = newest.get(key).is_some_and(|known| {
            let times = notice.event.happened_at.zip(known.event.happened_at);
            times.is_some_and(|(this, known)| this.cmp(&known) == Ordering::Less)
        });
        if !is_older {
            newest.insert(key, notice);
        }
    }
    newest
}
