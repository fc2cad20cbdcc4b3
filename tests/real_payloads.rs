//! Every payload that GitHub publishes, sent to the real server: all are taken, decided, explained, and told once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Server, npm, payloads, wait_until};
use serde_json::Value;

/// Nothing here is closed for good, so that every payload meets the same sessions.
const CONFIG: &str = "[routing]\ndebounce = \"10ms\"\non_closed = \"keep\"\n";

/// The events that are read; any other is kept and wakes nobody.
const READ: &[&str] = &[
    "check_run",
    "check_suite",
    "create",
    "delete",
    "deployment_status",
    "issue_comment",
    "issues",
    "merge_group",
    "pull_request",
    "pull_request_review",
    "pull_request_review_comment",
    "pull_request_review_thread",
    "push",
    "status",
    "workflow_run",
];

/// One payload with the id that it is delivered under.
struct Example {
    event: String,
    delivery: String,
    payload: Value,
}

impl Example {
    /// All examples of a set such as `api.github.com`.
    fn all(package: &Path, set: &str) -> Vec<Self> {
        let text = fs::read(package.join(set).join("index.json")).expect("index.json");
        let events: Vec<Value> = serde_json::from_slice(&text).expect("JSON");
        let mut all = Vec::new();
        for event in events {
            let name = event["name"].as_str().expect("a name");
            for (number, payload) in event["examples"].as_array().expect("examples").iter().enumerate() {
                let delivery = format!("{set}-{name}-{number}");
                all.push(Self { event: name.into(), delivery, payload: payload.clone() });
            }
        }
        all
    }

    /// The action, unless it is what somebody typed, as that of `repository_dispatch` is.
    fn action(&self) -> &str {
        let plain = |text: &&str| text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        self.payload["action"].as_str().filter(plain).unwrap_or_default()
    }

    /// What names a happening of an event that wakes; two examples with one such name are one happening.
    fn happening(&self) -> Option<(String, u64)> {
        let object = match (self.event.as_str(), self.action()) {
            ("issue_comment" | "pull_request_review_comment", "created") => "comment",
            ("pull_request_review", "submitted") => "review",
            ("workflow_run", "completed") => "workflow_run",
            ("check_suite", "completed") if self.payload["check_suite"]["app"]["slug"] != "github-actions" => {
                "check_suite"
            }
            _ => return None,
        };
        Some((self.event.clone(), self.payload[object]["id"].as_u64().expect("an id")))
    }

    /// A work item that its delivery has to name, where the payload says so plainly.
    fn about(&self) -> Option<String> {
        let number = |path: &str| self.payload.pointer(path).and_then(Value::as_u64).map(|number| format!("#{number}"));
        let branch = |path: &str, prefix: &str| {
            let name = self.payload.pointer(path)?.as_str()?.strip_prefix(prefix)?;
            Some(format!("@{name}"))
        };
        let target = match self.event.as_str() {
            "issues" | "issue_comment" => number("/issue/number"),
            "pull_request" | "pull_request_review" | "pull_request_review_comment" | "pull_request_review_thread" => {
                number("/pull_request/number")
            }
            event @ ("check_suite" | "check_run" | "workflow_run") => self
                .payload
                .pointer(&format!("/{event}/pull_requests/0"))
                // One published run lists a pull request of another repository.
                .filter(|pull| pull["base"]["repo"]["id"] == self.payload["repository"]["id"])
                .and_then(|_| number(&format!("/{event}/pull_requests/0/number"))),
            "push" => branch("/ref", "refs/heads/"),
            "deployment_status" => branch("/deployment/ref", ""),
            _ => None,
        }?;
        Some(format!("{}{target}", self.repository()))
    }

    /// The repository as work items name it.
    fn repository(&self) -> String {
        let name = self.payload["repository"]["full_name"].as_str().expect("a repository");
        let home = self.payload["repository"]["html_url"].as_str().expect("a URL");
        let host = url::Url::parse(home).expect("a URL").host_str().expect("a host").to_owned();
        if host == "github.com" { format!("github:{name}") } else { format!("github:{host}/{name}") }
    }
}

