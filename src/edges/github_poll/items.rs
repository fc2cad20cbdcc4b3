//! An issue or a pull request as it was and as it is, to deliveries. Pure.

use serde_json::Value;

use super::seen::Item;
use crate::payload::OBSERVED;

/// What became of an issue or a pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A pull request was seen for the first time, or its text is another.
    Observed,
    /// Its head is another; this was the one before.
    Pushed(String),
    /// It was closed.
    Closed,
    /// It was opened again.
    Reopened,
}

impl Change {
    /// The webhook's word for it.
    pub(super) fn action(&self) -> &'static str {
        match self {
            Self::Observed => OBSERVED,
            Self::Pushed(_) => "synchronize",
            Self::Closed => "closed",
            Self::Reopened => "reopened",
        }
    }
}

/// What changed, in the order in which it is told. The first sight of an issue tells nothing.
pub(super) fn changes(before: Option<&Item>, now: &Item) -> Vec<Change> {
    let mut changes = Vec::new();
    let Some(before) = before.filter(|before| before.is_pull == now.is_pull) else {
        if now.is_pull {
            changes.push(Change::Observed);
        }
        return changes;
    };
    if now.is_pull {
        let head = |item: &Item| item.text("/head/sha").map(str::to_owned);
        if let (Some(old), Some(new)) = (head(before), head(now))
            && old != new
        {
            changes.push(Change::Pushed(old));
        }
        if before.shown.get("body") != now.shown.get("body") && changes.is_empty() {
            changes.push(Change::Observed);
        }
    }
    match (before.is_closed(), now.is_closed()) {
        (false, true) => changes.push(Change::Closed),
        (true, false) => changes.push(Change::Reopened),
        _ => {}
    }
    changes
}

/// What tells two versions of an open pull request in a list apart, as far as links go.
pub(super) fn version(pull: &Value) -> String {
    let part = |path: &str| pull.pointer(path).and_then(Value::as_str).unwrap_or_default();
    format!("{} {}", part("/head/sha"), part("/updated_at"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn item(is_pull: bool, state: &str, sha: &str, body: &str) -> Item {
        let shown = json!({"state": state, "head": {"sha": sha}, "body": body});
        Item { is_pull, shown, reviews: None, is_new: false, is_listed: false }
    }

    #[test]
    fn every_change_is_told_and_first_sight_only_teaches() {
        let open = item(true, "open", "a", "x");
        assert_eq!(changes(None, &open), [Change::Observed]);
        assert_eq!(changes(None, &item(false, "closed", "", "")), []);
        assert_eq!(changes(Some(&open), &open), []);
        let pushed = item(true, "closed", "b", "y");
        assert_eq!(changes(Some(&open), &pushed), [Change::Pushed("a".into()), Change::Closed]);
        assert_eq!(changes(Some(&open), &item(true, "open", "a", "y")), [Change::Observed]);
        assert_eq!(changes(Some(&pushed), &item(true, "open", "b", "y")), [Change::Reopened]);
    }
}
