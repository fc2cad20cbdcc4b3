//! Polling: asked again after the time that the server names, at once where it has more.

use std::time::{Duration, Instant};

use crate::domain::Watch;
use crate::engine::Told;

use super::answers::{Polled, read};
use super::follow::{Follower, Stop};
use super::question;

/// The interval where the server names none.
const USUAL: Duration = Duration::from_secs(15);
/// A server that asks to be left alone for longer is asked all the same.
const LONGEST: Duration = Duration::from_secs(3600);
/// How many events one answer may bring.
const MOST: u64 = 50;
/// Nothing new is noted this often: often enough to say how long a gap was.
const NOTED: Duration = Duration::from_secs(60);

/// Polls for a watch until something stops it.
pub(super) async fn follow(follower: &Follower, watch: Watch) -> Stop {
    match ask(follower, watch).await {
        Ok(never) => match never {},
        Err(stop) => stop,
    }
}

async fn ask(follower: &Follower, watch: Watch) -> Result<std::convert::Infallible, Stop> {
    let mut cursor = watch.cursor.clone();
    let mut noted: Option<Instant> = None;
    loop {
        let mut params =
            question(&watch.event, &watch.arguments, cursor.as_deref(), Some(follower.server.max_age_ms()));
        if let Some(params) = params.as_object_mut() {
            params.insert("maxEvents".into(), MOST.into());
        }
        let polled: Polled = read(follower.link.ask("events/poll", params).await?)?;
        let moved = polled.cursor.is_some() && polled.cursor != cursor;
        let has_news = !polled.events.is_empty() || polled.truncated;
        if has_news || moved || noted.is_none_or(|at| at.elapsed() > NOTED) {
            let told = Told {
                occurrences: polled.events,
                cursor: polled.cursor.clone(),
                truncated: polled.truncated,
                max_age: None,
            };
            follower.take(&watch.id, told).await?;
            noted = Some(Instant::now());
        }
        cursor = polled.cursor.or(cursor);
        // A server that has more but does not move on would be asked without a pause.
        if polled.has_more && moved {
            continue;
        }
        let wait = polled.next_poll_ms.map_or(USUAL, Duration::from_millis);
        tokio::time::sleep(wait.clamp(follower.server.min_poll_interval, LONGEST)).await;
    }
}
