//! GitHub's events: every one that `payload` maps.

use super::event_type::{EventType, Field, Filter, From, How, by, flag, number, numbers, text, texts};

const REPOSITORY: Field = text("repository", "OWNER/REPO", From::Repository);
const ACTION: Field = text("action", "GitHub's word for what was done", From::Action);
const ACTOR: Field = text("actor", "Login of the account that did it", From::Actor);
const FRAME: &[Field] = &[REPOSITORY, ACTION, ACTOR];

const fn url(facts: &'static [&'static str]) -> Field {
    text("url", "Page to open", From::Fact(facts))
}

const BY_REPOSITORY: Filter = by("repository", "Only in this repository, as OWNER/REPO", How::SameWord);
const BY_ACTION: Filter = by("action", "Only this action, such as completed, opened or created", How::Same);
const BY_ACTOR: Filter = by("actor", "Only what this login did", How::SameWord);
const BY_NUMBER: Filter = by("number", "Only the issue or pull request of this number", How::Number);
const BY_BRANCH: Filter = by("branch", "Only this branch, by its exact name", How::Same);
const BY_STATUS: Filter = by("status", "Only this status: queued, in_progress or completed", How::Same);
const BY_CONCLUSION: Filter =
    by("conclusion", "Only this conclusion: success, failure, cancelled, timed_out, skipped, neutral …", How::Same);
const BY_STATE: Filter = by("state", "Only this state", How::Same);
const BY_LABEL: Filter = Filter { name: "label", about: "Only with this label", on: "labels", how: How::Holds };

const ISSUE: &[Field] = &[
    number("number", "Number of the issue or pull request", From::Fact(&["issue.number"])),
    text("title", "Its title", From::Fact(&["issue.title"])),
    text("state", "open or closed", From::Fact(&["issue.state"])),
    texts("labels", "Names of its labels", From::Fact(&["issue.labels"])),
];
const PULL: &[Field] = &[
    number("number", "Number of the pull request", From::Fact(&["pull_request.number"])),
    text("title", "Its title", From::Fact(&["pull_request.title"])),
    text("branch", "Its head branch", From::Label("pull_request.head")),
    text("base", "The branch it is to be merged into", From::Label("pull_request.base")),
    text("sha", "Its head commit", From::Fact(&["pull_request.sha"])),
];

