//! A [`Delivery`] to an [`Event`].

use super::facts::Facts;
use super::field::Field;
use super::reading::{Payload, Reading};
use super::tree::Extent;
use super::{Error, fit, gap, items, json, pulls, refs, verdicts, watched};
use crate::domain::{Delivery, Event, GITHUB_GAP, Nature, Source};

/// Reads what a delivery says. The same delivery always gives the same event, and none makes this panic.
///
/// An event that we do not map is no error: it is kept, and its nature says so. The event of a watch comes without
/// subjects: only the watch knows whom it concerns.
pub fn read(delivery: &Delivery) -> Result<Event, Error> {
    let extent = match delivery.source {
        Source::Mcp(_) => Extent::Whole,
        Source::GithubWebhook | Source::GithubPoll => Extent::Lean,
    };
    json::with_object(&delivery.body, extent, |root| read_root(delivery, root))?
}

/// Reads a delivery whose body has been parsed. A panic in reading is a defect, but not a reason to stop reading all others.
pub(super) fn read_root(delivery: &Delivery, root: Field<'_>) -> Result<Event, Error> {
    let read = || read_event(delivery, root);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).unwrap_or(Err(Error::Panicked))
}

fn read_event(delivery: &Delivery, root: Field<'_>) -> Result<Event, Error> {
    let (payload, reading) = match delivery.source {
        Source::Mcp(_) => (Payload::nowhere(root), watched::occurrence(delivery, root)),
        // Only our own polling makes one: a webhook's name has no dot.
        Source::GithubPoll if delivery.event == GITHUB_GAP => {
            let payload = Payload::new(root);
            let reading = gap::gap(&payload);
            (payload, reading)
        }
        Source::GithubWebhook | Source::GithubPoll => {
            let mapped = fit::check(&delivery.event, root)?;
            let payload = Payload::new(root);
            let reading = if mapped { reading(&delivery.event, &payload) } else { unmapped(&payload) };
            (payload, reading)
        }
    };
    let unknown = || format!("delivery:{}:{}", delivery.source.key(), delivery.id);
    Ok(Event {
        name: delivery.event.clone(),
        action: payload.action.map(String::from),
        nature: reading.nature,
        author: reading.author,
        subjects: reading.subjects,
        links: reading.links,
        fingerprint: reading.identity.unwrap_or_else(unknown),
        supersedes: reading.supersedes,
        happened_at: reading.happened_at,
        facts: reading.facts.done(),
        repository: payload.repository,
        sender: payload.sender,
    })
}

fn reading(name: &str, payload: &Payload<'_>) -> Reading {
    match name {
        "issues" => items::issues(payload),
        "issue_comment" => items::issue_comment(payload),
        "pull_request" => pulls::pull_request(payload),
        "pull_request_review" => pulls::review(payload),
        "pull_request_review_comment" => pulls::review_comment(payload),
        "pull_request_review_thread" => pulls::review_thread(payload),
        "workflow_run" => verdicts::workflow_run(payload),
        "check_suite" => verdicts::check_suite(payload),
        "check_run" => verdicts::check_run(payload),
        "status" => verdicts::status(payload),
        "deployment_status" => verdicts::deployment_status(payload),
        "push" => refs::push(payload),
        "merge_group" => refs::merge_group(payload),
        "create" | "delete" => refs::created_or_deleted(name, payload),
        _ => unmapped(payload),
    }
}

fn unmapped(payload: &Payload<'_>) -> Reading {
    let mut facts = Facts::default();
    facts.add("repository.full_name", payload.root.at("repository.full_name"));
    facts.add("action", payload.root.at("action"));
    Reading { facts, ..Reading::new(Nature::Unmapped) }
}
