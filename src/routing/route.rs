//! An event to a decision.

use super::{Links, Rules, Sessions};
use crate::domain::{Decision, Event, Outcome};

/// Decides where an event goes and why. The same inputs always give the same decision.
pub fn route(_event: &Event, _rules: &Rules, _links: &dyn Links, _sessions: &dyn Sessions) -> Decision {
    Decision {
        outcome: Outcome::Unmatched,
        reason: String::new(),
        work_items: Vec::new(),
        assignments: Vec::new(),
        closes: Vec::new(),
        steps: Vec::new(),
    }
}