/// Every event of GitHub's that can be watched.
pub(super) const TYPES: &[EventType] = &[
    EventType {
        name: "github.workflow_run",
        about: "A GitHub Actions workflow run was requested, started or completed on a branch. Use this to learn \
                that CI has finished, and whether it passed: filter by status completed, by branch, workflow or \
                conclusion.",
        fields: &[
            FRAME,
            &[
                text("workflow", "Name of the workflow", From::Fact(&["workflow_run.name"])),
                text("status", "queued, in_progress or completed", From::Fact(&["workflow_run.status"])),
                text("conclusion", "How it ended, once completed", From::Fact(&["workflow_run.conclusion"])),
                text("branch", "Head branch", From::Fact(&["workflow_run.branch"])),
                text("sha", "Head commit", From::Fact(&["workflow_run.sha"])),
                text("trigger", "The event that started it", From::Fact(&["workflow_run.event"])),
                number("run_number", "Number of the run within its workflow", From::Fact(&["workflow_run.number"])),
                number("attempt", "Which attempt it is", From::Fact(&["workflow_run.attempt"])),
                numbers("pull_requests", "Pull requests it is for", From::Fact(&["workflow_run.pull_requests"])),
                url(&["workflow_run.url"]),
            ],
        ],
        filters: &[
            BY_REPOSITORY,
            BY_BRANCH,
            by("workflow", "Only runs of the workflow of this name", How::Same),
            BY_STATUS,
            BY_CONCLUSION,
            BY_ACTION,
            BY_ACTOR,
        ],
    },
    EventType {
        name: "github.check_suite",
        about: "All checks of one app on a commit were requested or completed: the sum of what a CI service other than \
                a single workflow says of a branch.",
        fields: &[
            FRAME,
            &[
                text("app", "The app that checks", From::Fact(&["check_suite.app"])),
                text("status", "queued, in_progress or completed", From::Fact(&["check_suite.status"])),
                text("conclusion", "How it ended, once completed", From::Fact(&["check_suite.conclusion"])),
                text("branch", "Head branch", From::Fact(&["check_suite.branch"])),
                text("sha", "Head commit", From::Fact(&["check_suite.sha"])),
                numbers("pull_requests", "Pull requests it is for", From::Fact(&["check_suite.pull_requests"])),
                text("url", "The commit's page", From::CommitPage("check_suite.sha")),
            ],
        ],
        filters: &[
            BY_REPOSITORY,
            BY_BRANCH,
            by("app", "Only checks of this app, by its slug", How::SameWord),
            BY_STATUS,
            BY_CONCLUSION,
            BY_ACTION,
            BY_ACTOR,
        ],
    },
    EventType {
        name: "github.check_run",
        about: "A single check on a commit was created or completed, or a person asked it for something. There are many \
                of these; github.check_suite and github.workflow_run give the sum.",
        fields: &[
            FRAME,
            &[
                text("check", "Name of the check", From::Fact(&["check_run.name"])),
                text("app", "The app that checks", From::Fact(&["check_run.app"])),
                text("status", "queued, in_progress or completed", From::Fact(&["check_run.status"])),
                text("conclusion", "How it ended, once completed", From::Fact(&["check_run.conclusion"])),
                text("summary", "The check's own title for its result", From::Excerpt("check_run.output.title")),
                text("branch", "Head branch", From::Fact(&["check_run.branch"])),
                text("sha", "Head commit", From::Fact(&["check_run.sha"])),
                numbers("pull_requests", "Pull requests it is for", From::Fact(&["check_run.pull_requests"])),
                url(&["check_run.url", "check_run.details_url"]),
            ],
        ],
        filters: &[
            BY_REPOSITORY,
            BY_BRANCH,
            by("check", "Only the check of this name", How::Same),
            by("app", "Only checks of this app, by its slug", How::SameWord),
            BY_STATUS,
            BY_CONCLUSION,
            BY_ACTION,
            BY_ACTOR,
        ],
    },
    EventType {
        name: "github.status",
        about: "A CI service or bot set a commit status (pending, success, failure or error) under a context such as \
                ci/build.",
        fields: &[
            FRAME,
            &[
                text("context", "What was judged", From::Fact(&["status.context"])),
                text("state", "pending, success, failure or error", From::Fact(&["status.state"])),
                text("description", "The judge's words", From::Excerpt("status.description")),
                text("sha", "The commit", From::Fact(&["status.sha"])),
                texts("branches", "Branches whose head the commit is", From::Fact(&["status.branches"])),
                url(&["status.url", "status.commit_url"]),
            ],
        ],
        filters: &[
            BY_REPOSITORY,
            Filter {
                name: "branch",
                about: "Only where the commit heads this branch",
                on: "branches",
                how: How::Holds,
            },
            by("context", "Only this context", How::Same),
            BY_STATE,
            BY_ACTOR,
        ],
    },
    EventType {
        name: "github.issues",
        about: "An issue was opened, edited, closed, reopened, labelled, assigned or moved.",
        fields: &[
            FRAME,
            ISSUE,
            &[
                text("state_reason", "Why it is closed", From::Fact(&["issue.state_reason"])),
                text("changed_label", "The label that was added or taken off", From::Fact(&["label"])),
                text("assignee", "Who was assigned or unassigned", From::Fact(&["assignee"])),
                text("body", "Beginning of its text, where that was written", From::Excerpt("issue.body")),
                url(&["issue.url"]),
            ],
        ],
        filters: &[BY_REPOSITORY, BY_NUMBER, BY_ACTION, BY_ACTOR, BY_LABEL, BY_STATE],
    },
    EventType {
        name: "github.issue_comment",
        about: "Somebody commented on an issue, or in the conversation of a pull request; or edited or deleted such a \
                comment.",
        fields: &[
            FRAME,
            ISSUE,
            &[
                flag("is_pull_request", "Whether it is a pull request", From::Fact(&["issue.is_pull_request"])),
                text("body", "Beginning of the comment", From::Excerpt("comment.body")),
                url(&["comment.url", "issue.url"]),
            ],
        ],
        filters: &[BY_REPOSITORY, BY_NUMBER, BY_ACTION, BY_ACTOR, BY_LABEL],
    },
    EventType {
        name: "github.pull_request",
        about: "A pull request was opened, edited, closed, merged, pushed to, labelled, assigned, made ready or asked \
                to be reviewed.",
        fields: &[
            FRAME,
            PULL,
            &[
                text("state", "open or closed", From::Fact(&["pull_request.state"])),
                flag("merged", "Whether it was merged", From::Fact(&["pull_request.merged"])),
                flag("draft", "Whether it is a draft", From::Fact(&["pull_request.draft"])),
                texts("labels", "Names of its labels", From::Fact(&["pull_request.labels"])),
                text("changed_label", "The label that was added or taken off", From::Fact(&["label"])),
                text("requested_reviewer", "Who was asked to review", From::Fact(&["requested_reviewer"])),
                text("body", "Beginning of its text, where that was written", From::Excerpt("pull_request.body")),
                url(&["pull_request.url"]),
            ],
        ],
        filters: &[BY_REPOSITORY, BY_NUMBER, BY_BRANCH, BY_ACTION, BY_ACTOR, BY_LABEL, BY_STATE],
    },
    EventType {
        name: "github.pull_request_review",
        about: "Somebody reviewed a pull request: approved it, asked for changes or commented; or edited or dismissed \
                a review.",
        fields: &[
            FRAME,
            PULL,
            &[
                text("state", "approved, changes_requested, commented or dismissed", From::Fact(&["review.state"])),
                text("body", "Beginning of the review's text", From::Excerpt("review.body")),
                url(&["review.url", "pull_request.url"]),
            ],
        ],
        filters: &[BY_REPOSITORY, BY_NUMBER, BY_BRANCH, BY_STATE, BY_ACTION, BY_ACTOR],
    },
    EventType {
        name: "github.pull_request_review_comment",
        about: "Somebody commented on a line of a pull request's change, or edited or deleted such a comment.",
        fields: &[
            FRAME,
            PULL,
            &[
                text("path", "The file", From::Fact(&["comment.path"])),
                number("line", "The line", From::Fact(&["comment.line", "comment.original_line"])),
                text("body", "Beginning of the comment", From::Excerpt("comment.body")),
                url(&["comment.url", "pull_request.url"]),
            ],
        ],
        filters: &[BY_REPOSITORY, BY_NUMBER, BY_BRANCH, BY_ACTION, BY_ACTOR],
    },
    EventType {
        name: "github.pull_request_review_thread",
        about: "A thread of review comments on a pull request was resolved or opened again.",
        fields: &[
            FRAME,
            PULL,
            &[
                text("path", "The file", From::Fact(&["thread.path"])),
                number("line", "The line", From::Fact(&["thread.line"])),
                url(&["thread.url", "pull_request.url"]),
            ],
        ],
        filters: &[BY_REPOSITORY, BY_NUMBER, BY_BRANCH, BY_ACTION, BY_ACTOR],
    },
    EventType {
        name: "github.push",
        about: "Commits were pushed to a branch or tag, or a push made or removed one.",
        fields: &[
            FRAME,
            &[
                text("branch", "The branch, where it is one", From::Branch("push.ref")),
                text("ref", "The full name of the branch or tag", From::Fact(&["push.ref"])),
                text("before", "The head before", From::Fact(&["push.before"])),
                text("after", "The head now", From::Fact(&["push.after"])),
                flag("forced", "Whether history was rewritten", From::Fact(&["push.forced"])),
                flag("created", "Whether the push made it", From::Fact(&["push.created"])),
                flag("deleted", "Whether the push removed it", From::Fact(&["push.deleted"])),
                number("commit_count", "How many commits", From::Fact(&["push.commits_count"])),
                texts("commits", "The first commits, as hash and title", From::Fact(&["push.commits"])),
                url(&["push.compare"]),
            ],
        ],
        filters: &[BY_REPOSITORY, BY_BRANCH, BY_ACTOR],
    },
    EventType {
        name: "github.create",
        about: "A branch or tag was made.",
        fields: &[
            FRAME,
            &[
                text("ref_type", "branch or tag", From::Fact(&["ref_type"])),
                text("ref", "Its name", From::Fact(&["ref"])),
                text("url", "The repository's page", From::RepositoryPage),
            ],
        ],
        filters: &[BY_REPOSITORY, BY_REF, BY_REF_TYPE, BY_ACTOR],
    },
    EventType {
        name: "github.delete",
        about: "A branch or tag was removed.",
        fields: &[
            FRAME,
            &[
                text("ref_type", "branch or tag", From::Fact(&["ref_type"])),
                text("ref", "Its name", From::Fact(&["ref"])),
                text("url", "The repository's page", From::RepositoryPage),
            ],
        ],
        filters: &[BY_REPOSITORY, BY_REF, BY_REF_TYPE, BY_ACTOR],
    },
    EventType {
        name: "github.merge_group",
        about: "The merge queue asked for checks of a group of pull requests, or took a group apart.",
        fields: &[
            FRAME,
            &[
                text("reason", "Why the group was taken apart", From::Fact(&["reason"])),
                text("base", "The branch to be merged into", From::Branch("merge_group.base_ref")),
                text("sha", "The group's head commit", From::Fact(&["merge_group.head_sha"])),
                text("message", "The head commit's message", From::Excerpt("merge_group.message")),
                text("url", "The commit's page", From::CommitPage("merge_group.head_sha")),
            ],
        ],
        filters: &[BY_REPOSITORY, by("base", "Only into this branch", How::Same), BY_ACTION, BY_ACTOR],
    },
    EventType {
        name: "github.deployment_status",
        about: "A deployment to an environment was queued, started, succeeded or failed.",
        fields: &[
            FRAME,
            &[
                text("environment", "Where to", From::Fact(&["deployment_status.environment"])),
                text("state", "queued, in_progress, success, failure …", From::Fact(&["deployment_status.state"])),
                text("description", "What was said of it", From::Excerpt("deployment_status.description")),
                text("ref", "What is deployed", From::Fact(&["deployment.ref"])),
                text("sha", "The commit", From::Fact(&["deployment.sha"])),
                text("environment_url", "Where it can be seen", From::Fact(&["deployment_status.environment_url"])),
                text("url", "The commit's page", From::CommitPage("deployment.sha")),
            ],
        ],
        filters: &[
            BY_REPOSITORY,
            by("environment", "Only this environment", How::SameWord),
            BY_STATE,
            by("ref", "Only this branch or tag", How::Same),
            BY_ACTOR,
        ],
    },
];

const BY_REF: Filter = by("ref", "Only this branch or tag, by its exact name", How::Same);
const BY_REF_TYPE: Filter = by("ref_type", "Only branch, or only tag", How::Same);
