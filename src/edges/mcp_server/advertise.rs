//! The top-level `events` capability, which rmcp's closed type cannot hold: added to the answers that carry
//! capabilities, on their way out.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use rmcp::RoleServer;
use rmcp::model::{CustomResult, JsonRpcMessage, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::MAX_BODY;

#[derive(Deserialize)]
struct Called {
    method: Option<String>,
    #[serde(default)]
    params: Named,
}

#[derive(Deserialize, Default)]
struct Named {
    name: Option<String>,
}

/// The header that repeats the name of what is called.
const NAME: &str = "mcp-name";

/// Adds the capability to answers over HTTP.
pub(super) async fn http(request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, MAX_BODY).await else { return StatusCode::PAYLOAD_TOO_LARGE.into_response() };
    let called = serde_json::from_slice::<Called>(&bytes).ok();
    // White space around a header's value is none of it (RFC 9110, 5.5).
    if let Some(name) =
        parts.headers.get(NAME).and_then(|value| HeaderValue::from_str(value.to_str().ok()?.trim()).ok())
    {
        parts.headers.insert(NAME, name);
    }
    // Clients that do not send the name of a tool in a header are served all the same; a wrong one is refused.
    if let Some(Called { method: Some(method), params: Named { name: Some(name) } }) = &called
        && method == "tools/call"
        && !parts.headers.contains_key(NAME)
        && let Ok(value) = HeaderValue::from_str(name)
    {
        parts.headers.insert(NAME, value);
    }
    let method = called.and_then(|called| called.method);
    let response = next.run(Request::from_parts(parts, bytes.into())).await;
    if !matches!(method.as_deref(), Some("server/discover" | "initialize")) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, MAX_BODY).await else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let stream =
        parts.headers.get(header::CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(b"text/event-stream"));
    let bytes = if stream { in_stream(&bytes) } else { added(&bytes).unwrap_or_else(|| bytes.to_vec()) };
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(bytes))
}

fn in_stream(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 32);
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        match line.strip_prefix(b"data:").and_then(added) {
            Some(changed) => {
                out.extend_from_slice(b"data: ");
                out.extend(changed);
                out.push(b'\n');
            }
            None => out.extend_from_slice(line),
        }
    }
    out
}

/// A JSON-RPC answer with the capability; `None` for anything else.
fn added(json: &[u8]) -> Option<Vec<u8>> {
    let mut message: Value = serde_json::from_slice(json).ok()?;
    insert(message.get_mut("result")?)?;
    serde_json::to_vec(&message).ok()
}

fn insert(result: &mut Value) -> Option<()> {
    result.get_mut("capabilities")?.as_object_mut()?.insert("events".into(), json!({}));
    Some(())
}

/// A byte transport whose answers carry the capability. The end of its input ends the streams.
pub(super) struct Advertising<T> {
    pub(super) inner: T,
    pub(super) stop: CancellationToken,
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Advertising<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let message = match message {
            JsonRpcMessage::Response(mut response) => {
                response.result = with_events(response.result);
                JsonRpcMessage::Response(response)
            }
            other => other,
        };
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let message = self.inner.receive().await;
        if message.is_none() {
            self.stop.cancel();
        }
        message
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

fn with_events(result: ServerResult) -> ServerResult {
    if !matches!(result, ServerResult::DiscoverResult(_) | ServerResult::InitializeResult(_)) {
        return result;
    }
    match serde_json::to_value(&result) {
        Ok(mut value) => match insert(&mut value) {
            Some(()) => ServerResult::CustomResult(CustomResult::new(value)),
            None => result,
        },
        Err(_) => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_with_capabilities_gain_one_and_others_stay() {
        let answer = br#"{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"tools":{}}}}"#;
        let changed: Value = serde_json::from_slice(&added(answer).expect("changed")).expect("JSON");
        assert_eq!(changed["result"]["capabilities"], json!({"tools": {}, "events": {}}));
        assert!(added(br#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}"#).is_none());
        let stream = b"id: 1\ndata: {\"id\":1,\"result\":{\"capabilities\":{}}}\n\n: ping\n";
        let text = String::from_utf8(in_stream(stream)).expect("text");
        assert_eq!(text, "id: 1\ndata: {\"id\":1,\"result\":{\"capabilities\":{\"events\":{}}}}\n\n: ping\n");
    }
}
