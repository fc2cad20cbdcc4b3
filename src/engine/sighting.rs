//! One event that came by watches: read, seen once by each watch, and decided for all of them.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::domain::{Decision, Delivery, DeliverySeq, Event, Source, Watch};
use crate::payload::{self, WATCH_ENDED, WATCH_GAP};
use crate::routing;
use crate::store::{self, Accepting, Db};

use super::Sessions;
/// An occurrence that is ready for the store.
pub(super) struct Read {
    pub(super) accepting: Accepting,
    pub(super) event: Event,
    pub(super) data: Value,
}

/// Reads an occurrence. One that is not as the protocol says is left out: the log has it, without its words.
pub(super) fn read(watch: &Watch, occurrence: &Value, max_age: Option<SignedDuration>) -> Option<Read> {
    let now = Timestamp::now();
    let name = occurrence.get("name").and_then(Value::as_str);
    if name.is_some_and(|name| name != watch.event) {
        tracing::warn!(watch = %watch.id, "a server told of another event than was asked for; left out");
        return None;
    }
    let made = payload::from_occurrence(&watch.server, &watch.event, occurrence, now)
        .and_then(|delivery| payload::read(&delivery).map(|event| (delivery, event)));
    let (delivery, event) = match made {
        Ok(made) => made,
        Err(error) => {
            tracing::warn!(watch = %watch.id, %error, "a server told something that is no event; left out");
            return None;
        }
    };
    if is_too_old(watch, &event, max_age, now) {
        tracing::info!(watch = %watch.id, "an event from before max_age was let go");
        return None;
    }
    let data = payload::occurrence_data(&delivery);
    match Accepting::new(delivery) {
        Ok(accepting) => Some(Read { accepting, event, data }),
        Err(error) => {
            tracing::error!(watch = %watch.id, %error, "an event could not be kept");
            None
        }
    }
}

/// Only where we have not looked for longer than `max_age` can an event be older than that for us: otherwise we would
/// have it, whatever the server's clock says.
fn is_too_old(watch: &Watch, event: &Event, max_age: Option<SignedDuration>, now: Timestamp) -> bool {
    let (Some(max_age), Some(checked), Some(happened)) = (max_age, watch.checked_at, event.happened_at) else {
        return false;
    };
    now.duration_since(checked) > max_age && now.duration_since(happened) > max_age
}

/// The delivery's place, if this watch has not seen it before.
pub(super) fn sighted(db: &Db, watch: &Watch, accepting: &Accepting) -> Result<Option<DeliverySeq>, store::Error> {
    let seq = match db.receipt(accepting.source(), accepting.id())? {
        Some(seq) => seq,
        None => match db.accept(accepting)? {
            crate::domain::Receipt::Accepted(seq)
            | crate::domain::Receipt::Duplicate(seq)
            | crate::domain::Receipt::Requeued(seq) => seq,
        },
    };
    Ok(db.sight(&watch.id, seq)?.then_some(seq))
}

/// Whether it is we who tell of a watch, not its server.
fn is_own(event: &Event) -> bool {
    [WATCH_GAP, WATCH_ENDED].contains(&event.name.as_str())
}

/// Decides a delivery that came by watches, and makes it true.
pub(super) fn decide(
    db: &Db,
    sessions: &Sessions,
    seq: DeliverySeq,
    event: &Event,
    data: &Value,
) -> Result<(), store::Error> {
    let decision = decision(db, sessions, seq, event, data)?;
    db.record_watched(seq, event, &decision, Timestamp::now())?;
    tracing::info!(seq = seq.0, event = %event.title(), outcome = %decision.outcome, reason = ?decision.reason, "decided");
    Ok(())
}

/// What is decided about a delivery that came by watches.
pub(super) fn decision(
    db: &Db,
    sessions: &Sessions,
    seq: DeliverySeq,
    event: &Event,
    data: &Value,
) -> Result<Decision, store::Error> {
    let watches = db.watches_that_saw(seq)?;
    Ok(routing::watched(event, data, is_own(event), &watches, &sessions.seen()))
}

/// The same for a delivery by its receipt.
pub(super) fn explained(
    db: &Db,
    sessions: &Sessions,
    delivery: &Delivery,
    event: &Event,
) -> Result<Decision, store::Error> {
    let seq = db.receipt(&delivery.source, &delivery.id)?.unwrap_or(DeliverySeq(0));
    decision(db, sessions, seq, event, &payload::occurrence_data(delivery))
}

/// The data that conditions look into, of a delivery that came by a watch.
pub(super) fn data_of(delivery: &Delivery) -> Option<Value> {
    matches!(delivery.source, Source::Mcp(_)).then(|| payload::occurrence_data(delivery))
}
