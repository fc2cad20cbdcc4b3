//! Full, broken, missing and in between: what was answered stays, what cannot be kept is refused, and all is mended
//! without a restart.
#![allow(clippy::print_stderr, reason = "what was measured or left out is told there")]

use std::fs;

use crate::support::payloads::issue_comment;
use crate::support::small_disk::SmallDisk;
use crate::support::{Server, wait_for, wait_until};
use serde_json::Value;

const ITEM: &str = "octo-org/demo#15";
const ID: &str = "5e550001-0000-4000-8000-000000000001";
const OTHER_ID: &str = "5e550002-0000-4000-8000-000000000002";

fn outcome(server: &Server, delivery: &str) -> Value {
    let rows = server.json(&["deliveries", "list", "--limit", "100000"]);
    rows.as_array().expect("rows").iter().find(|row| row["delivery"] == delivery).cloned().unwrap_or_default()
}

fn until_delivered(server: &Server, delivery: &str) {
    wait_until(&format!("{delivery} is delivered"), || outcome(server, delivery)["outcome"] == "delivered");
}

/// The shim of the turn that runs.
fn shim_of(server: &Server, turn: u32) -> i32 {
    let lock = server.path(&format!("state/turns/{turn}/lock"));
    wait_for("the shim's process id", || fs::read_to_string(&lock).ok()?.trim().parse().ok())
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}

#[test]
fn a_killed_shim_means_a_repeat_that_says_so() {
    for harness in ["claude", "codex"] {
        let server = Server::start("");
        server.register(ITEM, harness, ID);
        server.hold();
        assert_eq!(server.deliver("issue_comment", "d-1", &issue_comment(15, "hello")).0, 202);
        server.wait_calls(1);
        kill(shim_of(&server, 1));
        server.release();
        until_delivered(&server, "d-1");
        let (calls, turns) = (server.calls(), server.turns());
        assert_eq!((calls.len(), &turns[0]["state"]), (2, &"interrupted".into()), "{harness}");
        assert!(calls[1].prompt().contains("may be a repeat"), "{harness}");
        let uuid = |call: &crate::support::Call| {
            let message: Value = serde_json::from_str(call.stdin.lines().next()?).ok()?;
            message["uuid"].as_str().map(String::from)
        };
        assert_eq!(uuid(&calls[0]), uuid(&calls[1]), "{harness}");
    }
}

#[test]
fn a_session_that_was_replaced_during_a_turn_is_not_held_for_its_predecessor() {
    let server = Server::start("");
    server.register(ITEM, "claude", ID);
    server.hold();
    server.plan(
        "claude",
        &format!("[ $id = {OTHER_ID} ] || {{ echo 'No conversation found with session ID' >&2; exit 1; }}"),
    );
    assert_eq!(server.deliver("issue_comment", "d-1", &issue_comment(15, "hello")).0, 202);
    server.wait_calls(1);
    let work = server.path("work").display().to_string();
    server.ok(&[
        "sessions",
        "register",
        ITEM,
        "--harness",
        "claude",
        "--session-id",
        OTHER_ID,
        "--cwd",
        &work,
        "--force",
    ]);
    server.release();
    until_delivered(&server, "d-1");
    assert_eq!(server.json(&["sessions", "list"])[0]["needs_attention"], Value::Null);
}

#[test]
fn a_session_that_was_closed_during_a_turn_is_not_tried_again() {
    let server = Server::start("");
    server.register(ITEM, "claude", ID);
    server.hold();
    server.plan("claude", "echo overloaded >&2; exit 1");
    assert_eq!(server.deliver("issue_comment", "d-1", &issue_comment(15, "hello")).0, 202);
    server.wait_calls(1);
    server.ok(&["sessions", "close", ITEM]);
    server.release();
    let row = wait_for("it is dropped", || Some(outcome(&server, "d-1")).filter(|row| row["outcome"] == "filtered"));
    assert!(row["reason"].as_str().is_some_and(|reason| reason.contains("closed")), "{row}");
    assert_eq!(server.calls().len(), 1);
}

#[test]
fn a_paused_session_keeps_what_its_turn_failed_to_tell() {
    let server = Server::start("");
    server.register(ITEM, "claude", ID);
    server.hold();
    server.plan("claude", "echo overloaded >&2; exit 1");
    assert_eq!(server.deliver("issue_comment", "d-1", &issue_comment(15, "hello")).0, 202);
    server.wait_calls(1);
    server.ok(&["sessions", "pause", ITEM]);
    server.release();
    server.ended_turns(1);
    server.plan("claude", "");
    let sessions = server.json(&["sessions", "list"]);
    assert_eq!((&sessions[0]["pending"], &sessions[0]["status"]), (&1.into(), &"paused".into()));
    server.ok(&["sessions", "resume", ITEM]);
    until_delivered(&server, "d-1");
    assert_eq!(server.calls().len(), 2);
}

