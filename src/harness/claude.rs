//! Claude Code, `claude -p --resume ID` with stream-json both ways.
//!
//! Its exit code and `subtype` prove nothing: an interrupted turn exits 0, a failed one says `subtype: "success"` with
//! `is_error: true`, and a prompt taken for a command ends well without any turn.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::words::{self, answer, check_id, failed, from_ending, json_documents, outcome_of, short, tail};
use super::{Ending, Finished, Harness, Invocation};
use crate::domain::{Failure, FailureKind, Session, TurnOutcome, TurnState, Usage};

/// Arguments that would take the conversation or the format out of our hands.
pub(super) const RESERVED_ARGS: &[&str] = &[
    "--",
    "-c",
    "--continue",
    "-r",
    "--resume",
    "--session-id",
    "--fork-session",
    "--input-format",
    "--output-format",
    "--no-session-persistence",
];

/// The adapter.
pub(super) struct Claude {
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
}

impl Harness for Claude {
    fn name(&self) -> &str {
        "claude"
    }

    fn program(&self) -> &str {
        &self.program
    }

    fn check_session_id(&self, id: &str) -> Result<(), String> {
        check_id(id)
    }

    fn session_env(&self) -> Option<&str> {
        Some("CLAUDE_CODE_SESSION_ID")
    }

    fn invocation(&self, session: &Session, prompt: &str, message_id: &str) -> Invocation {
        let fixed = ["-p", "--resume", &session.session_id, "--input-format", "stream-json"];
        // stream-json is refused without --verbose.
        let format = ["--output-format", "stream-json", "--verbose"];
        // ` @/path` in a prompt would attach that file without asking, and the built-in retries of one failed turn
        // take three minutes in which the slot is held.
        let mut env: BTreeMap<String, String> =
            [("CLAUDE_CODE_DISABLE_FILE_MENTIONS", "1"), ("CLAUDE_CODE_MAX_RETRIES", "2")]
                .map(|(name, value)| (name.into(), value.into()))
                .into();
        env.extend(self.env.clone());
        let message = json!({"type": "user", "uuid": message_id, "message": {"role": "user", "content": prompt}});
        Invocation {
            program: self.program.clone(),
            args: fixed.into_iter().chain(format).map(String::from).chain(self.args.iter().cloned()).collect(),
            cwd: session.cwd.clone(),
            stdin: format!("{message}\n"),
            env,
            ends_with: None,
            streams: true,
        }
    }

    fn outcome(&self, session: &Session, finished: &Finished) -> TurnOutcome {
        let documents = json_documents(&finished.stdout);
        let result = documents.iter().rev().find(|line| line["type"] == "result");
        let usage = result.map(usage).unwrap_or_default();
        let said = result.and_then(|result| result["result"].as_str()).and_then(answer);
        if let Some(ending) = from_ending("claude", finished) {
            let answered =
                result.filter(|result| finished.ending == Ending::TimedOut && failure(result, finished).is_none());
            let outcome = answered.map(|result| taken(session, result, finished, usage.clone(), said.clone()));
            // It had answered and did not exit: told again, it would do the same work twice.
            return match outcome.filter(|outcome| outcome.state == TurnState::Succeeded) {
                Some(mut outcome) => {
                    outcome.remarks.push("claude answered and did not exit; it was ended at its time limit".into());
                    outcome
                }
                None => outcome_of(ending, usage, said),
            };
        }
        let recorded = documents.iter().rev().find_map(lifecycle) == Some("completed");
        match result {
            Some(result) => match failure(result, finished) {
                Some(failure) => outcome_of(failure, usage, said),
                None => taken(session, result, finished, usage, said),
            },
            // The conversation holds this message id already: an earlier run of it was recorded.
            None if recorded && finished.exit_code == Some(0) => TurnOutcome {
                state: TurnState::Succeeded,
                failure: None,
                new_session_id: None,
                usage,
                last_words: None,
                remarks: vec!["the conversation held this message already; nothing was run again".into()],
            },
            None => outcome_of(without_result(finished), usage, None),
        }
    }

    fn repeats_safely(&self) -> bool {
        true
    }

