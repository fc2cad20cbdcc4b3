//! Floor 2: when to try again, from policy, attempt and time. Pure; jitter is passed in.

use std::time::Duration;

use jiff::Timestamp;

use crate::domain::{Failure, FailureKind};

/// How often and how fast to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The last attempt that is made; the first is 1.
    pub max_attempts: u32,
    /// The wait after the first failure; it doubles with each.
    pub backoff: Duration,
    /// No wait is longer, unless the harness names a time.
    pub max_backoff: Duration,
}

/// What to do after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Try again then.
    Again {
        /// Not before this.
        at: Timestamp,
        /// Whether the failed attempt counts towards the last.
        counts: bool,
    },
    /// A person must mend it first.
    Hold,
    /// That was the last attempt.
    GiveUp,
}

/// No harness's word keeps a session waiting for longer than this.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// What to do after `failure` of attempt number `attempt`, counted from 1. `jitter` is between 0 and 1.
pub fn next(policy: &Policy, attempt: u32, failure: &Failure, now: Timestamp, jitter: f64) -> Next {
    if failure.kind.needs_a_person() {
        return Next::Hold;
    }
    let counts = !matches!(failure.kind, FailureKind::Busy | FailureKind::NotBegun);
    if failure.kind == FailureKind::Cancelled || (counts && attempt >= policy.max_attempts) {
        return Next::GiveUp;
    }
    let planned = backoff(policy, attempt, jitter);
    let asked = failure
        .not_before
        .map_or(Duration::ZERO, |at| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO).min(LONGEST));
    Next::Again { at: later(now, planned.max(asked)), counts }
}

/// Doubles from the first backoff up to the cap; jitter takes off up to a quarter, so that sessions spread out.
pub fn backoff(policy: &Policy, attempt: u32, jitter: f64) -> Duration {
    let doubled = policy.backoff.saturating_mul(1 << attempt.saturating_sub(1).min(20)).min(policy.max_backoff);
    doubled.mul_f64(1.0 - 0.25 * jitter.clamp(0.0, 1.0))
}

fn later(now: Timestamp, wait: Duration) -> Timestamp {
    now.checked_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy =
        Policy { max_attempts: 5, backoff: Duration::from_secs(5), max_backoff: Duration::from_secs(900) };

    fn failure(kind: FailureKind) -> Failure {
        Failure { kind, message: "x".into(), not_before: None }
    }

    fn wait(next: Next) -> i64 {
        match next {
            Next::Again { at, .. } => at.as_second(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn waits_double_up_to_the_cap_and_end() {
        let now = Timestamp::UNIX_EPOCH;
        let long = Policy { max_attempts: 100, ..POLICY };
        let waits: Vec<_> =
            (1..12).map(|n| wait(next(&long, n, &failure(FailureKind::Overloaded), now, 0.0))).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 640, 900, 900, 900]);
        assert_eq!(next(&POLICY, 5, &failure(FailureKind::Overloaded), now, 0.0), Next::GiveUp);
    }

    #[test]
    fn every_schedule_of_counted_failures_ends() {
        for kind in [FailureKind::Overloaded, FailureKind::Crashed, FailureKind::Hung, FailureKind::Interrupted] {
            let mut attempt = 1;
            while let Next::Again { counts: true, .. } =
                next(&POLICY, attempt, &failure(kind), Timestamp::UNIX_EPOCH, 0.5)
            {
                attempt += 1;
                assert!(attempt <= POLICY.max_attempts, "{kind:?} goes on");
            }
        }
    }

    #[test]
    fn a_named_time_is_kept_within_a_day() {
        let mut limited = failure(FailureKind::RateLimited);
        limited.not_before = Timestamp::from_second(3600).ok();
        assert_eq!(wait(next(&POLICY, 1, &limited, Timestamp::UNIX_EPOCH, 0.0)), 3600);
        limited.not_before = Some(Timestamp::MAX);
        assert_eq!(wait(next(&POLICY, 1, &limited, Timestamp::UNIX_EPOCH, 0.0)), 24 * 3600);
    }

    #[test]
    fn a_busy_conversation_costs_no_attempt_and_a_person_is_waited_for() {
        let now = Timestamp::UNIX_EPOCH;
        assert!(matches!(next(&POLICY, 9, &failure(FailureKind::Busy), now, 0.0), Next::Again { counts: false, .. }));
        assert!(matches!(
            next(&POLICY, 9, &failure(FailureKind::NotBegun), now, 0.0),
            Next::Again { counts: false, .. }
        ));
        assert_eq!(next(&POLICY, 1, &failure(FailureKind::NotSignedIn), now, 0.0), Next::Hold);
        assert_eq!(next(&POLICY, 1, &failure(FailureKind::Cancelled), now, 0.0), Next::GiveUp);
    }
}