#[test]
fn two_sessions_in_one_directory_take_turns() {
    let server = Server::start("");
    server.register(ITEM, "claude", ID);
    server.register("octo-org/demo#16", "codex", OTHER_ID);
    server.hold();
    assert_eq!(server.deliver("issue_comment", "d-1", &issue_comment(15, "first")).0, 202);
    server.wait_calls(1);
    assert_eq!(server.deliver("issue_comment", "d-2", &issue_comment(16, "second")).0, 202);
    wait_until("it is queued", || outcome(&server, "d-2")["outcome"] == "queued");
    server.release();
    until_delivered(&server, "d-2");
    let calls = server.calls();
    assert_eq!(calls.len(), 2);
    assert!(calls[0].ended.expect("it ended") <= calls[1].started, "two turns ran in one directory at once");
}

#[test]
fn a_held_session_goes_on_once_its_program_is_there_again() {
    let server = Server::start("");
    server.register(ITEM, "codex", ID);
    let (program, away) = (server.path("bin/codex"), server.path("bin/away"));
    fs::rename(&program, &away).expect("moved away");
    assert_eq!(server.deliver("issue_comment", "d-1", &issue_comment(15, "hello")).0, 202);
    wait_until("it is held", || !server.json(&["sessions", "list"])[0]["needs_attention"].is_null());
    fs::rename(&away, &program).expect("moved back");
    server.ok(&["sessions", "resume", ITEM]);
    until_delivered(&server, "d-1");
}

#[test]
fn a_wait_after_a_failure_outlasts_a_restart() {
    let mut server =
        Server::start("[routing]\ndebounce = \"0s\"\n[dispatch]\nretry_backoff = \"1h\"\nmax_retry_backoff = \"1h\"\n");
    server.register(ITEM, "claude", ID);
    server.plan("claude", "echo overloaded >&2; exit 1");
    assert_eq!(server.deliver("issue_comment", "d-1", &issue_comment(15, "hello")).0, 202);
    server.ended_turns(1);
    server.plan("claude", "");
    server.kill();
    server.serve(&[]);
    // Another session is served, so the dispatcher has looked; the failed one still waits.
    fs::create_dir(server.path("work/other")).expect("a directory");
    server.register_in("octo-org/demo#16", "claude", OTHER_ID, &server.path("work/other"));
    assert_eq!(server.deliver("issue_comment", "d-2", &issue_comment(16, "hello")).0, 202);
    until_delivered(&server, "d-2");
    assert_eq!(outcome(&server, "d-1")["outcome"], "queued");
    server.ok(&["sessions", "resume", ITEM]);
    until_delivered(&server, "d-1");
}

#[test]
fn a_used_up_budget_says_so_and_holds_nobody_else() {
    let server = Server::start("[routing]\ndebounce = \"0s\"\n[dispatch]\nmax_turns_per_hour = 1\n");
    fs::create_dir(server.path("work/other")).expect("a directory");
    server.register(ITEM, "claude", ID);
    server.register_in("octo-org/demo#16", "claude", OTHER_ID, &server.path("work/other"));
    server.deliver("issue_comment", "d-1", &issue_comment(15, "one"));
    until_delivered(&server, "d-1");
    server.deliver("issue_comment", "d-2", &issue_comment(15, "two"));
    server.deliver("issue_comment", "d-3", &issue_comment(16, "three"));
    until_delivered(&server, "d-3");
    assert_eq!(outcome(&server, "d-2")["outcome"], "queued");
    let sessions = server.json(&["sessions", "list"]);
    assert!(sessions[0]["held"].as_str().is_some_and(|held| held.contains("max_turns_per_hour")), "{sessions}");
}

