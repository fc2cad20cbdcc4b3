//! A transport that hands the frames of each stream to its reader in the order in which they came.
//!
//! rmcp gives every notification to a task of its own, which loses the order, and cursors are nothing without it. Here
//! they are taken off the wire before rmcp sees them. A reader that falls behind holds the connection up, so that a
//! flood ends at the server and not in our memory.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{
    ClientRequest, CustomNotification, JsonRpcMessage, JsonRpcNotification, NotificationMetaObject, RequestId,
    ServerNotification,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::payload;

use super::mended::PASSED_OVER;

/// How many frames a reader may be behind.
const BEHIND: usize = 256;
/// How many KiB the frames may take that wait for all readers of a connection, and are not yet on disk.
const BUDGET: usize = 8 << 10;
/// What the methods of all frames begin with.
pub(super) const PREFIX: &str = "notifications/events/";
/// Whose frame it is: the id of the request, in `_meta`.
pub(super) const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// One frame of a stream.
#[derive(Debug)]
pub(super) struct Frame {
    /// `active`, `event`, `heartbeat`, `error` or `terminated`; or [`PASSED_OVER`], our own.
    pub(super) kind: String,
    pub(super) params: Value,
    /// What it takes of the connection's budget, until this is dropped.
    pub(super) share: Share,
}

/// A frame's part of what may wait; none before it has come in.
pub(super) type Share = Option<OwnedSemaphorePermit>;

/// Where the frames of a request go: put into the request's extensions, it is found when the request is sent.
#[derive(Clone, Debug)]
pub(super) struct FrameSender(mpsc::Sender<Frame>);

/// The two ends for a new stream.
pub(super) fn frames() -> (FrameSender, mpsc::Receiver<Frame>) {
    let (sender, receiver) = mpsc::channel(BEHIND);
    (FrameSender(sender), receiver)
}

/// A transport with readers for streams.
pub(super) struct Ordered<T> {
    inner: T,
    readers: HashMap<RequestId, mpsc::Sender<Frame>>,
    /// Frames that their readers have no place for yet: kept here, since `receive` may be dropped while it waits.
    held: VecDeque<(mpsc::Sender<Frame>, Frame)>,
    budget: Arc<Semaphore>,
    /// Tells whoever waits for it that the connection is over: it is dropped with this.
    _open: DropGuard,
}

impl<T> Ordered<T> {
    /// `closed` is cancelled when the connection is over.
    pub(super) fn new(inner: T, closed: CancellationToken) -> Self {
        let (readers, budget) = (HashMap::new(), Arc::new(Semaphore::new(BUDGET)));
        Self { inner, readers, held: VecDeque::new(), budget, _open: closed.drop_guard() }
    }

    /// Holds a frame for its reader.
    fn hold(&mut self, custom: CustomNotification) {
        let Some(kind) = custom.method.strip_prefix(PREFIX).map(str::to_owned) else { return };
        let meta = custom.extensions.get::<NotificationMetaObject>();
        let params = custom.params.unwrap_or_default();
        let id = meta.and_then(NotificationMetaObject::subscription_id).or_else(|| {
            let id = params.get("_meta")?.get(SUBSCRIPTION_ID)?;
            serde_json::from_value(id.clone()).ok()
        });
        match id {
            // A frame without a reader is of a stream that we have left.
            Some(id) => {
                let reader = self.readers.get(&id).cloned();
                self.held.extend(reader.map(|reader| (reader, Frame { kind, params, share: None })));
            }
            None if kind == PASSED_OVER => {
                let frame = || Frame { kind: kind.clone(), params: params.clone(), share: None };
                self.held.extend(self.readers.values().map(|reader| (reader.clone(), frame())));
            }
            None => {}
        }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Ordered<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &message
            && let ClientRequest::CustomRequest(custom) = &request.request
            && let Some(FrameSender(sender)) = custom.extensions.get::<FrameSender>()
        {
            self.readers.retain(|_, reader| !reader.is_closed());
            self.readers.insert(request.id.clone(), sender.clone());
        }
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            while let Some((reader, frame)) = self.held.front_mut() {
                if frame.share.is_none() {
                    let size = payload::weight(&frame.params).div_ceil(1024).min(BUDGET);
                    let size = u32::try_from(size).unwrap_or(u32::MAX);
                    tokio::select! {
                        share = Arc::clone(&self.budget).acquire_many_owned(size) => frame.share = share.ok(),
                        // Who has left takes nothing up.
                        () = reader.closed() => {}
                    }
                }
                let reader = reader.clone();
                let place = reader.reserve().await;
                // From here on nothing waits, so nothing is lost.
                if let (Some((_, frame)), Ok(place)) = (self.held.pop_front(), place) {
                    place.send(frame);
                }
            }
            let message = self.inner.receive().await?;
            match message {
                JsonRpcMessage::Notification(JsonRpcNotification {
                    notification: ServerNotification::CustomNotification(custom),
                    ..
                }) if custom.method.starts_with(PREFIX) => self.hold(custom),
                other => return Some(other),
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}
