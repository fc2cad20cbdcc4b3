//! `push`, `create`, `delete` and `merge_group`: what happens to branches. Each takes write access to the repository.

use serde_json::Value;

use super::reading::{Payload, Reading};
use crate::domain::{LinkKind, Nature, Node, SubjectKind};

/// How many of a push's commits are told.
const COMMITS: usize = 10;

pub(super) fn push(payload: &Payload<'_>) -> Reading {
    let mut reading = Reading::new(Nature::State);
    let root = payload.root;
    let branch = root.at("ref").text().and_then(|name| name.strip_prefix("refs/heads/"));
    if let Some(name) = branch.filter(|_| !root.at("deleted").is_true()) {
        reading.about(SubjectKind::Commit, payload.commit(root.at("after")));
        reading.about(SubjectKind::Branch, payload.branch(name));
    }
    // A branch can be pushed back to where it was, so the heads alone do not tell two pushes apart.
    let parts = ["ref", "before", "after", "repository.pushed_at"].map(|path| root.at(path).part());
    reading.identity = payload.key("push", &parts);
    reading.supersedes = payload.key("push", &[root.at("ref").part()]);
    reading.happened_at = root.at("repository.pushed_at").time().or(root.at("head_commit.timestamp").time());
    let facts = &mut reading.facts;
    let names = ["ref", "before", "after", "forced", "created", "deleted"].map(|name| (name, name));
    facts.all("push", root, &names);
    facts.page("push.compare", root.at("compare"));
    let commits = root.at("commits").list().take(COMMITS).filter_map(|commit| {
        let sha = commit.at("id").sha()?;
        let title = commit.at("message").text()?.lines().next()?;
        Some(Value::from(format!("{} {title}", sha.get(..12)?)))
    });
    facts.list("push.commits", commits);
    facts.put("push.commits_count", root.at("commits").list().count().into());
    reading
}

pub(super) fn created_or_deleted(name: &str, payload: &Payload<'_>) -> Reading {
    let mut reading = Reading::new(Nature::State);
    let root = payload.root;
    if root.at("ref_type").text() == Some("branch") {
        reading.about(SubjectKind::Branch, root.at("ref").text().and_then(|branch| payload.branch(branch)));
    }
    let parts = ["ref_type", "ref", "repository.pushed_at"].map(|path| root.at(path).part());
    reading.identity = payload.key(name, &parts);
    reading.happened_at = root.at("repository.pushed_at").time();
    reading.facts.add("ref_type", root.at("ref_type"));
    reading.facts.add("ref", root.at("ref"));
    reading
}

pub(super) fn merge_group(payload: &Payload<'_>) -> Reading {
    let mut reading = Reading::new(Nature::State);
    let group = payload.root.at("merge_group");
    let head = payload.commit(group.at("head_sha"));
    let queued = group.at("head_ref").text().and_then(|name| name.strip_prefix("refs/heads/")).and_then(queue_number);
    let item = queued.and_then(|number| payload.repo().map(|repo| repo.item(number)));
    reading.about(SubjectKind::Attached, item.clone().map(Node::Item));
    // What the queue's checks say of this commit, they say of the pull request.
    reading.learn(head.clone(), item.as_ref(), LinkKind::HeadCommit, None);
    reading.about(SubjectKind::Commit, head);
    let parts = [group.at("head_sha").part(), payload.action_part()];
    reading.identity = payload.key("merge_group", &parts);
    reading.supersedes = payload.key("merge_group", &[group.at("head_ref").part()]);
    reading.happened_at = group.at("head_commit.timestamp").time();
    let facts = &mut reading.facts;
    facts.add("reason", payload.root.at("reason"));
    let names = ["head_ref", "head_sha", "base_ref"].map(|name| (name, name));
    facts.all("merge_group", group, &names);
    facts.add("merge_group.message", group.at("head_commit.message"));
    reading
}

/// The pull request for which GitHub made a branch of its merge queue: `gh-readonly-queue/BASE/pr-N-SHA`.
pub(super) fn queue_number(branch: &str) -> Option<u64> {
    let (_, last) = branch.strip_prefix("gh-readonly-queue/")?.rsplit_once('/')?;
    let (number, _) = last.strip_prefix("pr-")?.split_once('-')?;
    let plain = !number.is_empty() && number.len() <= 18 && number.bytes().all(|b| b.is_ascii_digit());
    number.parse().ok().filter(|number| plain && *number > 0)
}
