//! The loop's own events: what becomes of agents' turns.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::event_type::{EventType, Field, Filter, From, How, by, number, text, texts};
use crate::domain::{Occurrence, SessionKey, TurnId, TurnOutcome, WorkItem};

const SESSION: &[Field] = &[
    text("work_item", "What the session works on, such as github:OWNER/REPO#N", From::Own),
    text("repository", "OWNER/REPO of the work item", From::Own),
    text("harness", "The agent program", From::Own),
];
const TURN: &[Field] = &[
    number("turn", "The turn's number", From::Own),
    number("attempt", "Which attempt it is", From::Own),
    text("url", "Page of the work item", From::Own),
];
const FILTERS: &[Filter] = &[
    by("work_item", "Only this work item, as github:OWNER/REPO#N", How::SameWord),
    by("repository", "Only work items of this repository, as OWNER/REPO", How::SameWord),
    by("harness", "Only this agent program", How::Same),
];

/// Every event of our own that can be watched.
pub(super) const TYPES: &[EventType] = &[
    EventType {
        name: "session.turn_started",
        about: "An agent session was woken: a turn began because something it waits for happened.",
        fields: &[SESSION, TURN, &[texts("deliveries", "Ids of the events it is told", From::Own)]],
        filters: FILTERS,
    },
    EventType {
        name: "session.turn_finished",
        about: "An agent's turn ended: it succeeded, failed, timed out, was interrupted or cancelled.",
        fields: &[
            SESSION,
            TURN,
            &[
                text("state", "succeeded, failed, timed_out, interrupted or cancelled", From::Own),
                text("error", "What was wrong", From::Own),
                text("started_at", "When it began", From::Own),
            ],
        ],
        filters: &[
            by("work_item", "Only this work item, as github:OWNER/REPO#N", How::SameWord),
            by("repository", "Only work items of this repository, as OWNER/REPO", How::SameWord),
            by("harness", "Only this agent program", How::Same),
            by("state", "Only turns that ended so: succeeded, failed, timed_out, interrupted, cancelled", How::Same),
        ],
    },
    EventType {
        name: "session.needs_attention",
        about: "An agent session waits for a person: it cannot be woken until something is mended.",
        fields: &[&[
            text("session", "Key of the session", From::Own),
            text("work_item", "What the session works on", From::Own),
            text("repository", "OWNER/REPO of the work item", From::Own),
            text("reason", "What is the matter", From::Own),
            text("url", "Page of the work item", From::Own),
        ]],
        filters: &[
            by("work_item", "Only this work item, as github:OWNER/REPO#N", How::SameWord),
            by("repository", "Only work items of this repository, as OWNER/REPO", How::SameWord),
        ],
    },
];

/// How much of a failure's words is told.
const WORDS: usize = 1000;

/// A turn began.
pub fn turn_started(
    turn: TurnId,
    work_item: &WorkItem,
    harness: &str,
    attempt: u32,
    deliveries: Vec<String>,
    at: Timestamp,
) -> Occurrence {
    let mut data = frame(work_item);
    data.insert("harness".into(), harness.into());
    data.insert("turn".into(), turn.0.into());
    data.insert("attempt".into(), attempt.into());
    data.insert("deliveries".into(), deliveries.into());
    own("session.turn_started", format!("turn_{turn}_started"), work_item, data, at)
}

/// A turn ended.
pub fn turn_finished(
    turn: TurnId,
    work_item: &WorkItem,
    harness: &str,
    attempt: u32,
    outcome: &TurnOutcome,
    (started, ended): (Timestamp, Timestamp),
) -> Occurrence {
    let mut data = frame(work_item);
    data.insert("harness".into(), harness.into());
    data.insert("turn".into(), turn.0.into());
    data.insert("attempt".into(), attempt.into());
    data.insert("state".into(), outcome.state.as_str().into());
    if let Some(failure) = &outcome.failure {
        data.insert("error".into(), failure.message.chars().take(WORDS).collect::<String>().into());
    }
    data.insert("started_at".into(), started.to_string().into());
    own("session.turn_finished", format!("turn_{turn}_finished"), work_item, data, ended)
}

/// A session waits for a person. `None` where its key names no work item.
pub fn needs_attention(session: &SessionKey, reason: &str, at: Timestamp) -> Option<Occurrence> {
    let work_item = WorkItem::parse(&session.0).ok()?;
    let mut data = frame(&work_item);
    data.insert("session".into(), session.0.clone().into());
    data.insert("reason".into(), reason.chars().take(WORDS).collect::<String>().into());
    let id = format!("attention_{}_{}", work_item.key(), at.as_millisecond());
    let id = id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    Some(own("session.needs_attention", id, &work_item, data, at))
}

fn frame(work_item: &WorkItem) -> Map<String, Value> {
    let mut data = Map::new();
    data.insert("work_item".into(), work_item.to_string().into());
    if let Some(repository) = work_item.repo() {
        data.insert("repository".into(), repository.to_string().into());
    }
    if let Some(page) = work_item.page() {
        data.insert("url".into(), page.into());
    }
    data
}

fn own(name: &str, id: String, work_item: &WorkItem, data: Map<String, Value>, at: Timestamp) -> Occurrence {
    Occurrence {
        fingerprint: format!("loop:{id}"),
        event_id: id,
        name: name.into(),
        at,
        repository: work_item.repo().map(crate::domain::RepoName::key),
        actor: None,
        data,
    }
}
