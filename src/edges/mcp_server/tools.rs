//! Two tools beside the events, for models that were woken and want to know more. Both only read.

use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, ErrorData, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use crate::catalogue;
use crate::domain::Access;
use crate::engine::Feed;

use super::events::occurrence;
use super::handler::internal;
use super::params::invalid;

/// A record above this is not handed out whole: no model reads it.
const LARGEST: usize = 4 << 20;
const USUAL: u64 = 20;
const MOST: u64 = 100;

/// The tools.
pub(super) fn all() -> Vec<Tool> {
    let names: Vec<_> = catalogue::event_types().map(catalogue::EventType::name).collect();
    let get = json!({
        "type": "object", "required": ["event_id"], "additionalProperties": false,
        "properties": {"event_id": {"type": "string", "description": "The eventId of an event"}},
    });
    let list = json!({
        "type": "object", "additionalProperties": false,
        "properties": {
            "name": {"type": "string", "enum": names, "description": "Only events of this type"},
            "arguments": {"type": "object", "description": "Filters of that type, as in its inputSchema"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST, "description": "How many, the newest first"},
        },
    });
    vec![
        tool(
            "get_event",
            "Read an event",
            "Reads the whole record of one event by its eventId, with every text in full. Events themselves carry a \
             summary only.",
            get,
        ),
        tool(
            "list_events",
            "List recent events",
            "Lists what happened lately, newest first: of one event type with its filters, or of all.",
            list,
        ),
    ]
}

fn tool(name: &'static str, title: &str, about: &'static str, schema: Value) -> Tool {
    let schema: Map<_, _> = schema.as_object().cloned().unwrap_or_default();
    let notes = ToolAnnotations::from_raw(Some(title.into()), Some(true), Some(false), Some(true), Some(false));
    Tool::new(name, about, Arc::new(schema)).with_title(title).with_annotations(notes)
}

/// Calls a tool.
pub(super) async fn call(
    feed: &Feed,
    name: &str,
    arguments: &Value,
    access: Access,
) -> Result<CallToolResult, ErrorData> {
    match name {
        "get_event" => get_event(feed, arguments, access).await,
        "list_events" => list_events(feed, arguments, access).await,
        _ => Err(invalid("there is no such tool")),
    }
}

async fn get_event(feed: &Feed, arguments: &Value, access: Access) -> Result<CallToolResult, ErrorData> {
    let id = arguments.get("event_id").and_then(Value::as_str).ok_or_else(|| invalid("`event_id` is no text"))?;
    let Some((placed, body)) = feed.record(id.to_owned(), access).await.map_err(|error| internal(&error))? else {
        return Ok(told_failure("there is no such event, or it is too old, or you may not see it"));
    };
    let mut record = occurrence(&placed);
    let whole = match body {
        Some(body) if body.len() > LARGEST => json!({"omitted": format!("{} bytes", body.len())}),
        Some(body) => serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into()),
        None => Value::Null,
    };
    if let Some(object) = record.as_object_mut() {
        object.insert("record".into(), whole);
    }
    Ok(CallToolResult::structured(record))
}

async fn list_events(feed: &Feed, arguments: &Value, access: Access) -> Result<CallToolResult, ErrorData> {
    let kind = match arguments.get("name").and_then(Value::as_str) {
        None => None,
        Some(name) => match catalogue::event_type(name) {
            Some(kind) => Some(kind),
            None => return Ok(told_failure("there is no such event type; events/list has all")),
        },
    };
    let given = arguments.get("arguments").unwrap_or(&Value::Null);
    let filters = match (kind, given) {
        (Some(kind), given) => match kind.arguments(given) {
            Ok(filters) => filters,
            Err(why) => return Ok(told_failure(&why)),
        },
        (None, Value::Null) => crate::domain::Arguments::new(),
        (None, _) => return Ok(told_failure("filters belong to an event type: give its name as well")),
    };
    let limit = arguments.get("limit").and_then(Value::as_u64).unwrap_or(USUAL).clamp(1, MOST);
    let limit = usize::try_from(limit).unwrap_or(1);
    let found = feed.recent(kind, filters, access, limit).await.map_err(|error| internal(&error))?;
    Ok(CallToolResult::structured(json!({"events": found.iter().map(occurrence).collect::<Vec<_>>()})))
}

/// A failure that the model should read and act on.
fn told_failure(why: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(why)])
}
