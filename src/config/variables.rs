//! The names of environment variables: which harness key one sets, and which set nothing.

use super::keys::{KEYS, nearest, variable};
use super::settings::Settings;
use super::{Environment, harness_tables};

/// Variables of ours that set no key.
const OTHER_VARIABLES: &[&str] = &[
    "THE_LOOP_STATE_DIR",
    "THE_LOOP_CONFIG",
    "THE_LOOP_LOG",
    "THE_LOOP_TURN",
    "THE_LOOP_SESSION",
    "THE_LOOP_GH_WEBHOOK_SECRET",
];

/// Whether a harness can have this name, in a file and in a variable.
pub(super) fn is_harness_name(name: &str) -> bool {
    (1..=40).contains(&name.len())
        && !name.starts_with(['-', '_'])
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
}

/// The harness and key that a variable `THE_LOOP_HARNESS_NAME_KEY` sets.
pub(super) fn harness_of(variable: &str) -> Option<(String, &'static str)> {
    let rest = variable.strip_prefix("THE_LOOP_HARNESS_")?.to_ascii_lowercase();
    // The longest key that fits: `session_id_pattern` before a `pattern` of a harness called `x_session_id`.
    let keys = harness_tables::keys().iter().filter_map(|key| Some((rest.strip_suffix(key)?.strip_suffix('_')?, *key)));
    let (harness, key) = keys.max_by_key(|(_, key)| key.len())?;
    is_harness_name(harness).then(|| (harness.to_owned(), key))
}

/// A warning for each variable that looks like ours and means nothing. Its value is not told: it may be a secret.
pub(super) fn unknown_variables(settings: &Settings, environment: &Environment) -> Vec<String> {
    let known: Vec<String> = KEYS.iter().map(|key| variable(key.name)).collect();
    let tokens = settings.mcp.tokens.iter().map(|token| &token.token_env);
    let secrets: Vec<_> = settings.gh_webhook.secret_env.iter().chain(tokens).collect();
    environment
        .names("THE_LOOP_")
        .filter(|name| !known.iter().chain(secrets.iter().copied()).any(|known| known == name))
        .filter(|name| !OTHER_VARIABLES.contains(name) && harness_of(name).is_none())
        .map(|name| match nearest(name, known.iter().map(String::as_str)) {
            Some(near) => format!("the environment variable `{name}` sets nothing; did you mean `{near}`?"),
            None => format!("the environment variable `{name}` sets nothing"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_names_a_harness_and_its_key() {
        let named = |name: &str| harness_of(name).map(|(harness, key)| format!("{harness} {key}"));
        for (name, meant) in [
            ("THE_LOOP_HARNESS_CLAUDE_COMMAND", Some("claude command")),
            ("THE_LOOP_HARNESS_MY_AGENT_ARGS", Some("my_agent args")),
            ("THE_LOOP_HARNESS_X_SESSION_ID", Some("x session_id")),
            ("THE_LOOP_HARNESS_COMMAND", None),
            ("THE_LOOP_HARNESS_CLAUDE_COLOUR", None),
            ("THE_LOOP_HARNESS_", None),
        ] {
            assert_eq!(named(name).as_deref(), meant, "{name}");
        }
    }
}