    fn transcript_hint(&self, home: &Path, session_id: &str) -> Vec<PathBuf> {
        // The folder's name is made from the directory in a way that cannot be undone: look in all of them.
        let configured = self.env.get("CLAUDE_CONFIG_DIR").map(PathBuf::from);
        let root = configured.unwrap_or_else(|| home.join(".claude"));
        vec![root.join("projects").join("*").join(format!("{session_id}.jsonl"))]
    }
}

/// Judges a result line that reports no failure: which conversation, and was there a turn at all.
fn taken(session: &Session, result: &Value, finished: &Finished, usage: Usage, said: Option<String>) -> TurnOutcome {
    let named = result["session_id"].as_str().filter(|id| *id != session.session_id);
    let no_turn = result["num_turns"].as_u64() == Some(0);
    let failure = match (named, no_turn) {
        (Some(named), true) => Some((
            FailureKind::ConversationGone,
            format!("claude took no turn and left the conversation for another one, {named}"),
        )),
        (None, true) => Some((FailureKind::Refused, "claude took no turn: it read the prompt as a command".into())),
        (Some(named), false) if check_id(named).is_err() => {
            Some((FailureKind::Crashed, "claude names its conversation in a way that cannot be used".into()))
        }
        _ => None,
    };
    if let Some((kind, message)) = failure {
        return outcome_of(failed(kind, &message, finished), usage, said);
    }
    let mut remarks = Vec::new();
    if let Some(denied) = denials(result) {
        remarks.push(format!("claude was denied {denied}"));
    }
    if result["subtype"] == "error_max_turns" {
        let words = error_words(result).unwrap_or_else(|| "Reached maximum number of turns".into());
        remarks.push(format!("claude stopped before its work was done: {}", short(&words)));
    }
    TurnOutcome {
        state: TurnState::Succeeded,
        failure: None,
        new_session_id: named.map(String::from),
        usage,
        last_words: said,
        remarks,
    }
}

/// What a result line reports as failed, and a result line that the exit code contradicts.
fn failure(result: &Value, finished: &Finished) -> Option<(TurnState, Failure)> {
    let subtype = result["subtype"].as_str().unwrap_or("success");
    match subtype {
        // The agent got the news and worked on them up to a limit that a person set. Told again it would start over.
        "error_max_turns" => return None,
        "error_max_budget_usd" => {
            let words = error_words(result).unwrap_or_else(|| "claude reached its budget for one run".into());
            return Some(failed(FailureKind::OverBudget, &words, finished));
        }
        _ => {}
    }
    let well = result["is_error"] != true && subtype == "success";
    if well && finished.exit_code.unwrap_or(0) == 0 {
        return None;
    }
    let words = if well {
        format!("claude gave an answer and then exited with code {}", finished.exit_code.unwrap_or_default())
    } else {
        error_words(result)
            .or_else(|| tail(&finished.stderr))
            .or_else(|| result["terminal_reason"].as_str().map(|reason| format!("the turn ended: {reason}")))
            .unwrap_or_else(|| format!("claude reports an error without words ({})", short(subtype)))
    };
    let kind = match result["api_error_status"].as_u64() {
        Some(401 | 403) => FailureKind::NotSignedIn,
        Some(402) => FailureKind::OverBudget,
        Some(429) => FailureKind::RateLimited,
        Some(408 | 500..) => FailureKind::Overloaded,
        Some(400..) => kind_of(&words).unwrap_or(FailureKind::Refused),
        _ if result["terminal_reason"] == "blocking_limit" => FailureKind::Refused,
        _ => kind_of(&words).unwrap_or(FailureKind::Crashed),
    };
    Some(failed(kind, &words, finished))
}

fn without_result(finished: &Finished) -> (TurnState, Failure) {
    let words = tail(&finished.stderr).or_else(|| tail_of_text(&finished.stdout));
    let kind = kind_of(&finished.stderr).or_else(|| kind_of(words.as_deref()?)).unwrap_or(FailureKind::Crashed);
    let words = words.unwrap_or_else(|| match finished.exit_code {
        Some(0) => "claude ended without a result".into(),
        code => format!("claude exited with code {} and without a word", code.unwrap_or_default()),
    });
    failed(kind, &words, finished)
}

/// The last words of an output, unless it is JSON, which is not for people.
fn tail_of_text(stdout: &str) -> Option<String> {
    let text: Vec<&str> = stdout.lines().filter(|line| !line.trim_start().starts_with('{')).collect();
    tail(&text.join("\n"))
}