fn package() -> Option<PathBuf> {
    npm::package("@octokit/webhooks-examples", "7.6.1")
}

/// Delivers all and waits until each is decided and told; the rows of `deliveries list` by delivery.
fn delivered(server: &Server, examples: &[Example]) -> BTreeMap<String, Value> {
    for example in examples {
        let (status, text) = server.deliver(&example.event, &example.delivery, &example.payload);
        let expected = if example.event == "ping" { 200 } else { 202 };
        assert_eq!(status, expected, "{}: {text}", example.delivery);
    }
    for outcome in ["pending", "queued"] {
        wait_until(&format!("no delivery is {outcome}"), || {
            server.json(&["deliveries", "list", "--outcome", outcome]) == Value::Array(Vec::new())
        });
    }
    let rows = server.json(&["deliveries", "list", "--limit", "1000"]);
    let rows = rows.as_array().expect("rows").iter();
    rows.map(|row| (row["delivery"].as_str().expect("an id").to_owned(), row.clone())).collect()
}

/// What must hold of each row alone.
fn check_row(example: &Example, row: &Value) {
    let reason = row["reason"].as_str().expect("a reason");
    let outcome = row["outcome"].as_str().expect("an outcome");
    assert_eq!(row["event"], example.event.as_str(), "{row}");
    assert_eq!(row["action"].as_str().unwrap_or_default(), example.action(), "{row}");
    assert!(["unmatched", "filtered", "delivered"].contains(&outcome), "{row}");
    assert!(!reason.is_empty() && !reason.contains("cannot be read"), "{row}");
    let unmapped = reason.starts_with("unmapped: ") && outcome == "unmatched";
    assert_eq!(unmapped, !READ.contains(&example.event.as_str()), "{row}");
    if let Some(item) = example.about() {
        let items = row["work_items"].as_array().expect("work items");
        assert!(items.contains(&item.as_str().into()), "{item} is not in {row}");
    }
}

/// Each event can be explained and its payload be had again as it came.
fn check_explanations(server: &Server, examples: &[Example]) {
    let mut seen = BTreeSet::new();
    for example in examples.iter().filter(|example| seen.insert((example.event.as_str(), example.action()))) {
        let id = example.delivery.as_str();
        let text = server.ok(&["deliveries", "explain", id]);
        assert!(text.contains("decided: ") && text.contains("\n  1. "), "{id}: {text}");
        let explained = server.json(&["deliveries", "explain", id]);
        assert_eq!(explained["now"]["event"]["name"], example.event.as_str(), "{explained}");
        let kept = server.ok(&["deliveries", "show", id, "--body"]);
        assert!(kept == serde_json::to_string(&example.payload).expect("JSON"), "{id}: another body");
    }
}

/// One of each happening that concerns a session was told, the others point to it; and nothing else was told.
fn check_told(examples: &[Example], rows: &BTreeMap<String, Value>, sessions: &[&str]) -> BTreeSet<(String, u64)> {
    let mut told: BTreeMap<(String, u64), &str> = BTreeMap::new();
    for example in examples {
        let row = &rows[&example.delivery];
        let concerns = row["work_items"].as_array().expect("work items").iter().filter_map(Value::as_str);
        let happening = example.happening().filter(|_| concerns.into_iter().any(|item| sessions.contains(&item)));
        match happening {
            None => assert_ne!(row["outcome"], "delivered", "{row}"),
            Some(happening) => match told.get(&happening) {
                None => {
                    assert_eq!(row["outcome"], "delivered", "{row}");
                    told.insert(happening, &example.delivery);
                }
                Some(first) => {
                    assert_eq!(row["outcome"], "filtered", "{row}");
                    assert!(row["reason"].as_str().is_some_and(|reason| reason.ends_with(first)), "{row}");
                }
            },
        }
    }
    told.into_keys().collect()
}

