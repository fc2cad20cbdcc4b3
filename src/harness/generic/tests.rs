use super::*;
use crate::harness::Harnesses;
use crate::harness::samples::{ended, exited, session};

const UUID: &str = "3fe4598b-0000-4000-8000-000000000000";

fn harnesses(text: &str) -> Harnesses {
    let configured: BTreeMap<String, Definition> = toml::from_str(text).expect("tables");
    Harnesses::new(&configured).expect("harnesses")
}

fn argv(name: &str, id: &str) -> String {
    let run = harnesses("").get(name).expect(name).invocation(&session(name, id), "the prompt", "m-1");
    assert_eq!(run.stdin, "the prompt");
    format!("{} {}", run.program, run.args.join("|"))
}

/// Judges a run: its state, and the kind and words of its failure.
fn judge(name: &str, id: &str, finished: &Finished) -> (TurnState, Option<(FailureKind, String)>) {
    let outcome = harnesses("").get(name).expect(name).outcome(&session(name, id), finished);
    (outcome.state, outcome.failure.map(|failure| (failure.kind, failure.message)))
}

fn kind(name: &str, id: &str, code: i32, stdout: &str, stderr: &str) -> FailureKind {
    let (state, failure) = judge(name, id, &exited(code, stdout, stderr));
    assert_eq!(state, TurnState::Failed, "{name}: {stdout}{stderr}");
    failure.expect("a failure").0
}

const GOOD: (TurnState, Option<(FailureKind, String)>) = (TurnState::Succeeded, None);

#[test]
fn every_built_in_resumes_by_id_with_the_prompt_on_stdin() {
    assert_eq!(harnesses("").names(), ["claude", "codex", "copilot", "cursor", "gemini", "opencode"]);
    assert_eq!(argv("cursor", "chat-77"), "cursor-agent -p|--output-format|stream-json|--trust|--resume|chat-77");
    assert_eq!(argv("codex", UUID), format!("codex exec|--json|--skip-git-repo-check|resume|{UUID}|-"));
    assert_eq!(argv("gemini", UUID), format!("gemini --resume|{UUID}|-o|json|--skip-trust"));
    assert_eq!(argv("opencode", "ses_1aB"), "opencode run|--format|json|-s|ses_1aB|--dir|/home/a b/demo");
    assert_eq!(argv("copilot", UUID), format!("copilot --resume={UUID}|--output-format|json"));
}

#[test]
fn ids_are_held_to_each_programs_form() {
    let known = harnesses("");
    let check = |name: &str, id: &str| known.get(name).expect(name).check_session_id(id).is_ok();
    assert!(check("cursor", "chat-77") && !check("cursor", "--force"));
    for name in ["codex", "gemini", "copilot"] {
        assert!(check(name, UUID), "{name}");
        for bad in ["latest", "my-thread", "3fe4598b", "3FE4598B-0000-4000-8000-000000000000"] {
            assert!(!check(name, bad), "{name} took {bad}");
        }
    }
    assert!(check("opencode", "ses_1aB") && !check("opencode", UUID));
}

#[test]
fn cursor() {
    let line = r#"{"type":"result","subtype":"success","is_error":false,"result":"Done.","session_id":"chat-77","usage":{"inputTokens":7,"outputTokens":3}}"#;
    assert_eq!(judge("cursor", "chat-77", &exited(0, line, "")), GOOD);
    assert_eq!(judge("cursor", "chat-77", &ended(Ending::AfterAnswer, line, "")), GOOD);
    let outcome =
        harnesses("").get("cursor").expect("cursor").outcome(&session("cursor", "chat-77"), &exited(0, line, ""));
    assert_eq!((outcome.last_words.as_deref(), outcome.usage.input_tokens), (Some("Done."), Some(7)));

    assert_eq!(kind("cursor", "chat-77", 0, &line.replace("chat-77", "other"), ""), FailureKind::ConversationGone);
    assert_eq!(kind("cursor", "chat-77", 0, &line.replace("false", "true"), ""), FailureKind::Crashed);
    assert_eq!(kind("cursor", "chat-77", 0, "", ""), FailureKind::Crashed);
    assert_eq!(
        judge("cursor", "chat-77", &exited(1, "", "simulated failure\n")),
        (TurnState::Failed, Some((FailureKind::Crashed, "simulated failure".into())))
    );
    assert_eq!(
        kind("cursor", "chat-77", 1, "", "Error: Authentication required. Set CURSOR_API_KEY"),
        FailureKind::NotSignedIn
    );

    let run = harnesses("").get("cursor").expect("cursor").invocation(&session("cursor", "chat-77"), "x", "m");
    let mark = run.ends_with.expect("an end mark");
    assert!(mark.is_in(&serde_json::from_str(line).expect("JSON")));
}

