//! One connection to a server: a child on its standard input and output, or Streamable HTTP.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use rmcp::RoleClient;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientRequest, CustomRequest, Implementation, ProtocolVersion, ServerResult,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, PeerRequestOptions, RunningService, ServiceError};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
};
use rmcp::transport::{StreamableHttpClientTransport, Transport};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::clients::HttpClient;
use crate::domain::{EventOffer, Mode};

use super::answers::{CallError, Listed, read};
use super::mended::{self, Mended};
use super::open_stream::OpenStream;
use super::ordered::{Ordered, frames};
use super::reading::cut;
use super::{Reach, Server};

/// A request that cannot even be sent is given up this long after its answer is overdue.
const SENDING: Duration = Duration::from_secs(2);
/// No message of a server is larger: a page of fifty events of a megabyte each fits.
const LARGEST: usize = 64 << 20;
/// More pages than this no list has.
const PAGES: usize = 50;
/// How long a program that failed is listened to.
const HEARD: Duration = Duration::from_millis(300);
/// How much of what a child says on its standard error is kept: its last line.
const LAST_WORDS: u64 = 4096;
const EXTENSION: &str = "io.modelcontextprotocol/events";

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The program could not be started.
    #[error("start `{program}`")]
    Start {
        /// What was to be started.
        program: String,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The program's directory is not there.
    #[error("start `{program}`: its directory `{}` is missing", cwd.display())]
    Directory {
        /// What was to be started.
        program: String,
        /// Where.
        cwd: std::path::PathBuf,
    },
    /// Something that it takes is missing.
    #[error("use `{server}`: {why}")]
    Trouble {
        /// The server's configured name.
        server: String,
        /// What is missing.
        why: String,
    },
    /// A header cannot be sent.
    #[error("send the header `{0}`: its name or value cannot stand in a request")]
    Header(String),
    /// It is no MCP server, or it did not answer.
    #[error("speak MCP with `{server}`: {why}")]
    Begin {
        /// The server's configured name.
        server: String,
        /// What went wrong.
        why: String,
    },
    /// It has no events.
    #[error("list the events of `{server}`: {why}")]
    List {
        /// The server's configured name.
        server: String,
        /// What went wrong.
        why: String,
    },
}

/// An open connection.
pub(super) struct Link {
    service: RunningService<RoleClient, ClientConfig>,
    /// Ends with the connection.
    _child: Option<Child>,
    last_words: Arc<Mutex<String>>,
    timeout: Duration,
    closed: CancellationToken,
}

