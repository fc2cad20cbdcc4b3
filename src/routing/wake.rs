//! Which events are worth waking an agent for.

use super::Settings;
use crate::domain::{Event, Nature};

/// The states of a commit status that are a result.
const RESULTS: [&str; 3] = ["failure", "error", "success"];

/// The action of what polling merely saw; GitHub itself has no action of this name.
const OBSERVED: &str = "observed";

/// Why `wake_on` lets an event pass by, if it does. A watch's events were asked for one by one.
pub(super) fn refusal(event: &Event, settings: &Settings) -> Option<String> {
    if event.nature == Nature::Watched {
        return None;
    }
    if event.action.as_deref() == Some(OBSERVED) {
        return Some("it was only seen, nothing happened".into());
    }
    if event.name == "status" {
        // A status has a state where other events have an action.
        let state = event.text("status.state").unwrap_or_default();
        let named = settings.wake_on.iter().any(|wanted| wanted.strip_prefix("status.") == Some(state));
        if !named && !settings.wakes("status", None) {
            return Some("`status` is not in wake_on".into());
        }
        let is_result = RESULTS.contains(&state);
        return (!named && !is_result).then(|| "this commit status is not a result yet".to_string());
    }
    if !settings.wakes(&event.name, event.action.as_deref()) {
        return Some(format!("`{}` is not in wake_on", event.title()));
    }
    let of_actions = event.name == "check_suite" && event.text("check_suite.app") == Some("github-actions");
    (of_actions && settings.wakes("workflow_run", event.action.as_deref()))
        .then(|| "a check suite of GitHub Actions: its workflow_run tells the same".to_string())
}
