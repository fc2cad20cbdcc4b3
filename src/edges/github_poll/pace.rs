//! What an answer means for when to ask again. Pure.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::clients::ApiAnswer;

/// What GitHub asks of those who are told to wait without being told how long
/// (<https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api>).
const UNTOLD: Duration = Duration::from_secs(60);
/// No wait that GitHub names is longer than its hour; a clock that is off must not make it one.
const LONGEST: Duration = Duration::from_secs(2 * 3600);
/// How long a repository that cannot be seen is left alone.
pub(super) const PARKED: Duration = Duration::from_secs(600);
/// Failures are never further apart.
const MAX_BACKOFF: Duration = Duration::from_secs(900);

/// What an answer is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Something new.
    Fresh,
    /// What we know already.
    Same,
    /// It is not there, or not shown to us.
    Missing,
    /// The token is not taken.
    BadToken,
    /// Not for this token.
    Forbidden,
    /// Nothing more from this host until then.
    Limited(Timestamp),
    /// GitHub is in trouble.
    Broken,
}

/// Judges an answer that came at `now`.
pub(super) fn judge(answer: &ApiAnswer, now: Timestamp) -> Verdict {
    match answer.status {
        200..=299 => Verdict::Fresh,
        304 => Verdict::Same,
        401 => Verdict::BadToken,
        // 409 is the answer of an empty repository, 422 that for a commit that is not there.
        404 | 409 | 410 | 422 | 451 => Verdict::Missing,
        403 | 429 => limit(answer, now).map_or(Verdict::Forbidden, Verdict::Limited),
        _ => Verdict::Broken,
    }
}

/// Until when a refusal asks us to wait, if it is about our rate.
fn limit(answer: &ApiAnswer, now: Timestamp) -> Option<Timestamp> {
    let later = |wait: Duration| now.checked_add(wait.min(LONGEST)).unwrap_or(now);
    if let Some(wait) = answer.retry_after {
        return Some(later(wait.max(Duration::from_secs(1))));
    }
    if answer.remaining == Some(0) && answer.reset.is_some() {
        return Some(later(until_reset(answer, now).unwrap_or(UNTOLD)));
    }
    let says = answer.body.get("message").and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
    (answer.status == 429 || says.contains("rate limit")).then(|| later(UNTOLD))
}

/// How long until there are more requests, by GitHub's clock where it is known; a second more, for rounding.
fn until_reset(answer: &ApiAnswer, now: Timestamp) -> Option<Duration> {
    let left = answer.reset?.duration_since(answer.date.unwrap_or(now));
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO) + Duration::from_secs(1))
}

/// How far apart looks must be so that what is left of the rate lasts until it is renewed. A half of it is left to
/// others who use the same token. `cost` is how many requests a look takes.
pub(super) fn stretch(answer: &ApiAnswer, cost: u64, now: Timestamp) -> Option<Duration> {
    let looks = answer.remaining? / 2 / cost.max(1);
    let left = until_reset(answer, now)?.min(LONGEST);
    Some(left / u32::try_from(looks.max(1)).unwrap_or(u32::MAX))
}

/// The wait after a failure: it doubles with each. `jitter` is between 0 and 1 and adds up to a quarter.
pub(super) fn backoff(interval: Duration, failures: u32, jitter: f64) -> Duration {
    let doubled = interval.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(MAX_BACKOFF);
    doubled.mul_f64(1.0 + 0.25 * jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn now() -> Timestamp {
        Timestamp::from_second(1000).expect("time")
    }

    fn refusal(status: u16) -> ApiAnswer {
        ApiAnswer { status, ..ApiAnswer::default() }
    }

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    #[test]
    fn every_refusal_has_its_meaning() {
        let until = |answer: &ApiAnswer| match judge(answer, now()) {
            Verdict::Limited(at) => Some(at.as_second()),
            _ => None,
        };
        assert_eq!(judge(&refusal(403), now()), Verdict::Forbidden);
        assert_eq!(judge(&refusal(401), now()), Verdict::BadToken);
        assert_eq!(judge(&refusal(422), now()), Verdict::Missing);
        assert_eq!(judge(&refusal(502), now()), Verdict::Broken);
        assert_eq!(until(&refusal(429)), Some(1060));
        let named = ApiAnswer { retry_after: Some(Duration::from_secs(4)), ..refusal(403) };
        assert_eq!(until(&named), Some(1004));
        let used_up = ApiAnswer { remaining: Some(0), reset: at(1100), ..refusal(403) };
        assert_eq!(until(&used_up), Some(1101));
        // GitHub's clock is 50 s behind ours.
        let skewed = ApiAnswer { date: at(950), ..used_up };
        assert_eq!(until(&skewed), Some(1151));
        let secondary =
            ApiAnswer { body: json!({"message": "You have exceeded a secondary rate limit"}), ..refusal(403) };
        assert_eq!(until(&secondary), Some(1060));
        let absurd = ApiAnswer { retry_after: Some(Duration::MAX), ..refusal(429) };
        assert_eq!(until(&absurd), Some(1000 + 7200));
    }

    #[test]
    fn what_is_left_of_the_rate_lasts() {
        let answer = ApiAnswer { remaining: Some(20), reset: at(1999), ..refusal(200) };
        // Ten requests are ours: two looks of five in a thousand seconds.
        assert_eq!(stretch(&answer, 5, now()), Some(Duration::from_secs(500)));
        let plenty = ApiAnswer { remaining: Some(5000), ..answer };
        assert!(stretch(&plenty, 5, now()).is_some_and(|wait| wait < Duration::from_secs(3)));
        assert_eq!(stretch(&refusal(200), 5, now()), None);
    }

    #[test]
    fn failures_back_off_to_a_cap() {
        let second = Duration::from_secs(1);
        let waits: Vec<_> = (1..13).map(|n| backoff(second, n, 0.0).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
        assert_eq!(backoff(second, 1, 1.0), Duration::from_millis(1250));
    }
}
