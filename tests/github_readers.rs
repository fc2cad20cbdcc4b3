//! Who reads the feed is a reason to poll, with no session at all: subscribers, streams and clients that poll.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};

use crate::support::{GitHub, Server, payloads, wait_until};
use serde_json::{Value, json};

const DEMO: &str = "/repos/octo-org/demo";

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn run(id: u64, branch: &str) -> Value {
    let mut run = payloads::workflow_run("failure", branch, &[])["workflow_run"].clone();
    run["id"] = id.into();
    run["workflow_id"] = id.into();
    run["updated_at"] = now().into();
    run
}

/// `the-loop mcp serve`, as a harness starts it.
struct Client {
    process: Child,
    input: ChildStdin,
    said: Arc<Mutex<Vec<Value>>>,
    last: u64,
}

impl Client {
    fn start(server: &Server) -> Self {
        let mut command = server.command(&["mcp", "serve"]);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("mcp serve");
        let (input, output) = (process.stdin.take().expect("in"), process.stdout.take().expect("out"));
        let said: Arc<Mutex<Vec<Value>>> = Arc::default();
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                heard.lock().expect("said").push(serde_json::from_str(&line).expect("JSON"));
            }
        });
        let mut client = Self { process, input, said, last: 0 };
        let hello =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        client.ask("initialize", hello);
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").expect("sent");
        self.input.flush().expect("sent");
    }

    /// Asks without waiting for an answer.
    fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}));
        self.last
    }

    #[track_caller]
    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        let mut answer = Value::Null;
        wait_until(&format!("{method} is answered"), || {
            let said = self.said.lock().expect("said");
            said.iter().find(|one| one["id"] == id).cloned().map(|found| answer = found).is_some()
        });
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    /// Everything that was said so far, as text.
    fn said(&self) -> String {
        self.said.lock().expect("said").iter().map(Value::to_string).collect()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[test]
fn a_client_that_polls_is_served_what_happens_in_its_repository() {
    let github = GitHub::start();
    let mut server = github.machine("");
    github.runs(&[run(100, "main")]);
    server.serve(&[]);
    let mut client = Client::start(&server);
    let runs = |cursor: &Value| json!({"name": "github.workflow_run", "arguments": {"repository": "octo-org/demo", "branch": "main"}, "cursor": cursor});
    let begin = client.ask("events/poll", runs(&Value::Null))["cursor"].clone();
    github.wait("/actions/runs?branch=main", 2);
    // No more than what it reads.
    let asked = github.asked("");
    let needless = asked.iter().filter(|asked| asked.path != DEMO && !asked.path.contains("/actions/runs"));
    assert_eq!(needless.count(), 0, "{asked:?}");
    github.runs(&[run(101, "main"), run(100, "main")]);
    let mut found = Value::Null;
    wait_until("the run is served", || {
        found = client.ask("events/poll", runs(&begin))["events"].clone();
        found.as_array().is_some_and(|found| !found.is_empty())
    });
    assert_eq!(found.as_array().map(Vec::len), Some(1), "{found}");
    assert!(found[0]["data"]["url"].as_str().is_some_and(|url| !url.is_empty()), "{found}");
    // Another event of the repository begins with what is there.
    let comments = json!({"name": "github.issue_comment", "arguments": {"repository": "octo-org/demo"}});
    client.ask("events/poll", comments);
    github.wait("/issues/comments", 2);
}

#[test]
fn a_stream_hears_of_a_whole_repository() {
    let github = GitHub::start();
    let mut server = github.machine("");
    let (mut old, mut gone) = (payloads::pull(20, "feature"), payloads::pull(22, "x"));
    for pull in [&mut old, &mut gone] {
        pull["created_at"] = "2020-11-30T09:00:00Z".into();
    }
    github.page(&format!("{DEMO}/pulls"), json!([old, gone]));
    let issue = |number: u64, state: &str, created: &str| {
        let mut issue = payloads::issue(number);
        issue["state"] = state.into();
        issue["created_at"] = created.into();
        issue["updated_at"] = now().into();
        issue["closed_by"] = payloads::user("octocat");
        issue
    };
    let ancient = "2020-11-30T09:00:00Z";
    github.page(&format!("{DEMO}/issues"), json!([issue(15, "open", ancient)]));
    server.serve(&[]);
    let mut client = Client::start(&server);
    for name in
        ["issue_comment", "pull_request", "pull_request_review", "pull_request_review_comment", "issues", "status"]
    {
        let arguments = json!({"repository": "octo-org/demo"});
        client.begin("events/stream", json!({"name": format!("github.{name}"), "arguments": arguments}));
    }
    github.branch("main", &"d".repeat(40));
    github.statuses(&"d".repeat(40), &[]);
    github.wait("/pulls?state=open", 3);
    github.wait("/issues?state=all", 2);
    github.wait("/pulls/comments", 2);
    github.wait(&format!("/commits/{}/statuses", "d".repeat(40)), 2);
    let comment = |id: u64, text: &str| {
        json!({"id": id, "body": text, "user": payloads::user("octocat"), "author_association": "OWNER",
            "created_at": now(), "updated_at": now(), "html_url": "https://github.com/octo-org/demo/issues/15#c",
            "issue_url": format!("https://api.github.com{DEMO}/issues/15"),
            "pull_request_url": format!("https://api.github.com{DEMO}/pulls/20")})
    };
    github.page(&format!("{DEMO}/issues/15"), issue(15, "closed", ancient));
    github.page(&format!("{DEMO}/pulls/20"), old.clone());
    github.page(&format!("{DEMO}/issues/comments"), json!([comment(1, "a word in general")]));
    github.page(&format!("{DEMO}/pulls/comments"), json!([comment(2, "a word on a line")]));
    let mut closed = gone.clone();
    closed["state"] = "closed".into();
    closed["closed_at"] = now().into();
    closed["merged_by"] = payloads::user("octocat");
    github.page(&format!("{DEMO}/pulls/22"), closed);
    let review = json!({"id": 4, "state": "APPROVED", "body": "a word as a review", "user": payloads::user("octocat"),
        "author_association": "OWNER", "submitted_at": now()});
    let ancient_review = json!({"id": 3, "state": "APPROVED", "body": "an old word", "user": payloads::user("octocat"),
        "author_association": "OWNER", "submitted_at": ancient});
    github.page(&format!("{DEMO}/pulls/20/reviews"), json!([ancient_review, review]));
    old["updated_at"] = now().into();
    let mut young = payloads::pull(23, "y");
    young["created_at"] = now().into();
    young["title"] = "a young one".into();
    github.page(&format!("{DEMO}/pulls/23/reviews"), json!([]));
    github.page(&format!("{DEMO}/pulls"), json!([young, old]));
    let mut fresh = issue(16, "open", &now());
    fresh["title"] = "a fresh issue".into();
    github.page(&format!("{DEMO}/issues"), json!([fresh, issue(15, "closed", ancient)]));
    github.statuses(
        &"d".repeat(40),
        &[json!({"id": 9, "state": "success", "context": "ci/of-main", "created_at": now(), "updated_at": now()})],
    );
    for words in
        ["a word in general", "a word on a line", "a word as a review", "a young one", "a fresh issue", "ci/of-main"]
    {
        wait_until(&format!("`{words}` is heard"), || client.said().contains(words));
    }
    wait_until("what was closed is heard", || {
        let said = client.said();
        said.contains("\"number\":22,") && said.contains("\"action\":\"closed\"") && said.contains("issues/15")
    });
    let said = client.said();
    assert!(!said.contains("an old word") && !said.contains("observed"), "{said}");
    assert!(github.asked("/pulls/20/reviews").len() < 5, "an unchanged pull request is left alone");
}

#[test]
fn what_polling_may_have_missed_is_told_to_those_who_read_what_it_was() {
    let github = GitHub::start();
    let mut server = github.machine("");
    github.runs(&[run(100, "main")]);
    server.serve(&[]);
    let mut client = Client::start(&server);
    let reading = |name: &str, cursor: &Value| json!({"name": name, "arguments": {"repository": "octo-org/demo"}, "cursor": cursor});
    let (runs, comments) = ("github.workflow_run", "github.issue_comment");
    let begin = client.ask("events/poll", reading(runs, &Value::Null))["cursor"].clone();
    client.begin("events/stream", reading(runs, &Value::Null));
    wait_until("the stream stands", || client.said().contains("notifications/events/active"));
    github.wait("/actions/runs", 3);
    // Every page holds the same fifty: what was there before is nowhere.
    let many: Vec<_> = (0..50).map(|n| run(1000 - n, "main")).collect();
    github.runs(&many);
    wait_until("a client that polls is told", || client.ask("events/poll", reading(runs, &begin))["truncated"] == true);
    wait_until("a stream is told", || {
        let said = client.said.lock().expect("said");
        let is_gap =
            |one: &&Value| one["method"] == "notifications/events/active" && one["params"]["truncated"] == true;
        said.iter().filter(is_gap).count() == 1
    });
    let page = client.ask("events/poll", reading(runs, &begin));
    assert!(!page["events"].as_array().expect("events").is_empty(), "{page}");
    assert_eq!(client.ask("events/poll", reading(runs, &page["cursor"]))["truncated"], false);
    assert_eq!(client.ask("events/poll", reading(comments, &begin))["truncated"], false);
}

#[test]
fn a_subscription_is_a_reason_to_poll_until_it_ends() {
    let github = GitHub::start();
    let mut server =
        github.machine("[mcp]\nenabled = true\n[[mcp.tokens]]\nprincipal = \"alice\"\ntoken_env = \"ALICE\"\n");
    server.set_env("ALICE", "a-token-of-alice-which-is-long-enough");
    server.serve(&[]);
    // As a subscription stands in the store once its endpoint has been proved.
    let db = the_loop::store::Db::open(&server.path("state"), the_loop::store::Access::Write).expect("the database");
    let arguments = json!({"repository": "octo-org/demo", "branch": "main"});
    let now = jiff::Timestamp::now();
    let subscribe = the_loop::store::Subscribe {
        id: the_loop::domain::SubscriptionId("sub_1".into()),
        principal: "alice".into(),
        url: "https://example.com/hook".into(),
        name: "github.workflow_run".into(),
        arguments: serde_json::from_value(arguments).expect("arguments"),
        secret: "whsec_dGVzdHRlc3R0ZXN0dGVzdHRlc3R0ZXN0".into(),
        old_secret_until: now,
        expires_at: None,
        from: None,
        since: None,
        limit: 10,
    };
    db.transaction(|db| db.subscribe(&subscribe, now)).expect("subscribed");
    // A command tells the server that something has changed.
    server.register("octo-org/other#1", "claude", "safe-id");
    github.wait("/demo/actions/runs?branch=main", 2);
    server.ok(&["subscriptions", "drop", "sub_1"]);
    wait_until("nothing is polled for nobody", || {
        let polling = server.json(&["status"])["polling"].clone();
        polling.as_array().is_some_and(|rows| rows.iter().all(|row| row["repository"] != "octo-org/demo"))
    });
}

#[test]
fn a_pull_request_that_was_only_read_of_can_be_waited_for() {
    let github = GitHub::start();
    let mut server = github.machine("");
    let open = github.pull("");
    github.page(&format!("{DEMO}/pulls"), json!([open]));
    server.serve(&[]);
    let mut client = Client::start(&server);
    client.ask("events/poll", json!({"name": "github.pull_request", "arguments": {"repository": "octo-org/demo"}}));
    github.wait("/pulls?state=open", 3);
    assert!(github.asked("/commits/").is_empty() && github.asked("/reviews").is_empty(), "only read of");
    server.register("octo-org/demo#20", "claude", "safe-id");
    github.wait(&format!("/commits/{}/statuses", payloads::SHA), 2);
    // Nothing but the commit leads to it.
    let status = json!({"id": 9, "state": "failure", "context": "ci/of-it", "created_at": now(), "updated_at": now()});
    github.statuses(payloads::SHA, &[status]);
    wait_until("its session is told", || server.calls().iter().any(|call| call.prompt().contains("ci/of-it")));
}

/// A harness with MCP Events of its own needs no more than `mcp serve`; a server that comes later takes over.
#[test]
fn where_no_server_runs_the_events_server_polls_by_itself() {
    let github = GitHub::start();
    let mut server = github.machine("");
    github.runs(&[run(100, "main")]);
    let mut client = Client::start(&server);
    let runs = |cursor: &Value| json!({"name": "github.workflow_run", "arguments": {"repository": "octo-org/demo", "branch": "main"}, "cursor": cursor});
    let mut cursor = client.ask("events/poll", runs(&Value::Null))["cursor"].clone();
    let mut served = |client: &mut Client, id: u64| {
        let mut found = Value::Null;
        wait_until(&format!("run {id} is served"), || {
            let page = client.ask("events/poll", runs(&cursor));
            found = page["events"].clone();
            cursor = page["cursor"].clone();
            found.as_array().is_some_and(|found| !found.is_empty())
        });
        assert_eq!(found.as_array().map(Vec::len), Some(1), "{found}");
        assert!(found[0]["eventId"].as_str().is_some_and(|event| event.contains(&format!(":{id}:"))), "{found}");
    };
    github.wait("/actions/runs?branch=main", 2);
    github.runs(&[run(101, "main"), run(100, "main")]);
    served(&mut client, 101);
    server.serve(&[]);
    github.runs(&[run(102, "main"), run(101, "main"), run(100, "main")]);
    served(&mut client, 102);
    // And back: the server ends, and its events server goes on alone.
    server.kill();
    github.runs(&[run(103, "main"), run(102, "main"), run(101, "main"), run(100, "main")]);
    served(&mut client, 103);
    assert_eq!(server.json(&["deliveries", "list"]).as_array().map(Vec::len), Some(3));
}
