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
        if size < LARGE {
            most = (most * 2).min(MOST);
        }
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
