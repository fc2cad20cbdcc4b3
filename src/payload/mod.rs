//! Floor 2: proven bytes to a delivery, a delivery to an event.
