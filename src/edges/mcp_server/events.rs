//! `events/list`, `poll`, `subscribe` and `unsubscribe`.

use rmcp::RoleServer;
use rmcp::model::ErrorData;
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use crate::catalogue;
use crate::domain::{Placed, Subscription, SubscriptionState};
use crate::engine::{Granted, Request, SubscribeError};
use crate::signing::StandardSecret;

use super::dialect::{Dialect, Fault};
use super::handler::{Events, access, internal, principal};
use super::params::{Params, invalid};

/// When a poller should come again: at once where there is more, else in a while.
const SOON_MS: u64 = 1000;
const LATER_MS: u64 = 5000;

impl Events {
    pub(super) fn list(&self, context: &RequestContext<RoleServer>) -> Value {
        // Without a principal nobody could own a subscription.
        let webhook = self.subscriptions.is_some() && principal(context).is_some();
        let delivery: &[&str] = if webhook { &["poll", "push", "webhook"] } else { &["poll", "push"] };
        let events: Vec<_> = catalogue::event_types()
            .map(|kind| {
                json!({"name": kind.name(), "description": kind.about(), "delivery": delivery,
                       "inputSchema": kind.input_schema(), "payloadSchema": kind.payload_schema()})
            })
            .collect();
        json!({ "events": events })
    }

    pub(super) async fn poll(
        &self,
        params: Option<Value>,
        context: &RequestContext<RoleServer>,
        dialect: Dialect,
    ) -> Result<Value, ErrorData> {
        let params = Params::read(params)?;
        let interest = params.interest(dialect, access(context))?;
        let (cursor, limit) = (params.cursor()?, params.max_events()?);
        self.note(&interest).await;
        let page = self.feed.poll(interest, cursor, limit).await.map_err(|error| internal(&error))?;
        let next = if page.has_more { SOON_MS } else { LATER_MS };
        Ok(json!({
            "events": page.events.iter().map(occurrence).collect::<Vec<_>>(),
            "cursor": page.cursor.to_string(), "truncated": page.truncated, "hasMore": page.has_more, "nextPollMs": next,
        }))
    }

    pub(super) async fn subscribe(
        &self,
        params: Option<Value>,
        context: &RequestContext<RoleServer>,
        dialect: Dialect,
    ) -> Result<Value, ErrorData> {
        let params = Params::read(params)?;
        let (subscriptions, principal) = match (&self.subscriptions, principal(context)) {
            (Some(subscriptions), Some(principal)) => (subscriptions, principal),
            _ => return Err(dialect.error(Fault::Forbidden, "only a principal can be posted to", None)),
        };
        let (kind, arguments) = params.event(dialect, &principal.access)?;
        let delivery = params.delivery.as_ref().ok_or_else(|| invalid("`delivery` is missing"))?;
        if delivery.mode.as_deref().is_some_and(|mode| mode != "webhook") {
            return Err(dialect.error(Fault::Unsupported, "only the delivery mode `webhook` is subscribed to", None));
        }
        let secret = delivery.secret.as_deref().ok_or_else(|| invalid("`delivery.secret` is missing"))?;
        let secret = StandardSecret::parse(secret).map_err(invalid)?;
        let request = Request {
            principal,
            kind,
            arguments,
            url: delivery.url.clone(),
            secret,
            cursor: params.cursor()?,
            max_age: params.max_age(),
            lifetime: params.lifetime()?,
        };
        let granted = subscriptions.subscribe(request).await.map_err(|error| refused(dialect, &error))?;
        Ok(answer(&granted))
    }

    pub(super) async fn unsubscribe(
        &self,
        params: Option<Value>,
        context: &RequestContext<RoleServer>,
        dialect: Dialect,
    ) -> Result<Value, ErrorData> {
        let params = Params::read(params)?;
        let (Some(subscriptions), Some(principal)) = (&self.subscriptions, principal(context)) else {
            return Err(dialect.error(Fault::Forbidden, "only a principal has subscriptions", None));
        };
        let kind = catalogue::event_type(&params.name)
            .ok_or_else(|| dialect.error(Fault::NotFound, "there is no such event; see events/list", None))?;
        // What a principal may not see any more it may still be rid of.
        let (_, arguments) = params.event(dialect, &crate::domain::Access::default())?;
        let delivery = params.delivery.as_ref().ok_or_else(|| invalid("`delivery` is missing"))?;
        let ended = subscriptions.unsubscribe(&principal.name, &delivery.url, kind.name(), &arguments).await;
        ended.map_err(|error| internal(&error))?;
        Ok(json!({}))
    }
}

fn refused(dialect: Dialect, error: &SubscribeError) -> ErrorData {
    match error {
        SubscribeError::Callback(why) => invalid(why),
        SubscribeError::Unproven(reason) => dialect.error(Fault::Callback, error, Some(reason)),
        SubscribeError::Exhausted(why) => dialect.error(Fault::ResourceExhausted, why, None),
        SubscribeError::Engine(error) => internal(error),
    }
}

fn answer(granted: &Granted) -> Value {
    let mut answer = json!({
        "id": granted.id.0,
        "refreshBefore": granted.refresh_before.map(|at| at.to_string()),
        "cursor": granted.cursor.to_string(),
        "truncated": granted.truncated,
    });
    if let (Some(before), Some(object)) = (&granted.before, answer.as_object_mut()) {
        object.insert("deliveryStatus".into(), status(before));
    }
    answer
}

/// How the posting fared up to this refresh, which revives what was suspended.
fn status(before: &Subscription) -> Value {
    let mut status = json!({
        "active": before.state == SubscriptionState::Active,
        "lastDeliveryAt": before.last_delivery_at.map(|at| at.to_string()),
        "lastError": before.last_error,
    });
    if let (Some(since), Some(object)) = (before.failed_since, status.as_object_mut()) {
        object.insert("failedSince".into(), since.to_string().into());
    }
    status
}

/// An occurrence as every way of delivery tells it.
pub(super) fn occurrence(placed: &Placed) -> Value {
    let o = &placed.occurrence;
    json!({"eventId": o.event_id, "name": o.name, "timestamp": o.at.to_string(), "data": o.data})
}
