//! What another MCP server told us, or what we tell of it, to a [`Delivery`].

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::tree::Extent;
use super::{Error, json as text};
use crate::domain::{Delivery, Source, Watch};

/// The event by which a session hears that something may have been missed.
pub const WATCH_GAP: &str = "watch.gap";
/// The event by which a session hears that a watch of its is over.
pub const WATCH_ENDED: &str = "watch.ended";

/// The longest event id that stands for itself.
const LONGEST_ID: usize = 200;

/// Makes a delivery of an occurrence `{eventId, name, timestamp, data}` that a server told for an event type.
///
/// An occurrence without an id of its own gets one that follows from what it says: told twice, it is still one.
pub fn from_occurrence(
    server: &str,
    event: &str,
    occurrence: &Value,
    received_at: Timestamp,
) -> Result<Delivery, Error> {
    let object = occurrence.as_object().ok_or(Error::NotAnObject)?;
    let mut kept = Map::new();
    for name in ["eventId", "name", "timestamp", "data"] {
        if let Some(value) = object.get(name).filter(|value| !value.is_null()) {
            kept.insert(name.into(), value.clone());
        }
    }
    let given = kept.get("eventId").and_then(Value::as_str).filter(|id| !id.is_empty()).map(str::to_owned);
    let plain =
        |id: &String| id.len() <= LONGEST_ID && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b));
    let id = match given {
        Some(id) if plain(&id) => id,
        Some(id) => hashed("id", server, &id),
        None => hashed("body", server, &Value::Object(kept.clone()).to_string()),
    };
    kept.insert("eventId".into(), id.clone().into());
    delivery(server, id, event, Value::Object(kept), received_at)
}

/// Gaps of a watch that are this close to each other are told once, in seconds: a server that always says that it lost
/// something must not wake a session each time.
const GAPS_APART: i64 = 600;

/// Makes the delivery that tells a watch's session of a possible gap: between `from` and `to` events may be missing.
pub fn from_gap(watch: &Watch, from: Option<Timestamp>, to: Timestamp) -> Result<Delivery, Error> {
    let about = "the server could not say all that happened in this time: events may have been missed. Look for \
                 yourself where it matters. Further gaps within the next minutes are not told one by one";
    let id = format!("gap:{}:{}", watch.id, to.as_second() / GAPS_APART);
    let data =
        json!({"watch": watch.id, "server": watch.server, "event": watch.event, "gap": about, "from": from, "to": to});
    let body = json!({"eventId": id, "name": WATCH_GAP, "timestamp": to, "data": data});
    delivery(&watch.server, id, WATCH_GAP, body, to)
}

/// Makes the delivery that tells a session that a watch ended without its asking.
pub fn from_end(watch: &Watch, reason: &str, at: Timestamp) -> Result<Delivery, Error> {
    let id = format!("ended:{}", watch.id);
    let data = json!({"watch": watch.id, "server": watch.server, "event": watch.event, "arguments": watch.arguments,
        "ended": reason, "meaning": "no more of these events will come; subscribe again if you still need them"});
    let body = json!({"eventId": id, "name": WATCH_ENDED, "timestamp": at, "data": data});
    delivery(&watch.server, id, WATCH_ENDED, body, at)
}

/// Reads the data of an occurrence back, for conditions to look into.
pub fn occurrence_data(delivery: &Delivery) -> Value {
    match serde_json::from_slice(&delivery.body) {
        Ok(Value::Object(mut body)) => body.remove("data").unwrap_or_default(),
        _ => Value::Null,
    }
}

fn hashed(what: &str, server: &str, text: &str) -> String {
    Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("{what}|{server}|{text}").as_bytes()).to_string()
}

fn delivery(server: &str, id: String, event: &str, body: Value, received_at: Timestamp) -> Result<Delivery, Error> {
    let body = Bytes::from(body.to_string());
    text::check_object(&body, Extent::Whole)?;
    Ok(Delivery { source: Source::Mcp(server.to_owned()), id, event: event.to_owned(), body, received_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(occurrence: Value) -> Delivery {
        from_occurrence("ci", "x.y", &occurrence, Timestamp::UNIX_EPOCH).expect("a delivery")
    }

    #[test]
    fn ids_are_the_servers_or_follow_from_what_is_said() {
        let data = json!({"a": 1});
        assert_eq!(of(json!({"eventId": "evt_1", "data": data})).id, "evt_1");
        let odd = of(json!({"eventId": "a b\n", "data": data}));
        assert_eq!(odd.id, of(json!({"eventId": "a b\n", "data": {}})).id);
        assert_eq!(odd.id.len(), 36);
        assert_eq!(of(json!({"data": data, "cursor": "1"})).id, of(json!({"data": data, "cursor": "2"})).id);
        assert_ne!(of(json!({"data": data})).id, of(json!({"data": {}})).id);
        assert_eq!(occurrence_data(&of(json!({"data": data}))), data);
        assert!(from_occurrence("ci", "x", &json!([]), Timestamp::UNIX_EPOCH).is_err());
    }
}
