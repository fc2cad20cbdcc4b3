//! The `[mcp.servers.NAME]` tables and `[mcp.callback]`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::domain::Span;

/// How the events of a server are to reach us.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryChoice {
    /// The best way that both sides have: a stream, then posts to us, then polling.
    #[default]
    Auto,
    /// A stream only.
    Stream,
    /// Polling only.
    Poll,
    /// Posts to us only.
    Webhook,
}

/// Variables of our environment for a child: names that stay the same, or the child's name for each of ours.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EnvFrom {
    /// The child gets them under the same names.
    Same(Vec<String>),
    /// The child's name, and ours.
    Renamed(BTreeMap<String, String>),
}

impl Default for EnvFrom {
    fn default() -> Self {
        Self::Same(Vec::new())
    }
}

impl EnvFrom {
    /// The child's name and ours, of each.
    pub fn pairs(&self) -> Vec<(String, String)> {
        match self {
            Self::Same(names) => names.iter().map(|name| (name.clone(), name.clone())).collect(),
            Self::Renamed(pairs) => pairs.iter().map(|(theirs, ours)| (theirs.clone(), ours.clone())).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.pairs().is_empty()
    }
}

/// `[mcp.servers.NAME]`: an MCP server whose events are watched. Either a program or an address.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "snake_case")]
pub struct McpServer {
    /// The program of a server that we start and speak to on its standard input and output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Variables that it gets beside ours. Secrets do not belong here: see `env_from`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Variables of ours that it gets though they hold a secret.
    #[serde(skip_serializing_if = "EnvFrom::is_empty")]
    pub env_from: EnvFrom,
    /// The directory that it runs in; that of the state, where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The address of a server that runs elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The variable that holds the bearer token for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
    /// Headers that it gets with every request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// How its events are to reach us.
    pub delivery: DeliveryChoice,
    /// It is never polled more often, whatever it says itself.
    pub min_poll_interval: Span,
    /// What happened longer ago is let go where we have not looked for longer.
    pub max_age: Span,
    /// No answer of it takes longer, nor its start.
    pub timeout: Span,
}

impl Default for McpServer {
    fn default() -> Self {
        Self {
            command: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            env_from: EnvFrom::default(),
            cwd: None,
            url: None,
            token_env: None,
            headers: BTreeMap::new(),
            delivery: DeliveryChoice::Auto,
            min_poll_interval: Span::secs(1),
            max_age: Span::secs(7 * 24 * 60 * 60),
            timeout: Span::secs(30),
        }
    }
}

/// The keys of `[mcp.servers.NAME]`.
pub(super) const KEYS: &[&str] = &[
    "command",
    "args",
    "env",
    "env_from",
    "cwd",
    "url",
    "token_env",
    "headers",
    "delivery",
    "min_poll_interval",
    "max_age",
    "timeout",
];

/// Sets one key of a server, or says in what way the value is wrong.
pub(super) fn set(server: &mut McpServer, key: &str, value: &Value) -> Result<(), String> {
    let wrong = |error: toml::de::Error| format!("is wrong: {}", error.message().replace('\n', ", "));
    Table::from_iter([(key.to_owned(), value.clone())]).try_into::<McpServer>().map_err(wrong)?;
    let mut table = table(server);
    table.insert(key.to_owned(), value.clone());
    *server = table.try_into().map_err(wrong)?;
    Ok(())
}

/// The keys that a server sets, with their values; what may hold a secret is hidden.
pub(super) fn shown(server: &McpServer) -> Table {
    let mut table = table(server);
    for name in ["env", "headers"] {
        if let Some(Value::Table(held)) = table.get_mut(name) {
            held.iter_mut().for_each(|(_, value)| *value = Value::String("(hidden)".into()));
        }
    }
    table
}

fn table(server: &McpServer) -> Table {
    Table::try_from(server).unwrap_or_default()
}

/// What cannot be meant: the key, and what is wrong with it.
pub(super) fn check(name: &str, server: &McpServer) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut unless = |right: bool, key: &str, what: &str| {
        if !right {
            found.push((format!("mcp.servers.{name}.{key}"), what.to_owned()));
        }
    };
    let is_variable = |text: &str| {
        !text.is_empty()
            && !text.starts_with(|c: char| c.is_ascii_digit())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    let both = server.command.is_some() && server.url.is_some();
    unless(!both, "url", "is there beside a command: a server is either a program or an address");
    unless(
        both || server.command.is_some() || server.url.is_some(),
        "command",
        "is missing: a server is a program (command) or an address (url)",
    );
    if let Some(text) = &server.url {
        let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        unless(url.is_some(), "url", "is not a URL that begins with https://");
        let open = url.as_ref().is_some_and(|url| url.username().is_empty() && url.password().is_none());
        unless(url.is_none() || open, "url", "holds a password: put a token into a variable and name it in token_env");
        let local = |url: &url::Url| matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
        let safe = url.as_ref().is_none_or(|url| url.scheme() == "https" || local(url));
        unless(safe || server.token_env.is_none(), "url", "is not https, and the token would be sent in the open");
    }
    if let Some(variable) = &server.token_env {
        unless(is_variable(variable), "token_env", "is not the name of a variable: write its name, not the token");
    }
    for (theirs, ours) in server.env_from.pairs() {
        unless(is_variable(&theirs) && is_variable(&ours), "env_from", "holds something that names no variable");
    }
    for theirs in server.env.keys() {
        unless(is_variable(theirs), "env", "holds something that names no variable");
    }
    unless(
        server.min_poll_interval >= Span(std::time::Duration::from_millis(100)),
        "min_poll_interval",
        "is less than 100ms",
    );
    unless(server.timeout >= Span(std::time::Duration::from_millis(100)), "timeout", "is less than 100ms");
    unless(server.max_age >= Span::secs(60), "max_age", "is less than 1m");
    found
}

/// Whether a server can have this name.
pub(super) fn is_name(name: &str) -> bool {
    (1..=40).contains(&name.len())
        && !name.starts_with(['-', '_'])
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}
