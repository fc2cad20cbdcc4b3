//! A batch to the text of one turn.

use super::{Batch, PromptSettings};
use crate::domain::Session;

/// Writes the prompt that tells `session` a batch.
///
/// `fence` is a random name, new for each prompt. `repeat` says that an earlier turn may have told this already.
pub fn prompt(session: &Session, _batch: &Batch, _fence: &str, _settings: &PromptSettings, _repeat: bool) -> String {
    format!("the-loop: news for your session on {}\n", session.work_item)
}
