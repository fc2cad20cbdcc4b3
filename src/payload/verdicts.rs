//! What machines say of commits: `workflow_run`, `check_suite`, `check_run`, `status`, `deployment_status`.

use serde_json::Value;

use super::field::Field;
use super::reading::{Payload, Reading, or_none};
use super::refs::queue_number;
use crate::domain::{LinkKind, Nature, Node, SubjectKind};

pub(super) fn workflow_run(payload: &Payload<'_>) -> Reading {
    let mut reading = Reading::new(Nature::Verdict);
    let run = payload.root.at("workflow_run");
    let head = run.at("head_branch");
    let is_ours = payload.is_same_repository(run.at("head_repository")) == Some(true);
    about_run(payload, run, head.text().filter(|_| is_ours), &mut reading);
    let attempt = run.at("run_attempt").part().or(run.at("updated_at").part());
    reading.identity = payload.key(
        "workflow_run",
        &[run.at("id").part(), attempt, payload.action_part(), or_none(run.at("conclusion").part())],
    );
    let workflow = run.at("workflow_id").part().or(payload.root.at("workflow.id").part()).or(run.at("name").part());
    // A push's run and a pull request's run of one workflow stand side by side; so do a fork's and ours.
    let home = or_none(run.at("head_repository.id").part());
    let place = place(run, head.text());
    reading.supersedes = payload.key("workflow", &[workflow, or_none(run.at("event").part()), home, place]);
    reading.happened_at = run.at("updated_at").time().or(run.at("created_at").time());
    let facts = &mut reading.facts;
    let names = [
        ("name", "name"),
        ("conclusion", "conclusion"),
        ("status", "status"),
        ("branch", "head_branch"),
        ("sha", "head_sha"),
        ("attempt", "run_attempt"),
        ("event", "event"),
        ("number", "run_number"),
    ];
    facts.all("workflow_run", run, &names);
    facts.page("workflow_run.url", run.at("html_url"));
    facts.list("workflow_run.pull_requests", numbers(run));
    reading
}

pub(super) fn check_suite(payload: &Payload<'_>) -> Reading {
    let mut reading = Reading::new(Nature::Verdict);
    let suite = payload.root.at("check_suite");
    let (app, head) = (suite.at("app.slug"), suite.at("head_branch"));
    let branch = own_branch(payload, suite, app, head);
    about_run(payload, suite, branch, &mut reading);
    // A suite that runs again keeps its number; its time tells the runs apart.
    let which = or_none(suite.at("updated_at").part());
    let conclusion = or_none(suite.at("conclusion").part());
    reading.identity = payload.key("check_suite", &[suite.at("id").part(), payload.action_part(), conclusion, which]);
    reading.supersedes = payload.key("suite", &[app.part(), place(suite, branch)]);
    reading.happened_at = suite.at("updated_at").time().or(suite.at("created_at").time());
    let facts = &mut reading.facts;
    let names = [
        ("app", "app.slug"),
        ("conclusion", "conclusion"),
        ("status", "status"),
        ("branch", "head_branch"),
        ("sha", "head_sha"),
    ];
    facts.all("check_suite", suite, &names);
    facts.list("check_suite.pull_requests", numbers(suite));
    reading
}

pub(super) fn check_run(payload: &Payload<'_>) -> Reading {
    let mut reading = Reading::new(Nature::Verdict);
    let run = payload.root.at("check_run");
    let (app, head) = (run.at("app.slug"), run.at("check_suite.head_branch"));
    let branch = own_branch(payload, run, app, head);
    about_run(payload, run, branch, &mut reading);
    let which = or_none(run.at("completed_at").part().or(run.at("started_at").part()));
    let conclusion = or_none(run.at("conclusion").part());
    let wanted = or_none(payload.root.at("requested_action.identifier").part());
    reading.identity =
        payload.key("check_run", &[run.at("id").part(), payload.action_part(), conclusion, which, wanted]);
    reading.supersedes = payload.key("check", &[app.part(), run.at("name").part(), place(run, branch)]);
    reading.happened_at = run.at("completed_at").time().or(run.at("started_at").time());
    let facts = &mut reading.facts;
    let names = [
        ("name", "name"),
        ("app", "app.slug"),
        ("conclusion", "conclusion"),
        ("status", "status"),
        ("output.title", "output.title"),
        ("output.summary", "output.summary"),
        ("branch", "check_suite.head_branch"),
        ("sha", "head_sha"),
    ];
    facts.all("check_run", run, &names);
    facts.page("check_run.url", run.at("html_url"));
    facts.page("check_run.details_url", run.at("details_url"));
    facts.list("check_run.pull_requests", numbers(run));
    reading
}

pub(super) fn status(payload: &Payload<'_>) -> Reading {
    let mut reading = Reading::new(Nature::Verdict);
    let root = payload.root;
    let sha = root.at("sha").sha();
    reading.about(SubjectKind::Commit, payload.commit(root.at("sha")));
    // GitHub lists the branches that contain the commit; only those whose head it is are judged by it.
    let heads = || root.at("branches").list().filter(|branch| sha.is_some() && branch.at("commit.sha").sha() == sha);
    for name in heads().filter_map(|branch| branch.at("name").text()) {
        about_branch(payload, name, &mut reading);
    }
    reading.identity = payload.key("status", &[root.at("id").part()]);
    // A commit that heads exactly one branch is that branch's news; else it stands for itself.
    let mut names = heads().filter_map(|branch| branch.at("name").text());
    let place = match (names.next(), names.next()) {
        (Some(only), None) => Some(format!("branch:{only}")),
        _ => sha.clone(),
    };
    reading.supersedes = payload.key("status_of", &[root.at("context").part(), place]);
    reading.happened_at = root.at("updated_at").time().or(root.at("created_at").time());
    let facts = &mut reading.facts;
    let names = ["context", "state", "description", "sha"].map(|name| (name, name));
    facts.all("status", root, &names);
    facts.page("status.url", root.at("target_url"));
    facts.list("status.branches", heads().filter_map(|branch| branch.at("name").text().map(Value::from)));
    facts.page("status.commit_url", root.at("commit.html_url"));
    reading
}

