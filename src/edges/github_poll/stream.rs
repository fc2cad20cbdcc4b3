//! Pages of comments, in the order of their last change, to what is new. Pure.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::seen::Stream;
use crate::payload::CommentAction;

/// How many comments a page holds.
pub(super) const PAGE: usize = 100;
/// From so many on, the next look begins later, so that pages stay small.
const LARGE: usize = 50;
/// A change may show this much later than its own time says.
const LAG: SignedDuration = SignedDuration::from_secs(120);

/// What became of one comment.
pub(super) struct Changed<'a> {
    pub(super) action: CommentAction,
    pub(super) comment: &'a Value,
}

/// The path of a page, without its number: it stays the same as long as little happens, and so does its version.
pub(super) fn path(collection: &str, stream: &Stream) -> String {
    let since = stream.floor.strftime("%Y-%m-%dT%H:%M:%SZ");
    format!("{collection}?sort=updated&direction=asc&since={since}&per_page={PAGE}")
}

/// Takes a page in. On the `first` look, what is as old as the look is the baseline.
pub(super) fn take<'a>(comments: &'a [Value], stream: &mut Stream, first: bool) -> Vec<Changed<'a>> {
    let mut changes = Vec::new();
    for comment in comments {
        let time = |name: &str| comment.get(name).and_then(Value::as_str)?.parse::<Timestamp>().ok();
        let Some(id) = comment.get("id").and_then(Value::as_u64) else { continue };
        let Some(updated) = time("updated_at").or(time("created_at")) else { continue };
        let created = time("created_at").unwrap_or(updated);
        let known = stream.done.insert(id, updated);
        let action = match known {
            Some(known) if known == updated => continue,
            Some(_) => CommentAction::Edited,
            None if first && updated <= stream.floor => continue,
            None if created >= stream.floor => CommentAction::Created,
            None if updated >= stream.floor => CommentAction::Edited,
            None => continue,
        };
        changes.push(Changed { action, comment });
    }
    changes
}

/// Moves the beginning of the next look after `count` comments were taken in; `all` says that no page is left.
pub(super) fn advance(stream: &mut Stream, count: usize, all: bool) {
    let Some(newest) = stream.done.values().max().copied() else { return };
    let floor = match (count >= LARGE, all) {
        (false, _) => return,
        (true, true) => newest.checked_sub(LAG).unwrap_or(newest),
        // More waits than one look takes: it goes on exactly where this one ends.
        (true, false) => newest,
    };
    if floor > stream.floor {
        stream.floor = floor;
        stream.done.retain(|_, updated| *updated >= floor);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("time")
    }

    fn comment(id: u64, created: i64, updated: i64) -> Value {
        json!({"id": id, "created_at": at(created).to_string(), "updated_at": at(updated).to_string()})
    }

    fn stream(floor: i64) -> Stream {
        Stream { floor: at(floor), done: BTreeMap::new() }
    }

    fn taken(comments: &[Value], stream: &mut Stream, first: bool) -> Vec<(u64, CommentAction)> {
        take(comments, stream, first).iter().map(|c| (c.comment["id"].as_u64().expect("id"), c.action)).collect()
    }

    #[test]
    fn each_comment_is_created_once_and_edited_as_often_as_it_is() {
        use CommentAction::{Created, Edited};
        let mut seen = stream(1000);
        assert_eq!(taken(&[comment(1, 900, 1000)], &mut seen, true), [], "the baseline");
        let page = [comment(1, 900, 1000), comment(2, 1000, 1000), comment(3, 1005, 1009), comment(0, 500, 1007)];
        assert_eq!(taken(&page, &mut seen, false), [(2, Created), (3, Created), (0, Edited)]);
        assert_eq!(taken(&page, &mut seen, false), []);
        assert_eq!(taken(&[comment(2, 1000, 1010)], &mut seen, false), [(2, Edited)]);
    }

    #[test]
    fn the_beginning_moves_with_what_was_dealt_with() {
        let mut seen = stream(1000);
        let page: Vec<_> = (0..60).map(|n| comment(n, 1000 + n as i64 * 10, 1000 + n as i64 * 10)).collect();
        assert_eq!(taken(&page, &mut seen, false).len(), 60);
        advance(&mut seen, 60, true);
        assert_eq!(seen.floor, at(1590 - 120));
        assert_eq!(taken(&page[48..], &mut seen, false), [], "what is asked for again is known");
        let mut few = stream(1000);
        assert_eq!(taken(&page[..3], &mut few, false).len(), 3);
        advance(&mut few, 3, true);
        assert_eq!(few.floor, at(1000), "the same question has the same version");
    }
}
