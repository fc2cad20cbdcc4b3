//! A gap in the feed: where polling GitHub may have missed something. It stands among the occurrences, in its place,
//! and is told to those whom it may concern as the protocol tells of a gap: never as an event.

use jiff::Timestamp;
use serde_json::Map;

use super::event_type::{EventType, How};
use crate::domain::{Arguments, Event, GITHUB_GAP, Occurrence};

/// The name under which gaps stand in the feed.
pub const GAP: &str = "github.gap";
/// What polling says that it may have missed, and of which events that is.
const MISSED: &[(&str, &[&str])] = &[
    ("workflow runs", &["github.workflow_run"]),
    ("commit statuses", &["github.status"]),
    ("comments", &["github.issue_comment", "github.pull_request_review_comment"]),
    ("issues", &["github.issues", "github.pull_request", "github.pull_request_review"]),
];

/// The gap that an event tells of, if it does.
pub(super) fn occurrence(event: &Event, delivery: &str, received_at: Timestamp) -> Option<Occurrence> {
    if event.name != GITHUB_GAP {
        return None;
    }
    let mut data = Map::new();
    if let Some(repository) = &event.repository {
        data.insert("repository".into(), repository.name.to_string().into());
    }
    if let Some(what) = event.text("gap.what") {
        data.insert("what".into(), what.into());
    }
    Some(Occurrence {
        event_id: delivery.into(),
        name: GAP.into(),
        at: event.happened_at.unwrap_or(received_at),
        repository: event.repository.as_ref().map(|repository| repository.name.key()),
        actor: None,
        fingerprint: event.fingerprint.clone(),
        data,
    })
}

impl EventType {
    /// Whether what is lost in a gap may have been an event of this type that fits the arguments.
    pub fn may_be_lost_in(&self, arguments: &Arguments, gap: &Occurrence) -> bool {
        let text = |name: &str| gap.data.get(name).and_then(|value| value.as_str());
        let missed = MISSED.iter().find(|(what, _)| text("what") == Some(*what));
        let of_this_type = missed.is_some_and(|(_, names)| names.contains(&self.name));
        // Of the other filters a gap says nothing.
        let elsewhere = arguments.iter().any(|(name, wanted)| {
            let filter = self.filters.iter().find(|filter| filter.name == name && filter.how == How::SameWord);
            filter.is_some_and(|filter| filter.on == "repository" && !filter.fits(wanted, gap.data.get("repository")))
        });
        gap.name == GAP && of_this_type && !elsewhere
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::catalogue::event_type;

    #[test]
    fn a_gap_concerns_those_who_may_have_missed_something() {
        let data = json!({"repository": "octo-org/demo", "what": "workflow runs"});
        let gap = Occurrence {
            event_id: "poll:1:gap".into(),
            name: GAP.into(),
            at: Timestamp::UNIX_EPOCH,
            repository: Some("github.com/octo-org/demo".into()),
            actor: None,
            fingerprint: "gap".into(),
            data: data.as_object().cloned().expect("an object"),
        };
        let concerns = |name: &str, arguments: &[(&str, &str)]| {
            let arguments = arguments.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
            event_type(name).expect("a type").may_be_lost_in(&arguments, &gap)
        };
        assert!(concerns("github.workflow_run", &[]));
        assert!(concerns("github.workflow_run", &[("repository", "Octo-Org/Demo"), ("branch", "main")]));
        assert!(!concerns("github.workflow_run", &[("repository", "octo-org/other")]));
        assert!(!concerns("github.issues", &[]) && !concerns("session.turn_finished", &[]));
        assert!(event_type(GAP).is_none(), "nobody subscribes to it");
    }
}
