//! Two dialects of error codes, from one table: the design sketch's, which ChatGPT speaks, and SEP-3415's.

use rmcp::RoleServer;
use rmcp::model::{ErrorCode, ErrorData, ProtocolVersion};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

/// The extension's name.
pub(super) const EXTENSION: &str = "io.modelcontextprotocol/events";
/// Marks the frames of a stream with the id of their request.
pub(super) const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// What can be wrong with an events request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    NotFound,
    Forbidden,
    ResourceExhausted,
    Unsupported,
    Callback,
}

/// The code of each fault: the sketch's, the SEP's, and the words that both use.
const CODES: &[(Fault, i32, i32, &str)] = &[
    (Fault::NotFound, -32011, -32023, "NotFound"),
    (Fault::Forbidden, -32012, -32024, "Forbidden"),
    (Fault::ResourceExhausted, -32013, -32025, "ResourceExhausted"),
    (Fault::Unsupported, -32014, -32026, "Unsupported"),
    (Fault::Callback, -32015, -32027, "CallbackEndpointError"),
];

/// How a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    /// It knows the extension by its name, and with it the SEP's codes.
    sep: bool,
    /// It speaks 2026-07-28.
    pub(super) modern: bool,
}

impl Dialect {
    /// The dialect of a request.
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Self {
        let modern = context.protocol_version().is_some_and(|version| version == ProtocolVersion::V_2026_07_28);
        let names = context
            .client_capabilities()
            .and_then(|capabilities| capabilities.extensions)
            .is_some_and(|extensions| extensions.contains_key(EXTENSION));
        let openai = context.client_info().is_some_and(|client| client.name.starts_with("openai-mcp"));
        Self { sep: modern && names && !openai, modern }
    }

    /// The error that a client of this dialect understands.
    pub(super) fn error(self, fault: Fault, message: impl std::fmt::Display, reason: Option<&str>) -> ErrorData {
        let known = CODES.iter().find(|(known, ..)| *known == fault);
        let (code, word) =
            known.map_or((-32603, "Error"), |(_, sketch, sep, word)| (if self.sep { *sep } else { *sketch }, *word));
        let data = reason.map(|reason| json!({"reason": reason}));
        ErrorData::new(ErrorCode(code), format!("{word}: {message}"), data)
    }

    /// A result as this client expects it.
    pub(super) fn result(self, mut result: Value) -> Value {
        if let (true, Some(object)) = (self.modern, result.as_object_mut()) {
            object.insert("resultType".into(), "complete".into());
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tables_are_whole_and_apart() {
        let faults = [Fault::NotFound, Fault::Forbidden, Fault::ResourceExhausted, Fault::Unsupported, Fault::Callback];
        for (at, fault) in faults.into_iter().enumerate() {
            let code = |sep| Dialect { sep, modern: true }.error(fault, "x", None).code.0;
            assert_eq!((code(false), code(true)), (-32011 - at as i32, -32023 - at as i32), "{fault:?}");
        }
    }
}
