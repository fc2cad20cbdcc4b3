//! Polling from outside: a session that no webhook reaches is woken all the same, once, and by nobody who may not.

use crate::support::{GitHub, Server, payloads, wait_until};
use serde_json::{Value, json};

const DEMO: &str = "/repos/octo-org/demo";

fn run(id: u64, conclusion: Option<&str>) -> Value {
    let mut run = payloads::workflow_run(conclusion.unwrap_or_default(), "feature", &[])["workflow_run"].clone();
    run["id"] = id.into();
    // Of several states of one workflow only the newest would be told.
    run["workflow_id"] = id.into();
    run["html_url"] = format!("https://github.com/octo-org/demo/actions/runs/{id}").into();
    run["status"] = if conclusion.is_some() { "completed" } else { "in_progress" }.into();
    run["conclusion"] = conclusion.into();
    run
}

fn comment(id: u64, login: &str, association: &str, text: &str) -> Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "id": id, "body": text, "user": payloads::user(login), "author_association": association, "created_at": now,
        "updated_at": now, "issue_url": format!("https://api.github.com{DEMO}/issues/20"),
        "pull_request_url": format!("https://api.github.com{DEMO}/pulls/20"),
    })
}

#[test]
fn a_pull_request_s_news_of_every_kind_is_told_once_and_the_token_is_not() {
    let github = GitHub::start();
    let mut server = github.machine("");
    let open = github.pull("");
    github.runs(&[run(100, Some("success"))]);
    server.register("octo-org/demo#20", "claude", "safe-id");
    server.serve(&[]);
    github.wait("/actions/runs", 2);
    github.page(
        &format!("{DEMO}/issues/comments"),
        json!([comment(1, "mallory", "NONE", "a stranger"), comment(2, "octocat", "OWNER", "in words")]),
    );
    server.wait_told("in words");
    github.page(&format!("{DEMO}/pulls/comments"), json!([comment(3, "octocat", "OWNER", "on a line")]));
    server.wait_told("on a line");
    let review = json!({
        "id": 4, "state": "CHANGES_REQUESTED", "body": "as a review", "user": payloads::user("octocat"),
        "author_association": "OWNER", "submitted_at": "2026-11-30T10:00:00Z",
    });
    github.page(&format!("{DEMO}/pulls/20/reviews"), json!([review]));
    server.wait_told("as a review");
    github.runs(&[run(101, Some("failure")), run(100, Some("success"))]);
    server.wait_told("actions/runs/101");
    let asked = github.asked("/actions/runs");
    assert!(asked.iter().all(|asked| asked.path.contains(payloads::SHA)), "{asked:?}");
    assert!(asked.iter().all(|asked| asked.authorization == "Bearer gho_hidden"));
    assert!(asked.iter().filter(|asked| asked.status == 304).count() > 0, "an unchanged page was sent again");
    let mut closed = open;
    closed["state"] = "closed".into();
    closed["closed_at"] = "2026-11-30T11:00:00Z".into();
    github.page(&format!("{DEMO}/pulls/20"), closed);
    wait_until("the session ends with its pull request", || {
        server.json(&["sessions", "list"])[0]["status"] == "closed"
    });
    wait_until("nothing is polled for nobody", || server.json(&["status"])["polling"] == json!([]));
    let text = server.prompts();
    assert!(!text.contains("a stranger") && !text.contains("actions/runs/100"), "{text}");
    for words in ["in words", "on a line", "as a review", "actions/runs/101"] {
        assert_eq!(text.matches(words).count(), 1, "{words}: {text}");
    }
    assert!(!text.contains("gho_hidden") && !server.log().contains("gho_hidden"));
    let database = std::fs::read(server.path("state/the-loop.db")).expect("the database");
    assert!(!database.windows(10).any(|window| window == b"gho_hidden"));
}

#[test]
fn an_issue_hears_of_the_checks_of_the_pull_request_that_closes_it() {
    let github = GitHub::start();
    let mut server = github.machine("");
    github.page(&format!("{DEMO}/issues/15"), payloads::issue(15));
    server.register("octo-org/demo#15", "claude", "safe-id");
    server.serve(&[]);
    github.wait("/issues/15", 2);
    let mut pull = github.pull("Closes #15");
    pull["created_at"] = jiff::Timestamp::now().to_string().into();
    github.page(&format!("{DEMO}/pulls/20"), pull.clone());
    github.runs(&[run(7, Some("failure"))]);
    github.page(&format!("{DEMO}/pulls"), json!([pull]));
    server.wait_told("actions/runs/7");
    assert_eq!(server.prompts().matches("actions/runs/7").count(), 1);
    assert!(server.json(&["deliveries", "list"]).as_array().expect("rows").iter().any(|row| {
        row["action"] == "observed" && row["reason"].as_str().is_some_and(|why| why.contains("only seen"))
    }));
}

