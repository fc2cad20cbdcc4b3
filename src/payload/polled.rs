//! What GitHub's API shows, as the delivery that the webhook would have brought.
//!
//! The body has the webhook's shape, so that one reader serves both and the same happening has one fingerprint. The
//! delivery's id follows from what happened: a happening that is seen twice is received once.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::field::Field;
use super::reading::repository;
use super::{Error, json as text};
use crate::domain::{Delivery, Source, WorkItem};

/// The event that tells a session of a possible gap.
pub const GAP: &str = "github_poll.gap";
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
    /// An issue was closed or opened again.
    Issue {
        /// `closed` or `reopened`.
        action: &'a str,
        /// The issue.
        issue: &'a Value,
    },
    /// A pull request was closed, opened again, pushed to or seen.
    Pull {
        /// `closed`, `reopened`, `synchronize` or [`OBSERVED`].
        action: &'a str,
        /// The pull request.
        pull: &'a Value,
        /// Who closed it, where that is known.
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
            let sender = issue.get("closed_by").filter(|_| action == "closed").cloned();
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
            (GAP, vec!["gap".into(), what.replace(' ', "-"), to.to_string()], json!({"gap": gap, "sender": null}))
        }
    };
    if let Some(body) = body.as_object_mut() {
        body.insert("repository".into(), home.clone());
    }
    let host = repository(Field::root(home)).map_or_else(|| "unknown".into(), |home| home.name.host().to_owned());
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
    let body = body.to_string().into_bytes();
    text::check_object(&body)?;
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
    let when = if action == "closed" && item.get("closed_at").is_some_and(Value::is_string) {
        "closed_at"
    } else {
        "updated_at"
    };
    vec![kind.into(), part(item, "number"), action.into(), part(item, when)]
}

/// A part of an id; what is missing is a dash.
fn part(of: &Value, name: &str) -> String {
    Field::root(of).at(name).part().unwrap_or_else(|| "-".into())
}
