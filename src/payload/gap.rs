//! What polling may have missed, told to the sessions that it may concern.

use super::reading::{Payload, Reading};
use crate::domain::{Nature, Node, SubjectKind, WorkItem};

/// Reads the notice of a possible gap. Only polling makes one, so its work items are our own sessions'.
pub(super) fn gap(payload: &Payload<'_>) -> Reading {
    let mut reading = Reading::new(Nature::Watched);
    let gap = payload.root.at("gap");
    for item in gap.at("work_items").list().filter_map(|item| WorkItem::parse(item.text()?).ok()) {
        reading.about(SubjectKind::Object, Some(Node::Item(item)));
    }
    reading.identity = payload.key("gap", &[gap.at("what").part(), gap.at("to").part()]);
    reading.happened_at = gap.at("to").time();
    let facts = &mut reading.facts;
    facts.put("gap", "GitHub may have had news that polling missed; look for yourself where it matters".into());
    facts.all("gap", gap, &["what", "from", "to"].map(|name| (name, name)));
    reading
}
