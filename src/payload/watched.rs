//! Events of other MCP servers, as a watch brings them: `{eventId, name, timestamp, data}`.

use super::field::Field;
use super::reading::Reading;
use crate::domain::{Delivery, Nature};

/// How many fields of an event's data are kept.
const FIELDS: usize = 40;

/// Reads an occurrence. It is never taken for an event of GitHub's, whatever its name: no signature of GitHub stands
/// behind it. What it is about is known by the watch that brought it and not by its body.
pub(super) fn occurrence(delivery: &Delivery, root: Field<'_>) -> Reading {
    let mut reading = Reading::new(Nature::Watched);
    reading.identity = root.at("eventId").part().map(|id| format!("{}/{id}", delivery.source.key()));
    reading.happened_at = root.at("timestamp").time();
    let data = if root.at("data").is_object() { root.at("data") } else { root };
    for (name, value) in data.fields().take(FIELDS).filter_map(|(name, field)| Some((name, field.value()?))) {
        reading.facts.put(name, value.to_value());
    }
    reading
}
