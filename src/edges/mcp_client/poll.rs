//! Polling: asked again after the time that the server names, at once where it has more.

use std::time::Duration;

use crate::domain::Watch;
use crate::engine::Told;
use crate::payload;

use super::Reach;
use super::answers::CallError;
use super::follow::{Follower, Stop};
use super::question;
use super::reading::Page;

/// The interval where the server names none.
const USUAL: Duration = Duration::from_secs(15);
/// A server that asks to be left alone for longer is asked all the same.
const LONGEST: Duration = Duration::from_secs(3600);
/// How many events one answer may bring.
const MOST: u64 = 50;
/// A page that takes this much memory is large enough: no more events are asked for at once.
const LARGE: usize = 8 << 20;

/// Polls for a watch until something stops it.
pub(super) async fn follow(follower: &Follower, watch: Watch) -> Stop {
    match ask(follower, watch).await {
        Ok(never) => match never {},
        Err(stop) => stop,
    }
}

async fn ask(follower: &Follower, watch: Watch) -> Result<std::convert::Infallible, Stop> {
    let mut cursor = watch.cursor.clone();
    let mut is_first = true;
    let mut most = MOST;
    loop {
        let page = match page(follower, &watch, cursor.as_deref(), most).await {
            Err(error) if most > 1 && may_be_its_size(follower, &error) => {
                tracing::warn!(watch = %watch.id, %error, "asking for one event at a time");
                most = 1;
                continue;
            }
            other => other?,
        };
        let size: usize = page.events.iter().map(payload::weight).sum();
        most = next_most(most, page.events.len(), size);
        let moved = page.cursor.is_some() && page.cursor != cursor;
        let has_news = !page.events.is_empty() || page.truncated;
        let mut new = 0;
        if has_news || is_first {
            let told = Told {
                occurrences: page.events,
                cursor: page.cursor.clone(),
                truncated: page.truncated,
                max_age: None,
            };
            new = follower.take(&watch.id, told).await?;
            is_first = false;
        } else {
            follower.watches.nothing_new(&watch.id, page.cursor.clone());
        }
        cursor = page.cursor.or(cursor);
        // A server that has more but tells nothing new, or does not move on, would be asked without a pause.
        if page.has_more && moved && new > 0 {
            continue;
        }
        let named = page.next_poll_ms.map_or(USUAL, Duration::from_millis);
        let wait = if page.has_more { Duration::ZERO } else { named };
        tokio::time::sleep(wait.clamp(follower.server.min_poll_interval, LONGEST)).await;
    }
}

/// How many events are asked for next, after a page of so many that take so much memory: fewer while pages are large,
/// more while they are well below that.
fn next_most(most: u64, count: usize, size: usize) -> u64 {
    if size > LARGE {
        // What fits, if the next are like these; a server may send more than it was asked for.
        let fits = count.saturating_mul(LARGE) / size;
        u64::try_from(fits).unwrap_or(MOST).clamp(1, most)
    } else if size < LARGE / 2 {
        (most * 2).min(MOST)
    } else {
        most
    }
}

async fn page(follower: &Follower, watch: &Watch, cursor: Option<&str>, most: u64) -> Result<Page, CallError> {
    let mut params = question(&watch.event, &watch.arguments, cursor, Some(follower.server.max_age_ms()));
    if let Some(params) = params.as_object_mut() {
        params.insert("maxEvents".into(), most.into());
    }
    let answer = follower.link.ask("events/poll", params).await?;
    Page::read(answer).map_err(CallError::Odd)
}

/// Whether a page may be missing because it is too large. What comes on a pipe and is too large is passed over, so
/// that there is silence.
fn may_be_its_size(follower: &Follower, error: &CallError) -> bool {
    match error {
        CallError::TooLarge(_) => true,
        CallError::Silent(_) => matches!(follower.server.reach, Reach::Program { .. }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_events_are_asked_for_while_pages_are_large() {
        assert_eq!(next_most(50, 50, 15 << 20), 26);
        // What fits stays as it is, so that it does not go up and down.
        assert_eq!(next_most(26, 26, 8_000_000), 26);
        assert_eq!(next_most(1, 1, 60 << 20), 1);
        assert_eq!(next_most(10, 50, 60 << 20), 6);
        assert_eq!((next_most(1, 1, 10), next_most(26, 26, 10), next_most(50, 0, 0)), (2, 50, 50));
    }
}
