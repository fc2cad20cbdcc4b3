use super::*;
use crate::harness::samples::{ended, exited, session};
use crate::harness::{Definition, Harnesses};

const ID: &str = "3fe4598b-0000-4000-8000-000000000000";

fn claude() -> Claude {
    Claude { program: "claude".into(), args: vec!["--model".into(), "opus".into()], env: BTreeMap::new() }
}

fn judged(finished: &Finished) -> TurnOutcome {
    claude().outcome(&session("claude", ID), finished)
}

fn failure_of(code: i32, stdout: &str, stderr: &str) -> (FailureKind, String) {
    let outcome = judged(&exited(code, stdout, stderr));
    assert_eq!(outcome.state, TurnState::Failed, "{stdout}{stderr}");
    let failure = outcome.failure.expect("a failure");
    (failure.kind, failure.message)
}

fn result(more: &str) -> String {
    format!(
        "{{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"{ID}\"}}\n\
         {{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"session_id\":\"{ID}\",\"result\":\"REPLY\",\
         \"num_turns\":1,\"permission_denials\":[],\"total_cost_usd\":0.0477,\
         \"usage\":{{\"input_tokens\":10,\"cache_read_input_tokens\":90,\"output_tokens\":5}}{more}}}\n"
    )
}

#[test]
fn the_prompt_is_one_line_of_stdin_and_nothing_else() {
    let prompt = "news:\n--help @/etc/passwd \u{2028} \"quoted\"";
    let run = claude().invocation(&session("claude", ID), prompt, "m-1");
    let wanted = "-p --resume 3fe4598b-0000-4000-8000-000000000000 --input-format stream-json \
                  --output-format stream-json --verbose --model opus";
    assert_eq!(run.args.join(" "), wanted);
    assert_eq!((run.cwd.to_str(), run.streams, run.ends_with), (Some("/home/a b/demo"), true, None));
    assert_eq!(run.env["CLAUDE_CODE_DISABLE_FILE_MENTIONS"], "1");
    assert_eq!(run.env["CLAUDE_CODE_MAX_RETRIES"], "2");
    assert_eq!(run.stdin.lines().count(), 1);
    let message: Value = serde_json::from_str(&run.stdin).expect("JSON");
    assert_eq!(message, json!({"type": "user", "uuid": "m-1", "message": {"role": "user", "content": prompt}}));
}

#[test]
fn a_turn_that_was_taken_succeeds() {
    let outcome = judged(&exited(0, &result(""), ""));
    assert_eq!((outcome.state, outcome.failure, outcome.new_session_id), (TurnState::Succeeded, None, None));
    assert_eq!(outcome.last_words.as_deref(), Some("REPLY"));
    let wanted =
        Usage { cost_usd: None, session_cost_usd: Some(0.0477), input_tokens: Some(100), output_tokens: Some(5) };
    assert_eq!((outcome.usage, outcome.remarks), (wanted, Vec::new()));
}

#[test]
fn the_last_result_counts_also_as_one_plain_document() {
    let text =
        r#"{"type":"result","is_error":false,"session_id":"3fe4598b-0000-4000-8000-000000000000","num_turns":2}"#;
    assert_eq!(judged(&exited(0, text, "")).state, TurnState::Succeeded);
    let both = format!("{}{}", result(",\"is_error\":true"), result(""));
    assert_eq!(judged(&exited(0, &both, "")).state, TurnState::Succeeded);
}

#[test]
fn denials_and_a_limit_of_turns_are_told_and_delivered() {
    let denied = r#","permission_denials":[{"tool_name":"Bash"},{"tool_name":"Write"},{"tool_name":"Bash"}]"#;
    let outcome = judged(&exited(0, &result(denied), ""));
    assert_eq!(outcome.state, TurnState::Succeeded);
    assert_eq!(outcome.remarks, ["claude was denied Bash (2 times), Write: see its permission settings"]);

    let limit = format!(
        r#"{{"type":"result","subtype":"error_max_turns","is_error":true,"session_id":"{ID}","num_turns":2,"errors":["Reached maximum number of turns (1)"]}}"#
    );
    let outcome = judged(&exited(1, &limit, ""));
    assert_eq!(outcome.state, TurnState::Succeeded);
    assert_eq!(outcome.remarks, ["claude stopped before its work was done: Reached maximum number of turns (1)"]);
}

