//! The `[[mcp.tokens]]` tables: one per principal.

use toml::Value;

use super::kinds::{Kind, List, Text};

/// One principal of the MCP server: who comes in by which token.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct McpToken {
    /// The principal's name.
    pub principal: String,
    /// The environment variable that holds the token.
    pub token_env: String,
    /// The repositories that it may see; all where there is none.
    pub repositories: Option<Vec<String>>,
    /// The logins under which it acts.
    pub acts_as: Vec<String>,
}

/// The keys of each table.
pub(super) const KEYS: &[&str] = &["principal", "token_env", "repositories", "acts_as"];

/// Sets one key, or says in what way the value is wrong. `None` is a key that is not there.
pub(super) fn set(token: &mut McpToken, key: &str, value: &Value) -> Option<Result<(), String>> {
    let set = match key {
        "principal" => Text::read(value).map(|name| token.principal = name),
        "token_env" => Text::read(value).map(|name| token.token_env = name),
        "repositories" => List::read(value).map(|list| token.repositories = Some(list)),
        "acts_as" => List::read(value).map(|list| token.acts_as = list),
        _ => return None,
    };
    Some(set)
}

/// The keys that a table sets, with their values.
pub(super) fn entries(token: &McpToken) -> Vec<(&'static str, Value)> {
    let list = |list: &Vec<String>| Value::Array(list.iter().cloned().map(Value::String).collect());
    let mut all = vec![
        ("principal", Value::String(token.principal.clone())),
        ("token_env", Value::String(token.token_env.clone())),
    ];
    all.extend(token.repositories.as_ref().map(|patterns| ("repositories", list(patterns))));
    if !token.acts_as.is_empty() {
        all.push(("acts_as", list(&token.acts_as)));
    }
    all
}
