//! What watches cost, measured in a whole process: a thousand at rest, and a flood into one inbox. Prints figures and
//! asserts none but that everything arrived.
//!
//! `cargo test --release --test all watch_load:: -- --ignored --nocapture --test-threads 1`; `WATCHES`, `SERVERS`, `SECONDS`
//! and `EVENTS` change how much.
#![allow(clippy::print_stderr, reason = "what was measured is told there")]

use std::fs;
use std::time::{Duration, Instant};

use crate::support::Server;
use crate::support::events::{Events, event};
use crate::support::processes::{peak_memory, programs, status};
use rusqlite::OpenFlags;
use serde_json::{Value, json};
use the_loop::domain::{Session, SessionStatus, WorkItem};
use the_loop::engine::{Desk, NewWatch};
use the_loop::registry::Registry;

const QUICK: &str = "[routing]\ndebounce = \"30ms\"\n";
/// How often a server says that it is still there, at the least.
const HEARTBEAT: Duration = Duration::from_secs(30);

fn number_of(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |number| number.parse().expect(name))
}

/// What a process has used so far: CPU time, and how often a thread of it woke after it had slept.
fn used(pid: u32) -> (Duration, u64) {
    let (mut time, mut woken) = (0_u64, 0_u64);
    for task in fs::read_dir(format!("/proc/{pid}/task")).expect("threads").flatten() {
        let stat = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        time += stat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        woken += line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
    }
    (Duration::from_nanos(time), woken)
}

fn database(server: &Server) -> rusqlite::Connection {
    let path = server.path("state/the-loop.db");
    let database = rusqlite::Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("the database");
    database.busy_timeout(Duration::from_secs(10)).expect("a timeout");
    database
}

fn count(database: &rusqlite::Connection, sql: &str) -> usize {
    let count: i64 = database.query_row(sql, (), |row| row.get(0)).expect("a count");
    usize::try_from(count).expect("a count")
}

