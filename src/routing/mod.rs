//! Floor 2: events to decisions, notices to prompts. Pure.
