//! What GitHub's API shows, as the delivery that the webhook would have brought.
//!
//! The body has the webhook's shape, so that one reader serves both and the same happening has one fingerprint. The
//! delivery's id follows from what happened: a happening that is seen twice is received once.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::field::Field;
use super::reading::repository;
use super::tree::{Extent, Tree};
use super::{Error, json as text};
use crate::domain::{Delivery, GITHUB_GAP, Source, WorkItem};

/// The action of a pull request that was merely seen: it teaches what belongs together and wakes nobody.
pub const OBSERVED: &str = "observed";

/// What became of a comment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommentAction {
    /// It is new.
    Created,
    /// Its text changed. The API does not say by whom.
    Edited,
}

impl CommentAction {
    fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Edited => "edited",
        }
    }
}

/// Something that polling saw happen. The values are what the API answered.
#[derive(Clone, Copy, Debug)]
pub enum Polled<'a> {
    /// A workflow run was completed.
    Run(&'a Value),
    /// All checks of one app on a commit were completed.
    Suite(&'a Value),
    /// A single check was completed.
    Check {
        /// The check.
        run: &'a Value,
        /// The branch of this repository whose head it is about: the API does not say it here.
        branch: Option<&'a str>,
    },
    /// A commit was given a status.
    Status {
        /// The status, which the API shows without its commit.
        status: &'a Value,
        /// The commit.
        sha: &'a str,
        /// The branches of this repository that are known to have it for their head.
        branches: &'a [String],
    },
    /// A comment on an issue or a pull request.
    Comment {
        /// What became of it.
        action: CommentAction,
        /// The issue or pull request, as issues are shown.
        issue: &'a Value,
        /// The comment.
        comment: &'a Value,
    },
    /// A comment on a line of a pull request.
    ReviewComment {
        /// What became of it.
        action: CommentAction,
        /// The pull request.
        pull: &'a Value,
        /// The comment.
        comment: &'a Value,
    },
    /// A review was submitted or dismissed.
    Review {
        /// `submitted` or `dismissed`.
        action: &'a str,
        /// The pull request.
        pull: &'a Value,
        /// The review.
        review: &'a Value,
    },
    /// An issue was opened, closed or opened again.
    Issue {
        /// `opened`, `closed` or `reopened`.
        action: &'a str,
        /// The issue.
        issue: &'a Value,
    },
    /// A pull request was opened, closed, opened again, pushed to or seen.
    Pull {
        /// `opened`, `closed`, `reopened`, `synchronize` or [`OBSERVED`].
        action: &'a str,
        /// The pull request.
        pull: &'a Value,
        /// Who opened or closed it, where that is known.
        actor: Option<&'a Value>,
        /// The head before a push.
        before: Option<&'a str>,
    },
    /// Something may have been missed.
    Gap {
        /// Of which kind: "workflow runs", "comments" …
        what: &'a str,
        /// From when on; `None` where that is not known.
        from: Option<Timestamp>,
        /// Until when.
        to: Timestamp,
        /// Whom it may concern.
        items: &'a [WorkItem],
    },
}

/// Makes a delivery of what polling saw in `home`, the repository as the API shows it.
pub fn from_github_poll(home: &Value, polled: &Polled<'_>, received_at: Timestamp) -> Result<Delivery, Error> {
    let (event, parts, mut body) = match *polled {
        Polled::Run(run) => run_body(run),
        Polled::Suite(suite) => {
            let parts = ["id", "conclusion", "updated_at"].map(|name| part(suite, name));
            // Who asked for the checks, the API does not say.
            let body = json!({"action": "completed", "check_suite": suite, "sender": null});
            ("check_suite", ["suite".into()].into_iter().chain(parts).collect(), body)
        }
        Polled::Check { run, branch } => check_body(run, branch),
        Polled::Status { status, sha, branches } => status_body(home, status, sha, branches),
        Polled::Comment { action, issue, comment } => {
            let body = comment_body(action, comment, ("issue", issue));
            ("issue_comment", comment_parts("comment", action, comment), body)
        }
        Polled::ReviewComment { action, pull, comment } => {
            let body = comment_body(action, comment, ("pull_request", pull));
            ("pull_request_review_comment", comment_parts("review-comment", action, comment), body)
        }
        Polled::Review { action, pull, review } => {
            // Who dismissed a review, the API does not say here.
            let sender = if action == "submitted" { review.get("user").cloned() } else { None };
            let body = json!({"action": action, "pull_request": pull, "review": review, "sender": sender});
            ("pull_request_review", vec!["review".into(), part(review, "id"), action.into()], body)
        }
        Polled::Issue { action, issue } => {
            let sender = match action {
                "closed" => issue.get("closed_by").cloned(),
                "opened" => issue.get("user").cloned(),
                _ => None,
            };
            let body = json!({"action": action, "issue": issue, "sender": sender});
            ("issues", state_parts("issue", action, issue), body)
        }
        Polled::Pull { action, pull, actor, before } => {
            let mut body =
                json!({"action": action, "number": pull.get("number"), "pull_request": pull, "sender": actor});
            if let (Some(before), Some(body)) = (before, body.as_object_mut()) {
                body.insert("before".into(), before.into());
            }
            let mut parts = state_parts("pull", action, pull);
            if matches!(action, "synchronize" | OBSERVED) {
                let sha = pull.pointer("/head/sha").and_then(Value::as_str).unwrap_or("-");
                parts.push(sha.into());
            }
            ("pull_request", parts, body)
        }
        Polled::Gap { what, from, to, items } => {
            let gap = json!({"what": what, "from": from, "to": to, "work_items": items});
            (
                GITHUB_GAP,
                vec!["gap".into(), what.replace(' ', "-"), to.to_string()],
                json!({"gap": gap, "sender": null}),
            )
        }
    };
    if let Some(body) = body.as_object_mut() {
        body.insert("repository".into(), home.clone());
    }
    let host =
        repository(Field::root(&Tree::of(home))).map_or_else(|| "unknown".into(), |home| home.name.host().to_owned());
    let mut id = format!("poll:{}:{}", host.replace(':', "_"), part(home, "id"));
    for part in parts {
        id.push(':');
        id.extend(part.chars().map(|c| if c.is_ascii_alphanumeric() || "._:-".contains(c) { c } else { '_' }));
    }
    delivery(Source::GithubPoll, id, event, &body, received_at)
}

/// Makes a delivery of one that GitHub's own list of a hook's deliveries shows: what the webhook would have brought.
pub fn from_github_list(guid: &str, event: &str, payload: &Value, received_at: Timestamp) -> Result<Delivery, Error> {
    let headers = super::GithubHeaders::read(&|name| match name {
        "x-github-event" => Some(event.to_owned()),
        "x-github-delivery" => Some(guid.to_owned()),
        "content-type" => Some("application/json".to_owned()),
        _ => None,
    })?;
    delivery(Source::GithubWebhook, headers.delivery, &headers.event, payload, received_at)
}

fn delivery(source: Source, id: String, event: &str, body: &Value, received_at: Timestamp) -> Result<Delivery, Error> {
    let body = Bytes::from(body.to_string());
    text::check_object(&body, Extent::Lean)?;
    Ok(Delivery { source, id, event: event.into(), body, received_at })
}

fn run_body(run: &Value) -> (&'static str, Vec<String>, Value) {
    let present = |name: &str| run.get(name).filter(|value| !value.is_null());
    let sender = present("triggering_actor").or(present("actor"));
    let workflow = json!({"id": run.get("workflow_id"), "name": run.get("name"), "path": run.get("path")});
    let body = json!({"action": "completed", "workflow_run": run, "workflow": workflow, "sender": sender});
    let parts = vec!["run".into(), part(run, "id"), part(run, "run_attempt"), part(run, "conclusion")];
    ("workflow_run", parts, body)
}

fn check_body(run: &Value, branch: Option<&str>) -> (&'static str, Vec<String>, Value) {
    let mut run = run.clone();
    if let (Some(branch), Some(suite)) = (branch, run.get_mut("check_suite").and_then(Value::as_object_mut)) {
        suite.entry("head_branch").or_insert_with(|| branch.into());
    }
    let parts = ["id", "conclusion", "completed_at"].map(|name| part(&run, name));
    let body = json!({"action": "completed", "check_run": run, "sender": null});
    ("check_run", ["check".into()].into_iter().chain(parts).collect(), body)
}

fn status_body(home: &Value, status: &Value, sha: &str, branches: &[String]) -> (&'static str, Vec<String>, Value) {
    let heads: Vec<_> = branches.iter().map(|name| json!({"name": name, "commit": {"sha": sha}})).collect();
    let page = home.get("html_url").and_then(Value::as_str).map(|page| format!("{page}/commit/{sha}"));
    let mut body = json!({"sha": sha, "name": home.get("full_name"), "branches": heads,
        "commit": {"sha": sha, "html_url": page}, "sender": status.get("creator")});
    if let Some(body) = body.as_object_mut() {
        for name in ["id", "state", "context", "description", "target_url", "created_at", "updated_at"] {
            body.insert(name.into(), status.get(name).cloned().unwrap_or_default());
        }
    }
    ("status", vec!["status".into(), part(status, "id")], body)
}

fn comment_body(action: CommentAction, comment: &Value, of: (&str, &Value)) -> Value {
    // The author of a new comment is who acted; who edited one is not known, and nobody is trusted then.
    let sender = comment.get("user").filter(|_| action == CommentAction::Created);
    let mut body = json!({"action": action.as_str(), "comment": comment, "sender": sender});
    if let Some(body) = body.as_object_mut() {
        body.insert(of.0.into(), of.1.clone());
    }
    body
}

fn comment_parts(kind: &str, action: CommentAction, comment: &Value) -> Vec<String> {
    let mut parts = vec![kind.into(), part(comment, "id"), action.as_str().into()];
    if action == CommentAction::Edited {
        parts.push(part(comment, "updated_at"));
    }
    parts
}

fn state_parts(kind: &str, action: &str, item: &Value) -> Vec<String> {
    let when = match action {
        "opened" => "created_at",
        "closed" if item.get("closed_at").is_some_and(Value::is_string) => "closed_at",
        _ => "updated_at",
    };
    vec![kind.into(), part(item, "number"), action.into(), part(item, when)]
}

/// A part of an id; what is missing is a dash.
fn part(of: &Value, name: &str) -> String {
    Field::root(&Tree::of(of)).at(name).part().unwrap_or_else(|| "-".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Event;
    use crate::payload::read;

    const SHA: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn home() -> Value {
        json!({"id": 1, "full_name": "octo-org/demo", "html_url": "https://github.com/octo-org/demo"})
    }

    fn person() -> Value {
        json!({"login": "octocat", "id": 2, "type": "User"})
    }

    fn polled(what: &Polled<'_>) -> (Delivery, Event) {
        let delivery = from_github_poll(&home(), what, Timestamp::UNIX_EPOCH).expect("a delivery");
        let event = read(&delivery).expect("an event");
        (delivery, event)
    }

    /// The same happening as the webhook brings it.
    fn hooked(event: &str, mut body: Value) -> Event {
        body["repository"] = home();
        if body.get("sender").is_none() {
            body["sender"] = person();
        }
        let delivery = from_github_list("72d3162e-cc78", event, &body, Timestamp::UNIX_EPOCH).expect("a delivery");
        read(&delivery).expect("an event")
    }

    fn assert_same(polled: &Event, hooked: &Event) {
        assert_eq!(polled.fingerprint, hooked.fingerprint);
        assert_eq!(polled.title(), hooked.title());
        assert_eq!((&polled.author, &polled.subjects), (&hooked.author, &hooked.subjects));
        assert_eq!((&polled.links, &polled.supersedes), (&hooked.links, &hooked.supersedes));
        assert_eq!((polled.nature, polled.happened_at), (hooked.nature, hooked.happened_at));
    }

    fn pull() -> Value {
        json!({
            "number": 20, "title": "A change", "state": "closed", "body": "Closes #15", "user": person(),
            "author_association": "MEMBER", "created_at": "2026-11-30T09:00:00Z", "updated_at": "2026-11-30T10:00:09Z",
            "closed_at": "2026-11-30T10:00:00Z", "html_url": "https://github.com/octo-org/demo/pull/20",
            "head": {"ref": "x", "sha": SHA, "repo": {"id": 1}}, "base": {"ref": "main", "repo": {"id": 1}},
        })
    }

    #[test]
    fn a_run_is_one_happening_however_it_is_told() {
        let run = json!({
            "id": 7, "name": "CI", "workflow_id": 3, "run_attempt": 2, "status": "completed", "conclusion": "failure",
            "event": "push", "head_branch": "main", "head_sha": SHA, "head_repository": {"id": 1},
            "updated_at": "2026-11-30T10:00:00Z", "pull_requests": [], "actor": person(), "triggering_actor": person(),
        });
        let (delivery, event) = polled(&Polled::Run(&run));
        assert_same(
            &event,
            &hooked("workflow_run", json!({"action": "completed", "workflow_run": run, "workflow": {"id": 3}})),
        );
        assert_eq!(delivery.id, "poll:github.com:1:run:7:2:failure");
        assert_eq!(event.sender.map(|sender| sender.login).as_deref(), Some("octocat"));
    }

    #[test]
    fn checks_and_statuses_are_one_happening_however_they_are_told() {
        let app = json!({"slug": "buildkite"});
        let suite = json!({
            "id": 8, "app": app, "status": "completed", "conclusion": "failure", "head_branch": "x", "head_sha": SHA,
            "created_at": "2026-11-30T09:00:00Z", "updated_at": "2026-11-30T10:00:00Z", "pull_requests": [],
        });
        let (delivery, event) = polled(&Polled::Suite(&suite));
        assert_same(&event, &hooked("check_suite", json!({"action": "completed", "check_suite": suite})));
        assert_eq!(delivery.id, "poll:github.com:1:suite:8:failure:2026-11-30T10:00:00Z");
        let mut run = json!({
            "id": 9, "name": "build", "app": app, "status": "completed", "conclusion": "success", "head_sha": SHA,
            "started_at": "2026-11-30T09:00:00Z", "completed_at": "2026-11-30T10:00:00Z", "pull_requests": [],
            "check_suite": {"id": 8},
        });
        let (_, event) = polled(&Polled::Check { run: &run, branch: Some("x") });
        run["check_suite"]["head_branch"] = "x".into();
        assert_same(&event, &hooked("check_run", json!({"action": "completed", "check_run": run})));
        let status = json!({
            "id": 10, "state": "failure", "context": "ci/other", "description": "It broke", "creator": person(),
            "target_url": "https://ci.example.com/1", "created_at": "2026-11-30T10:00:00Z",
            "updated_at": "2026-11-30T10:00:00Z",
        });
        let (_, event) = polled(&Polled::Status { status: &status, sha: SHA, branches: &["x".into()] });
        let mut body = status.clone();
        body["sha"] = SHA.into();
        body["branches"] = json!([{"name": "x", "commit": {"sha": SHA}}]);
        body["commit"] = json!({"sha": SHA, "html_url": format!("https://github.com/octo-org/demo/commit/{SHA}")});
        let hooked = hooked("status", body);
        assert_same(&event, &hooked);
        assert_eq!(event.facts, hooked.facts);
    }

    #[test]
    fn words_are_one_happening_however_they_are_told() {
        let comment = json!({
            "id": 9, "body": "x", "user": person(), "author_association": "OWNER",
            "created_at": "2026-11-30T10:00:00Z", "updated_at": "2026-11-30T10:00:05Z",
        });
        let issue = json!({"number": 15, "user": person(), "title": "An issue", "state": "open"});
        for action in [CommentAction::Created, CommentAction::Edited] {
            let (_, event) = polled(&Polled::Comment { action, issue: &issue, comment: &comment });
            let body = json!({"action": action.as_str(), "issue": issue, "comment": comment});
            assert_same(&event, &hooked("issue_comment", body));
            // Whoever edited it, the API does not say.
            assert_eq!(event.sender.is_some(), action == CommentAction::Created);
            let (_, event) = polled(&Polled::ReviewComment { action, pull: &pull(), comment: &comment });
            let body = json!({"action": action.as_str(), "pull_request": pull(), "comment": comment});
            assert_same(&event, &hooked("pull_request_review_comment", body));
        }
        let mut review = json!({
            "id": 11, "body": "no", "state": "CHANGES_REQUESTED", "user": person(), "author_association": "OWNER",
            "submitted_at": "2026-11-30T10:00:00Z",
        });
        let (_, event) = polled(&Polled::Review { action: "submitted", pull: &pull(), review: &review });
        review["state"] = "changes_requested".into();
        let body = json!({"action": "submitted", "pull_request": pull(), "review": review});
        assert_same(&event, &hooked("pull_request_review", body));
    }

    #[test]
    fn a_change_of_state_is_one_happening_however_it_is_told() {
        let issue = json!({
            "number": 15, "user": person(), "state": "closed", "closed_at": "2026-11-30T10:00:00Z",
            "updated_at": "2026-11-30T10:00:00Z", "closed_by": person(),
        });
        // Something else may have changed it before it is polled.
        let mut later = issue.clone();
        later["updated_at"] = "2026-11-30T10:00:09Z".into();
        let (delivery, event) = polled(&Polled::Issue { action: "closed", issue: &later });
        assert_same(&event, &hooked("issues", json!({"action": "closed", "issue": issue})));
        assert_eq!(delivery.id, "poll:github.com:1:issue:15:closed:2026-11-30T10:00:00Z");
        assert!(event.sender.is_some());
        let by = person();
        for (action, before) in [("closed", None), ("synchronize", Some("b"))] {
            let (_, event) = polled(&Polled::Pull { action, pull: &pull(), actor: Some(&by), before });
            let body = json!({"action": action, "number": 20, "pull_request": pull(), "before": before});
            assert_same(&event, &hooked("pull_request", body));
        }
    }

    #[test]
    fn a_gap_is_told_to_those_whom_it_may_concern_and_by_polling_alone() {
        let items = [WorkItem::parse("octo-org/demo#15").expect("item")];
        let what = Polled::Gap { what: "workflow runs", from: None, to: Timestamp::UNIX_EPOCH, items: &items };
        let (delivery, event) = polled(&what);
        assert_eq!(event.subjects.len(), 1);
        assert_eq!(event.text("gap.what"), Some("workflow runs"));
        let forged = from_github_list(
            "1",
            GITHUB_GAP,
            &json!({"gap": {"work_items": ["octo-org/demo#15"]}}),
            Timestamp::UNIX_EPOCH,
        );
        assert!(forged.is_err());
        let hooked = Delivery { source: Source::GithubWebhook, ..delivery };
        assert_eq!(read(&hooked).map(|event| event.subjects.len()), Ok(0));
    }
}
