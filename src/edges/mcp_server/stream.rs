//! `events/stream`: a request that is answered for as long as the client listens.

use rmcp::RoleServer;
use rmcp::model::{CustomNotification, ErrorData, ServerNotification};
use rmcp::service::{RequestContext, ServiceError};
use serde_json::{Value, json};

use crate::edges::listener::Place;
use crate::engine::{Interest, Said};

use super::dialect::{Dialect, Fault, SUBSCRIPTION_ID};
use super::events::occurrence;
use super::handler::{Events, access, http, internal};
use super::params::Params;

/// Why a stream ended before its time.
enum End {
    /// The client does not listen any more.
    Gone,
    /// We could not go on.
    Failed(crate::engine::Error),
}

impl From<ServiceError> for End {
    fn from(_: ServiceError) -> Self {
        Self::Gone
    }
}

impl From<crate::engine::Error> for End {
    fn from(error: crate::engine::Error) -> Self {
        Self::Failed(error)
    }
}

impl Events {
    pub(super) async fn stream(
        &self,
        params: Option<Value>,
        context: &RequestContext<RoleServer>,
        dialect: Dialect,
    ) -> Result<Value, ErrorData> {
        let params = Params::read(params)?;
        let interest = params.interest(dialect, access(context))?;
        let cursor = params.cursor()?;
        if let Some(parts) = http(context) {
            if !dialect.modern {
                let why = "streams over HTTP need protocol version 2026-07-28; poll instead";
                return Err(dialect.error(Fault::Unsupported, why, None));
            }
            // A stream waits for long and does little: it takes none of the places that webhooks come in by.
            if let Some(place) = parts.extensions.get::<Place>() {
                place.release();
            }
        }
        let Ok(_room) = self.streams.try_acquire() else {
            return Err(dialect.error(Fault::ResourceExhausted, "too many streams are open", None));
        };
        let id = serde_json::to_value(&context.id).unwrap_or_default();
        let mut stream = self.feed.stream(interest.clone(), cursor);
        let frames = Frames { context, id: id.clone() };
        let told = tokio::select! {
            () = context.ct.cancelled() => Err(End::Gone),
            () = self.stop.cancelled() => Ok(()),
            told = self.tell(&mut stream, &interest, &frames) => told,
        };
        match told {
            Ok(()) | Err(End::Gone) => {}
            Err(End::Failed(error)) => {
                let error = internal(&error);
                frames.send("terminated", json!({ "error": error })).await.ok();
            }
        }
        Ok(json!({"_meta": {SUBSCRIPTION_ID: id}}))
    }

    /// Tells all there is to tell; ends only by failing.
    async fn tell(
        &self,
        stream: &mut crate::engine::Stream,
        interest: &Interest,
        frames: &Frames<'_>,
    ) -> Result<(), End> {
        loop {
            self.note(interest).await;
            loop {
                let past = stream.past().await?;
                if past.is_empty() {
                    break;
                }
                for said in past {
                    frames.say(said).await?;
                }
            }
            match tokio::time::timeout(self.heartbeat, stream.next()).await {
                Ok(Some(said)) => frames.say(said).await?,
                Ok(None) => {}
                Err(_) => {
                    let cursor = stream.cursor().map(ToString::to_string);
                    frames.send("heartbeat", json!({ "cursor": cursor })).await?;
                }
            }
        }
    }
}

struct Frames<'a> {
    context: &'a RequestContext<RoleServer>,
    id: Value,
}

impl Frames<'_> {
    async fn say(&self, said: Said) -> Result<(), ServiceError> {
        match said {
            Said::Active(cursor, truncated) => {
                self.send("active", json!({"cursor": cursor.to_string(), "truncated": truncated})).await
            }
            Said::Event(placed, cursor) => {
                let mut event = occurrence(&placed);
                if let Some(object) = event.as_object_mut() {
                    object.insert("cursor".into(), cursor.to_string().into());
                }
                self.send("event", event).await
            }
        }
    }

    async fn send(&self, kind: &str, mut params: Value) -> Result<(), ServiceError> {
        if let Some(object) = params.as_object_mut() {
            object.insert("_meta".into(), json!({SUBSCRIPTION_ID: self.id}));
        }
        let notification = CustomNotification::new(format!("notifications/events/{kind}"), Some(params));
        self.context.peer.send_notification(ServerNotification::CustomNotification(notification)).await
    }
}
