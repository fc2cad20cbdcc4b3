//! Floor 2: the event types that others may watch, what each tells and by what it can be narrowed.
//!
//! One table per source ([`github`], [`own`]); schemas, checks of arguments and payloads all follow from it. Payloads
//! are chosen field by field: small, with who did it and a page to open. The whole record is for those who ask for it.

mod arguments;
mod event_type;
mod gap;
mod github;
mod offer;
mod own;
mod read;
mod schema;

pub use arguments::{canonical, needles};
pub use event_type::EventType;
pub use gap::GAP;
pub use offer::{argument_names, checked, nearest, offered, typed};
pub use own::{needs_attention, turn_finished, turn_started};
pub use read::occurrence;

/// Every event type, in the order in which people read them.
pub fn event_types() -> impl Iterator<Item = &'static EventType> {
    github::TYPES.iter().chain(own::TYPES)
}

/// The event type of this name.
pub fn event_type(name: &str) -> Option<&'static EventType> {
    event_types().find(|known| known.name() == name)
}

#[cfg(test)]
mod tests;