#[test]
fn what_happened_while_we_were_down_is_found_and_what_came_before_a_session_is_not() {
    let github = GitHub::start();
    let mut server = github.machine("");
    github.runs(&[run(2, None), run(1, Some("failure"))]);
    server.register("octo-org/demo@feature", "claude", "safe-id");
    server.serve(&[]);
    github.wait("/actions/runs", 2);
    wait_until("the baseline is kept", || server.json(&["status"])["polling"][0]["checked_at"].is_string());
    server.kill();
    github.runs(&[run(3, Some("failure")), run(2, Some("failure")), run(1, Some("failure"))]);
    server.serve(&[]);
    server.wait_told("actions/runs/3");
    server.wait_told("actions/runs/2");
    // Closed and registered again, the session begins anew.
    server.ok(&["sessions", "close", "octo-org/demo@feature"]);
    wait_until("it is forgotten", || server.json(&["status"])["polling"] == json!([]));
    github.runs(&[run(4, Some("failure"))]);
    server.register("octo-org/demo@feature", "claude", "other-id");
    github.wait("/actions/runs", 2);
    github.runs(&[run(5, Some("failure")), run(4, Some("failure"))]);
    server.wait_told("actions/runs/5");
    let text = server.prompts();
    assert!(!text.contains("actions/runs/1\"") && !text.contains("actions/runs/4"), "{text}");
}

#[test]
fn what_a_page_hides_is_told_as_a_gap() {
    let github = GitHub::start();
    let mut server = github.machine("");
    github.runs(&[run(1, Some("success"))]);
    server.register("octo-org/demo@feature", "claude", "safe-id");
    server.serve(&[]);
    github.wait("/actions/runs", 2);
    // Every page holds the same fifty: what was there before is nowhere.
    let many: Vec<_> = (0..50).map(|n| run(1000 - n, Some("success"))).collect();
    github.runs(&many);
    server.wait_told("github_poll.gap");
    assert!(server.prompts().contains("workflow runs"));
}

#[test]
fn a_list_that_could_not_be_read_for_a_new_session_is_read_for_it_later() {
    let github = GitHub::start();
    let mut server = github.machine("");
    let pull = github.pull("Closes #16");
    github.page(&format!("{DEMO}/pulls"), json!([pull]));
    for number in [15, 16] {
        github.page(&format!("{DEMO}/issues/{number}"), payloads::issue(number));
    }
    server.register("octo-org/demo#15", "claude", "s-15");
    server.serve(&[]);
    github.wait("/pulls?state=open", 2);
    github.refuse(&format!("{DEMO}/pulls"), 500, &[]);
    server.register("octo-org/demo#16", "claude", "s-16");
    wait_until("it is looked for", || !github.asked("/issues/16").is_empty());
    github.wait("/pulls?state=open", 1);
    // The list is the one that was read before; for this session it is new all the same.
    github.allow(&format!("{DEMO}/pulls"));
    github.page(&format!("{DEMO}/issues/comments"), json!([comment(1, "octocat", "OWNER", "for the second")]));
    server.wait_told("for the second");
}

#[test]
fn trouble_is_said_and_ends() {
    let github = GitHub::start();
    let mut server = github.machine("");
    github.refuse(DEMO, 404, &[]);
    server.register("octo-org/demo@feature", "claude", "safe-id");
    server.serve(&[]);
    wait_until("status says what is the matter", || {
        let trouble = server.json(&["status"])["polling"][0]["trouble"].clone();
        trouble.as_str().is_some_and(|text| text.contains("shows nothing at /repos/octo-org/demo"))
    });
    assert_eq!(github.asked("").len(), 1, "a repository that is not shown is left alone");
    assert!(String::from_utf8_lossy(&server.cli(&["doctor"]).stdout).contains("shows nothing at"));
    github.allow(DEMO);
    github.refuse(&format!("{DEMO}/actions/runs"), 500, &[]);
    server.restart();
    wait_until("a server in trouble is said", || {
        server.json(&["status"])["polling"][0]["trouble"].as_str().is_some_and(|text| text.contains("500"))
    });
    github.allow(&format!("{DEMO}/actions/runs"));
    wait_until("it is well again", || {
        let row = server.json(&["status"])["polling"][0].clone();
        row["trouble"].is_null() && row["checked_at"].is_string()
    });
    github.refuse(&format!("{DEMO}/actions/runs"), 401, &[]);
    wait_until("a token that is not taken is said", || {
        server.json(&["status"])["polling"][0]["trouble"].as_str().is_some_and(|text| text.contains("token"))
    });
}

