//! The environment of a turn: a person's settings reach the agent, our secrets and an outer agent's marks do not.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::domain::Secret;

/// The variable that marks every process of a turn with the turn's directory, so that those whose supervisor was
/// killed are found again.
pub const TURN_MARK: &str = "THE_LOOP_TURN";

/// The variable that tells a turn's processes which session they are in: its work item.
pub const SESSION_MARK: &str = "THE_LOOP_SESSION";

/// A secret shorter than this is looked for as a whole value only: as a part it would be found everywhere.
const SHORTEST_PART: usize = 8;

/// By these an agent program marks its children. A turn that inherited them would take itself for a part of the agent
/// from which the server was started, or register under that agent's id.
const OUTER_AGENT: &[&str] = &[
    "AGENT",
    "AI_AGENT",
    "CLAUDECODE",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_ENV_FILE",
    "CLAUDE_PID",
    "CLAUDE_PROJECT_DIR",
    "CODEX_CI",
    "CODEX_SESSION_ID",
    "CODEX_THREAD_ID",
    "COPILOT_AGENT_SESSION_ID",
    "COPILOT_CLI",
    "CURSOR_AGENT",
    "CURSOR_TRACE_ID",
    "GEMINI_CLI",
    "OPENCODE",
    "OPENCODE_PID",
];

/// The same, for names that go on differently.
const OUTER_AGENT_PREFIXES: &[&str] = &["CLAUDE_CODE_MESSAGING_", "CODEX_SANDBOX", "THE_LOOP_"];

/// What a turn's processes get: `inherited` without our secrets (by name and by value), our own settings and an outer
/// agent's marks; then `set` on top.
pub fn turn_env(
    inherited: impl Iterator<Item = (OsString, OsString)>,
    secrets: &[Secret],
    secret_names: &[String],
    set: &BTreeMap<String, String>,
) -> Vec<(OsString, OsString)> {
    let mut env: BTreeMap<OsString, OsString> = inherited
        .filter(|(name, value)| {
            !is_outer_mark(name)
                && !secret_names.iter().any(|secret| name == secret.as_str())
                && !secrets.iter().any(|secret| name == secret.name() || holds(value, secret.expose()))
        })
        .collect();
    env.extend(set.iter().map(|(name, value)| (name.into(), value.into())));
    env.into_iter().collect()
}

fn is_outer_mark(name: &OsStr) -> bool {
    let name = name.as_bytes();
    OUTER_AGENT.iter().any(|mark| name == mark.as_bytes())
        || OUTER_AGENT_PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
}

fn holds(value: &OsStr, secret: &[u8]) -> bool {
    let value = value.as_bytes();
    !secret.is_empty()
        && (value == secret
            || (secret.len() >= SHORTEST_PART && value.windows(secret.len()).any(|window| window == secret)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(inherited: &[(&str, &str)], set: &[(&str, &str)]) -> Vec<(String, String)> {
        let secrets =
            [Secret::new("HOOK_SECRET", "s3cr3t-value"), Secret::new("PIN", "1234"), Secret::new("EMPTY", "")];
        let inherited = inherited.iter().map(|(k, v)| (OsString::from(k), OsString::from(v)));
        let set = set.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        turn_env(inherited, &secrets, &["ALICE_TOKEN".into()], &set)
            .into_iter()
            .map(|(k, v)| (k.into_string().expect("utf-8"), v.into_string().expect("utf-8")))
            .collect()
    }

    #[test]
    fn a_persons_settings_pass() {
        let kept = [
            ("ANTHROPIC_API_KEY", "sk-x"),
            ("CLAUDE_CODE_USE_BEDROCK", "1"),
            ("CLAUDE_CONFIG_DIR", "/c"),
            ("CODEX_HOME", "/x"),
            ("HOME", "/home/a"),
            ("PATH", "/bin"),
        ];
        let wanted: Vec<_> = kept.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        assert_eq!(made(&kept, &[]), wanted);
    }

    #[test]
    fn secrets_do_not_pass_by_name_by_value_or_inside_a_value() {
        let left = made(
            &[
                ("HOOK_SECRET", "rotated since"),
                ("ALICE_TOKEN", "x"),
                ("COPY", "s3cr3t-value"),
                ("URL", "https://u:s3cr3t-value@host/"),
                ("PIN_COPY", "1234"),
                ("PORT", "51234"),
                ("NOTHING", ""),
            ],
            &[],
        );
        assert_eq!(left, [("NOTHING".to_string(), String::new()), ("PORT".into(), "51234".into())]);
    }

    #[test]
    fn an_outer_agents_marks_do_not_pass() {
        let marks = OUTER_AGENT.iter().copied().chain([
            "CLAUDE_CODE_MESSAGING_SOCKET",
            "CLAUDE_CODE_MESSAGING_TOKEN",
            "CODEX_SANDBOX_NETWORK_DISABLED",
            "THE_LOOP_STATE_DIR",
        ]);
        let pairs: Vec<_> = marks.map(|mark| (mark, "1")).collect();
        assert!(made(&pairs, &[]).is_empty());
    }

    #[test]
    fn what_is_set_wins() {
        assert_eq!(made(&[("A", "inherited")], &[("A", "set")]), [("A".to_string(), "set".to_string())]);
    }
}
