//! `issues` and `issue_comment`.

use serde_json::Value;

use super::facts::Facts;
use super::field::Field;
use super::pulls::learn_closes;
use super::reading::{Payload, Reading, item_of, repository};
use crate::domain::{LinkKind, Nature, Node, SubjectKind, WorkItem};

/// What an issue's author says, as against what is done to the issue.
pub(super) fn is_words(action: Option<&str>) -> bool {
    matches!(action, Some("opened" | "edited"))
}

pub(super) fn issues(payload: &Payload<'_>) -> Reading {
    let words = is_words(payload.action);
    let mut reading = Reading::new(if words { Nature::Words } else { Nature::State });
    let issue = payload.root.at("issue");
    let item = payload.item(issue.at("number"));
    reading.about(SubjectKind::Object, item.clone().map(Node::Item));
    reading.author = Some(issue.author());
    let updated = issue.at("updated_at");
    let which = match payload.action {
        // An issue is opened once; closed and changed, it may be again.
        Some("opened") => Some("once".into()),
        Some("closed") => issue.at("closed_at").part().or(updated.part()),
        _ => updated.part(),
    };
    // One change sets several labels or assignees in one second.
    let what = ["label.name", "assignee.login", "milestone.number"].map(|path| payload.root.at(path).part());
    let what = what.into_iter().flatten().next().unwrap_or_else(|| "-".into());
    reading.identity = payload.key("issues", &[issue.at("number").part(), payload.action_part(), which, Some(what)]);
    if !words {
        reading.supersedes = payload.key("state", &[issue.at("number").part()]);
    }
    reading.happened_at = match payload.action {
        Some("opened") => issue.at("created_at").time(),
        Some("closed") => issue.at("closed_at").time().or(updated.time()),
        _ => updated.time(),
    };
    if words {
        reading.facts.add("issue.body", issue.at("body"));
    }
    let facts = &mut reading.facts;
    facts.add("label", payload.root.at("label.name"));
    facts.add("assignee", payload.root.at("assignee.login"));
    facts.add("milestone", payload.root.at("milestone.title"));
    issue_facts(facts, issue);
    if payload.action == Some("transferred") {
        transferred(payload, item.as_ref(), &mut reading);
    }
    reading
}

/// An issue that moved is one work item under two names, so each leads to the other.
fn transferred(payload: &Payload<'_>, old: Option<&WorkItem>, reading: &mut Reading) {
    let target = payload.root.at("changes.new_issue");
    let home = repository(payload.root.at("changes.new_repository"));
    let new = home.and_then(|home| item_of(&home.name, target.at("number")));
    let node = |item: Option<&WorkItem>| item.cloned().map(Node::Item);
    reading.learn(node(new.as_ref()), old, LinkKind::Transferred, None);
    reading.learn(node(old), new.as_ref(), LinkKind::Transferred, None);
    reading.facts.add("new_issue.number", target.at("number"));
    reading.facts.page("new_issue.url", target.at("html_url"));
}

pub(super) fn issue_comment(payload: &Payload<'_>) -> Reading {
    let mut reading = Reading::new(Nature::Words);
    let (issue, comment) = (payload.root.at("issue"), payload.root.at("comment"));
    let item = payload.item(issue.at("number"));
    reading.about(SubjectKind::Object, item.clone().map(Node::Item));
    let of_pull_request = issue.at("pull_request").is_object();
    if of_pull_request {
        // For a pull request, the "issue" is the pull request itself: its body is the pull request's.
        learn_closes(payload, issue, item.as_ref(), &mut reading);
    }
    reading.author = Some(comment.author());
    reading.identity = comment_identity(payload, "issue_comment", comment);
    reading.happened_at = comment.at("updated_at").time().or(comment.at("created_at").time());
    reading.facts.add("comment.body", comment.at("body"));
    reading.facts.page("comment.url", comment.at("html_url"));
    issue_facts(&mut reading.facts, issue);
    if of_pull_request {
        reading.facts.put("issue.is_pull_request", Value::Bool(true));
    }
    reading
}

/// A comment is made and deleted once, and edited again and again.
pub(super) fn comment_identity(payload: &Payload<'_>, kind: &str, comment: Field<'_>) -> Option<String> {
    let which = match payload.action {
        Some("edited") => comment.at("updated_at").part(),
        _ => Some("once".into()),
    };
    payload.key(kind, &[comment.at("id").part(), payload.action_part(), which])
}

fn issue_facts(facts: &mut Facts, issue: Field<'_>) {
    let names = ["number", "title", "state", "state_reason"].map(|name| (name, name));
    facts.all("issue", issue, &names);
    facts.labels("issue.labels", issue.at("labels"));
    facts.page("issue.url", issue.at("html_url"));
}
