//! An event to a decision.

use super::search::{Candidate, Found, search};
use super::{Links, OnClosed, Rules, Sessions, names, trust, wake};
use crate::domain::{Assignment, Decision, Event, Nature, Node, Outcome, Session, SubjectKind, WorkItem};

/// How many work items a reason names.
const NAMED: usize = 5;

/// Decides where an event goes and why. The same inputs always give the same decision.
pub fn route(event: &Event, rules: &Rules, links: &dyn Links, sessions: &dyn Sessions) -> Decision {
    if event.nature == Nature::Unmapped {
        let name = names::word(&event.name).unwrap_or("this event");
        let reason = format!("unmapped: `{name}` names no work item that we know of");
        return Decision {
            outcome: Outcome::Unmatched,
            steps: vec![reason.clone()],
            reason,
            work_items: Vec::new(),
            assignments: Vec::new(),
            closes: Vec::new(),
        };
    }
    let mut found = search(event, &rules.trust, links, sessions);
    let steps = std::mem::take(&mut found.steps);
    let work_items = found.candidates.iter().map(|candidate| candidate.item.clone()).collect();
    let mut decision = Decision {
        outcome: Outcome::Unmatched,
        reason: String::new(),
        work_items,
        assignments: Vec::new(),
        closes: Vec::new(),
        steps,
    };
    let mut told = found.strongest();
    if told.is_empty() {
        decision.reason = no_session(&found.candidates, event);
    } else {
        decision.outcome = Outcome::Filtered;
        let ended = ended(event, &found, rules, links, &mut told, &mut decision);
        if !told.is_empty() {
            match filters(event, rules, &mut decision.steps) {
                None => {
                    let told = told.iter().map(|(candidate, session)| assignment(candidate, session));
                    decision.outcome = Outcome::Queued;
                    decision.assignments = told.collect();
                    decision.reason = wakes(&decision.assignments);
                }
                Some(why) => decision.reason = why,
            }
        }
        if let Some(ended) = ended {
            let then = std::mem::take(&mut decision.reason);
            decision.reason = if then.is_empty() { ended } else { format!("{ended}; {then}") };
        }
    }
    decision.steps.push(format!("{}: {}", decision.outcome, decision.reason));
    decision
}

/// Deals with the session that is registered for the very item that was closed, and says how. Sessions that were found
/// by a link stay: their pull request was merged, their own work item goes on.
fn ended(
    event: &Event,
    found: &Found,
    rules: &Rules,
    links: &dyn Links,
    told: &mut Vec<(&Candidate, &Session)>,
    decision: &mut Decision,
) -> Option<String> {
    if !matches!(event.title().as_str(), "issues.closed" | "pull_request.closed") {
        return None;
    }
    let item = event.subjects.iter().find_map(|subject| match (&subject.node, subject.kind) {
        (Node::Item(item), SubjectKind::Object) => Some(item),
        _ => None,
    })?;
    let reopened = event.supersedes.as_deref().and_then(|topic| links.reopened_at(topic));
    if let (Some(closed), Some(reopened)) = (event.happened_at, reopened)
        && closed < reopened
    {
        told.clear();
        return Some(format!("late: {} was reopened since, at {reopened}", work_item(item)));
    }
    let own = found.own(item)?;
    let key = own.key();
    match rules.routing.on_closed {
        OnClosed::Tell => None,
        OnClosed::Close => {
            told.retain(|(_, session)| session.key() != key);
            decision.closes.push(key);
            Some(format!("closed {}", work_item(item)))
        }
        OnClosed::Keep => {
            told.retain(|(_, session)| session.key() != key);
            Some(format!("{} was closed and on_closed is \"keep\"", work_item(item)))
        }
    }
}

/// Why nobody is to be woken by this event, if so.
fn filters(event: &Event, rules: &Rules, steps: &mut Vec<String>) -> Option<String> {
    let refusal = wake::refusal(event, &rules.routing)
        .or_else(|| trust::is_echo(event, &rules.trust).map(|why| format!("our own: {why}")))
        .or_else(|| trust::refusal(event, &rules.trust));
    if refusal.is_none() {
        steps.push(match event.nature {
            Nature::Words => "sender and author are trusted".into(),
            Nature::State => "the sender may do this".into(),
            Nature::Verdict => "a verdict needs nobody's trust".into(),
            Nature::Watched | Nature::Unmapped => "the session asked for this".into(),
        });
    }
    refusal
}

fn assignment(candidate: &Candidate, session: &Session) -> Assignment {
    Assignment { session: session.key(), work_item: candidate.item.clone(), how: candidate.how.clone() }
}

fn wakes(assignments: &[Assignment]) -> String {
    let each = assignments.iter().map(|a| format!("wakes {}: {}", work_item(&a.work_item), a.how));
    each.collect::<Vec<_>>().join("; ")
}

fn no_session(candidates: &[Candidate], event: &Event) -> String {
    let items: Vec<_> = candidates.iter().take(NAMED).map(|candidate| work_item(&candidate.item)).collect();
    if !items.is_empty() {
        let more = candidates.len() - items.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        return format!("no open session for {}{more}", items.join(", "));
    }
    match event.subjects.first() {
        Some(subject) => format!("no session: {} is not known to belong to anything", names::node(&subject.node)),
        None => "no session: the event names no issue, pull request, commit or branch".into(),
    }
}

/// A work item as it is typed, but always one plain word.
fn work_item(item: &WorkItem) -> String {
    match item {
        WorkItem::Github { .. } => format!("github:{}", names::item(item)),
        WorkItem::Local(_) => names::item(item),
    }
}
