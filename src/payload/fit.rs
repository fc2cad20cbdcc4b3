//! Whether an event's name fits its body. GitHub signs the body only, so a true body could be sent under another name.

use super::Error;
use super::field::Field;

/// An event that we map: its name, what its body has, and what only bodies of other events have.
struct Shape {
    name: &'static str,
    objects: &'static [&'static str],
    texts: &'static [&'static str],
    never: &'static [&'static str],
}

const fn shape(
    name: &'static str,
    objects: &'static [&'static str],
    texts: &'static [&'static str],
    never: &'static [&'static str],
) -> Shape {
    Shape { name, objects, texts, never }
}

/// Every event that we map. A name that is not here is kept as it is and wakes nobody.
const SHAPES: &[Shape] = &[
    shape("issues", &["issue"], &["action"], &["comment"]),
    shape("issue_comment", &["issue", "comment"], &["action"], &[]),
    shape("pull_request", &["pull_request"], &["action"], &["review", "comment", "thread"]),
    shape("pull_request_review", &["pull_request", "review"], &["action"], &[]),
    shape("pull_request_review_comment", &["pull_request", "comment"], &["action"], &["review"]),
    shape("pull_request_review_thread", &["pull_request", "thread"], &["action"], &[]),
    shape("workflow_run", &["workflow_run"], &["action"], &["deployment_status", "deployment"]),
    shape("check_suite", &["check_suite"], &["action"], &[]),
    shape("check_run", &["check_run"], &["action"], &["deployment_status", "deployment"]),
    shape("status", &[], &["sha", "state", "context"], &[]),
    shape("push", &[], &["ref", "before", "after"], &[]),
    shape("merge_group", &["merge_group"], &["action"], &[]),
    shape("create", &[], &["ref", "ref_type", "master_branch"], &[]),
    shape("delete", &[], &["ref", "ref_type"], &["master_branch"]),
    shape("deployment_status", &["deployment_status", "deployment"], &[], &[]),
];

/// Checks the name of an event that we map; `false` for one that we do not map.
pub(super) fn check(name: &str, root: Field<'_>) -> Result<bool, Error> {
    let Some(shape) = SHAPES.iter().find(|shape| shape.name == name) else { return Ok(false) };
    let fail = |why: String| Err(Error::Misnamed { event: name.into(), why });
    if let Some(object) = shape.objects.iter().find(|object| !root.at(object).is_object()) {
        return fail(format!("has no `{object}` object"));
    }
    if let Some(text) = shape.texts.iter().find(|text| root.at(text).text().is_none()) {
        return fail(format!("has no `{text}` text"));
    }
    match shape.never.iter().find(|other| root.at(other).value().is_some()) {
        Some(other) => fail(format!("has `{other}`, which belongs to another event")),
        None => Ok(true),
    }
}
