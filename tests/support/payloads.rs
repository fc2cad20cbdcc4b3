//! Payloads in GitHub's shape. Each is of a happening of its own; change what a test is about in the value.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value, json};

/// The commit that pull requests and verdicts are about unless a test says otherwise.
pub const SHA: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// GitHub gives no two comments, runs or reviews one id.
fn next_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(5000);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// The repository `octo-org/demo`.
pub fn repository() -> Value {
    json!({
        "id": 1_296_269, "name": "demo", "full_name": "octo-org/demo", "private": false, "fork": false,
        "owner": {"login": "octo-org", "id": 1, "type": "Organization"}, "default_branch": "main",
        "html_url": "https://github.com/octo-org/demo",
    })
}

/// An account.
pub fn user(login: &str) -> Value {
    json!({"login": login, "id": 583_231, "type": if login.ends_with("[bot]") { "Bot" } else { "User" }})
}

fn owner() -> Value {
    user("octocat")
}

/// What every payload has, with `more` beside it. An empty `action` is none.
pub fn payload(action: &str, more: Value) -> Value {
    let mut payload = Map::new();
    if !action.is_empty() {
        payload.insert("action".into(), action.into());
    }
    payload.insert("repository".into(), repository());
    payload.insert("organization".into(), json!({"login": "octo-org", "id": 1}));
    payload.insert("sender".into(), owner());
    let Value::Object(more) = more else { panic!("fields come as an object") };
    payload.extend(more);
    Value::Object(payload)
}

/// An open issue of the owner.
pub fn issue(number: u64) -> Value {
    json!({
        "id": 1000 + number, "number": number, "title": "An issue", "state": "open", "body": "", "user": owner(),
        "author_association": "OWNER", "labels": [],
        "html_url": format!("https://github.com/octo-org/demo/issues/{number}"),
        "url": format!("https://api.github.com/repos/octo-org/demo/issues/{number}"),
    })
}

/// `issues` with any action, of an issue in the state that goes with it.
pub fn issues(action: &str, number: u64) -> Value {
    let mut payload = payload(action, json!({"issue": issue(number)}));
    payload["issue"]["state"] = if action == "closed" { "closed" } else { "open" }.into();
    payload
}

/// `issue_comment.created` by the owner.
pub fn issue_comment(number: u64, text: &str) -> Value {
    let id = next_id();
    payload(
        "created",
        json!({
            "issue": issue(number),
            "comment": {
                "id": id, "body": text, "user": owner(), "author_association": "OWNER",
                "html_url": format!("https://github.com/octo-org/demo/issues/{number}#issuecomment-{id}"),
                "created_at": "2026-11-30T10:00:00Z", "updated_at": "2026-11-30T10:00:00Z",
            },
        }),
    )
}

/// An open pull request of the owner from `branch` to `main`.
pub fn pull(number: u64, branch: &str) -> Value {
    json!({
        "id": 2000 + number, "number": number, "title": "A change", "state": "open", "merged": false, "draft": false,
        "body": "", "user": owner(), "author_association": "OWNER", "labels": [],
        "html_url": format!("https://github.com/octo-org/demo/pull/{number}"),
        "updated_at": format!("2026-11-30T10:{:02}:00Z", next_id() % 60),
        "head": {"ref": branch, "sha": SHA, "repo": repository(), "label": format!("octo-org:{branch}")},
        "base": {"ref": "main", "sha": "b".repeat(40), "repo": repository(), "label": "octo-org:main"},
    })
}

/// `pull_request` with any action.
pub fn pull_request(action: &str, number: u64, branch: &str) -> Value {
    let mut payload = payload(action, json!({"number": number, "pull_request": pull(number, branch)}));
    payload["pull_request"]["state"] = if action == "closed" { "closed" } else { "open" }.into();
    payload
}

/// `pull_request_review.submitted` by the owner; `state` is `approved`, `changes_requested` or `commented`.
pub fn review(number: u64, state: &str, text: &str) -> Value {
    let id = next_id();
    payload(
        "submitted",
        json!({
            "pull_request": pull(number, "feature"),
            "review": {
                "id": id, "body": text, "state": state, "user": owner(), "author_association": "OWNER",
                "html_url": format!("https://github.com/octo-org/demo/pull/{number}#pullrequestreview-{id}"),
                "submitted_at": "2026-11-30T10:00:00Z",
            },
        }),
    )
}

/// `pull_request_review_comment.created` by the owner.
pub fn review_comment(number: u64, text: &str) -> Value {
    let id = next_id();
    payload(
        "created",
        json!({
            "pull_request": pull(number, "feature"),
            "comment": {
                "id": id, "body": text, "path": "src/lib.rs", "line": 12, "user": owner(),
                "author_association": "OWNER", "diff_hunk": "@@ -1 +1 @@\n-a\n+b",
                "html_url": format!("https://github.com/octo-org/demo/pull/{number}#discussion_r{id}"),
                "created_at": "2026-11-30T10:00:00Z",
            },
        }),
    )
}

/// `workflow_run.completed` of a commit of `branch`, attached to pull requests.
pub fn workflow_run(conclusion: &str, branch: &str, pulls: &[u64]) -> Value {
    let id = next_id();
    payload(
        "completed",
        json!({
            "workflow": {"id": 1, "name": "CI", "path": ".github/workflows/ci.yml"},
            "workflow_run": {
                "id": id, "name": "CI", "head_branch": branch, "head_sha": SHA, "run_number": 7, "run_attempt": 1,
                "event": "push", "status": "completed", "conclusion": conclusion,
                "html_url": format!("https://github.com/octo-org/demo/actions/runs/{id}"),
                "pull_requests": attached(branch, pulls), "head_commit": {"id": SHA, "message": "Try again"},
                "actor": owner(), "repository": repository(), "head_repository": repository(),
            },
        }),
    )
}

/// `check_suite.completed` of an app such as `buildkite` or `github-actions`.
pub fn check_suite(conclusion: &str, app: &str, pulls: &[u64]) -> Value {
    payload(
        "completed",
        json!({
            "check_suite": {
                "id": next_id(), "head_branch": "feature", "head_sha": SHA, "status": "completed",
                "conclusion": conclusion, "app": {"slug": app, "name": app}, "pull_requests": attached("feature", pulls),
            },
        }),
    )
}

/// `status` of a commit: `failure`, `error`, `success` or `pending`.
pub fn status(state: &str, branch: &str) -> Value {
    payload(
        "",
        json!({
            "id": next_id(), "sha": SHA, "state": state, "context": "ci/other", "description": "What the build says",
            "target_url": "https://ci.example.com/1", "name": "octo-org/demo",
            "branches": [{"name": branch, "commit": {"sha": SHA}}],
            "commit": {"sha": SHA, "html_url": format!("https://github.com/octo-org/demo/commit/{SHA}")},
        }),
    )
}

/// `ping`, which GitHub sends for a new webhook.
pub fn ping() -> Value {
    payload("", json!({"zen": "Keep it logically awesome.", "hook_id": 1, "hook": {"id": 1, "events": ["push"]}}))
}

fn attached(branch: &str, pulls: &[u64]) -> Value {
    pulls.iter().map(|number| json!({"number": number, "head": {"ref": branch, "sha": SHA}})).collect()
}
