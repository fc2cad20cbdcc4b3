//! A load test: many sessions, a stub for the agent, a steady rate of deliveries for some minutes. Prints what the server
//! took, how long each answer took, and how its memory grew.
//!
//! `RATE=100 SECONDS=300 SESSIONS=1000 cargo test --release --test all load:: -- --ignored --nocapture`
#![allow(clippy::print_stderr, reason = "what was measured or left out is told there")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::payloads::issue_comment;
use crate::support::{SECRET, Server, sign};

const CONFIG: &str = "[routing]\ndebounce = \"1s\"\nmax_wait = \"5s\"\n[dispatch]\nmax_concurrent_turns = 8\n\
                      max_turns_per_hour = 1000000\n";
const SENDERS: u64 = 8;

/// An agent that costs as little as a process can, so that the server is what is measured.
const QUICK_STUB: &str = r#"#!/bin/sh
while IFS= read -r line; do :; done
echo '{"type":"result","subtype":"success","is_error":false,"result":"done","num_turns":1}'
"#;

fn number_of(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |number| number.parse().expect(name))
}

/// Resident memory of a process, in KiB.
fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process's status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |share: f64| {
        times.get(((times.len() as f64 * share) as usize).min(times.len() - 1)).copied().unwrap_or_default()
    };
    let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1000.0);
    format!("p50 {} ms, p99 {} ms, worst {} ms", ms(at(0.5)), ms(at(0.99)), ms(at(1.0)))
}

#[test]
#[ignore = "takes minutes: RATE=100 SECONDS=300 SESSIONS=1000 cargo test --release --test all load:: -- --ignored --nocapture"]
fn a_steady_load_leaves_memory_and_latency_flat_and_is_all_delivered() {
    let (rate, seconds, sessions) = (number_of("RATE", 100), number_of("SECONDS", 300), number_of("SESSIONS", 1000));
    let mut server = Server::new(CONFIG);
    let stub = server.path("bin/claude");
    fs::write(&stub, QUICK_STUB).expect("a stub");
    fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).expect("an executable stub");
    for number in 1..=sessions {
        let cwd = server.path(&format!("work/{number}"));
        fs::create_dir(&cwd).expect("a directory");
        server.register_in(&format!("octo-org/demo#{number}"), "claude", &format!("s-{number}"), &cwd);
    }
    server.serve(&[]);
    let pid = server.pid();
    let begun = Instant::now();
    let next = Arc::new(AtomicU64::new(0));
    let taken = Arc::new(Mutex::new(Vec::<(Duration, Duration)>::new()));
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| {
            let (next, taken, url) = (Arc::clone(&next), Arc::clone(&taken), server.url().to_owned());
            std::thread::spawn(move || {
                let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= rate * seconds {
                        return;
                    }
                    // Each has its moment, whether the one before was answered or not.
                    let due = Duration::from_secs_f64(number as f64 / rate as f64);
                    std::thread::sleep(due.saturating_sub(begun.elapsed()));
                    let body = issue_comment(1 + number * 7919 % sessions, &format!("mark-{number}.")).to_string();
                    let signature = sign(SECRET, body.as_bytes());
                    let sent = Instant::now();
                    let answer = agent
                        .post(&url)
                        .header("X-GitHub-Event", "issue_comment")
                        .header("X-GitHub-Delivery", format!("d-{number}"))
                        .header("X-Hub-Signature-256", &signature)
                        .header("Content-Type", "application/json")
                        .send(body.as_bytes())
                        .expect("an answer");
                    assert_eq!(answer.status().as_u16(), 202);
                    taken.lock().expect("the times").push((due, sent.elapsed()));
                }
            })
        })
        .collect();
    let mut rss = Vec::new();
    while senders.iter().any(|sender| !sender.is_finished()) {
        rss.push((begun.elapsed().as_secs(), memory(pid)));
        std::thread::sleep(Duration::from_secs(5));
    }
    senders.into_iter().for_each(|sender| sender.join().expect("a sender"));
    let sending = begun.elapsed();
    let is_done = || {
        let sessions = server.json(&["sessions", "list"]);
        let turns = server.json(&["turns", "list", "--state", "running"]);
        sessions.as_array().expect("rows").iter().all(|row| row["pending"] == 0)
            && turns.as_array().expect("rows").is_empty()
    };
    while !is_done() {
        assert!(begun.elapsed() < sending + Duration::from_secs(900), "it does not come to rest");
        std::thread::sleep(Duration::from_secs(1));
    }
    let rested = begun.elapsed();
    let rows = server.json(&["deliveries", "list", "--limit", "10000000", "--outcome", "delivered"]);
    let delivered = rows.as_array().expect("rows").len() as u64;
    let times = taken.lock().expect("the times").clone();
    let half = Duration::from_secs_f64(seconds as f64 / 2.0);
    let of = |late: bool| times.iter().filter(|(due, _)| (*due >= half) == late).map(|(_, took)| *took).collect();
    let near = |share: f64| rss.get((rss.len() as f64 * share) as usize).copied().unwrap_or_default().1 / 1024;
    eprintln!(
        "{sessions} sessions, {rate}/s for {:.0} s: {} accepted, {delivered} delivered in {} turns, at rest {:.0} s later\n\
         answers, first half: {}\nanswers, second half: {}\n\
         memory: {} MiB after a tenth, {} MiB at half, {} MiB at the end, {} MiB at rest",
        sending.as_secs_f64(),
        times.len(),
        server.turns().len(),
        (rested - sending).as_secs_f64(),
        percentiles(of(false)),
        percentiles(of(true)),
        near(0.1),
        near(0.5),
        rss.last().copied().unwrap_or_default().1 / 1024,
        memory(pid) / 1024,
    );
    assert_eq!(delivered, rate * seconds);
}