#[test]
fn codex() {
    let good = format!(
        "{{\"type\":\"thread.started\",\"thread_id\":\"{UUID}\"}}\n{{\"type\":\"turn.started\"}}\n\
         {{\"type\":\"error\",\"message\":\"Reconnecting... 2/5\"}}\n\
         {{\"type\":\"item.completed\",\"item\":{{\"type\":\"error\",\"message\":\"no metadata\"}}}}\n\
         {{\"type\":\"item.completed\",\"item\":{{\"type\":\"agent_message\",\"text\":\"All green.\"}}}}\n\
         {{\"type\":\"turn.completed\",\"usage\":{{\"input_tokens\":99}}}}\n"
    );
    assert_eq!(judge("codex", UUID, &exited(0, &good, "")), GOOD);
    let outcome = harnesses("").get("codex").expect("codex").outcome(&session("codex", UUID), &exited(0, &good, ""));
    assert_eq!((outcome.last_words.as_deref(), outcome.usage), (Some("All green."), Usage::default()));

    let other = good.replace(UUID, "4fe4598b-0000-4000-8000-000000000000");
    assert_eq!(kind("codex", UUID, 0, &other, ""), FailureKind::ConversationGone);
    let cut = good.replace("turn.completed", "turn.other");
    assert_eq!(kind("codex", UUID, 0, &cut, ""), FailureKind::Crashed);
    let gone = format!("Error: thread/resume failed: no rollout found for thread id {UUID}\n");
    assert_eq!(kind("codex", UUID, 1, "", &gone), FailureKind::ConversationGone);
    assert_eq!(kind("codex", UUID, 1, "", "Error: thread x already has an active writer"), FailureKind::Busy);
    let failed = |text: &str| format!("{{\"type\":\"turn.failed\",\"error\":{{\"message\":\"{text}\"}}}}");
    for (text, wanted) in [
        ("exceeded retry limit, last status: 429 Too Many Requests", FailureKind::RateLimited),
        ("unexpected status 500 Internal Server Error", FailureKind::Overloaded),
        ("unexpected status 401 Unauthorized", FailureKind::NotSignedIn),
        ("Input exceeds the maximum length of 1048576 characters.", FailureKind::Refused),
    ] {
        let wanted = (TurnState::Failed, Some((wanted, text.to_string())));
        assert_eq!(judge("codex", UUID, &exited(1, &failed(text), "Reading prompt from stdin...\n")), wanted);
    }
}

#[test]
fn gemini() {
    let good = format!("{{\n  \"session_id\": \"{UUID}\",\n  \"response\": \"Hi {{there}}\",\n  \"stats\": {{}}\n}}\n");
    assert_eq!(judge("gemini", UUID, &exited(0, &good, "")), GOOD);
    assert_eq!(judge("gemini", UUID, &exited(0, &format!("Loaded credentials.\n{good}"), "")), GOOD);
    assert_eq!(kind("gemini", UUID, 0, "", ""), FailureKind::Crashed);
    let gone = "Error resuming session: No previous sessions found for this project.\n";
    assert_eq!(kind("gemini", UUID, 42, "", gone), FailureKind::ConversationGone);
    let auth = "{\n \"error\": {\"type\": \"Error\", \"message\": \"Please set an Auth method\", \"code\": 41}\n}\n";
    assert_eq!(
        judge("gemini", UUID, &exited(41, "", auth)),
        (TurnState::Failed, Some((FailureKind::NotSignedIn, "Please set an Auth method".into())))
    );
    assert_eq!(kind("gemini", UUID, 145, "", ""), FailureKind::NotSignedIn);
    assert_eq!(kind("gemini", UUID, 55, "", "not trusted"), FailureKind::Refused);
    let run = harnesses("").get("gemini").expect("gemini").invocation(&session("gemini", UUID), "x", "m");
    assert!(!run.streams, "it prints once, at its end");
}

#[test]
fn opencode() {
    let good = r#"{"type":"step_start","sessionID":"ses_1"}
{"type":"text","sessionID":"ses_1","part":{"text":"Merged."}}
{"type":"step_finish","sessionID":"ses_1"}"#;
    assert_eq!(judge("opencode", "ses_1", &exited(0, good, "")), GOOD);
    assert_eq!(kind("opencode", "ses_1", 1, "", "Error: Session not found\n"), FailureKind::ConversationGone);
    let error = r#"{"type":"error","sessionID":"ses_1","error":{"name":"APIError","data":{"message":"401 bad key"}}}"#;
    assert_eq!(
        judge("opencode", "ses_1", &exited(1, error, "")),
        (TurnState::Failed, Some((FailureKind::NotSignedIn, "401 bad key".into())))
    );
    assert_eq!(
        judge("opencode", "ses_1", &ended(Ending::NoFirstOutput, "", "")).1.map(|failure| failure.0),
        Some(FailureKind::Hung)
    );
}

