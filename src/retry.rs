//! Floor 2: when to try again, from policy, attempt and time.
