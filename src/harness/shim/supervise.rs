//! Start the harness, sleep until something happens or a limit is reached, end everything.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::output::{Heard, Keeper, LineWatch, drain};
use super::{not_started, processes};
use crate::domain::FailureKind;
use crate::harness::preflight::check_directory;
use crate::harness::turn_dir::{self, CANCEL, PROMPT, STDERR, STDOUT};
use crate::harness::{Ending, Invocation, Limits};

/// How long a harness that has answered may take to exit by itself.
const AFTER_ANSWER: Duration = Duration::from_secs(3);
/// How long the last bytes in the pipes are waited for once every process is gone.
const LAST_BYTES: Duration = Duration::from_secs(5);
/// How long processes may take to vanish after SIGKILL; one that sleeps in the kernel may not vanish at all.
const AFTER_KILL: Duration = Duration::from_secs(10);
/// How often processes are looked for while they are being ended. Nothing is polled before that.
const TICK: Duration = Duration::from_millis(50);

/// What wakes the supervisor.
pub(super) enum News {
    /// The harness itself ended.
    Exited { code: Option<i32>, signal: Option<i32> },
    /// No descendant is left.
    AllGone,
    /// The first byte of output came: from now on the limit of silence counts, which may be the nearer one.
    Spoke,
    /// The line came after which the harness is done.
    Answered,
    /// A signal asks us to end.
    Asked,
}

/// The signals that ask us to end.
pub(super) fn signals() -> io::Result<Signals> {
    Signals::new([SIGTERM, SIGINT, SIGHUP])
}

/// Runs the turn. Gives how it ended, the exit code, and how much output was not kept.
pub(super) fn supervise(dir: &Path, mut signals: Signals) -> (Ending, Option<i32>, u64) {
    let plan = match turn_dir::read_plan(dir) {
        Ok(plan) => plan,
        Err(error) => return (not_started(error, FailureKind::Crashed), None, 0),
    };
    let (news, inbox) = channel();
    let asked = news.clone();
    std::thread::spawn(move || {
        // The supervisor may be past listening; then it is ending already.
        signals.forever().for_each(|_| drop(asked.send(News::Asked)));
    });
    let was_cancelled = || dir.join(CANCEL).exists();
    if was_cancelled() {
        return (Ending::Cancelled, None, 0);
    }
    if let Err(error) = check_directory(&plan.invocation.cwd) {
        return (not_started(error, FailureKind::DirectoryMissing), None, 0);
    }
    processes::adopt_orphans();
    let started = Instant::now();
    let mut child = match spawn(dir, &plan.invocation) {
        Ok(child) => child,
        Err(error) => {
            let kind = match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => FailureKind::HarnessMissing,
                io::ErrorKind::ArgumentListTooLong => FailureKind::Refused,
                // A program that is being replaced, too many processes, no memory: it may pass.
                _ => FailureKind::Crashed,
            };
            let words = format!("{} could not be started: {error}", plan.invocation.program);
            return (not_started(words, kind), None, 0);
        }
    };
    let leader = Pid::from_child(&child);
    processes::reap(leader, news.clone());

    let last_output = Arc::new(AtomicU64::new(0));
    let spoken = news.clone();
    let heard = Heard { started, last: last_output.clone(), first: Arc::new(move || drop(spoken.send(News::Spoke))) };
    let (done, drained) = channel();
    let cap = plan.limits.max_output;
    let mut streams = 0;
    if let Some(stdout) = child.stdout.take() {
        let watch = plan.invocation.ends_with.clone().map(|mark| LineWatch::new(mark, answered(&news)));
        drain(stdout, Keeper::new(dir.join(STDOUT), cap), watch, heard.clone(), done.clone());
        streams += 1;
    }
    if let Some(stderr) = child.stderr.take() {
        drain(stderr, Keeper::new(dir.join(STDERR), cap), None, heard, done);
        streams += 1;
    }

    let mut run =
        Run { inbox, started, limits: plan.limits, streams: plan.invocation.streams, last_output, left: None };
    let ending = run.watch(was_cancelled);
    run.end(leader);
    let exit = run.left.unwrap_or((None, None));
    let ending = ending.unwrap_or(match exit {
        (Some(code), _) => Ending::Exited { code },
        (None, Some(signal)) => Ending::Signalled { signal },
        (None, None) => Ending::Lost,
    });
    let dropped = (0..streams).map_while(|_| drained.recv_timeout(LAST_BYTES).ok()).sum();
    (ending, exit.0, dropped)
}

