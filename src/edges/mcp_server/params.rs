//! What events requests hold, read and checked.

use std::time::Duration;

use rmcp::model::ErrorData;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::catalogue::{self, EventType};
use crate::domain::{Access, Arguments, Cursor};
use crate::engine::{Interest, Lifetime};

use super::dialect::{Dialect, Fault};

/// How many events one poll gives where nothing is said, and at most.
const USUAL_EVENTS: u64 = 100;
const MOST_EVENTS: u64 = 500;

/// The parameters of every events request; each uses some.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Params {
    pub(super) name: String,
    #[serde(default)]
    arguments: Value,
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    max_age_ms: Option<u64>,
    #[serde(default)]
    max_events: Option<u64>,
    #[serde(default)]
    pub(super) delivery: Option<Delivery>,
    /// Absent and null mean different things.
    #[serde(default, deserialize_with = "present")]
    ttl_ms: Option<Option<u64>>,
}

/// Where and how a subscription is posted to.
#[derive(Deserialize)]
pub(super) struct Delivery {
    #[serde(default)]
    pub(super) mode: Option<String>,
    pub(super) url: String,
    #[serde(default)]
    pub(super) secret: Option<String>,
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Delivery(hidden)")
    }
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The error for parameters that are wrong.
pub(super) fn invalid(why: impl std::fmt::Display) -> ErrorData {
    ErrorData::invalid_params(why.to_string(), None)
}

impl Params {
    pub(super) fn read(params: Option<Value>) -> Result<Self, ErrorData> {
        // The reader's own words may quote a value, and one of the values is a secret.
        serde_json::from_value(params.unwrap_or_default()).map_err(|error| {
            let text = error.to_string();
            let missing = text.starts_with("missing field").then_some(text.as_str());
            invalid(missing.unwrap_or("the parameters do not have the form that this method takes"))
        })
    }

    /// The event type and the arguments, which this access must allow.
    pub(super) fn event(
        &self,
        dialect: Dialect,
        access: &Access,
    ) -> Result<(&'static EventType, Arguments), ErrorData> {
        let kind = catalogue::event_type(&self.name)
            .ok_or_else(|| dialect.error(Fault::NotFound, "there is no such event; see events/list", None))?;
        let arguments = kind.arguments(&self.arguments).map_err(invalid)?;
        if let Some(repository) = arguments.get("repository").and_then(Value::as_str)
            && !access.allows(Some(repository))
        {
            return Err(dialect.error(Fault::Forbidden, "you may not see this repository", None));
        }
        Ok((kind, arguments))
    }

    pub(super) fn cursor(&self) -> Result<Option<Cursor>, ErrorData> {
        self.cursor.as_deref().map(|text| text.parse().map_err(|why| invalid(format!("the cursor: {why}")))).transpose()
    }

    pub(super) fn max_age(&self) -> Option<Duration> {
        self.max_age_ms.map(Duration::from_millis)
    }

    pub(super) fn max_events(&self) -> Result<usize, ErrorData> {
        match self.max_events.unwrap_or(USUAL_EVENTS) {
            0 => Err(invalid("maxEvents is 0")),
            some => Ok(usize::try_from(some.min(MOST_EVENTS)).unwrap_or(1)),
        }
    }

    pub(super) fn lifetime(&self) -> Result<Lifetime, ErrorData> {
        match self.ttl_ms {
            None => Ok(Lifetime::Unsaid),
            Some(None) => Ok(Lifetime::Endless),
            Some(Some(0)) => Err(invalid("ttlMs is 0")),
            Some(Some(ms)) => Ok(Lifetime::For(Duration::from_millis(ms))),
        }
    }

    /// What a poll or a stream reads.
    pub(super) fn interest(&self, dialect: Dialect, access: Access) -> Result<Interest, ErrorData> {
        let (kind, arguments) = self.event(dialect, &access)?;
        let since = self.max_age().and_then(|age| jiff::Timestamp::now().checked_sub(age).ok());
        Ok(Interest { kind, arguments, access, since })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(params: Value) -> Result<Params, ErrorData> {
        Params::read(Some(params))
    }

    #[test]
    fn absent_and_null_lifetimes_differ() {
        let lifetime = |params| read(params).and_then(|params| params.lifetime());
        assert_eq!(lifetime(json!({"name": "x"})).ok(), Some(Lifetime::Unsaid));
        assert_eq!(lifetime(json!({"name": "x", "ttlMs": null})).ok(), Some(Lifetime::Endless));
        assert_eq!(lifetime(json!({"name": "x", "ttlMs": 5})).ok(), Some(Lifetime::For(Duration::from_millis(5))));
        for wrong in [json!(0), json!(-1), json!("5"), json!(1.5)] {
            assert!(lifetime(json!({"name": "x", "ttlMs": wrong})).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_error_quotes_nothing() {
        let wrong = json!({"name": "x", "delivery": {"url": 5, "secret": "whsec_hunter2"}, "ttlMs": "whsec_hunter2"});
        let error = read(wrong).expect_err("wrong").message;
        assert!(!error.contains("hunter2"), "{error}");
        let params = read(json!({"name": "x", "delivery": {"url": "u", "secret": "whsec_hunter2"}})).expect("right");
        assert!(!format!("{params:?}").contains("hunter2"));
    }
}
