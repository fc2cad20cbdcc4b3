//! An event of GitHub's to an occurrence: the payload, field by field.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::event_type::From;
use super::{gap, github};
use crate::domain::{Event, Nature, Occurrence};

/// How many bytes of a text stand in a payload; the whole is for those who ask for the record.
const EXCERPT: usize = 4096;

/// What watchers are told of a delivery. `None` for what nobody can watch.
pub fn occurrence(event: &Event, delivery: &str, received_at: Timestamp) -> Option<Occurrence> {
    if let Some(gap) = gap::occurrence(event, delivery, received_at) {
        return Some(gap);
    }
    // GitHub has no action `observed`: polling only saw it.
    if matches!(event.nature, Nature::Watched | Nature::Unmapped) || event.action.as_deref() == Some("observed") {
        return None;
    }
    let found = github::TYPES.iter().find(|known| known.name.strip_prefix("github.") == Some(event.name.as_str()))?;
    let mut data = Map::new();
    for field in found.all_fields() {
        match field.from {
            From::Excerpt(fact) => {
                if let Some(text) = event.text(fact) {
                    let (cut, all) = excerpt(text);
                    data.insert(field.name.into(), cut.into());
                    if !all {
                        data.insert(format!("{}_truncated", field.name), true.into());
                    }
                }
            }
            from => {
                if let Some(value) = value(event, from) {
                    data.insert(field.name.into(), value);
                }
            }
        }
    }
    Some(Occurrence {
        event_id: delivery.into(),
        name: found.name.into(),
        at: event.happened_at.unwrap_or(received_at),
        repository: event.repository.as_ref().map(|repository| repository.name.key()),
        actor: event.sender.as_ref().map(|sender| sender.login.clone()),
        fingerprint: event.fingerprint.clone(),
        data,
    })
}

fn value(event: &Event, from: From) -> Option<Value> {
    let repository = event.repository.as_ref().map(|repository| &repository.name);
    let text = |text: &str| Some(Value::from(text));
    match from {
        From::Fact(names) => names.iter().find_map(|name| event.fact(name)).cloned(),
        From::Branch(name) => text(event.text(name)?.strip_prefix("refs/heads/")?),
        From::Label(name) => {
            let label = event.text(name)?;
            text(label.split_once(':').map_or(label, |(_, branch)| branch))
        }
        From::CommitPage(name) => {
            let (repository, sha) = (repository?, event.text(name)?);
            Some(format!("https://{}/{}/commit/{sha}", repository.host(), repository.full_name()).into())
        }
        From::RepositoryPage => {
            repository.map(|repository| format!("https://{}/{}", repository.host(), repository.full_name()).into())
        }
        From::Repository => repository.map(|repository| repository.to_string().into()),
        From::Action => event.action.as_deref().map(Value::from),
        From::Actor => event.sender.as_ref().map(|sender| Value::from(sender.login.as_str())),
        From::Excerpt(_) | From::Own => None,
    }
}

/// The beginning of a text, and whether that is all of it.
fn excerpt(text: &str) -> (&str, bool) {
    let end = text.floor_char_boundary(EXCERPT);
    (text.get(..end).unwrap_or_default(), end >= text.len())
}
