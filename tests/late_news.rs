//! Deliveries come late, out of order and twice: nobody is woken by stale news, and by one happening once.

use crate::support::Server;
use crate::support::payloads::{issue_comment, issues, pull_request, workflow_run};
use serde_json::Value;

const CONFIG: &str = "[routing]\ndebounce = \"30ms\"\nwake_on = [\"workflow_run\", \"pull_request\", \"issue_comment.created\"]\n\
                      [dispatch]\nretry_backoff = \"50ms\"\nmax_attempts = 1\n";

fn run(action: &str, conclusion: &str, minute: u8) -> Value {
    let mut payload = workflow_run(conclusion, "feature", &[16]);
    payload["action"] = action.into();
    payload["workflow_run"]["status"] = action.into();
    payload["workflow_run"]["updated_at"] = format!("2026-11-30T10:{minute:02}:00Z").into();
    if action != "completed" {
        payload["workflow_run"]["conclusion"] = Value::Null;
    }
    payload
}

#[track_caller]
fn told(server: &Server, event: &str, delivery: &str, payload: &Value) {
    assert_eq!(server.deliver(event, delivery, payload).0, 202);
    crate::support::wait_until(&format!("{delivery} is told"), || server.decided(delivery)["outcome"] == "delivered");
}

#[track_caller]
fn passed_by(server: &Server, event: &str, delivery: &str, payload: &Value, why: &str) {
    assert_eq!(server.deliver(event, delivery, payload).0, 202);
    let row = server.decided(delivery);
    assert_eq!(row["outcome"], "filtered", "{row}");
    assert!(row["reason"].as_str().is_some_and(|reason| reason.contains(why)), "{row}");
}

#[test]
fn what_was_overtaken_wakes_nobody() {
    let server = Server::start(CONFIG);
    server.register("octo-org/demo#16", "claude", "s-1");
    told(&server, "workflow_run", "completed", &run("completed", "failure", 5));
    passed_by(&server, "workflow_run", "in-progress", &run("in_progress", "", 1), "late");
    passed_by(&server, "workflow_run", "older", &run("completed", "failure", 4), "late");
    // As old as what was told is not older.
    told(&server, "workflow_run", "equal", &run("completed", "success", 5));
    told(&server, "workflow_run", "newer", &run("completed", "failure", 6));
    assert_eq!(server.calls().len(), 3);
    // A person may have it told all the same.
    assert_eq!(server.json(&["deliveries", "list"]).as_array().map(Vec::len), Some(5));
}

#[test]
fn a_late_push_after_the_end_of_a_pull_request_wakes_nobody() {
    let server = Server::start(CONFIG);
    server.register("octo-org/demo#7", "claude", "s-1");
    server.ok(&["sessions", "link", "--work-item", "octo-org/demo#9", "--to", "octo-org/demo#7"]);
    let mut closed = pull_request("closed", 9, "feature");
    closed["pull_request"]["closed_at"] = "2026-11-30T10:30:00Z".into();
    let mut late = pull_request("synchronize", 9, "feature");
    late["pull_request"]["updated_at"] = "2026-11-30T10:29:00Z".into();
    told(&server, "pull_request", "closed", &closed);
    passed_by(&server, "pull_request", "late", &late, "late");
    assert_eq!(server.calls().len(), 1);
    assert_eq!(server.json(&["sessions", "list"])[0]["status"], "active", "its own issue is open");
}

#[test]
fn late_news_do_not_go_to_a_session_that_was_closed() {
    let server = Server::start(CONFIG);
    server.register("octo-org/demo#9", "claude", "s-1");
    let closed = pull_request("closed", 9, "feature");
    assert_eq!(server.deliver("pull_request", "closed", &closed).0, 202);
    server.decided("closed");
    assert_eq!(server.deliver("pull_request", "late", &pull_request("synchronize", 9, "feature")).0, 202);
    assert_eq!(server.decided("late")["outcome"], "unmatched");
    assert!(server.calls().is_empty());
}

#[test]
fn two_hooks_that_tell_the_same_wake_once() {
    let server = Server::start(CONFIG);
    server.register("octo-org/demo#15", "claude", "s-1");
    let comment = issue_comment(15, "hello");
    server.hold();
    assert_eq!(server.deliver("issue_comment", "d-1", &comment).0, 202);
    passed_by(&server, "issue_comment", "d-2", &comment, "already, from delivery d-1");
    server.release();
    crate::support::wait_until("it is told", || server.decided("d-1")["outcome"] == "delivered");
    passed_by(&server, "issue_comment", "d-3", &comment, "already, from delivery d-1");
    assert_eq!(server.calls().len(), 1);
}

#[test]
fn what_failed_under_one_id_is_told_under_another_and_belongs_to_that_one() {
    let server = Server::start(CONFIG);
    server.register("octo-org/demo#15", "claude", "s-1");
    server.plan("claude", "echo overloaded >&2; exit 1");
    let comment = issue_comment(15, "hello");
    assert_eq!(server.deliver("issue_comment", "d-1", &comment).0, 202);
    crate::support::wait_until("it fails", || server.decided("d-1")["outcome"] == "failed");
    server.plan("claude", "");
    told(&server, "issue_comment", "d-2", &comment);
    let first = server.decided("d-1");
    assert_eq!(first["outcome"], "filtered", "{first}");
    assert!(first["reason"].as_str().is_some_and(|reason| reason.contains("d-2")), "{first}");
    // Nothing of it has failed any more, so there is nothing to try again.
    assert_eq!(server.deliver("issue_comment", "d-1", &comment).0, 200);
    assert_eq!(server.calls().len(), 2);
}

#[test]
fn a_late_closing_leaves_what_was_reopened_since() {
    let server = Server::start(CONFIG);
    server.register("octo-org/demo#15", "claude", "s-1");
    let at = |action: &str, minute: u8| {
        let mut payload = issues(action, 15);
        payload["issue"]["updated_at"] = format!("2026-11-30T10:{minute:02}:00Z").into();
        payload["issue"]["closed_at"] =
            if action == "closed" { payload["issue"]["updated_at"].clone() } else { Value::Null };
        payload
    };
    assert_eq!(server.deliver("issues", "reopened", &at("reopened", 10)).0, 202);
    passed_by(&server, "issues", "closed-before", &at("closed", 5), "late: github:octo-org/demo#15 was reopened since");
    assert_eq!(server.json(&["sessions", "list"])[0]["status"], "active");
    passed_by(&server, "issues", "closed-after", &at("closed", 15), "closed github:octo-org/demo#15");
    assert_eq!(server.json(&["sessions", "list"])[0]["status"], "closed");
}
