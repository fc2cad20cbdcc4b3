//! Turns under their supervisor, with the real binary and real processes: however a turn ends, it ends whole.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use the_loop::domain::FailureKind;
use the_loop::harness::{self, EndMark, Ending, Finished, Invocation, Limits, Standing};

/// Longer than anything here takes on a busy machine; only a broken shim waits as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// One turn of a shell script.
struct Turn {
    root: tempfile::TempDir,
    invocation: Invocation,
    limits: Limits,
    shim: Option<Child>,
}

impl Turn {
    fn of(script: &str) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let work = root.path().join("work");
        fs::create_dir(&work).expect("a working directory");
        let invocation = Invocation {
            program: "sh".into(),
            args: vec!["-c".into(), script.into()],
            cwd: work,
            stdin: "the prompt\n".into(),
            env: BTreeMap::from([("FROM_INVOCATION".to_string(), "yes".to_string())]),
            ends_with: None,
            streams: true,
        };
        let limits = Limits {
            total: PATIENCE,
            first_output: Duration::ZERO,
            silence: Duration::ZERO,
            grace: Duration::from_secs(20),
            max_output: 1 << 20,
        };
        Self { root, invocation, limits, shim: None }
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("turn")
    }

    fn work(&self, name: &str) -> PathBuf {
        self.root.path().join("work").join(name)
    }

    fn started(mut self) -> Self {
        harness::prepare(&self.dir(), &self.invocation, &self.limits).expect("prepared");
        let path = std::env::var_os("PATH").expect("PATH");
        let env: Vec<(OsString, OsString)> = vec![("PATH".into(), path), ("GIVEN".into(), "1".into())];
        let program = Path::new(env!("CARGO_BIN_EXE_the-loop"));
        self.shim = Some(harness::start(program, &self.dir(), env).expect("started"));
        self
    }

    fn finished(mut self) -> (Self, Finished) {
        if self.shim.is_none() {
            self = self.started();
        }
        let finished = harness::wait(&self.dir()).expect("waited");
        (self, finished)
    }

    /// Waits until the script has written this file of its working directory, whole: with a newline at its end.
    fn said(&self, name: &str) -> String {
        let path = self.work(name);
        until(&format!("{name} is written"), || fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n')))
            .trim()
            .to_string()
    }

    fn kill_shim(&mut self) {
        let shim = self.shim.as_mut().expect("a shim");
        shim.kill().expect("killed");
        shim.wait().expect("reaped");
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let _ = harness::cancel(&self.dir());
        if let Some(shim) = &mut self.shim {
            let _ = shim.wait();
        }
    }
}

fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(begun.elapsed() < PATIENCE, "gave up waiting: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// How a turn stands that does not run. A process that another test is just starting shares our open files, and so a
/// lock, until it becomes itself.
fn at_rest(turn: &Turn) -> Standing {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        let standing = harness::standing(&turn.dir()).expect("standing");
        if standing != Standing::Running || std::time::Instant::now() > deadline {
            return standing;
        }
        std::thread::yield_now();
    }
}

