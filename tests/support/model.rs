//! A model that is none: it speaks enough of two streaming protocols for real agent programs, on loopback alone,
//! answers the same words to everything unless it is to call a tool, and keeps what it was asked.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};
use tokio::sync::watch;

/// What the model says to everything.
pub const ANSWER: &str = "Understood, thank you.";
/// What it counts for every request.
pub const INPUT_TOKENS: u64 = 1200;
/// What it counts for every answer.
pub const OUTPUT_TOKENS: u64 = 34;

/// No request of an agent program is larger.
const MAX_BODY: usize = 32 << 20;

/// The tools that the next requests are answered with, by name and input.
type Calls = Arc<Mutex<VecDeque<(String, Value)>>>;

/// A model that listens until it is dropped.
pub struct Model {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    held: watch::Sender<bool>,
    refusal: Arc<AtomicU16>,
    calls: Calls,
    /// Ends everything that it runs when dropped.
    _runtime: tokio::runtime::Runtime,
}

/// One request for an answer of the model.
#[derive(Debug, Clone)]
pub struct Asked {
    /// When it had arrived.
    pub at: Instant,
    /// The conversation that its headers or its frame name.
    pub conversation: Option<String>,
    /// The texts of the person's messages, in order, without what the program adds for itself.
    pub said: Vec<String>,
    /// The whole body.
    pub body: String,
}

#[derive(Clone)]
struct Shared {
    asked: Arc<Mutex<Vec<Asked>>>,
    held: watch::Receiver<bool>,
    refusal: Arc<AtomicU16>,
    calls: Calls,
}

impl Model {
    /// Starts a model on a free port.
    pub fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (held, is_held) = watch::channel(false);
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let refusal = Arc::<AtomicU16>::default();
        let calls = Calls::default();
        let shared = Shared {
            asked: Arc::clone(&asked),
            held: is_held,
            refusal: Arc::clone(&refusal),
            calls: Arc::clone(&calls),
        };
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let routes = Router::new().fallback(answer).with_state(shared);
        runtime.spawn(async move { axum::serve(listener, routes).await });
        Self { address, asked, held, refusal, calls, _runtime: runtime }
    }

    /// Its base URL, without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request for an answer so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers one more request by calling one of our tools, before it goes on with words.
    pub fn will_call(&self, tool: &str, input: Value) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push_back((tool.into(), input));
    }

    /// Lets requests arrive and wait for their answers until [`release`](Self::release).
    pub fn hold(&self) {
        self.held.send_replace(true);
    }

    /// Answers what waits and what comes.
    pub fn release(&self) {
        self.held.send_replace(false);
    }

    /// Answers every request with this HTTP status, until [`accept`](Self::accept).
    pub fn refuse(&self, status: u16) {
        self.refusal.store(status, Ordering::SeqCst);
    }

    /// Answers well again.
    pub fn accept(&self) {
        self.refusal.store(0, Ordering::SeqCst);
    }
}

async fn answer(State(mut shared): State<Shared>, request: Request) -> Response {
    let at = Instant::now();
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_BODY).await else { return plain(StatusCode::PAYLOAD_TOO_LARGE, "{}") };
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let stream = match parts.uri.path() {
        path if path.ends_with("/messages") => {
            let call = shared.calls.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            messages_stream(&asked, call)
        }
        path if path.ends_with("/responses") => {
            let call = shared.calls.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            responses_stream(&asked, call)
        }
        path if path.ends_with("/count_tokens") => {
            return plain(StatusCode::OK, &json!({"input_tokens": INPUT_TOKENS}).to_string());
        }
        // Greetings, lists of models, news of use: nothing hangs on them.
        _ => return plain(StatusCode::OK, "{}"),
    };
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(String::from);
    let conversation = header("x-claude-code-session-id")
        .or_else(|| header("session_id"))
        .or_else(|| header("session-id"))
        .or_else(|| asked["prompt_cache_key"].as_str().map(String::from));
    let body = String::from_utf8_lossy(&body).into_owned();
    let kept = Asked { at, conversation, said: said(&asked), body };
    shared.asked.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
    if shared.held.wait_for(|held| !held).await.is_err() {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "{}");
    }
    if let Ok(status) = StatusCode::from_u16(shared.refusal.load(Ordering::SeqCst)) {
        let error = json!({"type": "api_error", "code": "api_error", "message": "the model is not at home"});
        return plain(status, &json!({"type": "error", "error": error}).to_string());
    }
    let response = Response::builder().header(header::CONTENT_TYPE, "text/event-stream");
    response.body(Body::from(stream)).expect("a response")
}

