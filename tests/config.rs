//! The configuration: its layers, its example file, and what it says of mistakes.

use std::collections::BTreeSet;
use std::path::Path;

use the_loop::config::{Environment, Error, Loaded, OnClosed, Origin, Settings, key_names, load};
use the_loop::domain::{Size, Span};

const EXAMPLE: &str = include_str!("../config.example.toml");

/// A state directory whose `config.toml` says `text`.
fn state(text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::write(dir.path().join("config.toml"), text).expect("config.toml");
    dir
}

fn read(text: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Loaded, Error> {
    let environment = environment.iter().copied().collect::<Environment>();
    let flags: Vec<_> = flags.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
    load(state(text).path(), None, &environment, &flags)
}

/// Every problem on a line of its own, with the file's name alone.
fn problems(text: &str, environment: &[(&str, &str)]) -> String {
    let dir = state(text);
    match load(dir.path(), None, &environment.iter().copied().collect(), &[]) {
        Err(Error::Problems(problems)) => {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            lines.join("\n").replace(&format!("{}/", dir.path().display()), "")
        }
        other => panic!("no problem in {text:?}: {other:?}"),
    }
}

#[test]
fn nothing_said_is_the_defaults() {
    let loaded = load(Path::new("/nowhere"), None, &Environment::default(), &[]).expect("loaded");
    assert_eq!(loaded.settings, Settings::default());
    assert_eq!(loaded.file, None);
    assert!(loaded.origins.values().all(|origin| *origin == Origin::Default));
}

#[test]
fn each_layer_overrules_the_one_below() {
    let file = "[gh_webhook]\nport = 1\npath = \"/file\"\nhost = \"0.0.0.0\"\n";
    let environment = [("THE_LOOP_GH_WEBHOOK_PORT", "2"), ("THE_LOOP_GH_WEBHOOK_PATH", "/env")];
    let loaded = read(file, &environment, &[("gh_webhook.port", "3")]).expect("loaded");
    let all = &loaded.settings.gh_webhook;
    assert_eq!((all.port, all.path.as_str(), all.host.as_str()), (3, "/env", "0.0.0.0"));
    let origin = |key: &str| loaded.origins[key].to_string();
    assert_eq!(origin("gh_webhook.port"), "--port");
    assert_eq!(origin("gh_webhook.path"), "THE_LOOP_GH_WEBHOOK_PATH");
    assert!(origin("gh_webhook.host").ends_with("config.toml:4"), "{}", origin("gh_webhook.host"));
    assert_eq!(origin("gh_webhook.max_body"), "default");
}

#[test]
fn every_kind_of_value_is_read() {
    let text = r#"
        [gh_webhook]
        secret_env = ["NEW", "OLD"]
        max_body = "1MiB"
        [routing]
        debounce = "250ms"
        on_closed = "keep"
        [dispatch]
        max_cost_per_day_usd = 20
        [harness.claude]
        args = ["--model", "opus"]
        env = { A = "1" }
        [harness.mine]
        command = "my-agent"
        resume = ["--resume", "{session_id}"]
    "#;
    let settings = read(text, &[], &[]).expect("loaded").settings;
    assert_eq!(settings.gh_webhook.secret_env, ["NEW", "OLD"]);
    assert_eq!(settings.gh_webhook.max_body, Size(1 << 20));
    assert_eq!(settings.routing.debounce, "250ms".parse::<Span>().expect("span"));
    assert_eq!(settings.routing.on_closed, OnClosed::Keep);
    assert_eq!(settings.dispatch.max_cost_per_day_usd, Some(20.0));
    assert_eq!(settings.harness["mine"].command.as_deref(), Some("my-agent"));
    assert!(settings.harness_names().iter().any(|name| name == "mine"));
}

#[test]
fn the_environment_sets_every_kind() {
    let environment = [
        ("THE_LOOP_GH_WEBHOOK_SECRET_ENV", "NEW, OLD"),
        ("THE_LOOP_ROUTING_WAKE_ON", "status,issues.closed"),
        ("THE_LOOP_ROUTING_ON_CLOSED", "tell"),
        ("THE_LOOP_DISPATCH_MAX_ATTEMPTS", "3"),
        ("THE_LOOP_DISPATCH_MAX_COST_PER_DAY_USD", "2.5"),
        ("THE_LOOP_STORE_KEEP_BODIES", "1MiB"),
        ("THE_LOOP_HARNESS_CLAUDE_COMMAND", "/opt/claude"),
        ("THE_LOOP_GH_WEBHOOK_HOST", ""),
    ];
    let settings = read("", &environment, &[]).expect("loaded").settings;
    assert_eq!(settings.gh_webhook.secret_env, ["NEW", "OLD"]);
    assert_eq!(settings.routing.wake_on, ["status", "issues.closed"]);
    assert_eq!(settings.routing.on_closed, OnClosed::Tell);
    assert_eq!(settings.dispatch.max_attempts, 3);
    assert_eq!(settings.dispatch.max_cost_per_day_usd, Some(2.5));
    assert_eq!(settings.store.keep_bodies, Size(1 << 20));
    assert_eq!(settings.harness["claude"].command.as_deref(), Some("/opt/claude"));
    assert_eq!(settings.gh_webhook.host, "127.0.0.1", "an empty variable is not set");
}

#[test]
fn variables_that_set_nothing_are_told_without_their_value() {
    let environment = [
        ("THE_LOOP_DISPATCH_MAX_ATEMPTS", "hush"),
        ("THE_LOOP_SOMETHING_ELSE", "hush"),
        ("THE_LOOP_GH_WEBHOOK_SECRET", "hush"),
        ("THE_LOOP_OLD_SECRET", "hush"),
        ("THE_LOOP_STATE_DIR", "/x"),
        ("OTHER", "hush"),
    ];
    let file = "[gh_webhook]\nsecret_env = [\"THE_LOOP_GH_WEBHOOK_SECRET\", \"THE_LOOP_OLD_SECRET\"]\n";
    let warnings = read(file, &environment, &[]).expect("loaded").warnings.join("\n");
    insta::assert_snapshot!(warnings);
}

#[test]
fn an_event_that_is_nearly_known_is_doubted() {
    let text = "[routing]\nwake_on = [\"isue_comment.created\", \"issues.closed\", \"brand_new_event\"]\n";
    let warnings = read(text, &[], &[]).expect("loaded").warnings;
    assert_eq!(warnings, ["`routing.wake_on` has `isue_comment.created`; did you mean `issue_comment`?"]);
}

#[test]
fn what_a_harness_is_given_is_not_shown() {
    let text = "[harness.claude]\nenv = { TOKEN = \"hush\" }\n";
    let loaded = read(text, &[], &[]).expect("loaded");
    assert_eq!(loaded.settings.harness["claude"].env.as_ref().map(|env| env["TOKEN"].as_str()), Some("hush"));
    let shown = format!("{:?}", loaded.entries());
    assert!(shown.contains("TOKEN") && !shown.contains("hush"), "{shown}");
}

#[test]
fn mistakes_are_all_told_with_their_place() {
    let text = r#"
debounce = "1s"
[gh_webhook]
prot = 80
port = "http"
path = 3
secret = "hush"
max_body = 25
debounce = "1s"

[dispach]
max_attempts = 3

[dispatch]
max_attempts = -1
max_concurrent_turns = 99999999999999999999
turn_timeout = "soon"
max_cost_per_day_usd = 0

[routing]
wake_on = "status"
on_closed = "explode"

[trust]
actors = ["a", 1]

[harness.claude]
comand = "claude"
args = "--model opus"

[harness.Claude]
command = "claude"
"#;
    insta::assert_snapshot!(problems(text, &[("THE_LOOP_DISPATCH_KILL_GRACE", "5")]));
}

#[test]
fn values_are_checked_for_what_they_mean() {
    let text = r#"
[gh_webhook]
host = "http://localhost"
path = "gh-webhook"
secret_env = ["It's a secret"]
max_body = "1GiB"
read_timeout = "0s"
max_connections = 0

[routing]
wake_on = ["issue_comment.created", "Issue Comment"]
debounce = "1m"
max_wait = "30s"
max_events_per_turn = 0

[trust]
associations = ["OWNERS"]
actors = ["@me"]

[prompt]
max_prompt = "1KiB"

[dispatch]
max_concurrent_turns = 0
turn_timeout = "0s"
max_attempts = 0
retry_backoff = "1h"
max_turns_per_hour = 0

[store]
keep_for = "1s"

[harness.mine]
args = ["-x"]

[harness.empty]

[github]
api_url = "http://octocat:hush@ghe.example.com"
[github_poll]
interval = "10ms"
max_age = "1s"
"#;
    insta::assert_snapshot!(problems(text, &[]));
}

#[test]
fn broken_toml_is_told_with_its_line() {
    insta::assert_snapshot!(problems("[gh_webhook]\nport = 80\nport = 81\npath = /x\n", &[]));
}

#[test]
fn a_named_file_must_be_there() {
    let missing = Path::new("/nowhere/the-loop.toml");
    for (file, environment) in
        [(Some(missing), Environment::default()), (None, Environment::from_iter([("THE_LOOP_CONFIG", missing)]))]
    {
        let error = load(Path::new("/nowhere"), file, &environment, &[]).expect_err("a missing file was passed by");
        assert!(matches!(error, Error::Read { .. }), "{error:?}");
        assert!(error.to_string().contains("/nowhere/the-loop.toml"), "{error}");
    }
}

/// The file with its examples of keys without a default made real.
fn with_examples() -> String {
    let is_example = |line: &str| line.starts_with('#') && !line.starts_with("# ");
    EXAMPLE.lines().map(|line| if is_example(line) { &line[1..] } else { line }).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_says_the_defaults() {
    assert_eq!(read(EXAMPLE, &[], &[]).expect("the example").settings, Settings::default());
}

#[test]
fn the_example_has_every_key_and_no_other() {
    let loaded = read(&with_examples(), &[], &[]).expect("the example with its examples");
    let from_file = loaded.origins.iter().filter(|(_, origin)| matches!(origin, Origin::File { .. }));
    let named = |key: &String| {
        let pairs = [
            ("mcp.tokens.0.", "mcp.tokens.N."),
            ("harness.mine.", "harness.NAME."),
            ("servers.mine.", "servers.NAME."),
            ("servers.elsewhere.", "servers.NAME."),
        ];
        pairs.iter().fold(key.clone(), |key, (from, to)| key.replace(from, to))
    };
    let written: BTreeSet<String> = from_file.map(|(key, _)| named(key)).collect();
    assert_eq!(written, key_names().collect());
}

#[test]
fn the_example_says_why_for_every_key() {
    let mut above = "";
    for line in EXAMPLE.lines() {
        let is_key = line.contains(" = ") && !line.starts_with("# ") && !line.starts_with(' ');
        assert!(!is_key || above.starts_with("# "), "no reason above `{line}`");
        above = line;
    }
}