pub(super) fn deployment_status(payload: &Payload<'_>) -> Reading {
    let mut reading = Reading::new(Nature::Verdict);
    let (status, deployment) = (payload.root.at("deployment_status"), payload.root.at("deployment"));
    reading.about(SubjectKind::Commit, payload.commit(deployment.at("sha")));
    // GitHub deploys only what this repository holds, so a name here is a branch or tag of this repository.
    if let Some(name) = deployment.at("ref").text().filter(|_| deployment.at("ref").sha().is_none()) {
        about_branch(payload, name, &mut reading);
    }
    reading.identity = payload.key("deployment_status", &[status.at("id").part()]);
    let environment = status.at("environment").part().or(deployment.at("environment").part());
    let target = deployment.at("ref").part().or(deployment.at("sha").part());
    reading.supersedes = payload.key("deployment", &[environment, target]);
    reading.happened_at = status.at("updated_at").time().or(status.at("created_at").time());
    let facts = &mut reading.facts;
    facts.all("deployment_status", status, &["state", "environment", "description"].map(|name| (name, name)));
    facts.page("deployment_status.environment_url", status.at("environment_url"));
    facts.page("deployment_status.url", status.at("log_url"));
    if status.at("log_url").text().is_none() {
        facts.page("deployment_status.url", status.at("target_url"));
    }
    facts.all("deployment", deployment, &["ref", "sha", "task"].map(|name| (name, name)));
    reading
}

/// Notes what a run or check is about: the pull requests it lists, its commit, and its branch if that is ours.
fn about_run(payload: &Payload<'_>, run: Field<'_>, branch: Option<&str>, reading: &mut Reading) {
    for pull in run.at("pull_requests").list() {
        // The list may name pull requests of a fork. GitHub leaves it empty for runs of a fork's pull request, so who
        // made a listed one's branch had write access here.
        if payload.is_same_repository(pull.at("base.repo")) == Some(false) {
            continue;
        }
        let item = payload.item(pull.at("number"));
        reading.about(SubjectKind::Attached, item.clone().map(Node::Item));
        reading.learn(payload.commit(pull.at("head.sha")), item.as_ref(), LinkKind::HeadCommit, None);
    }
    let queued = branch.and_then(queue_number).and_then(|number| payload.repo().map(|repo| repo.item(number)));
    reading.about(SubjectKind::Attached, queued.map(Node::Item));
    reading.about(SubjectKind::Commit, payload.commit(run.at("head_sha")));
    if let Some(name) = branch {
        about_branch(payload, name, reading);
    }
}

/// Notes a branch of this repository, unless GitHub made it for its merge queue.
fn about_branch(payload: &Payload<'_>, name: &str, reading: &mut Reading) {
    if queue_number(name).is_none() {
        reading.about(SubjectKind::Branch, payload.branch(name));
    }
}

/// A check's head branch, if it is this repository's.
///
/// A check names no head repository, and an empty list of pull requests proves nothing: a push to `main` has one too.
/// What GitHub documents is that the Checks API sees pushes to its own repository only, so that a fork's suite has
/// `head_branch: null` (<https://docs.github.com/en/rest/checks/suites>). That holds for the suites of other apps.
/// Actions, which also runs for a fork's pull request and fills in the fork's branch, is believed only where a listed
/// pull request shows that branch in this repository; its `workflow_run`, which names the head repository, tells the
/// rest. So is a check whose app is not named. A listed pull request from elsewhere speaks against the name at once.
fn own_branch<'a>(payload: &Payload<'_>, run: Field<'_>, app: Field<'_>, head: Field<'a>) -> Option<&'a str> {
    let name = head.text()?;
    let mut listed = run.at("pull_requests").list().filter(|pull| pull.at("head.ref").text() == Some(name));
    let homes: Vec<_> = listed.by_ref().map(|pull| payload.is_same_repository(pull.at("head.repo"))).collect();
    let believed = match app.text() {
        Some("github-actions") | None => homes.contains(&Some(true)),
        Some(_) => true,
    };
    (believed && !homes.contains(&Some(false))).then_some(name)
}

/// Where a run's result belongs, for superseding: its branch, else its first pull request, else its commit alone.
fn place(run: Field<'_>, branch: Option<&str>) -> Option<String> {
    let pull = || run.at("pull_requests").list().find_map(|pull| pull.at("number").part());
    branch
        .map(|name| format!("branch:{name}"))
        .or_else(|| pull().map(|number| format!("pull:{number}")))
        .or_else(|| run.at("head_sha").sha())
}

/// The numbers of the pull requests that a run lists.
fn numbers<'a>(run: Field<'a>) -> impl Iterator<Item = Value> + 'a {
    run.at("pull_requests").list().filter_map(|pull| pull.at("number").number().map(Value::from))
}