fn plain(status: StatusCode, text: &str) -> Response {
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
    response.body(Body::from(text.to_owned())).expect("a response")
}

/// Server-sent events, each named by the `type` of its data.
fn events(of: &[Value]) -> String {
    let event = |data: &Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default());
    of.iter().map(event).collect()
}

/// The answer in Anthropic's Messages protocol.
fn messages_stream(asked: &Value, call: Option<(String, Value)>) -> String {
    let (block, delta, reason) = match call {
        None => (json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": ANSWER}), "end_turn"),
        Some((tool, input)) => {
            let id = format!("toolu_{}", uuid::Uuid::new_v4().simple());
            let block = json!({"type": "tool_use", "id": id, "name": format!("mcp__the-loop__{tool}"), "input": {}});
            (block, json!({"type": "input_json_delta", "partial_json": input.to_string()}), "tool_use")
        }
    };
    events(&[
        json!({"type": "message_start", "message": {
            "id": format!("msg_{}", uuid::Uuid::new_v4().simple()), "type": "message", "role": "assistant",
            "model": asked["model"], "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": 1},
        }}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
               "usage": {"output_tokens": OUTPUT_TOKENS}}),
        json!({"type": "message_stop"}),
    ])
}

/// The answer in OpenAI's Responses protocol.
fn responses_stream(asked: &Value, call: Option<(String, Value)>) -> String {
    let id = format!("resp_{}", uuid::Uuid::new_v4().simple());
    let item = match call {
        None => json!({
            "type": "message", "id": format!("msg_{}", uuid::Uuid::new_v4().simple()), "role": "assistant",
            "status": "completed", "content": [{"type": "output_text", "text": ANSWER, "annotations": []}],
        }),
        Some((tool, input)) => json!({
            "type": "function_call", "id": format!("fc_{}", uuid::Uuid::new_v4().simple()), "status": "completed",
            "call_id": format!("call_{}", uuid::Uuid::new_v4().simple()), "namespace": "mcp__the_loop", "name": tool,
            "arguments": input.to_string(),
        }),
    };
    let response = |status: &str, output: &[&Value]| {
        json!({
            "id": id, "object": "response", "created_at": 1_800_000_000, "model": asked["model"], "status": status,
            "output": output,
            "usage": {"input_tokens": INPUT_TOKENS, "input_tokens_details": {"cached_tokens": 0},
                      "output_tokens": OUTPUT_TOKENS, "output_tokens_details": {"reasoning_tokens": 0},
                      "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS},
        })
    };
    events(&[
        json!({"type": "response.created", "response": response("in_progress", &[])}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": response("completed", &[&item])}),
    ])
}

/// The person's texts in a request of either protocol.
fn said(asked: &Value) -> Vec<String> {
    let messages = asked["messages"].as_array().or(asked["input"].as_array()).cloned().unwrap_or_default();
    let of_person = messages.iter().filter(|message| message["role"] == "user");
    of_person.map(|message| text(&message["content"])).filter(|text| !text.is_empty()).collect()
}

/// The text of a message's content: a text, or a list of blocks with text. What the program adds stands in blocks of
/// its own that begin with a tag.
fn text(content: &Value) -> String {
    let own = |text: &&str| !text.trim_start().starts_with('<');
    match content {
        Value::String(text) => Some(text.as_str()).filter(own).unwrap_or_default().into(),
        _ => {
            let blocks = content.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
            blocks.filter(own).collect::<Vec<_>>().join("\n")
        }
    }
}
