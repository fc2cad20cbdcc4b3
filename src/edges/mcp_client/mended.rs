//! What comes from a server, made readable before rmcp reads it.
//!
//! JavaScript writes text that was cut in the middle of a character as half a surrogate pair, which serde_json refuses:
//! rmcp passes over such a message, and with it an event. And a message that is larger than any that is taken is not
//! lost without a word: a frame of our own, [`PASSED_OVER`], stands in its place.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::{HeaderName, HeaderValue, header::ACCEPT, header::CONTENT_TYPE};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, RequestId};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use serde_json::json;
use sse_stream::Sse;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};

use crate::clients::HttpClient;
use crate::payload;

use super::ordered::{PREFIX, SUBSCRIPTION_ID};

/// The kind of frame that says that a message was too large. Without an id it is for all streams of a connection.
pub(super) const PASSED_OVER: &str = "passed_over";
/// A line's memory is kept for the next line up to this size.
const KEPT: usize = 1 << 20;
/// How much of a program's output may wait for its reader.
const WAITING: usize = 64 << 10;
const SESSION_ID: &str = "mcp-session-id";

type Failure = StreamableHttpError<<HttpClient as StreamableHttpClient>::Error>;
type Messages = BoxStream<'static, Result<Sse, SseError>>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// The frame that stands for a message that was too large: in answer to this request, or to any.
fn passed_over(request: Option<&RequestId>) -> String {
    let meta = request.map_or_else(|| json!({}), |id| json!({ SUBSCRIPTION_ID: id }));
    json!({"jsonrpc": "2.0", "method": format!("{PREFIX}{PASSED_OVER}"), "params": {"_meta": meta}}).to_string()
}

/// A program's output, line by line, with no line above `largest`.
pub(super) fn lines(output: impl AsyncRead + Unpin + Send + 'static, largest: usize) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(WAITING);
    tokio::spawn(async move {
        if let Err(error) = relay(output, ours, largest).await {
            tracing::debug!(%error, "a program's output is read no more");
        }
    });
    theirs
}

async fn relay(output: impl AsyncRead + Unpin, mut into: DuplexStream, largest: usize) -> std::io::Result<()> {
    let mut reader = BufReader::new(output);
    let most = u64::try_from(largest).unwrap_or(u64::MAX);
    let mut line = Vec::new();
    let mut is_rest = false;
    loop {
        line.clear();
        line.shrink_to(KEPT);
        if (&mut reader).take(most).read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        let is_whole = line.last() == Some(&b'\n');
        if is_whole && !is_rest {
            payload::replace_lone_surrogates(&mut line);
            into.write_all(&line).await?;
        } else if is_whole {
            tracing::warn!(largest, "a program said something too large; passed over");
            into.write_all(format!("{}\n", passed_over(None)).as_bytes()).await?;
        }
        is_rest = !is_whole;
    }
}

/// Speaks HTTP as [`HttpClient`] does.
#[derive(Clone)]
pub(super) struct Mended(pub(super) HttpClient);

impl Mended {
    /// Asks once more what may be asked twice, and reads the answer ourselves.
    async fn again(
        &self,
        uri: &str,
        message: &ClientJsonRpcMessage,
        (session, token, headers): (Option<Arc<str>>, Option<String>, Headers),
        largest: usize,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let mut request = self.0.post(uri).header(ACCEPT, "application/json, text/event-stream");
        request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if let Some(session) = &session {
            request = request.header(SESSION_ID, session.as_ref());
        }
        let request = request.header(CONTENT_TYPE, "application/json").body(serde_json::to_vec(message)?);
        let mut response = request.send().await?.error_for_status()?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > largest {
                return Err(StreamableHttpError::ResponseBodyTooLarge { max_size: largest });
            }
            body.extend_from_slice(&chunk);
        }
        payload::replace_lone_surrogates(&mut body);
        Ok(StreamableHttpPostResponse::Json(serde_json::from_slice(&body)?, session.map(|id| id.to_string())))
    }
}

impl StreamableHttpClient for Mended {
    type Error = <HttpClient as StreamableHttpClient>::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session, token, headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let (id, method) = custom(&message);
        let more = (method == Some("events/poll"))
            .then(|| (message.clone(), (session.clone(), token.clone(), headers.clone())));
        let posted =
            self.0.post_message_with_response_limits(Arc::clone(&uri), message, session, token, headers, limits).await;
        match (posted, more) {
            (Ok(StreamableHttpPostResponse::Sse(messages, session)), _) => {
                Ok(StreamableHttpPostResponse::Sse(mended(messages, id), session))
            }
            // An answer that is no message of rmcp's.
            (Err(StreamableHttpError::UnexpectedServerResponse(why)), Some((message, with))) => {
                match self.again(&uri, &message, with, limits.max_json_response_size).await {
                    Err(StreamableHttpError::ResponseBodyTooLarge { max_size }) => {
                        Err(StreamableHttpError::ResponseBodyTooLarge { max_size })
                    }
                    // What was wrong with the first is said best by itself.
                    Err(_) => Err(StreamableHttpError::UnexpectedServerResponse(why)),
                    answer => answer,
                }
            }
            (other, _) => other,
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), Failure> {
        self.0.delete_session(uri, session, token, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<Messages, Failure> {
        Ok(mended(self.0.get_stream(uri, session, last, token, headers).await?, None))
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
        largest: usize,
    ) -> Result<Messages, Failure> {
        let stream = self.0.get_stream_with_max_sse_event_size(uri, session, last, token, headers, largest).await?;
        Ok(mended(stream, None))
    }
}

/// The id and the method of a request of the events' protocol.
fn custom(message: &ClientJsonRpcMessage) -> (Option<RequestId>, Option<&str>) {
    match message {
        JsonRpcMessage::Request(request) => match &request.request {
            ClientRequest::CustomRequest(custom) => (Some(request.id.clone()), Some(&custom.method)),
            _ => (None, None),
        },
        _ => (None, None),
    }
}

/// Messages that can be read; one that is too large, with which a stream ends, becomes a frame that says so.
fn mended(messages: Messages, request: Option<RequestId>) -> Messages {
    let each = move |message: Result<Sse, SseError>| match message {
        Ok(mut message) => {
            message.data = message.data.map(readable);
            Ok(message)
        }
        Err(SseError::Body(error)) if request.is_some() && is_too_large(error.as_ref()) => {
            tracing::warn!(%error, "a server said something too large; passed over");
            Ok(Sse::default().data(passed_over(request.as_ref())))
        }
        Err(error) => Err(error),
    };
    messages.map(each).boxed()
}

fn readable(text: String) -> String {
    let mut text = text.into_bytes();
    payload::replace_lone_surrogates(&mut text);
    // ASCII took the place of ASCII.
    String::from_utf8(text).unwrap_or_default()
}

/// rmcp's own type for this is not to be had, only its words.
fn is_too_large(error: &(dyn std::error::Error + 'static)) -> bool {
    error.to_string().contains("exceeded the maximum size")
}