#[test]
fn copilot() {
    let good = format!(
        "{{\"type\":\"assistant.message\",\"data\":{{\"content\":\"Ok.\"}}}}\n\
         {{\"type\":\"result\",\"sessionId\":\"{UUID}\",\"exitCode\":0,\"usage\":{{}}}}\n"
    );
    assert_eq!(judge("copilot", UUID, &exited(0, &good, "")), GOOD);
    assert_eq!(kind("copilot", UUID, 0, &good.replace(":0,", ":1,"), ""), FailureKind::Crashed);
    let gone = format!("Error: No session, task, or name matched '{UUID}'\n");
    assert_eq!(kind("copilot", UUID, 1, "", &gone), FailureKind::ConversationGone);
}

#[test]
fn the_patterns_of_the_built_in_ones_are_good() {
    let built_in: BTreeMap<String, Definition> = toml::from_str(include_str!("../definitions.toml")).expect("tables");
    for (name, definition) in built_in {
        Defined::new(&name, definition, false).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_stranger_is_described_in_ten_lines() {
    let known = harnesses(
        r#"
        [mine]
        command = "my-agent"
        args = ["--fast"]
        resume = ["run", "--resume", "{session_id}", "{args}", "--note={session_id}{cwd}"]
        output = "jsonl"
        done = [{ "/type" = "done" }]
        failed = [{ "/type" = "error" }]
        error = ["/message"]
        last_words = [{ at = "/text", where = { "/type" = "reply" } }]
        usage = { cost = "/cost", session_cost = "/total" }
        gone = ["unknown session"]
        "#,
    );
    let mine = known.get("mine").expect("mine");
    let session = session("mine", "{cwd}");
    let run = mine.invocation(&session, "x", "m");
    assert_eq!(run.args, ["run", "--resume", "{cwd}", "--fast", "--note={cwd}/home/a b/demo"]);
    let good = exited(0, "{\"type\":\"reply\",\"text\":\"Hm.\"}\n{\"type\":\"done\",\"cost\":0.5,\"total\":2}\n", "");
    let outcome = mine.outcome(&session, &good);
    assert_eq!((outcome.state, outcome.last_words.as_deref()), (TurnState::Succeeded, Some("Hm.")));
    assert_eq!((outcome.usage.cost_usd, outcome.usage.session_cost_usd), (Some(0.5), Some(2.0)));
    let bad = mine.outcome(&session, &exited(0, "{\"type\":\"error\",\"message\":\"Unknown session x\"}", ""));
    assert_eq!(bad.failure.map(|failure| failure.kind), Some(FailureKind::ConversationGone));
}

#[test]
fn plain_text_is_judged_by_the_exit_code() {
    let known = harnesses("[mine]\ncommand = \"m\"\nresume = [\"{session_id}\"]\n");
    let mine = known.get("mine").expect("mine");
    let good = mine.outcome(&session("mine", "x"), &exited(0, "It is done.\n", ""));
    assert_eq!((good.state, good.last_words.as_deref()), (TurnState::Succeeded, Some("It is done.")));
    let bad = mine.outcome(&session("mine", "x"), &exited(1, "no\n", ""));
    assert_eq!(bad.failure.map(|failure| failure.message).as_deref(), Some("no"));
}

#[test]
fn a_table_over_a_built_in_changes_only_what_it_names() {
    let known = harnesses("[opencode]\nargs = [\"-m\", \"x/y\"]\nenv = { A = \"1\" }\n");
    let run = known.get("opencode").expect("opencode").invocation(&session("opencode", "ses_1"), "x", "m");
    assert_eq!(run.args.join(" "), "run --format json -s ses_1 --dir /home/a b/demo -m x/y");
    assert_eq!(run.env.keys().collect::<Vec<_>>(), ["A", "OPENCODE_DISABLE_AUTOUPDATE"]);
}

#[test]
fn what_cannot_work_is_refused_with_what_would() {
    for (text, word) in [
        ("[mine]\ncommand = \"m\"", "resume"),
        ("[mine]\nresume = [\"{session_id}\"]", "command"),
        ("[mine]\ncommand = \"m\"\nresume = [\"x\"]", "{session_id}"),
        ("[mine]\ncommand = \"m\"\nresume = [\"{session_id}\"]\noutput = \"json\"\nerror = [\"message\"]", "/message"),
        ("[mine]\ncommand = \"m\"\nresume = [\"{session_id}\"]\ndone = [{ \"/a\" = 1 }]", "jsonl"),
        ("[mine]\ncommand = \"m\"\nresume = [\"{session_id}\"]\ngone = [\"(\"]", "regular expression"),
        ("[mine]\ncommand = \"m\"\nresume = [\"{session_id}\"]\nends_when_done = true", "ends_when_done"),
        ("[\"My Agent\"]\ncommand = \"m\"", "lower-case"),
    ] {
        let configured: BTreeMap<String, Definition> = toml::from_str(text).expect("tables");
        let error = Harnesses::new(&configured).expect_err(text).to_string();
        assert!(error.contains(word), "{error}");
    }
    assert!(toml::from_str::<BTreeMap<String, Definition>>("[mine]\ncomand = \"m\"").is_err());
}