#[test]
fn a_backfill_takes_in_what_the_webhook_never_brought() {
    let github = GitHub::start();
    let mut server = github.machine("");
    server.register("octo-org/demo#15", "claude", "safe-id");
    server.serve(&[]);
    let known = payloads::issue_comment(15, "it came");
    server.deliver("issue_comment", "guid-1", &known);
    server.wait_told("it came");
    let refused = server.cli(&["deliveries", "backfill", "--repo", "octo-org/demo"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("admin"), "{refused:?}");
    let hook = |id: u64, url: &str| json!({"id": id, "config": {"url": url}});
    github.page(
        &format!("{DEMO}/hooks"),
        json!([hook(1, "https://x.example.com/gh-webhook"), hook(2, "https://y.example.com/z")]),
    );
    let now = jiff::Timestamp::now();
    let row = |id: u64, guid: &str, event: &str, days: i64| {
        let at = now - jiff::SignedDuration::from_hours(24 * days);
        json!({"id": id, "guid": guid, "event": event, "delivered_at": at.to_string()})
    };
    github.page(
        &format!("{DEMO}/hooks/1/deliveries"),
        json!([
            row(12, "guid-2", "issue_comment", 0),
            row(11, "guid-1", "issue_comment", 0),
            row(10, "guid-0", "issue_comment", 9)
        ]),
    );
    let missed = payloads::issue_comment(15, "it was missed");
    github.page(&format!("{DEMO}/hooks/1/deliveries/12"), json!({"request": {"payload": missed}}));
    let done = server.json(&["deliveries", "backfill"]);
    assert_eq!(
        done,
        json!([{"repository": "octo-org/demo", "hook": 1, "listed": 2, "known": 1, "taken": 1, "unreadable": 0}])
    );
    server.wait_told("it was missed");
    assert_eq!(server.json(&["deliveries", "backfill"])[0]["taken"], 0);
}

#[cfg(target_os = "linux")]
#[test]
fn the_machine_is_kept_awake_while_a_turn_runs() {
    let mut server = Server::new("");
    let stub = server.path("bin/systemd-inhibit");
    let log = server.path("awake");
    std::fs::write(&stub, format!("#!/bin/sh\necho \"$@\" >>'{0}'\ncat\necho let go >>'{0}'\n", log.display()))
        .expect("stub");
    std::fs::set_permissions(&stub, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
    server.register("octo-org/demo#15", "claude", "safe-id");
    server.serve(&[]);
    server.hold();
    server.post("issue_comment", &payloads::issue_comment(15, "a long turn"));
    server.wait_calls(1);
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("the lock is taken", || said().contains("--what=idle:sleep"));
    // However the server ends, the lock does not outlive it.
    server.kill();
    wait_until("the lock is let go", || said().contains("let go"));
    server.release();
}

#[cfg(target_os = "linux")]
#[test]
fn a_watching_machine_stays_awake_while_github_is_polled_for_a_session() {
    let github = GitHub::start();
    let stay = "[dispatch]\nkeep_awake = \"watches\"\n";
    let mut server = github.machine(stay);
    let log = server.path("awake");
    let stub = server.path("bin/systemd-inhibit");
    std::fs::write(&stub, format!("#!/bin/sh\necho \"$@\" >>'{0}'\ncat\necho let go >>'{0}'\n", log.display()))
        .expect("stub");
    std::fs::set_permissions(&stub, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
    server.register("octo-org/demo@feature", "claude", "safe-id");
    server.serve(&[]);
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("the lock is taken", || said().contains("--what=idle:sleep"));
    server.kill();
    wait_until("the lock is let go", || said().contains("let go"));
}
