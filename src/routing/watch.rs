//! An event of a watch to a decision: whom the watches that saw it tell, and which of them it ends.

use std::collections::HashSet;

use serde_json::Value;

use super::{Sessions, names};
use crate::domain::{Assignment, Condition, Decision, Event, Outcome, Watch};

/// What one watch makes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Whether its session is told.
    pub tell: bool,
    /// Why the watch ends with this event, if it does.
    pub end: Option<String>,
    /// Why the session is told or not, in words.
    pub why: String,
}

/// What a watch makes of an event with this data. `own` is what we say of the watch itself: that is always told.
pub fn look(watch: &Watch, data: &Value, own: bool) -> Look {
    let name = format!("watch {} of {} at {}", watch.id, names::plain(&watch.event), names::plain(&watch.server));
    if own {
        return Look { tell: true, end: None, why: name };
    }
    let missing = watch.only.iter().find(|condition| !condition.holds(data));
    let until = !watch.until.is_empty() && watch.until.iter().all(|condition| condition.holds(data));
    let tell = missing.is_none();
    let end = if until {
        Some(format!("what it waited for came: {}", all(&watch.until)))
    } else {
        (watch.once && tell).then(|| "it was to be told once, and was".to_owned())
    };
    let why = match missing {
        None => name,
        Some(condition) => format!("{name} tells only where {} holds", names::plain(&condition.to_string())),
    };
    Look { tell, end, why }
}

/// Where an event goes that these watches saw. The same inputs always give the same decision.
pub fn watched(event: &Event, data: &Value, own: bool, watches: &[Watch], sessions: &dyn Sessions) -> Decision {
    let mut steps = vec![format!("the event came by {}", count(watches.len()))];
    let mut assignments: Vec<Assignment> = Vec::new();
    let mut told = HashSet::new();
    let mut reasons = Vec::new();
    let mut work_items = Vec::new();
    for watch in watches {
        if !work_items.contains(&watch.work_item) {
            work_items.push(watch.work_item.clone());
        }
        let look = look(watch, data, own);
        steps.push(look.why.clone());
        let session = sessions.find(&watch.session()).filter(crate::domain::Session::is_open);
        match session {
            None => reasons.push(format!("no open session for {}", names::item(&watch.work_item))),
            Some(_) if !look.tell => reasons.push(look.why.clone()),
            Some(session) => {
                // A conversation that is registered twice, or that two watches serve, is told once.
                if told.insert((session.harness.clone(), session.session_id.clone())) {
                    let session = session.key();
                    assignments.push(Assignment { session, work_item: watch.work_item.clone(), how: look.why.clone() });
                }
            }
        }
        if let Some(end) = &look.end {
            steps.push(format!("watch {} ends: {end}", watch.id));
        }
    }
    let (outcome, reason) = if !assignments.is_empty() {
        let wakes = assignments.iter().map(|a| format!("wakes {}: {}", names::item(&a.work_item), a.how));
        (Outcome::Queued, wakes.collect::<Vec<_>>().join("; "))
    } else if watches.is_empty() {
        let name = names::word(&event.name).unwrap_or("this event");
        (Outcome::Unmatched, format!("no watch is known that saw `{name}`"))
    } else {
        reasons.dedup();
        (Outcome::Filtered, reasons.join("; "))
    };
    steps.push(format!("{outcome}: {reason}"));
    Decision { outcome, reason, work_items, assignments, closes: Vec::new(), steps }
}

fn count(watches: usize) -> String {
    if watches == 1 { "one watch".into() } else { format!("{watches} watches") }
}

fn all(conditions: &[Condition]) -> String {
    let each = conditions.iter().map(|condition| names::plain(&condition.to_string()));
    each.collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::{WatchId, WatchState, WorkItem};

    fn watch(only: &[&str], until: &[&str], once: bool) -> Watch {
        let conditions = |texts: &[&str]| texts.iter().map(|text| Condition::parse(text).expect("one")).collect();
        Watch {
            id: WatchId("w_1".into()),
            server: "ci".into(),
            event: "run".into(),
            arguments: Default::default(),
            only: conditions(only),
            until: conditions(until),
            once,
            work_item: WorkItem::Local("x".into()),
            delivery: None,
            state: WatchState::Active,
            reason: None,
            cursor: None,
            created_at: jiff::Timestamp::UNIX_EPOCH,
            checked_at: None,
            last_event_at: None,
            problem: None,
        }
    }

    /// `where`, `until`, `once`, the event's `c`; whether it is told, and whether it ends the watch.
    type Case = (&'static [&'static str], &'static [&'static str], bool, &'static str, (bool, bool));

    #[test]
    fn where_hides_until_ends_and_once_ends_with_what_is_told() {
        let table: &[Case] = &[
            (&[], &[], false, "failure", (true, false)),
            (&["c=failure"], &[], false, "failure", (true, false)),
            (&["c=failure"], &[], false, "cancelled", (false, false)),
            (&["c=failure"], &["c=success"], false, "success", (false, true)),
            (&[], &["c=success"], false, "success", (true, true)),
            (&[], &["c=success"], false, "failure", (true, false)),
            (&["c=failure"], &[], true, "cancelled", (false, false)),
            (&["c=failure"], &[], true, "failure", (true, true)),
            (&["c=failure", "d=1"], &[], false, "failure", (true, false)),
            (&["c=failure", "d=2"], &[], false, "failure", (false, false)),
            (&[], &["c=success", "d=2"], false, "success", (true, false)),
        ];
        for (only, until, once, c, wanted) in table {
            let look = look(&watch(only, until, *once), &json!({"c": c, "d": 1}), false);
            assert_eq!((look.tell, look.end.is_some()), *wanted, "{only:?} {until:?} {once} {c}");
        }
        let own = look(&watch(&["c=failure"], &[], true), &json!({}), true);
        assert!(own.tell && own.end.is_none(), "what we say of a watch is told, and does not end it");
    }
}
