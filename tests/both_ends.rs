//! The program at both ends: what one of ours may have missed, a session at another of ours is told.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::support::{GitHub, Server, payloads};

const TOKEN: &str = "a-token-of-the-far-end-which-is-long-enough";

fn run(id: u64) -> Value {
    let mut run = payloads::workflow_run("failure", "main", &[])["workflow_run"].clone();
    run["id"] = id.into();
    run["workflow_id"] = id.into();
    run["html_url"] = format!("https://github.com/octo-org/demo/actions/runs/{id}").into();
    run["updated_at"] = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
    run
}

#[test]
fn a_gap_at_one_end_reaches_a_session_at_the_other_in_every_way_of_delivery() {
    for way in ["stream", "poll", "webhook"] {
        let github = GitHub::start();
        github.runs(&[run(1)]);
        let mut near = github.machine(
            "[mcp]\nenabled = true\nallow_callbacks = [\"http://127.0.0.1:*\"]\n\
             [[mcp.tokens]]\nprincipal = \"far\"\ntoken_env = \"FAR\"",
        );
        near.set_env("FAR", TOKEN);
        near.serve(&[]);
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let mut far = Server::new(&format!(
            "[mcp.servers.near]\nurl = \"{}\"\ntoken_env = \"FAR\"\ndelivery = \"{way}\"\nmin_poll_interval = \"100ms\"\n\
             [mcp.callback]\nurl = \"http://127.0.0.1:{port}/mcp-events\"\n[routing]\ndebounce = \"30ms\"\n",
            near.url().replace("/gh-webhook", "/mcp")
        ));
        far.set_env("FAR", TOKEN);
        far.register("local:demo", "claude", "s-1");
        far.serve(&["--port", &port.to_string()]);
        let added = far.json(&[
            "watches",
            "add",
            "--server",
            "near",
            "--event",
            "github.workflow_run",
            "--arg",
            "repository=octo-org/demo",
            "--work-item",
            "local:demo",
        ]);
        github.wait("/actions/runs", 3);
        // Every page holds the same fifty: what was there before is nowhere.
        github.runs(&(0..50).map(|n| run(1000 - n)).collect::<Vec<_>>());
        far.wait_told("watch.gap");
        far.wait_told("actions/runs/1000");
        let row = far.json(&["watches", "show", added["watch"].as_str().expect("an id")]);
        assert_eq!((&row["delivery"], &row["problem"]), (&json!(way), &Value::Null), "{row}");
    }
}