fn spawn(dir: &Path, invocation: &Invocation) -> io::Result<std::process::Child> {
    Command::new(&invocation.program)
        .args(&invocation.args)
        .envs(&invocation.env)
        .current_dir(&invocation.cwd)
        .stdin(File::open(dir.join(PROMPT))?)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
}

fn answered(news: &Sender<News>) -> impl FnMut() + Send + use<> {
    let news = news.clone();
    move || drop(news.send(News::Answered))
}

struct Run {
    inbox: Receiver<News>,
    started: Instant,
    limits: Limits,
    streams: bool,
    /// Nanoseconds from the start to the last byte; 0 where none came.
    last_output: Arc<AtomicU64>,
    /// Exit code and signal of the harness, once it has ended.
    left: Option<(Option<i32>, Option<i32>)>,
}

impl Run {
    /// Sleeps until the harness ends (`None`) or we have a reason to end it.
    fn watch(&mut self, was_cancelled: impl Fn() -> bool) -> Option<Ending> {
        let mut answered = None;
        loop {
            let now = self.started.elapsed();
            let due = self.next_limit(answered);
            let sleep = match due {
                Some((at, ending)) if at <= now => return Some(ending),
                Some((at, _)) => at - now,
                None => Duration::from_secs(24 * 60 * 60),
            };
            match self.inbox.recv_timeout(sleep) {
                Ok(News::Exited { code, signal }) => {
                    self.left = Some((code, signal));
                    return None;
                }
                Ok(News::Answered) => answered = answered.or(Some(self.started.elapsed())),
                Ok(News::Asked) if was_cancelled() => return Some(Ending::Cancelled),
                Ok(News::Asked) => return Some(Ending::Stopped),
                Ok(News::Spoke | News::AllGone) | Err(_) => {}
            }
        }
    }

    /// The nearest limit, as time since the start, and what reaching it means.
    fn next_limit(&self, answered: Option<Duration>) -> Option<(Duration, Ending)> {
        let some = |limit: Duration| (!limit.is_zero()).then_some(limit);
        let quiet = || match self.last_output.load(Ordering::Relaxed) {
            0 => some(self.limits.first_output).map(|limit| (limit, Ending::NoFirstOutput)),
            last => some(self.limits.silence).map(|limit| (Duration::from_nanos(last) + limit, Ending::Silent)),
        };
        // An answer was given: how long it may still take is all that matters, and no limit makes it a failure.
        match answered {
            Some(at) => Some((at + AFTER_ANSWER, Ending::AfterAnswer)),
            None => some(self.limits.total)
                .map(|limit| (limit, Ending::TimedOut))
                .into_iter()
                .chain(self.streams.then(quiet).flatten())
                .min_by_key(|(at, _)| *at),
        }
    }

    /// Ends what is left: SIGTERM, the grace, SIGKILL until nobody is there.
    fn end(&mut self, leader: Pid) {
        processes::signal_all(leader, processes::Force::Asked);
        if self.all_gone_within(self.limits.grace, leader) {
            return;
        }
        let until = Instant::now() + AFTER_KILL;
        while Instant::now() < until {
            // Again and again: a process may have begun another while we looked.
            processes::signal_all(leader, processes::Force::Killed);
            if self.all_gone_within(TICK, leader) {
                return;
            }
        }
    }

    fn all_gone_within(&mut self, time: Duration, leader: Pid) -> bool {
        let until = Instant::now() + time;
        let mut reaped = false;
        loop {
            while let Ok(news) = self.inbox.try_recv() {
                reaped |= self.note(news);
            }
            if reaped && processes::group_is_empty(leader) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            if let Ok(news) = self.inbox.recv_timeout(left.min(TICK)) {
                reaped |= self.note(news);
            }
        }
    }

    fn note(&mut self, news: News) -> bool {
        if let News::Exited { code, signal } = news {
            self.left = Some((code, signal));
        }
        matches!(news, News::AllGone)
    }
}
