//! The processes of a turn: found, asked to end, ended and reaped, those in sessions of their own too.
//!
//! On Linux the shim is a subreaper: whatever a harness leaves behind becomes its child. Elsewhere the harness's
//! process group is all that can be reached.

use std::path::Path;
use std::sync::mpsc::Sender;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use super::supervise::News;
use crate::harness::Error;

/// How hard a process is told to end.
#[derive(Clone, Copy)]
pub(super) enum Force {
    /// SIGTERM.
    Asked,
    /// SIGKILL.
    Killed,
}

impl Force {
    fn signal(self) -> Signal {
        match self {
            Self::Asked => Signal::TERM,
            Self::Killed => Signal::KILL,
        }
    }
}

/// Reaps every child on a thread of its own: says when `leader` ends, and when nobody is left.
pub(super) fn reap(leader: Pid, news: Sender<News>) {
    std::thread::spawn(move || {
        loop {
            let word = match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) if pid == leader => {
                    News::Exited { code: status.exit_status(), signal: status.terminating_signal() }
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => continue,
                Err(_) => News::AllGone,
            };
            let last = matches!(word, News::AllGone);
            if news.send(word).is_err() || last {
                return;
            }
        }
    });
}

/// Asks a shim to end, if `held` says that it still lives once it cannot be mistaken for another process.
pub(in crate::harness) fn terminate(pid: Pid, held: impl Fn() -> Result<bool, Error>) -> Result<bool, Error> {
    #[cfg(target_os = "linux")]
    if let Ok(process) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        let alive = held()?;
        if alive {
            // It may end at this moment by itself, which is what was asked for.
            let _ = rustix::process::pidfd_send_signal(process, Signal::TERM);
        }
        return Ok(alive);
    }
    let alive = held()?;
    if alive {
        let _ = kill_process(pid, Signal::TERM);
    }
    Ok(alive)
}

#[cfg(target_os = "linux")]
mod system {
    use std::collections::HashMap;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::time::{Duration, Instant};

    use rustix::process::{PidfdFlags, getpid, pidfd_open, pidfd_send_signal, set_child_subreaper};

    use super::{Force, Path, Pid, kill_process};
    use crate::harness::TURN_MARK;

    /// From SIGTERM to SIGKILL for what a killed shim left behind.
    const GRACE: Duration = Duration::from_secs(5);
    /// How often nothing must be found before nothing is there, and how far apart.
    const LOOKS: usize = 3;
    const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
    /// How long SIGKILL may take.
    const AFTER_KILL: Duration = Duration::from_secs(5);

    /// Makes orphaned descendants our children.
    pub(in crate::harness::shim) fn adopt_orphans() {
        // Every kernel since 3.4 can; on an older one the direct children are reached all the same.
        let _ = set_child_subreaper(Some(getpid()));
    }

    /// Sends a signal to every descendant. None of them is anybody else's: each one's line of parents ends in us.
    pub(in crate::harness::shim) fn signal_all(_leader: Pid, force: Force) {
        for pid in descendants(getpid()) {
            // It may have ended meanwhile, or belong to another user; the caller sees who is left.
            let _ = kill_process(pid, force.signal());
        }
    }

    /// Reaping tells all there is to know.
    pub(in crate::harness::shim) fn group_is_empty(_leader: Pid) -> bool {
        true
    }

    fn descendants(root: Pid) -> Vec<Pid> {
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for pid in pids() {
            if let Some(parent) = parent(pid) {
                children.entry(parent).or_default().push(pid);
            }
        }
        let mut found = Vec::new();
        let mut open = vec![root.as_raw_nonzero().get()];
        while let Some(next) = open.pop() {
            let below = children.remove(&next).unwrap_or_default();
            found.extend(below.iter().copied().filter_map(Pid::from_raw));
            open.extend(below);
        }
        found
    }

    fn pids() -> impl Iterator<Item = i32> {
        fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
    }

    /// The parent of a live process: `PID (NAME) STATE PPID …`, where the name may hold anything.
    fn parent(pid: i32) -> Option<i32> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let after = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(stat.get(after + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        (fields.next()? != "Z").then_some(())?;
        fields.next()?.parse().ok()
    }

    /// Ends the processes of a turn whose shim was killed, and says whether there were any. They are found by the mark
    /// in their environment.
    pub(in crate::harness) fn end_orphans(dir: &Path) -> bool {
        // The directory itself may be gone.
        let place = dir.parent().and_then(|parent| parent.canonicalize().ok()).zip(dir.file_name());
        let Some(dir) = place.map(|(parent, name)| parent.join(name)) else { return false };
        let mark = [TURN_MARK.as_bytes(), b"=", dir.as_os_str().as_bytes()].concat();
        let signal = |force: Force| {
            let mut some = false;
            for pid in pids().filter_map(Pid::from_raw).filter(|pid| *pid != getpid()) {
                // The mark is read only once the process cannot be mistaken for a later one of the same number.
                if let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
                    && bears(pid, &mark)
                {
                    some |= pidfd_send_signal(process, force.signal()).is_ok();
                }
            }
            some
        };
        // A process that is just being replaced by another program shows no environment for a moment: look again.
        let again = |look: &mut dyn FnMut() -> bool| {
            (0..LOOKS).any(|number| {
                if number > 0 {
                    std::thread::sleep(BETWEEN_LOOKS);
                }
                look()
            })
        };
        if !again(&mut || signal(Force::Asked)) {
            return false;
        }
        let begun = Instant::now();
        let anyone = || pids().filter_map(Pid::from_raw).any(|pid| pid != getpid() && bears(pid, &mark));
        while begun.elapsed() < GRACE + AFTER_KILL && again(&mut || anyone()) {
            signal(if begun.elapsed() >= GRACE { Force::Killed } else { Force::Asked });
            std::thread::sleep(Duration::from_millis(50));
        }
        true
    }

    fn bears(pid: Pid, mark: &[u8]) -> bool {
        fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()))
            .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|variable| variable == mark))
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use rustix::process::{kill_process_group, test_kill_process_group};

    use super::{Force, Path, Pid};

    pub(in crate::harness::shim) fn adopt_orphans() {}

    pub(in crate::harness::shim) fn signal_all(leader: Pid, force: Force) {
        // The group may be empty by now, which is what is wanted.
        let _ = kill_process_group(leader, force.signal());
    }

    pub(in crate::harness::shim) fn group_is_empty(leader: Pid) -> bool {
        test_kill_process_group(leader).is_err()
    }

    pub(in crate::harness) fn end_orphans(_dir: &Path) -> bool {
        false
    }
}

pub(in crate::harness) use system::end_orphans;
pub(super) use system::{adopt_orphans, group_is_empty, signal_all};
