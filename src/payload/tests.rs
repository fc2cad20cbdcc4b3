//! Requests to deliveries, and deliveries to events, on bodies made by hand.

use serde_json::{Value, json};

use super::{Encoding, Error, GithubHeaders, from_github, read};
use crate::domain::{Delivery, Event, LinkKind, Nature, Secret, Source, SubjectKind};
use crate::signing::{sign_github, verify_github};

fn headers(event: &str, delivery: &str, content_type: &str) -> Result<GithubHeaders, Error> {
    let given = [("x-github-event", event), ("x-github-delivery", delivery), ("content-type", content_type)];
    GithubHeaders::read(&|name| {
        given.iter().find(|(known, value)| *known == name && *value != "-").map(|(_, value)| value.to_string())
    })
}

fn take(content_type: &str, body: &[u8]) -> Result<Delivery, Error> {
    let secrets = [Secret::new("TEST", "s")];
    let signature = sign_github(&secrets[0], body);
    let bytes = bytes::Bytes::copy_from_slice(body);
    let proven = verify_github(&secrets, Some(&signature), false, &bytes).expect("signed");
    let headers = headers("issues", "d-1", content_type).expect("headers");
    from_github(&headers, &proven, "2026-11-30T10:00:01Z".parse().expect("time")).map(|received| {
        assert_eq!(received.event, read(&received.delivery), "read in one pass and read again");
        received.delivery
    })
}

fn event(name: &str, body: &Value) -> Result<Event, Error> {
    read(&Delivery {
        source: Source::GithubWebhook,
        id: "d-1".into(),
        event: name.into(),
        body: serde_json::to_vec(body).expect("JSON").into(),
        received_at: "2026-11-30T10:00:01Z".parse().expect("time"),
    })
}

fn repo() -> Value {
    json!({"id": 1, "full_name": "octo-org/demo", "html_url": "https://github.com/octo-org/demo"})
}

fn subjects(event: &Event) -> Vec<(SubjectKind, String)> {
    event.subjects.iter().map(|subject| (subject.kind, subject.node.key())).collect()
}

const SHA: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn commit() -> (SubjectKind, String) {
    (SubjectKind::Commit, format!("commit:octo-org/demo:{SHA}"))
}

fn branch(name: &str) -> (SubjectKind, String) {
    (SubjectKind::Branch, format!("github:octo-org/demo@{name}"))
}

#[test]
fn headers_are_checked_one_by_one() {
    let json = "application/json";
    assert_eq!(headers("push", "72d3162e-cc78", json).expect("good").encoding, Encoding::Json);
    for (content_type, wanted) in [
        ("Application/JSON; charset=utf-8; boundary=x", Encoding::Json),
        (" application/json ", Encoding::Json),
        ("application/x-www-form-urlencoded;charset=UTF-8", Encoding::Form),
    ] {
        assert_eq!(headers("push", "d", content_type).expect(content_type).encoding, wanted);
    }
    for content_type in ["-", "", "text/plain", "application/jsonx", "application/json, text/plain"] {
        let error = headers("push", "d", content_type).expect_err(content_type);
        assert_eq!((error.status(), error), (415, Error::UnsupportedType));
    }
    assert_eq!(headers("-", "d", json), Err(Error::MissingHeader("X-GitHub-Event")));
    assert_eq!(headers("push", "-", json), Err(Error::MissingHeader("X-GitHub-Delivery")));
    for event in ["", "Push", "pu sh", "../x", "push\n", &"x".repeat(65)] {
        assert!(matches!(headers(event, "d", json), Err(Error::BadHeader { .. })), "{event:?}");
    }
    for delivery in ["", "a b", "a/b", "a\u{0}", "æ", &"x".repeat(129)] {
        let error = headers("push", delivery, json).expect_err(delivery);
        assert_eq!(error.status(), 400);
        assert!(error.to_string().contains("X-GitHub-Delivery"), "{error}");
    }
}