fn error_words(result: &Value) -> Option<String> {
    let listed = result["errors"].as_array().map(|errors| {
        errors.iter().filter_map(Value::as_str).filter(|text| !text.trim().is_empty()).collect::<Vec<_>>().join("\n")
    });
    [result["result"].as_str().map(String::from), listed].into_iter().flatten().find(|text| !text.trim().is_empty())
}

/// What claude's own words mean, where they are known words.
fn kind_of(words: &str) -> Option<FailureKind> {
    const KNOWN: &[(&str, FailureKind)] = &[
        ("no conversation found", FailureKind::ConversationGone),
        ("requires a valid session id", FailureKind::ConversationGone),
        ("current directory no longer exists", FailureKind::DirectoryMissing),
        ("not logged in", FailureKind::NotSignedIn),
        ("please run /login", FailureKind::NotSignedIn),
        ("failed to authenticate", FailureKind::NotSignedIn),
        ("invalid api key", FailureKind::NotSignedIn),
        ("oauth token", FailureKind::NotSignedIn),
        ("credit balance is too low", FailureKind::OverBudget),
        ("prompt is too long", FailureKind::Refused),
        ("exceeds 10mb", FailureKind::Refused),
        ("issue with the selected model", FailureKind::Refused),
        ("root/sudo privileges", FailureKind::Refused),
        ("unknown option", FailureKind::Refused),
        ("error parsing streaming input", FailureKind::Refused),
        ("input must be provided", FailureKind::Refused),
        ("(429)", FailureKind::RateLimited),
        ("api error: 429", FailureKind::RateLimited),
        ("rate limit", FailureKind::RateLimited),
        ("usage limit", FailureKind::RateLimited),
        ("hit your limit", FailureKind::RateLimited),
        ("overloaded", FailureKind::Overloaded),
        ("api error: 5", FailureKind::Overloaded),
        ("connection dropped", FailureKind::Overloaded),
        ("connection refused", FailureKind::Overloaded),
        ("connection error", FailureKind::Overloaded),
        ("econnreset", FailureKind::Overloaded),
        ("request timed out", FailureKind::Overloaded),
        ("api error: 401", FailureKind::NotSignedIn),
        ("api error: 403", FailureKind::NotSignedIn),
        ("api error: 4", FailureKind::Refused),
    ];
    let words = words.to_lowercase();
    KNOWN.iter().find(|(known, _)| words.contains(known)).map(|(_, kind)| *kind)
}

fn denials(result: &Value) -> Option<String> {
    let mut tools: Vec<(String, usize)> = Vec::new();
    for denial in result["permission_denials"].as_array()? {
        let tool = words::short(denial["tool_name"].as_str().unwrap_or("a tool"));
        match tools.iter_mut().find(|(known, _)| *known == tool) {
            Some((_, count)) => *count += 1,
            None => tools.push((tool, 1)),
        }
    }
    let list: Vec<String> =
        tools.into_iter().map(|(tool, n)| if n == 1 { tool } else { format!("{tool} ({n} times)") }).collect();
    (!list.is_empty()).then(|| format!("{}: see its permission settings", list.join(", ")))
}

/// The stage of a message's life that a line reports, in whichever field this version puts it.
fn lifecycle(line: &Value) -> Option<&str> {
    (line["type"] == "command_lifecycle" || line["subtype"] == "command_lifecycle").then_some(())?;
    let stages = ["queued", "started", "completed", "cancelled"];
    line.as_object()?.values().filter_map(Value::as_str).find(|word| stages.contains(word))
}

fn usage(result: &Value) -> Usage {
    let of = |key: &str| result["usage"][key].as_u64();
    // What came from the cache was sent too, and is most of it.
    let input = of("input_tokens").map(|fresh| {
        fresh + of("cache_creation_input_tokens").unwrap_or(0) + of("cache_read_input_tokens").unwrap_or(0)
    });
    Usage {
        cost_usd: None,
        session_cost_usd: result["total_cost_usd"].as_f64(),
        input_tokens: input,
        output_tokens: of("output_tokens"),
    }
}

#[cfg(test)]
mod tests;
