"""Publishes ticket.updated by webhook with mcp-webhook-events: python tickets.py PORT STORE.

Its tool `publish` makes one happen. Callbacks on loopback are taken: this is for tests.
"""
import sys

import uvicorn
from mcp.server import MCPServer
from mcp_webhook_events import EventDefinition, McpEvents, SafeHttp

PORT, STORE = int(sys.argv[1]), sys.argv[2]
TEXT = {"type": "string"}
server = MCPServer("tickets")


def principal(context):
    request = getattr(context, "request", None)
    return (request.headers.get("authorization") if request is not None else None) or "nobody"


def schema(*names):
    return {"type": "object", "properties": {name: TEXT for name in names}, "required": list(names)}


definition = EventDefinition(
    name="ticket.updated", description="A ticket changed.",
    input_schema={**schema("ticket"), "additionalProperties": False}, payload_schema=schema("ticket", "summary"))
events = McpEvents(server, store=STORE, principal=principal, http=SafeHttp(allow_insecure_for_tests=True),
                   definitions=[definition])
events.install(recent_events_tool=False)


@server.tool()
def publish(ticket: str, summary: str) -> str:
    """Makes a ticket change."""
    events.publish("ticket.updated", {"ticket": ticket, "summary": summary})
    events.deliver_pending()
    return "published"


app = server.streamable_http_app(stateless_http=True, json_response=True)
uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