/// Waits for something that may take minutes.
fn wait_long(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(3600);
    while !holds() {
        assert!(Instant::now() < deadline, "gave up waiting: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn rest(way: &'static str, as_program: bool) {
    let (watches, servers) = (number_of("WATCHES", 1000), number_of("SERVERS", 10));
    let seconds = number_of("SECONDS", 60) as u64;
    let all: Vec<_> = (0..servers).map(|_| Events::start(&[way])).collect();
    let mut tables = QUICK.to_owned();
    for (n, events) in all.iter().enumerate() {
        events.script().heartbeat = Some(HEARTBEAT);
        events.script().next_poll_ms = Some(15_000);
        tables += &if as_program { events.as_program(&format!("s{n}")) } else { events.named(&format!("s{n}")) };
    }
    let mut server = Server::new(&tables);
    let registry = Registry::open(&server.path("state")).expect("a registry");
    let desk = Desk::new(server.path("state"), registry.clone());
    for n in 0..watches {
        // Ten watches a session.
        let work_item = WorkItem::Local(format!("s-{}", n / 10));
        if n % 10 == 0 {
            let session = Session {
                version: Session::VERSION,
                work_item: work_item.clone(),
                harness: "claude".into(),
                session_id: format!("id-{n}"),
                cwd: server.path("work"),
                status: SessionStatus::Active,
                created_at: jiff::Timestamp::now(),
                closed_reason: None,
                repository_id: None,
                unknown: serde_json::Map::new(),
            };
            registry.register(session, false).expect("registered");
        }
        let new = NewWatch {
            server: format!("s{}", n % servers),
            event: "ticket.updated".into(),
            arguments: [("ticket".to_owned(), json!(format!("T-{n}")))].into_iter().collect(),
            only: Vec::new(),
            until: Vec::new(),
            once: false,
            work_item,
            delivery: None,
            cursor: None,
        };
        desk.add(new).expect("added");
    }
    server.serve(&[]);
    let db = database(&server);
    let begun = Instant::now();
    let checked = "SELECT count(*) FROM watches WHERE checked_at IS NOT NULL";
    wait_long("all are followed", || count(&db, checked) == watches);
    let started = begun.elapsed();
    let pid = server.pid();
    // What came after the start is over when a few beats or rounds have passed.
    std::thread::sleep(Duration::from_secs(number_of("SETTLED", 35) as u64));
    let (before, begun) = (used(pid), Instant::now());
    std::thread::sleep(Duration::from_secs(seconds));
    let (after, took) = (used(pid), begun.elapsed().as_secs_f64());
    let asked: usize = all.iter().map(|events| events.count("events/poll")).sum();
    eprintln!(
        "{watches} watches on {servers} servers, {way}{}: all followed after {:.1} s; in {took:.0} s {:.2} s of CPU \
         ({:.2} %), {:.1} wake-ups/s; RSS {} MiB, peak {} MiB; {} threads; {asked} polls so far; {} programs",
        if as_program { " (programs)" } else { " (HTTP)" },
        started.as_secs_f64(),
        (after.0 - before.0).as_secs_f64(),
        (after.0 - before.0).as_secs_f64() / took * 100.0,
        (after.1 - before.1) as f64 / took,
        status(pid, "VmRSS:") / 1024,
        peak_memory(pid),
        status(pid, "Threads:"),
        programs(&server).len(),
    );
}

#[test]
#[ignore = "takes minutes: see the top of this file"]
fn a_thousand_streams_at_rest() {
    rest("push", false);
}

#[test]
#[ignore = "takes minutes: see the top of this file"]
fn a_thousand_polls_at_rest() {
    rest("poll", false);
}

#[test]
#[ignore = "takes minutes: see the top of this file"]
fn a_thousand_streams_of_programs_at_rest() {
    rest("push", true);
}

#[test]
#[ignore = "takes minutes: see the top of this file"]
fn a_thousand_polls_of_programs_at_rest() {
    rest("poll", true);
}

fn made(n: usize) -> Value {
    let about = "A workflow run of the main branch was completed; what it says is at the address that is given here.";
    event(
        &format!("evt-{n}"),
        json!({"n": n, "repository": "octo-org/demo", "branch": "main", "conclusion": "success",
        "url": format!("https://github.com/octo-org/demo/actions/runs/{n}"), "about": about}),
    )
}

fn flood(way: &'static str, as_program: bool) {
    let total = number_of("EVENTS", 50_000);
    let events = Events::start(&[way]);
    let table = if as_program { events.as_program("ci") } else { events.table() };
    let server = Server::start(&format!("{QUICK}{table}"));
    server.register("local:demo", "claude", "s-1");
    server.ok(&["sessions", "pause", "local:demo"]);
    server.json(&["watches", "add", "--server", "ci", "--event", "ticket.updated", "--work-item", "local:demo"]);
    let db = database(&server);
    wait_long("it is followed", || count(&db, "SELECT count(*) FROM watches WHERE checked_at IS NOT NULL") == 1);
    let pid = server.pid();
    let (before, begun) = (used(pid), Instant::now());
    events.script().made = Some((total, made));
    let last = |db: &rusqlite::Connection| count(db, "SELECT coalesce(max(id), 0) FROM notices");
    let mut shown = 0;
    wait_long("all are in the inbox", || {
        let done = last(&db);
        if done / (total / 5).max(1) > shown {
            shown = done / (total / 5).max(1);
            eprintln!(
                "  {done} after {:.1} s, RSS {} MiB",
                begun.elapsed().as_secs_f64(),
                status(pid, "VmRSS:") / 1024
            );
        }
        done >= total
    });
    let (took, after) = (begun.elapsed().as_secs_f64(), used(pid));
    let waiting = count(&db, "SELECT count(*) FROM notices WHERE state = 'waiting'");
    let size = fs::metadata(server.path("state/the-loop.db")).map_or(0, |file| file.len()) >> 20;
    eprintln!(
        "{total} events by {way}{}: {took:.1} s, {:.0} events/s, {:.0} us of CPU each; peak RSS {} MiB; database {size} MiB",
        if as_program { " (program)" } else { " (HTTP)" },
        total as f64 / took,
        (after.0 - before.0).as_secs_f64() / total as f64 * 1e6,
        peak_memory(pid),
    );
    assert_eq!(waiting, total);
}

#[test]
#[ignore = "takes a minute: see the top of this file"]
fn a_flood_by_stream() {
    flood("push", false);
}

#[test]
#[ignore = "takes a minute: see the top of this file"]
fn a_flood_by_polls() {
    flood("poll", false);
}

#[test]
#[ignore = "takes a minute: see the top of this file"]
fn a_flood_by_the_stream_of_a_program() {
    flood("push", true);
}
