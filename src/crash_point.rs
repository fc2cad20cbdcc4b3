//! Floor 0: named places of the walk at which a test makes the server die as a power cut does.
//!
//! Only a debug build has them; in a release build, [`reached`] is nothing.

/// Ends this process without a word if `THE_LOOP_CRASH_AT` is `name`, or `name:N` and this is the Nth time since the
/// server was [`ready`].
#[cfg(debug_assertions)]
pub fn reached(name: &str) {
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    static TIMES: AtomicU32 = AtomicU32::new(0);
    let Ok(wanted) = std::env::var("THE_LOOP_CRASH_AT") else { return };
    let now = match wanted.split_once(':') {
        Some((wanted, nth)) => {
            wanted == name
                && READY.load(Ordering::SeqCst)
                && TIMES.fetch_add(1, Ordering::SeqCst) + 1 == nth.parse().unwrap_or(1)
        }
        None => wanted == name,
    };
    if now {
        // Nobody can refuse this signal, so there is nothing to be done about an error.
        let _ = kill_process(getpid(), Signal::KILL);
    }
}

#[cfg(debug_assertions)]
static READY: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// The server has started; from now on its steps are counted. What it writes while it starts depends on its
/// configuration.
#[cfg(debug_assertions)]
pub fn ready() {
    READY.store(true, std::sync::atomic::Ordering::SeqCst);
}

/// Nothing: a release build has no crash points.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn ready() {}

/// Nothing: a release build has no crash points.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn reached(_name: &str) {}