#[test]
fn errors_in_json_are_failures_whatever_the_subtype_and_exit_code() {
    let api = |status: &str, text: &str| {
        result(&format!(
            r#","is_error":true,"terminal_reason":"api_error","api_error_status":{status},"result":"{text}""#
        ))
    };
    for (status, text, kind) in [
        ("429", "API Error: Request rejected (429) · slow down", FailureKind::RateLimited),
        ("500", "API Error: 500 boom", FailureKind::Overloaded),
        ("529", "Repeated 529 Overloaded errors", FailureKind::Overloaded),
        ("401", "Failed to authenticate. API Error: 401 bad key", FailureKind::NotSignedIn),
        ("400", "API Error: 400 nonsense", FailureKind::Refused),
        ("404", "There's an issue with the selected model (x)", FailureKind::Refused),
        ("null", "Connection dropped (ECONNRESET) · try again", FailureKind::Overloaded),
        ("null", "Connection refused by the server", FailureKind::Overloaded),
        ("null", "Request timed out after 5 s", FailureKind::Overloaded),
        ("null", "Not logged in · Please run /login", FailureKind::NotSignedIn),
        ("null", "Prompt is too long", FailureKind::Refused),
        ("null", "Credit balance is too low", FailureKind::OverBudget),
        ("null", "something new", FailureKind::Crashed),
    ] {
        assert_eq!(failure_of(1, &api(status, text), ""), (kind, text.to_string()));
    }
    let aborted = format!(
        r#"{{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_streaming","session_id":"{ID}","num_turns":1}}"#
    );
    assert_eq!(failure_of(0, &aborted, ""), (FailureKind::Crashed, "the turn ended: aborted_streaming".to_string()));
    let budget = format!(
        r#"{{"type":"result","subtype":"error_max_budget_usd","is_error":true,"session_id":"{ID}","num_turns":1}}"#
    );
    assert_eq!(failure_of(1, &budget, "").0, FailureKind::OverBudget);
    assert_eq!(failure_of(3, &result(""), "").0, FailureKind::Crashed);
}

