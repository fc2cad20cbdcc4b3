//! Sample payloads in GitHub's shape, for test deliveries and the demonstration.

use serde_json::{Value, json};

use crate::domain::{Target, WorkItem};

/// The events there are samples of.
pub(super) const EVENTS: &[&str] = &["ping", "issue_comment", "pull_request_review", "workflow_run"];

/// A sample of `event` about `item`; `None` where there is none, or none for such an item.
pub(super) fn payload(event: &str, item: &WorkItem) -> Option<Value> {
    // GitHub never gives two objects one id, and neither do samples: each is news.
    let id = u64::try_from(uuid::Uuid::new_v4().as_u128() >> 80).ok()?;
    let now = jiff::Timestamp::now().to_string();
    if event == "ping" {
        return Some(json!({"zen": "Half measures are as bad as nothing at all.", "hook_id": id,
                           "hook": {"type": "Repository", "events": ["*"], "active": true}}));
    }
    let (repo, number, branch) = match item {
        WorkItem::Github { repo, target: Target::Number(number) } => (repo, *number, format!("issue-{number}")),
        WorkItem::Github { repo, target: Target::Branch(branch) } => (repo, 1, branch.clone()),
        WorkItem::Local(_) => return None,
    };
    let page = format!("https://{}/{}", repo.host(), repo.full_name());
    let user = json!({"login": repo.owner(), "id": 1, "type": "User"});
    let repository = json!({"name": repo.full_name().rsplit('/').next(), "full_name": repo.full_name(),
                            "html_url": page, "owner": user, "default_branch": "main"});
    let mut payload = json!({"repository": repository, "sender": user});
    let more = match event {
        "issue_comment" => json!({
            "action": "created",
            "issue": {"id": number, "number": number, "title": "A sample issue", "state": "open", "user": user,
                      "author_association": "OWNER", "labels": [], "html_url": format!("{page}/issues/{number}")},
            "comment": {"id": id, "body": "This is a sample comment: nothing needs to be done.", "user": user,
                        "author_association": "OWNER", "created_at": now, "updated_at": now,
                        "html_url": format!("{page}/issues/{number}#issuecomment-{id}")},
        }),
        "pull_request_review" => json!({
            "action": "submitted",
            "pull_request": {"id": number, "number": number, "title": "A sample change", "state": "open", "user": user,
                             "author_association": "OWNER", "body": "", "html_url": format!("{page}/pull/{number}"),
                             "head": {"ref": branch, "sha": "0".repeat(40), "repo": repository},
                             "base": {"ref": "main", "sha": "0".repeat(40), "repo": repository}},
            "review": {"id": id, "state": "changes_requested", "body": "Please add a test for the empty case.",
                       "user": user, "author_association": "OWNER", "submitted_at": now,
                       "html_url": format!("{page}/pull/{number}#pullrequestreview-{id}")},
        }),
        "workflow_run" => json!({
            "action": "completed",
            "workflow": {"id": 1, "name": "CI"},
            "workflow_run": {"id": id, "name": "CI", "head_branch": branch, "head_sha": "0".repeat(40), "run_number": 7,
                             "run_attempt": 1, "event": "push", "status": "completed", "conclusion": "failure",
                             "html_url": format!("{page}/actions/runs/{id}"), "updated_at": now,
                             "pull_requests": match item {
                                 WorkItem::Github { target: Target::Number(_), .. } => json!([{"number": number}]),
                                 _ => json!([]),
                             },
                             "head_repository": repository, "repository": repository},
        }),
        _ => return None,
    };
    if let (Some(payload), Some(more)) = (payload.as_object_mut(), more.as_object()) {
        payload.extend(more.clone());
    }
    Some(payload)
}