#[test]
fn one_session_s_bad_row_holds_up_no_other() {
    let server = Server::start("");
    fs::create_dir(server.path("work/other")).expect("a directory");
    server.register(ITEM, "claude", ID);
    server.register_in("octo-org/demo#16", "claude", OTHER_ID, &server.path("work/other"));
    server.ok(&["sessions", "pause", ITEM]);
    server.deliver("issue_comment", "d-1", &issue_comment(15, "one"));
    wait_until("it is queued", || outcome(&server, "d-1")["outcome"] == "queued");
    let database = rusqlite::Connection::open(server.path("state/the-loop.db")).expect("the database");
    database.busy_timeout(std::time::Duration::from_secs(10)).expect("a timeout");
    database.execute("UPDATE deliveries SET read = '[]' WHERE id = 'd-1'", ()).expect("damaged");
    server.ok(&["sessions", "resume", ITEM]);
    server.deliver("issue_comment", "d-2", &issue_comment(16, "two"));
    until_delivered(&server, "d-2");
    let sessions = server.json(&["sessions", "list"]);
    assert!(sessions[0]["needs_attention"].as_str().is_some_and(|why| why.contains("cannot be read")), "{sessions}");
    server.ok(&["deliveries", "drop", "d-1"]);
    server.ok(&["sessions", "resume", ITEM]);
    server.deliver("issue_comment", "d-3", &issue_comment(15, "three"));
    until_delivered(&server, "d-3");
}

#[test]
fn one_undecidable_delivery_keeps_no_bell_from_ringing() {
    let server = Server::start("");
    fs::create_dir(server.path("work/other")).expect("a directory");
    server.register(ITEM, "claude", ID);
    server.register_in("octo-org/demo#16", "claude", OTHER_ID, &server.path("work/other"));
    server.ok(&["sessions", "pause", ITEM]);
    // A body that is not what was compressed: this one cannot be read, and is found again and again.
    server.deliver("issue_comment", "d-0", &issue_comment(15, "zero"));
    until_queued(&server, "d-0");
    let database = rusqlite::Connection::open(server.path("state/the-loop.db")).expect("the database");
    database.busy_timeout(std::time::Duration::from_secs(10)).expect("a timeout");
    database
        .execute_batch("UPDATE bodies SET body = x'00'; UPDATE deliveries SET outcome = 'pending', decision = NULL; DELETE FROM notices")
        .expect("damaged");
    server.deliver("issue_comment", "d-1", &issue_comment(16, "one"));
    until_delivered(&server, "d-1");
    let row = wait_for("it is told of", || Some(outcome(&server, "d-0")).filter(|row| row["outcome"] != "pending"));
    assert!(row["reason"].as_str().is_some_and(|why| why.contains("cannot be read")), "{row}");
}

fn until_queued(server: &Server, delivery: &str) {
    wait_until(&format!("{delivery} is queued"), || outcome(server, delivery)["outcome"] == "queued");
}

#[test]
fn a_new_database_does_not_take_old_turns_for_its_own() {
    let mut server = Server::start("");
    server.register(ITEM, "claude", ID);
    server.deliver("issue_comment", "d-1", &issue_comment(15, "one"));
    until_delivered(&server, "d-1");
    server.stop();
    for file in ["the-loop.db", "the-loop.db-wal", "the-loop.db-shm"] {
        let path = server.path("state").join(file);
        if path.exists() {
            fs::rename(&path, path.with_extension("away")).expect("moved away");
        }
    }
    server.serve(&[]);
    server.deliver("issue_comment", "d-2", &issue_comment(15, "two"));
    until_delivered(&server, "d-2");
    assert_eq!(server.turns().iter().map(|turn| turn["turn"].clone()).collect::<Vec<_>>(), [2]);
    assert_eq!(server.calls().len(), 2);
}

#[test]
fn a_command_s_signal_does_not_end_a_server_that_starts() {
    let mut server = Server::new("");
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let state = server.path("state");
    let poker = {
        let stop = std::sync::Arc::clone(&stop);
        std::thread::spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                the_loop::daemon::poke(&state);
            }
        })
    };
    for _ in 0..20 {
        server.serve(&[]);
        server.kill();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    poker.join().expect("the poker");
}

#[test]
fn draining_waits_for_what_runs_and_begins_nothing() {
    let mut server = Server::new("");
    server.register(ITEM, "claude", ID);
    server.hold();
    server.serve(&["--drain"]);
    server.deliver("issue_comment", "d-1", &issue_comment(15, "one"));
    server.wait_calls(1);
    server.deliver("issue_comment", "d-2", &issue_comment(15, "two"));
    until_queued(&server, "d-2");
    let pid = i32::try_from(server.pid()).ok().and_then(rustix::process::Pid::from_raw).expect("a process id");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("asked");
    wait_until("it drains", || server.log().contains("waiting for running turns"));
    server.release();
    // The second signal that `stop` sends is not needed, and does no harm.
    wait_until("the first turn is recorded", || outcome(&server, "d-1")["outcome"] == "delivered");
    assert!(server.stop().success());
    assert_eq!((server.calls().len(), &outcome(&server, "d-2")["outcome"]), (1, &"queued".into()));
}

