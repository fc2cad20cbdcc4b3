//! Keeps the machine from falling asleep by itself, while there is a reason to.
//!
//! The system's own program holds the lock for us (`docs/decisions/0031-keep-awake.md`). Where there is none, nothing
//! fails: the machine sleeps as it always did.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::config::KeepAwake;
use crate::engine::{Observing, TurnCount};
use crate::store::Store;

/// A shorter reason is none: no machine falls asleep that fast.
const AFTER: Duration = Duration::from_secs(2);
/// How long the machine is kept awake after the last reason, so that turns in a row share one lock.
const LINGER: Duration = Duration::from_secs(5);
/// How often is looked for reasons other than turns.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How long nothing is tried after it failed.
const AFTER_FAILURE: Duration = Duration::from_secs(600);

/// The program and the arguments that keep this machine awake as long as we hold it.
pub(super) fn command(pid: u32) -> (&'static str, Vec<String>) {
    if cfg!(target_os = "macos") {
        ("caffeinate", vec!["-i".into(), "-w".into(), pid.to_string()])
    } else {
        let words = ["--what=idle:sleep", "--mode=block", "--who=the-loop", "--why=An agent is at work", "cat"];
        ("systemd-inhibit", words.map(String::from).to_vec())
    }
}

/// Whether this machine can be kept awake; otherwise why not.
pub fn can_keep_awake(path: Option<&std::ffi::OsStr>) -> Result<(), String> {
    let (program, _) = command(0);
    let found = path.into_iter().flat_map(std::env::split_paths).any(|dir| dir.join(program).is_file());
    if !found {
        return Err(format!("there is no {program} on the PATH"));
    }
    if cfg!(target_os = "linux") && !std::path::Path::new("/run/systemd/system").exists() {
        return Err("systemd does not run here".into());
    }
    Ok(())
}

/// What there is to stay awake for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reasons {
    /// How many turns run.
    turns: usize,
    /// How many watches at other MCP servers are active.
    watches: usize,
    /// Whether GitHub is polled for somebody.
    polled: bool,
}

impl Reasons {
    /// Whether they are enough. A session that waits for the webhook alone is no reason: nothing here has to ask for it.
    fn suffice(self, mode: KeepAwake) -> bool {
        match mode {
            KeepAwake::Never => false,
            KeepAwake::Turns => self.turns > 0,
            KeepAwake::Watches => self.turns > 0 || self.watches > 0 || self.polled,
        }
    }
}

/// Where reasons are looked for.
pub(super) struct Sources {
    /// The turns that run.
    pub(super) turns: TurnCount,
    /// The watches.
    pub(super) store: Store,
    /// For whom GitHub is polled; `None` where it is not.
    pub(super) observing: Option<Observing>,
}

impl Sources {
    async fn reasons(&self, mode: KeepAwake) -> Reasons {
        let mut reasons = Reasons { turns: *self.turns.watch().borrow(), ..Reasons::default() };
        if mode != KeepAwake::Watches || reasons.turns > 0 {
            return reasons;
        }
        let failed = |error: crate::engine::Error| {
            tracing::warn!(error = %crate::domain::chain(&error), "could not see what there is to stay awake for");
        };
        match self.store.read(|db| db.watches(true)).await {
            Ok(active) => reasons.watches = active.len(),
            Err(error) => failed(error.into()),
        }
        if let Some(observing) = &self.observing {
            reasons.polled = observing.is_needed().await.map_err(failed).unwrap_or(false);
        }
        reasons
    }
}

/// Holds the lock whenever `mode` says so; for ever.
pub(super) async fn run(mode: KeepAwake, sources: Sources) {
    if mode == KeepAwake::Never {
        return;
    }
    let mut turns = sources.turns.watch();
    let mut held: Option<Child> = None;
    loop {
        turns.mark_unchanged();
        let wanted = sources.reasons(mode).await.suffice(mode);
        match &mut held {
            None if !wanted => idle(mode, &mut turns).await,
            None => {
                tokio::time::sleep(AFTER).await;
                if sources.reasons(mode).await.suffice(mode) {
                    held = hold().await;
                }
            }
            Some(_) if !wanted => {
                tokio::time::sleep(LINGER).await;
                if !sources.reasons(mode).await.suffice(mode) {
                    // Its end is what lets go; it is collected when it is dropped.
                    held = None;
                }
            }
            Some(child) => tokio::select! {
                ended = child.wait() => {
                    tracing::info!(?ended, "the machine cannot be kept awake here; the-loop doctor says why");
                    held = None;
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
                () = idle(mode, &mut turns) => {}
            },
        }
    }
}

/// Waits until there may be another answer.
async fn idle(mode: KeepAwake, turns: &mut tokio::sync::watch::Receiver<usize>) {
    let look = async {
        match mode {
            KeepAwake::Watches => tokio::time::sleep(LOOK_EVERY).await,
            KeepAwake::Turns | KeepAwake::Never => std::future::pending().await,
        }
    };
    tokio::select! {
        changed = turns.changed() => {
            if changed.is_err() {
                std::future::pending::<()>().await;
            }
        }
        () = look => {}
    }
}

/// The lock ends with the child, and the child with its standard input: with us, however we end.
async fn hold() -> Option<Child> {
    let (program, args) = command(std::process::id());
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    match command.spawn() {
        Ok(child) => {
            tracing::debug!(program, "keeping the machine awake");
            Some(child)
        }
        Err(error) => {
            tracing::info!(program, %error, "the machine cannot be kept awake");
            tokio::time::sleep(AFTER_FAILURE).await;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_its_reasons() {
        use KeepAwake::{Never, Turns, Watches};
        let none = Reasons::default();
        let (turn, watch) = (Reasons { turns: 1, ..none }, Reasons { watches: 1, ..none });
        let polled = Reasons { polled: true, ..none };
        for (mode, reasons, wanted) in [
            (Never, turn, false),
            (Turns, turn, true),
            (Turns, watch, false),
            (Turns, polled, false),
            (Watches, none, false),
            (Watches, turn, true),
            (Watches, watch, true),
            (Watches, polled, true),
        ] {
            assert_eq!(reasons.suffice(mode), wanted, "{mode:?} {reasons:?}");
        }
    }
}