impl Link {
    /// Connects and agrees on a protocol.
    pub(super) async fn open(server: &Server) -> Result<Self, LinkError> {
        if let Some(why) = &server.trouble {
            return Err(LinkError::Trouble { server: server.name.clone(), why: why.clone() });
        }
        let last_words = Arc::new(Mutex::new(String::new()));
        match &server.reach {
            Reach::Program { program, args, env, cwd } => {
                if !cwd.is_dir() {
                    return Err(LinkError::Directory { program: program.clone(), cwd: cwd.clone() });
                }
                let mut command = Command::new(program);
                command.args(args).env_clear().envs(env.iter().cloned()).current_dir(cwd).kill_on_drop(true);
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
                // A Ctrl-C at our terminal is for us; its input ends when we do.
                command.process_group(0);
                let failed = |source| LinkError::Start { program: program.clone(), source };
                let mut child = command.spawn().map_err(failed)?;
                let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
                    return Err(failed(std::io::Error::other("it has no standard input and output")));
                };
                let listener = child.stderr.take().map(|errors| tokio::spawn(listen(errors, Arc::clone(&last_words))));
                let output = mended::lines(output, LARGEST);
                let transport = AsyncRwTransport::new_client(output, input).with_max_line_length(LARGEST);
                Self::begin(server, transport, child.into(), last_words, listener).await
            }
            Reach::Address { url, token, headers, client } => {
                let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                    .max_concurrent_requests(256)
                    .max_sse_event_size(LARGEST)
                    .max_json_response_size(LARGEST)
                    .custom_headers(custom(headers)?);
                if let Some(token) = token {
                    let text = String::from_utf8_lossy(token.expose()).into_owned();
                    config = config.auth_header(text);
                }
                let transport = StreamableHttpClientTransport::with_client(Mended(client.clone()), config);
                Self::begin(server, transport, None, last_words, None).await
            }
        }
    }

    async fn begin<T: Transport<RoleClient> + 'static>(
        server: &Server,
        transport: T,
        child: Option<Child>,
        last_words: Arc<Mutex<String>>,
        listener: Option<JoinHandle<()>>,
    ) -> Result<Self, LinkError> {
        let mut capabilities = ClientCapabilities::default();
        capabilities.extensions = Some([(EXTENSION.to_owned(), Map::new())].into());
        let info = ClientConfig::new(capabilities, Implementation::new("the-loop", env!("CARGO_PKG_VERSION")));
        let lifecycle =
            ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::V_2026_07_28], legacy_version: None };
        let closed = CancellationToken::new();
        let opening = info.serve_with_lifecycle(Ordered::new(transport, closed.clone()), lifecycle);
        let timeout = server.timeout;
        let why = match tokio::time::timeout(timeout, opening).await {
            Ok(Ok(service)) => return Ok(Self { service, _child: child, last_words, timeout, closed }),
            Ok(Err(error)) => cut(&error.to_string(), 300),
            Err(_) => format!("it did not answer in {} s", timeout.as_secs_f64()),
        };
        // Why a program ended, it has said; it may not have been heard yet.
        if let Some(listener) = listener
            && tokio::time::timeout(HEARD, listener).await.is_err()
        {
            tracing::debug!(server = server.name, "a program that is of no use goes on talking");
        }
        let said = last_words.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let said = if said.is_empty() { String::new() } else { format!("; it said: {said}") };
        Err(LinkError::Begin { server: server.name.clone(), why: format!("{why}{said}") })
    }

    /// Sends a request and waits for its result.
    pub(super) async fn ask(&self, method: &str, params: Value) -> Result<Value, CallError> {
        let request = ClientRequest::CustomRequest(CustomRequest::new(method, Some(params)));
        let options = PeerRequestOptions::with_timeout(self.timeout);
        let asked = async {
            let handle = self.service.send_cancellable_request(request, options).await.map_err(lost)?;
            handle.await_response().await.map_err(lost).and_then(value)
        };
        // A server that reads nothing is not even asked.
        let overdue = tokio::time::timeout(self.timeout + SENDING, asked).await;
        overdue.unwrap_or(Err(CallError::Silent(self.timeout)))
    }

    /// Opens a stream.
    pub(super) async fn stream(&self, params: Value) -> Result<OpenStream, CallError> {
        let (sender, frames) = frames();
        let mut request = CustomRequest::new("events/stream", Some(params));
        request.extensions.insert(sender);
        let request = ClientRequest::CustomRequest(request);
        let options = PeerRequestOptions::no_options();
        let asked = self.service.send_cancellable_request(request, options);
        let overdue = tokio::time::timeout(self.timeout + SENDING, asked).await;
        let request = overdue.map_err(|_| CallError::Silent(self.timeout))?.map_err(lost)?;
        Ok(OpenStream::new(frames, request))
    }

    /// Everything that the server offers.
    pub(super) async fn offers(&self, server: &str) -> Result<Vec<EventOffer>, CallError> {
        let mut offers = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES {
            let params = cursor.take().map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
            // Where a server advertises its events is not agreed upon; asking is.
            let page: Listed = read(self.ask("events/list", params).await?)?;
            offers.extend(page.events.into_iter().map(|event| EventOffer {
                server: server.to_owned(),
                name: event.name,
                description: event.description.unwrap_or_default(),
                delivery: event.delivery.iter().filter_map(|word| mode(word)).collect(),
                arguments: event.input_schema,
            }));
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        Ok(offers)
    }

    /// Waits until the connection is gone.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// What a child said last on its standard error.
    pub(super) fn last_words(&self) -> String {
        self.last_words.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the connection in good order: a child sees the end of its input.
    pub(super) async fn close(self) {
        let Self { service, _child: child, .. } = self;
        if tokio::time::timeout(Duration::from_secs(2), service.cancel()).await.is_err() {
            tracing::debug!("a connection was slow to end");
        }
        if let Some(mut child) = child
            && tokio::time::timeout(Duration::from_secs(2), child.wait()).await.is_err()
            && let Err(error) = child.kill().await
        {
            tracing::debug!(%error, "could not end a server");
        }
    }
}

fn mode(word: &str) -> Option<Mode> {
    [Mode::Stream, Mode::Webhook, Mode::Poll].into_iter().find(|mode| mode.in_protocol() == word)
}

fn custom(headers: &[(String, String)]) -> Result<HashMap<HeaderName, HeaderValue>, LinkError> {
    let one = |(name, value): &(String, String)| Some((name.parse().ok()?, value.parse().ok()?));
    headers.iter().map(|pair| one(pair).ok_or_else(|| LinkError::Header(pair.0.clone()))).collect()
}

/// A result as JSON, whatever rmcp took it for.
pub(super) fn value(result: ServerResult) -> Result<Value, CallError> {
    serde_json::to_value(&result).map_err(|error| CallError::Odd(error.to_string()))
}

pub(super) fn lost(error: ServiceError) -> CallError {
    match error {
        ServiceError::McpError(error) => CallError::refused(&error),
        ServiceError::TransportClosed => CallError::Lost("the connection ended".into()),
        ServiceError::Timeout { timeout } => CallError::Silent(timeout),
        ServiceError::TransportSend(error) if is_too_large(error.error.as_ref()) => CallError::TooLarge(LARGEST),
        other => CallError::Lost(cut(&crate::domain::chain(&other), 300)),
    }
}

fn is_too_large(error: &(dyn std::error::Error + 'static)) -> bool {
    type Failure = StreamableHttpError<<HttpClient as StreamableHttpClient>::Error>;
    matches!(error.downcast_ref::<Failure>(), Some(Failure::ResponseBodyTooLarge { .. }))
}

/// Keeps the last line that a child says on its standard error, and never lets it wait for a reader.
async fn listen(errors: ChildStderr, last_words: Arc<Mutex<String>>) {
    let mut reader = BufReader::new(errors);
    loop {
        let mut line = Vec::new();
        match (&mut reader).take(LAST_WORDS).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = cut(String::from_utf8_lossy(&line).trim(), 200);
                tracing::debug!(said = ?text, "a server's standard error");
                if !text.is_empty() {
                    *last_words.lock().unwrap_or_else(PoisonError::into_inner) = text;
                }
            }
        }
    }
}