#[test]
fn a_full_disk_is_503_and_mends_itself() {
    let mut server = Server::new("");
    let Some(disk) = SmallDisk::at(server.path("state"), 3) else {
        eprintln!("skipped: nothing can be mounted here");
        return;
    };
    server.register(ITEM, "claude", ID);
    server.serve(&[]);
    let session = fs::read(server.path("state/sessions/octo-org+demo+15.json")).expect("the session");
    // With less and less room, each write on the way is the one that fails first.
    for (round, but) in [0, 4 << 10, 16 << 10, 40 << 10, 64 << 10, 100 << 10, 160 << 10].into_iter().enumerate() {
        disk.fill(but);
        let mut sent = Vec::new();
        for i in 0..6 {
            let delivery = format!("d-{round}-{i}");
            let status =
                server.deliver("issue_comment", &delivery, &issue_comment(15, &format!("mark-{round}-{i}."))).0;
            assert!(matches!(status, 202 | 503), "{status}");
            sent.push((delivery, status));
        }
        // A registration that finds no room leaves the session as it was.
        if but == 0 {
            assert!(sent.iter().all(|(_, status)| *status == 503), "{sent:?}");
            let work = server.path("work").display().to_string();
            let forced = server.cli(&[
                "sessions",
                "register",
                ITEM,
                "--harness",
                "claude",
                "--session-id",
                OTHER_ID,
                "--cwd",
                &work,
                "--force",
            ]);
            assert!(!forced.status.success());
            let kept = fs::read(server.path("state/sessions/octo-org+demo+15.json")).expect("the session");
            assert_eq!(kept, session);
        }
        disk.free();
        for (delivery, status) in &sent {
            if *status == 503 {
                assert!(outcome(&server, delivery).is_null(), "{delivery} was refused and kept");
            } else {
                until_delivered(&server, delivery);
            }
        }
        assert_eq!(server.deliver("issue_comment", &format!("d-{round}-after"), &issue_comment(15, "after")).0, 202);
        until_delivered(&server, &format!("d-{round}-after"));
        let calls = server.calls();
        for (i, (_, status)) in sent.iter().enumerate() {
            let mark = format!("mark-{round}-{i}.");
            let told = calls.iter().filter(|call| call.prompt().contains(&mark)).count();
            assert_eq!(told, usize::from(*status == 202), "{mark} {but}: {:?}", server.turns());
        }
    }
    assert!(server.stop().success());
}

#[test]
fn a_read_only_disk_is_503_and_mends_itself() {
    let mut server = Server::new("");
    let Some(disk) = SmallDisk::at(server.path("state"), 3) else {
        eprintln!("skipped: nothing can be mounted here");
        return;
    };
    server.register(ITEM, "claude", ID);
    server.serve(&[]);
    server.deliver("issue_comment", "d-1", &issue_comment(15, "one"));
    until_delivered(&server, "d-1");
    server.kill();
    disk.remount("ro");
    let refused = server.command(&["gh-webhook", "serve", "--port", "0"]).output().expect("a server");
    assert!(!refused.status.success());
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("Read-only"),
        "{}",
        String::from_utf8_lossy(&refused.stderr)
    );
    disk.remount("rw");
    server.serve(&[]);
    server.deliver("issue_comment", "d-2", &issue_comment(15, "two"));
    until_delivered(&server, "d-2");
}

#[test]
fn a_locked_database_is_503_and_nothing_is_half_kept() {
    let server = Server::start("");
    server.register(ITEM, "claude", ID);
    let database = rusqlite::Connection::open(server.path("state/the-loop.db")).expect("the database");
    database.execute_batch("BEGIN IMMEDIATE").expect("locked");
    let (status, text) = server.deliver("issue_comment", "d-1", &issue_comment(15, "hello"));
    assert_eq!(status, 503, "{text}");
    database.execute_batch("ROLLBACK").expect("let go");
    assert!(outcome(&server, "d-1").is_null());
    assert_eq!(server.deliver("issue_comment", "d-1", &issue_comment(15, "hello")).0, 202);
    until_delivered(&server, "d-1");
    assert_eq!(server.calls().len(), 1);
}

#[test]
fn a_damaged_database_is_refused_and_left_as_it_is() {
    let mut server = Server::start("");
    server.stop();
    let path = server.path("state/the-loop.db");
    let mut bytes = fs::read(&path).expect("the database");
    bytes[..100].fill(b'?');
    fs::write(&path, &bytes).expect("damaged");
    let refused = server.command(&["gh-webhook", "serve", "--port", "0"]).output().expect("a server");
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && words.contains("damaged") && words.contains("the-loop.db"), "{words}");
    assert_eq!(fs::read(&path).expect("the database"), bytes);
}