fn is_alive(pid: &str) -> bool {
    // A zombie is dead; who reaps it is not our affair.
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

#[test]
fn a_turn_runs_in_its_directory_with_its_prompt_and_environment() {
    let turn = Turn::of("cat; pwd; echo $FROM_INVOCATION$GIVEN$HOME; echo to stderr >&2; exit 3");
    let (turn, finished) = turn.finished();
    let work = turn.root.path().join("work").canonicalize().expect("a path");
    assert_eq!(finished.stdout, format!("the prompt\n{}\nyes1\n", work.display()));
    assert_eq!((finished.stderr.as_str(), finished.exit_code), ("to stderr\n", Some(3)));
    assert_eq!((&finished.ending, finished.dropped_bytes), (&Ending::Exited { code: 3 }, 0));
    assert!(finished.started_at <= finished.ended_at);
    assert_eq!(at_rest(&turn), Standing::Done(finished));
}

#[test]
fn its_files_are_its_owners_only() {
    use std::os::unix::fs::PermissionsExt;
    let (turn, _) = Turn::of("echo x").finished();
    let mode = |path: &Path| fs::metadata(path).expect("metadata").permissions().mode() & 0o777;
    assert_eq!(mode(&turn.dir()), 0o700);
    for file in fs::read_dir(turn.dir()).expect("files") {
        let path = file.expect("a file").path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn it_runs_once() {
    let (turn, _) = Turn::of("echo run >> runs").finished();
    assert!(matches!(
        harness::start(Path::new(env!("CARGO_BIN_EXE_the-loop")), &turn.dir(), Vec::new()),
        Err(harness::Error::Over { .. })
    ));
    assert!(harness::prepare(&turn.dir(), &turn.invocation, &turn.limits).is_err());
    assert_eq!(turn.said("runs"), "run");
}

#[test]
fn a_large_prompt_arrives_whole_and_one_that_is_not_read_blocks_nobody() {
    let mut turn = Turn::of("wc -c");
    turn.invocation.stdin = "x".repeat(200 << 10);
    assert_eq!(turn.finished().1.stdout.trim(), (200 << 10).to_string());

    let mut turn = Turn::of("echo unread");
    turn.invocation.stdin = "x".repeat(200 << 10);
    assert_eq!(turn.finished().1.ending, Ending::Exited { code: 0 });
}

#[test]
fn a_hanging_turn_is_ended_at_its_limit() {
    let mut turn = Turn::of("echo begun; exec sleep 1000");
    turn.limits.total = Duration::from_millis(300);
    let finished = turn.finished().1;
    assert_eq!((finished.ending, finished.stdout.as_str()), (Ending::TimedOut, "begun\n"));
}

#[test]
fn one_that_ignores_sigterm_is_killed() {
    let mut turn = Turn::of("trap '' TERM; echo $$ > pid; while :; do sleep 1000; done");
    turn.limits.grace = Duration::from_millis(200);
    let turn = turn.started();
    let pid = turn.said("pid");
    assert!(harness::cancel(&turn.dir()).expect("cancelled"));
    let (_turn, finished) = turn.finished();
    assert_eq!((finished.ending, finished.exit_code), (Ending::Cancelled, None));
    assert!(!is_alive(&pid));
}

#[test]
fn one_that_says_nothing_is_ended_early_but_only_if_it_streams() {
    let mut turn = Turn::of("exec sleep 1000");
    turn.limits.first_output = Duration::from_millis(200);
    assert_eq!(turn.finished().1.ending, Ending::NoFirstOutput);

    // The limit of silence counts from the first byte, however far the limit before it was.
    let mut turn = Turn::of("echo once; exec sleep 1000");
    turn.limits.total = Duration::ZERO;
    turn.limits.silence = Duration::from_millis(300);
    assert_eq!(turn.finished().1.ending, Ending::Silent);

    let mut turn = Turn::of("sleep 0.5; echo the whole document");
    turn.invocation.streams = false;
    turn.limits.first_output = Duration::from_millis(1);
    turn.limits.silence = Duration::from_millis(1);
    assert_eq!(turn.finished().1.ending, Ending::Exited { code: 0 });
}

#[test]
fn a_flood_is_read_to_its_end_and_kept_in_part() {
    let mut turn = Turn::of(
        "echo first; head -c 200000000 /dev/zero | tr '\\0' x; echo; echo last; \
         head -c 50000000 /dev/zero | tr '\\0' y >&2; grep VmHWM /proc/$PPID/status > memory",
    );
    turn.limits.max_output = 100_000;
    let (turn, finished) = turn.finished();
    assert_eq!(finished.ending, Ending::Exited { code: 0 });
    assert!(finished.stdout.starts_with("first\nxxx") && finished.stdout.ends_with("xxx\nlast\n"));
    assert!(finished.stdout.contains("bytes left out"));
    assert!(finished.stdout.len() < 101_000 && finished.stderr.len() < 101_000);
    assert_eq!(finished.dropped_bytes, 200_000_000 + "first\n\nlast\n".len() as u64 + 50_000_000 - 200_000);
    let peak: u64 = turn.said("memory").split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number");
    assert!(peak < 40_000, "the shim took {peak} KiB");
}

#[test]
fn broken_text_is_no_trouble() {
    let finished = Turn::of("printf 'a\\377\\376b\\n\\342\\202'; printf 'e\\200' >&2").finished().1;
    assert_eq!(finished.stdout, "a\u{fffd}\u{fffd}b\n\u{fffd}");
    assert_eq!(finished.stderr, "e\u{fffd}");
}

#[test]
fn what_it_leaves_behind_is_ended_in_whatever_session() {
    let script = "setsid sh -c 'echo $$ > far; exec sleep 1000' & \
                  (setsid sh -c 'trap \"\" TERM; echo $$ > farther; while :; do sleep 1000; done' &) ; \
                  sleep 1000 & echo $! > near; \
                  while [ ! -s far ] || [ ! -s farther ]; do sleep 0.01; done; exit 0";
    let mut turn = Turn::of(script);
    turn.limits.grace = Duration::from_millis(300);
    let (turn, finished) = turn.finished();
    assert_eq!(finished.ending, Ending::Exited { code: 0 });
    for name in ["near", "far", "farther"] {
        let pid = turn.said(name);
        assert!(!is_alive(&pid), "{name} outlived the turn");
    }
}

#[test]
fn an_answer_ends_the_turn_even_if_the_program_stays() {
    let mut turn = Turn::of("echo '{\"type\":\"other\"}'; echo '{\"type\":\"result\",\"n\":1}'; exec sleep 1000");
    turn.invocation.ends_with = Some(EndMark(BTreeMap::from([("/type".to_string(), "result".into())])));
    let finished = turn.finished().1;
    assert_eq!(finished.ending, Ending::AfterAnswer);
    assert!(finished.stdout.ends_with("\"n\":1}\n"));

    let mut turn = Turn::of("echo '{\"type\":\"result\"}'; exit 4");
    turn.invocation.ends_with = Some(EndMark(BTreeMap::from([("/type".to_string(), "result".into())])));
    assert_eq!(turn.finished().1.ending, Ending::Exited { code: 4 });
}

#[test]
fn a_running_turn_is_seen_and_can_be_cancelled() {
    let turn = Turn::of("echo $$ > pid; exec sleep 1000").started();
    // From the first moment on: the lock is taken before the shim exists.
    assert_eq!(harness::standing(&turn.dir()).expect("standing"), Standing::Running);
    let pid = turn.said("pid");
    assert_eq!(harness::standing(&turn.dir()).expect("standing"), Standing::Running);
    assert!(harness::cancel(&turn.dir()).expect("cancelled"));
    let (turn, finished) = turn.finished();
    assert_eq!(finished.ending, Ending::Cancelled);
    assert!(!is_alive(&pid));
    assert!(!harness::cancel(&turn.dir()).expect("nothing to cancel"));
}

#[test]
fn a_cancellation_at_the_very_start_is_not_lost() {
    let turn = Turn::of("exec sleep 1000").started();
    assert!(harness::cancel(&turn.dir()).expect("cancelled"));
    assert_eq!(turn.finished().1.ending, Ending::Cancelled);
}

#[test]
fn a_shim_that_is_told_to_end_without_a_person_asking_says_so() {
    let turn = Turn::of("echo $$ > pid; exec sleep 1000").started();
    let pid = turn.said("pid");
    let shim = turn.shim.as_ref().expect("a shim").id().to_string();
    assert!(Command::new("kill").args(["-TERM", &shim]).status().expect("kill").success());
    assert_eq!(turn.finished().1.ending, Ending::Stopped);
    assert!(!is_alive(&pid));
}

#[test]
fn a_killed_shim_leaves_a_lost_turn_and_no_processes() {
    let script = "echo said; setsid sh -c 'echo $$ > far; exec sleep 1000' & echo $$ > pid; exec sleep 1000";
    let mut turn = Turn::of(script).started();
    let pids = [turn.said("pid"), turn.said("far")];
    let kept = turn.dir().join("stdout");
    until("the output is kept", || fs::read_to_string(&kept).ok().filter(|text| text == "said\n"));
    turn.kill_shim();
    assert_eq!(at_rest(&turn), Standing::Lost);
    let (turn, finished) = turn.finished();
    assert_eq!((&finished.ending, finished.stdout.as_str()), (&Ending::Lost, "said\n"));
    assert!(pids.iter().all(|pid| !is_alive(pid)), "processes outlived their turn");
    // The verdict stands: later questions get the same answer.
    assert_eq!(at_rest(&turn), Standing::Done(finished.clone()));
    assert_eq!(harness::wait(&turn.dir()).expect("waited"), finished);
}

#[test]
fn a_lost_turn_that_a_person_had_cancelled_stays_cancelled() {
    let mut turn = Turn::of("trap '' TERM; echo $$ > pid; while :; do sleep 1000; done").started();
    let pid = turn.said("pid");
    assert!(harness::cancel(&turn.dir()).expect("cancelled"));
    turn.kill_shim();
    let (_turn, finished) = turn.finished();
    assert_eq!(finished.ending, Ending::Cancelled);
    assert!(!is_alive(&pid));
}

#[test]
fn a_damaged_result_is_a_lost_turn() {
    let (turn, _) = Turn::of("echo x").finished();
    fs::write(turn.dir().join("result.json"), "{\"ending\":").expect("damaged");
    assert_eq!(at_rest(&turn), Standing::Lost);
    assert_eq!(harness::wait(&turn.dir()).expect("waited").ending, Ending::Lost);
    assert!(!late_shim(&turn));
}

#[test]
fn a_shim_that_comes_late_runs_nothing() {
    let turn = Turn::of("echo ran > ran");
    harness::prepare(&turn.dir(), &turn.invocation, &turn.limits).expect("prepared");
    assert_eq!(at_rest(&turn), Standing::Lost);
    assert!(is_not_begun(&harness::wait(&turn.dir()).expect("waited")));
    assert!(!late_shim(&turn), "a late shim took the turn");
    assert!(!turn.work("ran").exists());
}

#[test]
fn a_turn_whose_server_died_before_its_shim_began_is_known_not_to_have_run() {
    let turn = Turn::of("echo ran");
    // Before there was a directory, and after there was a lock for the shim to be handed.
    assert!(is_not_begun(&harness::wait(&turn.dir()).expect("waited")));
    harness::prepare(&turn.dir(), &turn.invocation, &turn.limits).expect("prepared");
    fs::write(turn.dir().join("lock"), "").expect("a lock");
    assert!(is_not_begun(&harness::wait(&turn.dir()).expect("waited")));
}

#[test]
fn a_turn_whose_directory_was_removed_is_not_taken_for_one_that_never_ran() {
    let mut turn = Turn::of("echo $$ > pid; exec sleep 1000").started();
    let pid = turn.said("pid");
    turn.kill_shim();
    fs::remove_dir_all(turn.dir()).expect("removed");
    assert_eq!(harness::wait(&turn.dir()).expect("waited").ending, Ending::Lost);
    assert!(!is_alive(&pid), "it outlived its turn");
}

fn is_not_begun(finished: &Finished) -> bool {
    matches!(finished.ending, Ending::NotStarted { kind: FailureKind::NotBegun, .. })
}

#[test]
fn a_second_shim_runs_nothing_beside_the_first() {
    let turn = Turn::of("echo run >> runs; exec sleep 1000").started();
    turn.said("runs");
    assert!(!late_shim(&turn), "a second shim took the turn");
    assert_eq!(turn.said("runs"), "run");
    assert!(harness::cancel(&turn.dir()).expect("cancelled"));
    assert_eq!(turn.finished().1.ending, Ending::Cancelled);
}

/// Not a test of its own: the server in the test below, which starts a turn and is gone without a word.
#[test]
#[ignore = "run by a_turn_outlives_whoever_started_it"]
fn starts_a_turn_and_dies() {
    let dir = PathBuf::from(std::env::var_os("TURN_DIR").expect("a directory"));
    let path = std::env::var_os("PATH").expect("PATH");
    let program = Path::new(env!("CARGO_BIN_EXE_the-loop"));
    harness::start(program, &dir, vec![("PATH".into(), path)]).expect("started");
    std::process::abort();
}

#[test]
fn a_turn_outlives_whoever_started_it() {
    let turn = Turn::of("echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done; echo finished");
    harness::prepare(&turn.dir(), &turn.invocation, &turn.limits).expect("prepared");
    let starter = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "shim::starts_a_turn_and_dies", "--ignored"])
        .env("TURN_DIR", turn.dir())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(!starter.expect("a starter").success());
    assert_eq!(harness::standing(&turn.dir()).expect("standing"), Standing::Running);
    turn.said("pid");
    fs::write(turn.work("go"), "").expect("written");
    let finished = harness::wait(&turn.dir()).expect("waited");
    assert_eq!((finished.ending, finished.stdout.as_str()), (Ending::Exited { code: 0 }, "finished\n"));
}

/// A shim that nobody handed the lock to; whether it took the turn.
fn late_shim(turn: &Turn) -> bool {
    Command::new(env!("CARGO_BIN_EXE_the-loop"))
        .arg(harness::SHIM_COMMAND)
        .arg(turn.dir())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("a shim")
        .success()
}

#[test]
fn a_program_or_directory_that_is_missing_is_named() {
    let mut turn = Turn::of("");
    turn.invocation.program = "no-such-agent".into();
    let (_turn, finished) = turn.finished();
    let Ending::NotStarted { error, kind } = finished.ending else { panic!("{:?}", finished.ending) };
    assert!(kind == FailureKind::HarnessMissing && error.contains("no-such-agent"), "{error}");

    let turn = Turn::of("");
    fs::remove_dir(turn.root.path().join("work")).expect("removed");
    let (_turn, finished) = turn.finished();
    let Ending::NotStarted { error, kind } = finished.ending else { panic!("{:?}", finished.ending) };
    assert!(kind == FailureKind::DirectoryMissing && error.contains("work"), "{error}");
}

#[test]
fn a_signal_that_is_not_ours_is_told_apart() {
    assert_eq!(Turn::of("kill -9 $$").finished().1.ending, Ending::Signalled { signal: 9 });
}

#[test]
fn a_quiet_turn_costs_its_shim_nothing() {
    let turn = Turn::of("echo $PPID > shim; exec sleep 1000").started();
    let shim = turn.said("shim");
    let switches = || {
        let mut total = 0;
        for task in fs::read_dir(format!("/proc/{shim}/task")).expect("threads") {
            let status = fs::read_to_string(task.expect("a thread").path().join("status")).expect("its status");
            let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
            total += counts.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum::<u64>();
        }
        total
    };
    // It settles, and from then on nothing wakes it. The second is a span under watch, not a wait for something.
    let mut before = switches();
    until("the shim sleeps", || {
        std::thread::sleep(Duration::from_millis(200));
        let now = switches();
        (std::mem::replace(&mut before, now) == now).then_some(())
    });
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(switches(), before);
}
