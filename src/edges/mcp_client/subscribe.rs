//! Webhook subscriptions: made, refreshed well before they lapse, with a secret that is renewed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::crash_point;
use crate::domain::Watch;
use crate::engine::{Hook, Told};
use crate::signing;

use super::answers::{CallError, Refusal, Subscribed, read};
use super::follow::{Follower, Stop};
use super::question;

/// A secret is renewed after this long.
const SECRET_LASTS: SignedDuration = SignedDuration::from_hours(7 * 24);
/// What was signed with the old one is taken for this long.
const OLD_LASTS: SignedDuration = SignedDuration::from_hours(1);
/// A subscription is refreshed at least this often, even one that never lapses: the server may have forgotten it.
const REFRESHED: Duration = Duration::from_secs(12 * 3600);
const AT_LEAST: Duration = Duration::from_secs(1);

/// Keeps a watch's subscription alive until something stops it.
pub(super) async fn follow(follower: &Follower, watch: Watch) -> Stop {
    match keep(follower, &watch).await {
        Ok(never) => match never {},
        Err(stop) => stop,
    }
}

async fn keep(follower: &Follower, watch: &Watch) -> Result<std::convert::Infallible, Stop> {
    let Some(callback) = &follower.server.callback else {
        return Err(Stop::Unsupported("no [mcp.callback] url says how the server reaches us".into()));
    };
    let url = format!("{callback}?watch={}", watch.id);
    loop {
        let now = Timestamp::now();
        let Some(watch) = follower.watches.get(&watch.id).await?.filter(Watch::is_active) else {
            return Err(Stop::Done);
        };
        let mut hook = follower.watches.hook(&watch.id).await?.unwrap_or_default();
        renew(&mut hook, now);
        let secret = hook.secret.clone().unwrap_or_default();
        // On disk before the server learns it: what it posts at once must be verified.
        follower.watches.keep_hook(&watch.id, hook.clone()).await?;
        crash_point::reached("after-secret-commit");
        let max_age = Some(follower.server.max_age_ms());
        let mut params = question(&watch.event, &watch.arguments, watch.cursor.as_deref(), max_age);
        if let Some(params) = params.as_object_mut() {
            params.insert("delivery".into(), json!({"mode": "webhook", "url": url, "secret": secret}));
        }
        let answer = {
            let _making = follower.making.begin(&watch.id);
            let answer = follower.link.ask("events/subscribe", params).await;
            match answer.and_then(read::<Subscribed>) {
                Ok(answer) => {
                    crash_point::reached("after-subscribe-answer");
                    hook.url = Some(url.clone());
                    hook.refresh_before = answer.refresh_before;
                    follower.watches.keep_hook(&watch.id, hook).await?;
                    answer
                }
                Err(CallError::Refused { refusal: Refusal::Callback, message }) if follower.server.modes.len() > 1 => {
                    return Err(Stop::Unsupported(format!("the server could not reach our callback: {message}")));
                }
                Err(error) => return Err(error.into()),
            }
        };
        // Where nothing was skipped, the cursor is where we are; a later one must not hide what is still on its way.
        let cursor = if watch.cursor.is_none() { answer.cursor } else { None };
        let told = Told { occurrences: Vec::new(), cursor, truncated: answer.truncated, max_age: None };
        follower.take(&watch.id, told).await?;
        let lasts = answer.refresh_before.map(|until| until.duration_since(Timestamp::now()));
        let lasts = lasts
            .and_then(|lasts| Duration::try_from(lasts).ok())
            .unwrap_or(if answer.refresh_before.is_some() { AT_LEAST } else { REFRESHED });
        tokio::time::sleep((lasts / 2).clamp(AT_LEAST, REFRESHED)).await;
    }
}

/// Gives the subscription a secret, or a new one in place of one that is old.
fn renew(hook: &mut Hook, now: Timestamp) {
    let is_old = hook.secret_since.is_some_and(|since| now.duration_since(since) > SECRET_LASTS);
    if hook.secret.is_some() && !is_old {
        return;
    }
    // Two times 122 random bits; the rest of the bytes is fixed.
    let mut key = [0; 32];
    let (first, second) = key.split_at_mut(16);
    first.copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    second.copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    let fresh = signing::StandardSecret::of(key);
    hook.old_secret = hook.secret.take().zip(now.checked_add(OLD_LASTS).ok());
    hook.secret = Some(fresh.expose().to_owned());
    hook.secret_since = Some(now);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_kept_until_it_is_old_and_its_predecessor_a_while_longer() {
        let start = Timestamp::from_second(1_800_000_000).expect("a time");
        let later = |hours: i64| start.checked_add(SignedDuration::from_hours(hours)).expect("a time");
        let mut hook = Hook::default();
        renew(&mut hook, start);
        let first = hook.secret.clone().expect("one");
        assert!(signing::StandardSecret::parse(&first).is_ok() && hook.old_secret.is_none());
        renew(&mut hook, later(24));
        assert_eq!(hook.secret.as_ref(), Some(&first));
        renew(&mut hook, later(200));
        assert_ne!(hook.secret.as_ref(), Some(&first));
        assert_eq!(hook.old_secret, Some((first, later(201))));
    }
}