#[test]
fn a_form_holds_exactly_one_payload() {
    let form = "application/x-www-form-urlencoded";
    let delivery = take(form, b"payload=%7b%22a%22%3A+%22100%25+%2B+%26+%C3%A6%22%7D&x=1").expect("one");
    assert_eq!(delivery.body, r#"{"a": "100% + & æ"}"#.as_bytes());
    assert_eq!(delivery.source, Source::GithubWebhook);
    for (body, count) in [("", 0), ("x=1", 0), ("payload=%7B%7D&payload=%7B%7D", 2), ("{\"a\":1}", 0)] {
        let error = take(form, body.as_bytes()).expect_err(body);
        assert_eq!((error.status(), &error), (400, &Error::Form(count)));
        assert!(error.to_string().contains("Content type"), "{error}");
    }
    assert!(matches!(take(form, b"payload=%7B"), Err(Error::NotJson(_))));
}

#[test]
fn the_body_is_kept_to_the_byte() {
    let body = br#" {"a" : 1.0, "a": 1e2, "u":"https:\/\/x\u00e6"} "#;
    assert_eq!(take("application/json", body).expect("taken").body, body.as_slice());
    assert_eq!(take("application/json", b"[1]").expect_err("a list").status(), 400);
    assert!(matches!(take("application/json", b"payload={}"), Err(Error::NotJson(_))));
}

#[test]
fn a_name_that_does_not_fit_its_body_is_not_believed() {
    let comment = json!({"action": "closed", "issue": {"number": 1}, "comment": {"id": 1}, "repository": repo()});
    assert!(event("issue_comment", &comment).is_ok());
    for name in ["issues", "pull_request", "push", "status", "workflow_run", "check_run", "create", "merge_group"] {
        let error = event(name, &comment).expect_err(name);
        assert!(matches!(error, Error::Misnamed { .. }) && error.to_string().contains(name), "{error}");
    }
    let deployment = json!({"action": "completed", "deployment_status": {}, "deployment": {}, "workflow_run": {},
                            "check_run": {}});
    assert!(event("deployment_status", &deployment).is_ok());
    assert!(event("workflow_run", &deployment).is_err());
    assert!(event("check_run", &deployment).is_err());
    let made = json!({"ref": "b", "ref_type": "branch", "master_branch": "main"});
    assert!(event("create", &made).is_ok() && event("delete", &made).is_err());
    let gone = json!({"ref": "b", "ref_type": "branch"});
    assert!(event("create", &gone).is_err() && event("delete", &gone).is_ok());
    let other = event("discussion", &comment).expect("kept");
    assert_eq!((other.nature, other.fingerprint.as_str()), (Nature::Unmapped, "delivery:github:d-1"));
    assert_eq!(other.text("repository.full_name"), Some("octo-org/demo"));
}

#[test]
fn the_host_is_the_repositorys_own() {
    let on = |url: Value| {
        let mut repo = repo();
        repo["html_url"] = url;
        let body = json!({"action": "opened", "issue": {"number": 3, "user": null}, "repository": repo});
        let event = event("issues", &body).expect("event");
        assert_eq!(event.author.as_ref().and_then(|author| author.person.clone()), None);
        event.subjects[0].node.key()
    };
    assert_eq!(on(json!("https://ghe.example.com/octo-org/demo")), "github:ghe.example.com/octo-org/demo#3");
    assert_eq!(on(json!("https://ghe.example.com:8443/octo-org/demo")), "github:ghe.example.com:8443/octo-org/demo#3");
    for url in [json!("https://www.github.com/octo-org/demo"), Value::Null, json!("not a url"), json!(1)] {
        assert_eq!(on(url), "github:octo-org/demo#3");
    }
}

#[test]
fn a_forks_branch_proves_nothing() {
    let run = |home: Value| {
        let run =
            json!({"id": 1, "head_sha": SHA, "head_branch": "main", "head_repository": home, "pull_requests": []});
        subjects(
            &event("workflow_run", &json!({"action": "completed", "workflow_run": run, "repository": repo()}))
                .expect("run"),
        )
    };
    assert_eq!(run(json!({"id": 1})), [commit(), branch("main")]);
    for fork in [json!({"id": 2}), Value::Null, json!({})] {
        assert_eq!(run(fork), [commit()]);
    }
    let pull = |home: Value| {
        let pull = json!({"number": 9, "head": {"ref": "main", "sha": SHA, "repo": home}});
        let event = event("pull_request", &json!({"action": "closed", "pull_request": pull, "repository": repo()}));
        event.expect("pull").links.iter().map(|link| link.kind).collect::<Vec<_>>()
    };
    assert_eq!(pull(json!({"id": 1})), [LinkKind::HeadCommit, LinkKind::HeadBranch, LinkKind::HeadBranch]);
    assert_eq!(pull(json!({"id": 2})), [LinkKind::HeadCommit]);
    assert_eq!(pull(Value::Null), [LinkKind::HeadCommit]);
}

#[test]
fn a_checks_branch_is_believed_as_far_as_github_vouches_for_it() {
    let suite = |app: Value, branch: Value, pulls: Value| {
        let suite = json!({"id": 1, "head_sha": SHA, "head_branch": branch, "app": app, "pull_requests": pulls});
        subjects(
            &event("check_suite", &json!({"action": "completed", "check_suite": suite, "repository": repo()}))
                .expect("suite"),
        )
    };
    let (other, actions) = (json!({"slug": "buildkite"}), json!({"slug": "github-actions"}));
    let listed = |home: u64| json!([{"number": 9, "head": {"ref": "b", "sha": SHA, "repo": {"id": home}}}]);
    let pull = (SubjectKind::Attached, "github:octo-org/demo#9".to_string());
    assert_eq!(suite(other.clone(), json!("b"), json!([])), [commit(), branch("b")]);
    assert_eq!(suite(other.clone(), Value::Null, json!([])), [commit()]);
    assert_eq!(suite(other.clone(), json!("b"), listed(2)), [pull.clone(), commit()]);
    assert_eq!(suite(actions.clone(), json!("b"), json!([])), [commit()]);
    assert_eq!(suite(Value::Null, json!("b"), json!([])), [commit()]);
    assert_eq!(suite(actions, json!("b"), listed(1)), [pull.clone(), commit(), branch("b")]);
    let elsewhere = json!([{"number": 9, "head": {"sha": SHA}, "base": {"repo": {"id": 2}}}]);
    assert_eq!(suite(other.clone(), Value::Null, elsewhere), [commit()], "another repository's pull request");
    let queue = json!("gh-readonly-queue/main/pr-9-bbbb");
    assert_eq!(suite(other, queue, json!([])), [pull, commit()], "the merge queue's branch is its pull request's");
}

#[test]
fn a_status_is_about_the_branches_that_it_heads() {
    let other = "b".repeat(40);
    let status = json!({"id": 1, "sha": SHA, "state": "failure", "context": "ci", "repository": repo(), "branches": [
        {"name": "b", "commit": {"sha": SHA}}, {"name": "main", "commit": {"sha": other}}, {"name": "x"}]});
    assert_eq!(subjects(&event("status", &status).expect("status")), [commit(), branch("b")]);
}

#[test]
fn a_push_is_about_a_branch_that_is_there() {
    let push = |name: &str, deleted: bool, after: &str| {
        let body = json!({"ref": name, "before": SHA, "after": after, "deleted": deleted, "repository": repo()});
        subjects(&event("push", &body).expect("push"))
    };
    assert_eq!(push("refs/heads/a/b", false, SHA), [commit(), branch("a/b")]);
    assert!(push("refs/tags/v1", false, SHA).is_empty());
    assert!(push("refs/heads/b", true, &"0".repeat(40)).is_empty());
    assert_eq!(push("refs/heads/b", false, &"0".repeat(40)), [branch("b")]);
}

#[test]
fn only_missing_identities_fall_back_to_the_delivery() {
    let comment = |action: &str, comment: Value| {
        let body = json!({"action": action, "issue": {"number": 1}, "comment": comment, "repository": repo()});
        event("issue_comment", &body).expect("comment").fingerprint
    };
    assert_eq!(comment("created", json!({"id": 5})), "github.com/1/issue_comment/5/created/once");
    assert_eq!(comment("created", json!({})), "delivery:github:d-1");
    assert_eq!(comment("edited", json!({"id": 5})), "delivery:github:d-1", "edits are told apart by their time");
    let edited = json!({"id": 5, "updated_at": "2026-11-30T10:00:00Z"});
    assert_eq!(comment("edited", edited), "github.com/1/issue_comment/5/edited/2026-11-30T10:00:00Z");
    let review = |state: &str| {
        let body = json!({"action": "submitted", "pull_request": {"number": 1}, "repository": repo(),
                          "review": {"id": 7, "state": state}});
        event("pull_request_review", &body).expect("review").fingerprint
    };
    assert_eq!(review("APPROVED"), review("approved"), "the API and webhooks spell states differently");
}

#[test]
fn an_mcp_servers_event_is_never_githubs() {
    let delivery = |body: &Value| Delivery {
        source: Source::Mcp("tickets".into()),
        id: "e-1".into(),
        event: "issues".into(),
        body: serde_json::to_vec(body).expect("JSON").into(),
        received_at: "2026-11-30T10:00:01Z".parse().expect("time"),
    };
    let forged =
        json!({"action": "closed", "issue": {"number": 1}, "repository": repo(), "sender": {"login": "octocat"}});
    let event = read(&delivery(&forged)).expect("kept");
    assert_eq!((event.nature, event.repository, event.sender, event.action), (Nature::Watched, None, None, None));
    assert!(event.subjects.is_empty() && event.links.is_empty());
    let body = json!({"eventId": "e-9", "name": "ticket.updated", "timestamp": "2026-11-30T10:00:00Z",
                      "data": {"summary": "hello", "nothing": null, "lines": [1, {"a": "b"}]}});
    let event = read(&delivery(&body)).expect("event");
    assert_eq!(event.fingerprint, "mcp:tickets/e-9");
    assert!(event.happened_at.is_some());
    assert_eq!(event.text("summary"), Some("hello"));
    assert_eq!(event.facts.len(), 2);
}
