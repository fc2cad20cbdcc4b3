//! A [`Delivery`] to an [`Event`].

use super::Error;
use crate::domain::{Delivery, Event, Nature};

/// Reads what a delivery says. The same delivery always gives the same event.
pub fn read(delivery: &Delivery) -> Result<Event, Error> {
    Ok(Event {
        name: delivery.event.clone(),
        action: None,
        repository: None,
        sender: None,
        author: None,
        nature: Nature::Unmapped,
        subjects: Vec::new(),
        links: Vec::new(),
        fingerprint: format!("delivery:{}:{}", delivery.source.key(), delivery.id),
        supersedes: None,
        happened_at: None,
        facts: Vec::new(),
    })
}
