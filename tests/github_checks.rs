//! The checks of other CI services by polling: each wakes whom its webhook would wake, and once by both ways.

use crate::support::{GitHub, Server, payloads, wait_until};
use serde_json::{Value, json};

const OTHER: &str = "cccccccccccccccccccccccccccccccccccccccc";

fn ago(seconds: i64) -> String {
    (jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A suite as the webhook and the API show it; `word` stands for its conclusion.
fn suite(app: &str, word: &str) -> Value {
    let mut suite = payloads::check_suite(word, app, &[])["check_suite"].clone();
    suite["created_at"] = ago(60).into();
    suite["updated_at"] = ago(0).into();
    suite["latest_check_runs_count"] = 1.into();
    suite
}

/// The webhook of a status and the status as the API shows it.
fn status(words: &str, seconds_ago: i64) -> (Value, Value) {
    let mut hook = payloads::status("failure", "feature");
    hook["description"] = words.into();
    hook["context"] = format!("ci/{words}").into();
    hook["created_at"] = ago(seconds_ago).into();
    hook["updated_at"] = hook["created_at"].clone();
    let mut shown = json!({"creator": payloads::user("octocat")});
    for name in ["id", "state", "context", "description", "target_url", "created_at", "updated_at"] {
        shown[name] = hook[name].clone();
    }
    (hook, shown)
}

/// Waits until everything that came by now was told, and gives all prompts.
fn all_told(server: &Server, number: u64, words: &str) -> String {
    server.post("issue_comment", &payloads::issue_comment(number, words));
    server.wait_told(words);
    server.prompts()
}

#[test]
fn another_ci_wakes_by_poll_and_once_with_its_webhook() {
    let github = GitHub::start();
    let mut server = github.machine("");
    github.pull("");
    let (old, (_, old_status)) = (suite("buildkite", "stale"), status("before", 0));
    github.suites(payloads::SHA, std::slice::from_ref(&old));
    github.statuses(payloads::SHA, std::slice::from_ref(&old_status));
    server.register("octo-org/demo#20", "claude", "safe-id");
    server.serve(&[]);
    github.wait("/check-suites", 2);
    github.wait("/statuses", 2);
    // By poll first …
    let (first, actions) = (suite("buildkite", "timed_out"), suite("github-actions", "startup_failure"));
    github.suites(payloads::SHA, &[old.clone(), first.clone(), actions]);
    server.wait_told("timed_out");
    let (hook, shown) = status("by-poll-first", 0);
    github.statuses(payloads::SHA, &[shown.clone(), old_status.clone()]);
    server.wait_told("by-poll-first");
    server.deliver("status", "guid-status", &hook);
    server.deliver("check_suite", "guid-suite", &payloads::payload("completed", json!({"check_suite": first})));
    server.decided("guid-suite");
    server.decided("guid-status");
    // … and by webhook first.
    let second = suite("buildkite", "action_required");
    server.post("check_suite", &payloads::payload("completed", json!({"check_suite": second})));
    server.wait_told("action_required");
    let (hook, newer) = status("by-webhook-first", 0);
    server.post("status", &hook);
    server.wait_told("by-webhook-first");
    github.suites(payloads::SHA, &[old, second, first]);
    github.statuses(payloads::SHA, &[newer, shown, old_status]);
    let polled = |part: &str| {
        let rows = server.json(&["deliveries", "list", "--limit", "1000"]);
        let ids = rows.as_array().expect("rows").iter().filter_map(|row| row["delivery"].as_str());
        ids.filter(|id| id.starts_with("poll:") && id.contains(part)).count()
    };
    wait_until("both are polled", || polled(":suite:") == 2 && polled(":status:") == 2);
    let text = all_told(&server, 20, "that is all");
    for words in ["\"timed_out\"", "\"action_required\"", "\"by-poll-first\"", "\"by-webhook-first\""] {
        assert_eq!(text.matches(words).count(), 1, "{words}: {text}");
    }
    assert!(!text.contains("stale") && !text.contains("before") && !text.contains("startup_failure"), "{text}");
    assert!(github.asked("/check-suites").iter().any(|asked| asked.status == 304), "an unchanged page was sent again");
    assert!(github.asked("/check-runs").is_empty(), "nobody wants check runs");
}

#[test]
fn a_head_that_is_pushed_while_we_watch_has_news_but_not_what_was_said_of_it_before() {
    let github = GitHub::start();
    let mut server = github.machine("");
    github.suites(OTHER, &[]);
    github.statuses(OTHER, &[status("of-now", 0).1, status("of-old", 7200).1]);
    server.register("octo-org/demo@feature", "claude", "safe-id");
    server.serve(&[]);
    github.wait("/statuses", 2);
    github.branch("feature", OTHER);
    server.wait_told("of-now");
    assert!(!server.prompts().contains("of-old"));
    assert!(github.asked("/branches/feature").iter().any(|asked| asked.status == 304));
}

#[test]
fn check_runs_are_asked_for_where_they_wake_and_statuses_not_where_they_do_not() {
    let github = GitHub::start();
    let mut server = github.machine("");
    let config = std::fs::read_to_string(server.path("config.toml")).expect("the configuration");
    let config = config.replace("[routing]", "[routing]\nwake_on = [\"check_run.completed\"]");
    std::fs::write(server.path("config.toml"), config).expect("the configuration");
    let page = format!("/repos/octo-org/demo/commits/{}/check-runs", payloads::SHA);
    let check = |conclusion: Option<&str>| {
        json!({"id": 5, "name": "a-check", "head_sha": payloads::SHA, "conclusion": conclusion, "pull_requests": [],
            "status": if conclusion.is_some() { "completed" } else { "in_progress" }, "app": {"slug": "buildkite"},
            "started_at": ago(9), "completed_at": conclusion.map(|_| ago(0)), "check_suite": {"id": 4}})
    };
    github.page(&page, json!({"total_count": 1, "check_runs": [check(None)]}));
    server.register("octo-org/demo@feature", "claude", "safe-id");
    server.serve(&[]);
    github.wait("/check-runs", 2);
    github.page(&page, json!({"total_count": 1, "check_runs": [check(Some("failure"))]}));
    server.wait_told("a-check");
    assert!(github.asked("/statuses").is_empty() && github.asked("/check-suites").is_empty());
}
