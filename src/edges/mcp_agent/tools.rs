//! The tools as a model sees them: what each does, and the habit that they are for.

use std::sync::Arc;

use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

/// The tools.
pub(super) fn all() -> Vec<Tool> {
    let session = json!({"type": "string", "description": "Which conversation this is, as HARNESS:SESSION_ID. Only needed \
        where the harness does not tell it to its tools; an answer says so then"});
    let conditions = |about: &str| json!({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}, "description": about});
    vec![
        tool(
            "list_mcp_events",
            "List events to wait for",
            "Lists the events of other MCP servers that this conversation can wait for: each with its server, what it \
             tells and by which arguments it is filtered. Look here before you subscribe, and before you poll or sleep.",
            (true, true),
            json!({"type": "object", "additionalProperties": false, "properties": {
                "server": {"type": "string", "description": "Only the events of this server"}, "session": session}}),
        ),
        tool(
            "subscribe_mcp_events",
            "Wait for an event",
            "Subscribes this conversation to an event. Afterwards END YOUR TURN: do not poll, do not sleep. Nothing runs \
             and nothing is paid while you wait; when the event comes, this same conversation is resumed with it. Then act \
             on it, and unsubscribe when you need no more. `arguments` are filters that the server applies; `where` are \
             conditions on the event's data that must all hold, or you are not woken; `until` ends the subscription when \
             its conditions hold; `once` ends it after the first event that you are told.",
            (false, true),
            json!({"type": "object", "additionalProperties": false, "required": ["server", "name"], "properties": {
                "server": {"type": "string", "description": "The server, as list_mcp_events names it"},
                "name": {"type": "string", "description": "The event, as list_mcp_events names it"},
                "arguments": {"type": "object", "description": "The server's filters, as list_mcp_events describes them"},
                "where": conditions("Fields of the event's data and the values that they must have for you to be woken"),
                "until": conditions("Fields and values that, when all hold, end the subscription"),
                "once": {"type": "boolean", "description": "End the subscription after the first event that you are told"},
                "session": session}}),
        ),
        tool(
            "unsubscribe_mcp_events",
            "Stop waiting for an event",
            "Ends a subscription of this conversation. Do this when you need no more of its events: one that goes on wakes \
             you again, and every turn is paid for.",
            (false, true),
            json!({"type": "object", "additionalProperties": false, "required": ["subscription"], "properties": {
                "subscription": {"type": "string", "description": "The id that subscribe_mcp_events gave"}, "session": session}}),
        ),
        tool(
            "list_mcp_subscriptions",
            "List what is waited for",
            "Lists the subscriptions of this conversation: what each waits for, whether it is active, and when an event \
             last came by it. Those of other conversations are not shown.",
            (true, true),
            json!({"type": "object", "additionalProperties": false, "properties": {"session": session}}),
        ),
        tool(
            "get_event",
            "Read an event",
            "Reads the whole record of an event that this conversation was woken with, by the delivery id that its notice \
             names. Notices are cut where texts are long; this is not.",
            (true, true),
            json!({"type": "object", "additionalProperties": false, "required": ["event_id"], "properties": {
                "event_id": {"type": "string", "description": "The delivery id of the event"}, "session": session}}),
        ),
    ]
}

fn tool(name: &'static str, title: &str, about: &'static str, (reads, repeats): (bool, bool), schema: Value) -> Tool {
    let schema: Map<_, _> = schema.as_object().cloned().unwrap_or_default();
    let notes = ToolAnnotations::from_raw(Some(title.into()), Some(reads), Some(false), Some(repeats), Some(false));
    Tool::new(name, about, Arc::new(schema)).with_title(title).with_annotations(notes)
}
