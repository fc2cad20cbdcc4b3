//! A session that waits for a branch hears of the branch's pull request, by polling as by webhook.

use crate::support::{GitHub, payloads};
use serde_json::{Value, json};

const DEMO: &str = "/repos/octo-org/demo";

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn comment(id: u64, number: u64, text: &str) -> Value {
    json!({
        "id": id, "body": text, "user": payloads::user("octocat"), "author_association": "OWNER",
        "created_at": now(), "updated_at": now(),
        "issue_url": format!("https://api.github.com{DEMO}/issues/{number}"),
        "pull_request_url": format!("https://api.github.com{DEMO}/pulls/{number}"),
    })
}

#[test]
fn a_branch_s_session_hears_all_of_its_pull_request() {
    let github = GitHub::start();
    let mut server = github.machine("");
    let mut open = github.pull("");
    github.page(&format!("{DEMO}/pulls"), json!([open]));
    github.page(&format!("{DEMO}/issues/comments"), json!([]));
    server.register("octo-org/demo@feature", "claude", "safe-id");
    server.serve(&[]);
    github.wait("/pulls/20/reviews", 2);
    github.page(&format!("{DEMO}/issues/comments"), json!([comment(1, 20, "in words")]));
    server.wait_told("in words");
    github.page(&format!("{DEMO}/pulls/comments"), json!([comment(2, 20, "on a line")]));
    server.wait_told("on a line");
    let review = json!({
        "id": 4, "state": "CHANGES_REQUESTED", "body": "as a review", "user": payloads::user("octocat"),
        "author_association": "OWNER", "submitted_at": now(),
    });
    github.page(&format!("{DEMO}/pulls/20/reviews"), json!([review]));
    server.wait_told("as a review");
    // A comment by webhook finds the same way, and is told once.
    let mut hook = payloads::issue_comment(20, "by webhook");
    hook["issue"]["pull_request"] = json!({});
    server.post("issue_comment", &hook);
    server.wait_told("by webhook");
    open["state"] = "closed".into();
    open["closed_at"] = now().into();
    open["merged_by"] = payloads::user("octocat");
    github.page(&format!("{DEMO}/pulls/20"), open);
    github.page(&format!("{DEMO}/pulls"), json!([]));
    server.wait_told("pull_request.closed");
    let text = server.prompts();
    for words in ["in words", "on a line", "as a review", "by webhook", "pull_request.closed"] {
        assert_eq!(text.matches(words).count(), 1, "{words}: {text}");
    }
    // What is closed is asked for no more; the branch still is.
    github.wait("/branches/feature", 2);
    let asked = github.asked("/pulls/20").len();
    github.wait("/branches/feature", 3);
    assert_eq!(github.asked("/pulls/20").len(), asked);
    assert!(github.asked("head=octo-org%3Afeature").iter().any(|asked| asked.status == 304));
}

#[test]
fn what_is_said_before_a_new_pull_request_is_seen_is_news_and_a_fork_s_is_not() {
    let github = GitHub::start();
    let mut server = github.machine("");
    server.register("octo-org/demo@feature", "claude", "safe-id");
    server.serve(&[]);
    github.wait("head=octo-org%3Afeature", 2);
    let mut young = github.pull("");
    young["created_at"] = jiff::Timestamp::now().to_string().into();
    let mut fork = payloads::pull(21, "feature");
    fork["head"]["repo"]["id"] = 77.into();
    fork["created_at"] = young["created_at"].clone();
    // All of it is there before the next look.
    github.page(&format!("{DEMO}/issues/comments"), json!([comment(1, 20, "at once"), comment(2, 21, "of a fork")]));
    github.page(&format!("{DEMO}/pulls/comments"), json!([comment(3, 20, "on a line")]));
    github.page(&format!("{DEMO}/pulls/20"), young.clone());
    github.page(&format!("{DEMO}/pulls"), json!([young, fork]));
    server.wait_told("at once");
    server.wait_told("on a line");
    github.wait("head=octo-org%3Afeature", 2);
    assert!(!server.prompts().contains("of a fork") && github.asked("/pulls/21").is_empty());
}
