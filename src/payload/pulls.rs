//! `pull_request` and its reviews.

use super::closing::closes;
use super::facts::Facts;
use super::field::Field;
use super::items::{comment_identity, is_words};
use super::reading::{Payload, Reading, or_none};
use crate::domain::{LinkKind, Nature, Node, SubjectKind, WorkItem};

pub(super) fn pull_request(payload: &Payload<'_>) -> Reading {
    let words = is_words(payload.action);
    let mut reading = Reading::new(if words { Nature::Words } else { Nature::State });
    let pull = about_pull_request(payload, &mut reading);
    reading.author = Some(pull.author());
    let updated = pull.at("updated_at");
    let which = match payload.action {
        Some("opened") => Some("once".into()),
        Some("closed") => pull.at("closed_at").part().or(updated.part()),
        // The new head tells pushes apart, and `before` a push that brings an old head back.
        Some("synchronize") => {
            pull.at("head.sha").sha().map(|sha| format!("{sha}:{}", payload.root.at("before").text().unwrap_or("-")))
        }
        _ => updated.part(),
    };
    let what = ["label.name", "assignee.login", "requested_reviewer.login", "requested_team.slug", "milestone.number"]
        .map(|path| payload.root.at(path).part());
    let what = what.into_iter().flatten().next().unwrap_or_else(|| "-".into());
    let number = pull.at("number").part();
    reading.identity = payload.key("pull_request", &[number.clone(), payload.action_part(), which, Some(what)]);
    if !words {
        reading.supersedes = payload.key("state", &[number]);
    }
    reading.happened_at = match payload.action {
        Some("opened") => pull.at("created_at").time(),
        Some("closed") => pull.at("closed_at").time().or(updated.time()),
        _ => updated.time(),
    };
    if words {
        reading.facts.add("pull_request.body", pull.at("body"));
    }
    let facts = &mut reading.facts;
    facts.add("label", payload.root.at("label.name"));
    facts.add("assignee", payload.root.at("assignee.login"));
    facts.add("requested_reviewer", payload.root.at("requested_reviewer.login"));
    facts.add("requested_team", payload.root.at("requested_team.slug"));
    pull_facts(facts, pull);
    facts.labels("pull_request.labels", pull.at("labels"));
    facts.add("pull_request.merged_by", pull.at("merged_by.login"));
    reading
}

pub(super) fn review(payload: &Payload<'_>) -> Reading {
    let mut reading = Reading::new(Nature::Words);
    let pull = about_pull_request(payload, &mut reading);
    let review = payload.root.at("review");
    reading.author = Some(review.author());
    // The API writes states in capitals, webhooks do not.
    let state = review.at("state").text().map(str::to_ascii_lowercase);
    let which = match payload.action {
        Some("edited") => review.at("updated_at").part(),
        _ => Some("once".into()),
    };
    reading.identity =
        payload.key("review", &[review.at("id").part(), payload.action_part(), or_none(state.clone()), which]);
    reading.happened_at = review.at("updated_at").time().or(review.at("submitted_at").time());
    if let Some(state) = state {
        reading.facts.put("review.state", state.into());
    }
    reading.facts.add("review.body", review.at("body"));
    reading.facts.page("review.url", review.at("html_url"));
    pull_facts(&mut reading.facts, pull);
    reading
}

pub(super) fn review_comment(payload: &Payload<'_>) -> Reading {
    let mut reading = Reading::new(Nature::Words);
    let pull = about_pull_request(payload, &mut reading);
    let comment = payload.root.at("comment");
    reading.author = Some(comment.author());
    reading.identity = comment_identity(payload, "review_comment", comment);
    reading.happened_at = comment.at("updated_at").time().or(comment.at("created_at").time());
    // The place comes first: without it the words say little.
    let names = ["path", "line", "start_line", "side"].map(|name| (name, name));
    reading.facts.all("comment", comment, &names);
    if comment.at("line").number().is_none() {
        reading.facts.add("comment.original_line", comment.at("original_line"));
    }
    reading.facts.add("comment.body", comment.at("body"));
    reading.facts.add("comment.diff_hunk", comment.at("diff_hunk"));
    reading.facts.page("comment.url", comment.at("html_url"));
    pull_facts(&mut reading.facts, pull);
    reading
}

/// A thread is resolved and reopened by the pull request's author or by people with rights in the repository: a change
/// of state, whose words were told when they were written.
pub(super) fn review_thread(payload: &Payload<'_>) -> Reading {
    let mut reading = Reading::new(Nature::State);
    let pull = about_pull_request(payload, &mut reading);
    reading.author = Some(pull.author());
    let thread = payload.root.at("thread");
    let updated = payload.root.at("updated_at");
    reading.identity =
        payload.key("review_thread", &[thread.at("node_id").part(), payload.action_part(), updated.part()]);
    reading.supersedes = payload.key("thread", &[thread.at("node_id").part()]);
    reading.happened_at = updated.time();
    if let Some(comment) = thread.at("comments").list().next() {
        let names = ["path", "line", "start_line"].map(|name| (name, name));
        reading.facts.all("thread", comment, &names);
        reading.facts.page("thread.url", comment.at("html_url"));
    }
    pull_facts(&mut reading.facts, pull);
    reading
}

/// Notes what an event about a pull request is about and teaches, and returns the pull request.
fn about_pull_request<'a>(payload: &Payload<'a>, reading: &mut Reading) -> Field<'a> {
    let pull = payload.root.at("pull_request");
    let author = pull.author();
    let item = payload.item(pull.at("number"));
    reading.about(SubjectKind::Object, item.clone().map(Node::Item));
    learn_closes(payload, pull, item.as_ref(), reading);
    reading.learn(payload.commit(pull.at("head.sha")), item.as_ref(), LinkKind::HeadCommit, Some(&author));
    // A fork names its branches as it likes, so only a branch of this repository proves anything.
    if payload.is_same_repository(pull.at("head.repo")) == Some(true) {
        let branch = pull.at("head.ref").text().and_then(|name| payload.repo()?.branch(name));
        let node = branch.clone().map(Node::Item);
        reading.about(SubjectKind::Branch, node.clone());
        reading.learn(node, item.as_ref(), LinkKind::HeadBranch, Some(&author));
        // A comment on the pull request does not name its branch: that is remembered for it.
        reading.learn(item.clone().map(Node::Item), branch.as_ref(), LinkKind::HeadBranch, Some(&author));
    }
    pull
}

/// Learns which issues the pull request at `pull` closes.
pub(super) fn learn_closes(payload: &Payload<'_>, pull: Field<'_>, item: Option<&WorkItem>, reading: &mut Reading) {
    let (Some(repo), Some(body)) = (payload.repo(), pull.at("body").text()) else { return };
    let author = pull.author();
    for issue in closes(body, repo) {
        reading.learn(item.cloned().map(Node::Item), Some(&issue), LinkKind::Closes, Some(&author));
    }
}

fn pull_facts(facts: &mut Facts, pull: Field<'_>) {
    let names = ["number", "title", "state", "merged", "draft"].map(|name| (name, name));
    facts.all("pull_request", pull, &names);
    let label = |end: Field<'_>, facts: &mut Facts, name: &str| {
        facts.add(name, if end.at("label").text().is_some() { end.at("label") } else { end.at("ref") });
    };
    label(pull.at("head"), facts, "pull_request.head");
    facts.add("pull_request.sha", pull.at("head.sha"));
    label(pull.at("base"), facts, "pull_request.base");
    facts.page("pull_request.url", pull.at("html_url"));
}