#[test]
fn a_usage_limit_says_when_to_try_again() {
    let text = result(r#","is_error":true,"result":"Claude AI usage limit reached|1796036400""#);
    let failure = judged(&exited(1, &text, "")).failure.expect("a failure");
    assert_eq!(failure.kind, FailureKind::RateLimited);
    assert_eq!(failure.not_before.map(|time| time.to_string()).as_deref(), Some("2026-11-30T11:00:00Z"));
}

#[test]
fn without_json_stderr_is_what_it_said() {
    for (stderr, kind) in [
        ("model overloaded", FailureKind::Overloaded),
        ("simulated failure", FailureKind::Crashed),
        ("No conversation found with session ID: 5e55-0001", FailureKind::ConversationGone),
        (
            "Error: --resume requires a valid session ID or session title when used with --print",
            FailureKind::ConversationGone,
        ),
        ("error: unknown option '--nonsense'", FailureKind::Refused),
        (
            "--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons",
            FailureKind::Refused,
        ),
        ("Error: piped stdin input exceeds 10MB", FailureKind::Refused),
    ] {
        assert_eq!(failure_of(1, "", &format!("{stderr}\n")), (kind, stderr.to_string()));
    }
    assert_eq!(failure_of(0, "", "").1, "claude ended without a result");
    assert_eq!(failure_of(1, "", "").1, "claude exited with code 1 and without a word");
}

#[test]
fn a_conversation_not_found_is_seen_in_the_result_line_too() {
    let text = r#"{"type":"result","subtype":"error_during_execution","is_error":true,"num_turns":0,"session_id":"other","errors":["No conversation found with session ID: x"]}"#;
    assert_eq!(failure_of(1, text, "").0, FailureKind::ConversationGone);
}

#[test]
fn another_id_is_a_conversation_to_follow_or_one_that_is_lost() {
    let followed = judged(&exited(0, &result(r#","session_id":"new-1""#), ""));
    assert_eq!((followed.state, followed.new_session_id.as_deref()), (TurnState::Succeeded, Some("new-1")));
    let lost = result(r#","session_id":"new-1","num_turns":0,"result":"""#);
    assert_eq!(failure_of(0, &lost, "").0, FailureKind::ConversationGone);
    assert_eq!(failure_of(0, &result(r#","num_turns":0"#), "").0, FailureKind::Refused);
    assert_eq!(failure_of(0, &result(r#","session_id":"--evil""#), "").0, FailureKind::Crashed);
}

#[test]
fn a_message_that_is_known_already_counts_as_delivered() {
    for line in [
        r#"{"type":"command_lifecycle","subtype":"completed","command_uuid":"m-1"}"#,
        r#"{"type":"system","subtype":"command_lifecycle","state":"completed","command_uuid":"m-1"}"#,
    ] {
        assert_eq!(judged(&exited(0, line, "")).state, TurnState::Succeeded);
        assert_eq!(judged(&exited(1, line, "")).state, TurnState::Failed);
        assert_eq!(judged(&exited(0, &line.replace("completed", "cancelled"), "")).state, TurnState::Failed);
    }
}

#[test]
fn endings_that_are_not_its_own() {
    for (ending, state, kind) in [
        (Ending::NoFirstOutput, TurnState::TimedOut, FailureKind::Hung),
        (Ending::Silent, TurnState::TimedOut, FailureKind::Hung),
        (Ending::Cancelled, TurnState::Cancelled, FailureKind::Cancelled),
        (Ending::Stopped, TurnState::Interrupted, FailureKind::Crashed),
        (Ending::Lost, TurnState::Interrupted, FailureKind::Interrupted),
        (Ending::Signalled { signal: 9 }, TurnState::Failed, FailureKind::Crashed),
        (Ending::Exited { code: 143 }, TurnState::Failed, FailureKind::Crashed),
    ] {
        // Even with a good result line: what was not seen to end is not a success.
        let outcome = judged(&ended(ending, &result(""), ""));
        assert_eq!((outcome.state, outcome.failure.map(|f| f.kind)), (state, Some(kind)));
        assert_eq!(outcome.usage.session_cost_usd, Some(0.0477));
    }
}

#[test]
fn a_time_limit_is_a_failure_unless_the_answer_was_there() {
    let limit = |stdout: &str| judged(&ended(Ending::TimedOut, stdout, ""));
    assert_eq!(limit("").failure.map(|f| f.kind), Some(FailureKind::TimedOut));
    assert_eq!(limit(&result(",\"is_error\":true")).state, TurnState::TimedOut);
    assert_eq!(limit(&result(",\"num_turns\":0")).state, TurnState::TimedOut);
    let answered = limit(&result(""));
    assert_eq!((answered.state, answered.remarks.len()), (TurnState::Succeeded, 1));
}

#[test]
fn only_what_is_a_persons_can_be_configured() {
    let with = |text: &str| {
        let table: Definition = toml::from_str(text).expect("a table");
        Harnesses::new(&[("claude".to_string(), table)].into())
    };
    let known = with("command = \"/opt/claude\"\nenv = { CLAUDE_CODE_MAX_RETRIES = \"0\" }").expect("harnesses");
    let run = known.get("claude").expect("claude").invocation(&session("claude", ID), "x", "m");
    assert_eq!((run.program.as_str(), run.env["CLAUDE_CODE_MAX_RETRIES"].as_str()), ("/opt/claude", "0"));
    assert!(with("resume = [\"{session_id}\"]").is_err());
    for arg in ["--continue", "--resume=x", "--output-format", "-c"] {
        let error = with(&format!("args = [\"{arg}\"]")).expect_err(arg).to_string();
        assert!(error.contains(arg), "{error}");
    }
}

#[test]
fn where_a_conversation_lies() {
    let hint = claude().transcript_hint(Path::new("/home/a"), ID);
    assert_eq!(hint, [PathBuf::from(format!("/home/a/.claude/projects/*/{ID}.jsonl"))]);
}
