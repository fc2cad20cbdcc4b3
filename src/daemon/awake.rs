//! Keeps the machine from falling asleep by itself, while there is a reason to.
//!
//! The system's own program holds the lock for us (`docs/decisions/0031-keep-awake.md`). Where there is none, nothing
//! fails: the machine sleeps as it always did.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::config::KeepAwake;
use crate::engine::{Sessions, TurnCount};

/// A shorter reason is none: no machine falls asleep that fast.
const AFTER: Duration = Duration::from_secs(2);
/// How long the machine is kept awake after the last reason, so that turns in a row share one lock.
const LINGER: Duration = Duration::from_secs(5);
/// How often sessions are counted, where they are a reason.
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

/// Holds the lock whenever `mode` says so; for ever.
pub(super) async fn run(mode: KeepAwake, turns: TurnCount, sessions: Sessions) {
    if mode == KeepAwake::Never {
        return;
    }
    let mut turns = turns.watch();
    let mut held: Option<Child> = None;
    loop {
        let wanted = *turns.borrow_and_update() > 0 || (mode == KeepAwake::Watches && any_open(&sessions).await);
        let Some(child) = &mut held else {
            if !wanted {
                idle(mode, &mut turns).await;
            } else {
                tokio::time::sleep(AFTER).await;
                if *turns.borrow_and_update() > 0 || mode == KeepAwake::Watches {
                    held = hold().await;
                }
            }
            continue;
        };
        if !wanted {
            tokio::time::sleep(LINGER).await;
            if *turns.borrow_and_update() == 0 {
                // Its end is what lets go; it is collected when it is dropped.
                held = None;
            }
            continue;
        }
        tokio::select! {
            ended = child.wait() => {
                tracing::info!(?ended, "the machine cannot be kept awake here; the-loop doctor says why");
                held = None;
                tokio::time::sleep(AFTER_FAILURE).await;
            }
            () = idle(mode, &mut turns) => {}
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

async fn any_open(sessions: &Sessions) -> bool {
    let sessions = sessions.clone();
    let counted = tokio::task::spawn_blocking(move || sessions.now().map(|now| now.any_open()).unwrap_or(false));
    counted.await.unwrap_or(false)
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
