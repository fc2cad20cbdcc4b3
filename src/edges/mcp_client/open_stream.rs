//! A stream that is open: its frames in order, then its answer.

use rmcp::RoleClient;
use rmcp::service::RequestHandle;
use serde_json::Value;
use tokio::sync::mpsc;

use super::answers::CallError;
use super::link::{lost, value};
use super::ordered::Frame;

/// A stream. Dropped before its answer came, it is cancelled: the server would go on for ever otherwise.
pub(super) struct OpenStream {
    /// Its frames, in order.
    pub(super) frames: mpsc::Receiver<Frame>,
    request: Option<RequestHandle<RoleClient>>,
}

/// What a stream has next.
pub(super) enum Next {
    Frame(Frame),
    /// It is over: the answer to the request that opened it.
    Answer(Result<Value, CallError>),
}

impl OpenStream {
    pub(super) fn new(frames: mpsc::Receiver<Frame>, request: RequestHandle<RoleClient>) -> Self {
        Self { frames, request: Some(request) }
    }

    /// The next frame; frames come before the answer, as they did on the wire.
    pub(super) async fn next(&mut self) -> Next {
        let Some(request) = &mut self.request else {
            return match self.frames.recv().await {
                Some(frame) => Next::Frame(frame),
                None => Next::Answer(Err(CallError::Lost("the stream is over".into()))),
            };
        };
        tokio::select! {
            biased;
            Some(frame) = self.frames.recv() => Next::Frame(frame),
            answer = &mut request.rx => {
                self.request = None;
                let gone = || CallError::Lost("the connection ended".into());
                Next::Answer(answer.map_err(|_| gone()).and_then(|answer| answer.map_err(lost)).and_then(value))
            }
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if let (Some(request), Ok(runtime)) = (self.request.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                if let Err(error) = request.cancel(Some("nobody waits for it any more".into())).await {
                    tracing::debug!(%error, "a stream ended before it was cancelled");
                }
            });
        }
    }
}