/// Every turn succeeded, they told what was delivered, and every prompt begins with our own words.
fn check_turns(server: &Server, happenings: usize) {
    let turns = server.turns();
    assert!(turns.iter().all(|turn| turn["state"] == "succeeded"), "{turns:?}");
    let told: usize = turns.iter().map(|turn| turn["deliveries"].as_array().expect("deliveries").len()).sum();
    assert_eq!(told, happenings, "{turns:?}");
    let calls = server.calls();
    assert_eq!(calls.len(), turns.len());
    assert!(calls.iter().all(|call| call.prompt().starts_with("the-loop: news for ")), "{calls:?}");
}

/// It still answers, has complained of nothing, and stops when told to.
fn check_health(mut server: Server) {
    assert_eq!(server.get("/readyz").expect("an answer").0, 200);
    assert_eq!(server.post("ping", &payloads::ping()).0, 200);
    let log = server.log();
    assert!(!log.contains("ERROR") && !log.contains("WARN") && !log.contains("panicked"), "{log}");
    assert!(server.stop().success());
}

#[test]
fn every_payload_of_github_com() {
    let Some(package) = package() else { return };
    let examples = Example::all(&package, "api.github.com");
    let events: BTreeSet<_> = examples.iter().map(|example| example.event.as_str()).collect();
    assert_eq!((examples.len(), events.len()), (329, 58), "another set of examples");
    let sessions =
        ["github:Codertocat/Hello-World#1", "github:Codertocat/Hello-World#2", "github:octo-org/octo-repo@master"];
    let server = Server::start(CONFIG);
    for (number, item) in sessions.iter().enumerate() {
        server.register(item, "claude", &format!("session-{number}"));
    }

    let rows = delivered(&server, &examples);
    assert_eq!(rows.len(), examples.len());
    examples.iter().for_each(|example| check_row(example, &rows[&example.delivery]));
    let told = check_told(&examples, &rows, &sessions);
    let events: BTreeSet<_> = told.iter().map(|(event, _)| event.as_str()).collect();
    let every = ["check_suite", "issue_comment", "pull_request_review", "pull_request_review_comment", "workflow_run"];
    assert_eq!(events, every.into(), "each kind of news was told");
    check_turns(&server, told.len());
    check_explanations(&server, &examples);

    // GitHub's Redeliver of each, and its twin from a second webhook: one is known, the other is the same happening.
    let turns = server.turns().len();
    for example in examples.iter().filter(|example| example.happening().is_some()) {
        assert_eq!(server.deliver(&example.event, &example.delivery, &example.payload).0, 200);
        let twin = format!("{}-twin", example.delivery);
        assert_eq!(server.deliver(&example.event, &twin, &example.payload).0, 202);
        assert_ne!(server.decided(&twin)["outcome"], "queued", "{twin}");
    }
    assert_eq!(server.turns().len(), turns);
    check_health(server);
}

#[test]
fn every_payload_of_enterprise_servers() {
    let Some(package) = package() else { return };
    let home = "github:octocoders.github.io/Codertocat/Hello-World";
    let sessions = [format!("{home}#1"), format!("{home}#2")];
    let sessions: Vec<_> = sessions.iter().map(String::as_str).collect();
    for set in ["ghes-31", "ghes-32", "ghes-33", "ghes-34", "ghes-35"] {
        let examples = Example::all(&package, set);
        let server = Server::start(CONFIG);
        for (number, item) in sessions.iter().enumerate() {
            server.register(item, "claude", &format!("session-{number}"));
        }
        let rows = delivered(&server, &examples);
        assert_eq!(rows.len(), examples.len(), "{set}");
        examples.iter().for_each(|example| check_row(example, &rows[&example.delivery]));
        let told = check_told(&examples, &rows, &sessions);
        assert!(told.len() >= 3, "{set}: {told:?}");
        check_turns(&server, told.len());
        check_explanations(&server, &examples);
        check_health(server);
    }
}
