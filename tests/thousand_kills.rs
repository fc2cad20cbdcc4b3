//! The server is killed at random under load, again and again: accepted = delivered, and nothing twice.
//!
//! Takes some minutes: `KILLS=1000 cargo test --release --test all thousand_kills:: -- --ignored --nocapture`.
#![allow(clippy::print_stderr, reason = "what was measured or left out is told there")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::payloads::issue_comment;
use crate::support::{SECRET, Server, sign, wait_until};

const CONFIG: &str = "[routing]\ndebounce = \"50ms\"\nmax_wait = \"200ms\"\n[dispatch]\nretry_backoff = \"50ms\"\n\
                      max_concurrent_turns = 6\nmax_turns_per_hour = 1000000\n";
const SESSIONS: u64 = 30;
const SENDERS: u64 = 3;

/// Numbers that look random and are the same for one seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// What the senders share.
#[derive(Default)]
struct World {
    url: Mutex<String>,
    stop: AtomicBool,
    next: AtomicU64,
    accepted: AtomicU64,
    resent: AtomicU64,
}

/// Sends one comment after the other; each until it is answered, as a person at GitHub's delivery page would.
fn send(world: &World, mut dice: Dice) {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(10)))
        .build()
        .into();
    while !world.stop.load(Ordering::Relaxed) {
        let number = world.next.fetch_add(1, Ordering::Relaxed);
        let body = issue_comment(1 + dice.roll(SESSIONS), &format!("mark-{number:07}.")).to_string();
        let signature = sign(SECRET, body.as_bytes());
        loop {
            let url = world.url.lock().expect("a URL").clone();
            let answer = agent
                .post(&url)
                .header("X-GitHub-Event", "issue_comment")
                .header("X-GitHub-Delivery", format!("d-{number}"))
                .header("X-Hub-Signature-256", &signature)
                .header("Content-Type", "application/json")
                .send(body.as_bytes());
            if answer.is_ok_and(|answer| matches!(answer.status().as_u16(), 200 | 202)) {
                break;
            }
            world.resent.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(5));
        }
        world.accepted.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(dice.roll(60)));
    }
}

#[test]
#[ignore = "takes minutes: KILLS=1000 cargo test --release --test all thousand_kills:: -- --ignored --nocapture"]
fn what_was_accepted_is_delivered_once_however_often_the_server_is_killed() {
    let number_of = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |n| n.parse().expect(name));
    let (kills, seed) = (number_of("KILLS", 1000), number_of("SEED", 1));
    let mut dice = Dice(seed);
    let mut server = Server::new(CONFIG);
    for number in 1..=SESSIONS {
        let cwd = server.path(&format!("work/{number}"));
        std::fs::create_dir(&cwd).expect("a directory");
        let harness = if number % 3 == 0 { "codex" } else { "claude" };
        server.register_in(
            &format!("octo-org/demo#{number}"),
            harness,
            &format!("5e550000-0000-4000-8000-{number:012}"),
            &cwd,
        );
    }
    let world = Arc::new(World::default());
    let begun = Instant::now();
    server.serve(&[]);
    *world.url.lock().expect("a URL") = server.url().into();
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let world = Arc::clone(&world);
            std::thread::spawn(move || send(&world, Dice(seed * 1000 + sender)))
        })
        .collect();
    for kill in 1..=kills {
        // Long enough, now and then, for turns to begin and end within one life.
        let life = if dice.roll(4) == 0 { dice.roll(1500) } else { dice.roll(150) };
        std::thread::sleep(Duration::from_millis(life));
        server.kill();
        server.serve(&[]);
        *world.url.lock().expect("a URL") = server.url().into();
        if kill % 100 == 0 {
            let accepted = world.accepted.load(Ordering::Relaxed);
            eprintln!("{kill} kills, {accepted} accepted, {:.0} s", begun.elapsed().as_secs_f64());
        }
    }
    world.stop.store(true, Ordering::Relaxed);
    senders.into_iter().for_each(|sender| sender.join().expect("a sender"));
    let accepted = world.accepted.load(Ordering::Relaxed);
    let settled = || {
        let rows = server.json(&["deliveries", "list", "--limit", "10000000"]);
        rows.as_array()
            .expect("rows")
            .iter()
            .all(|row| !["pending", "queued"].iter().any(|open| row["outcome"] == *open))
    };
    while !settled() {
        assert!(begun.elapsed() < Duration::from_secs(3600), "it does not come to rest");
        std::thread::sleep(Duration::from_millis(200));
    }
    let turns = server.turns();
    wait_until("no turn runs", || server.turns().iter().all(|turn| turn["state"] != "running"));
    let rows = server.json(&["deliveries", "list", "--limit", "10000000"]);
    let delivered = rows.as_array().expect("rows").iter().filter(|row| row["outcome"] == "delivered").count() as u64;
    let mark = regex::Regex::new(r"mark-(\d{7})\.").expect("a pattern");
    let mut told: HashMap<u64, u32> = HashMap::new();
    let calls = server.calls();
    for call in &calls {
        for found in mark.captures_iter(&call.prompt()) {
            *told.entry(found[1].parse().expect("a number")).or_default() += 1;
        }
    }
    let lost = (0..accepted).filter(|number| !told.contains_key(number)).count();
    let twice = told.values().filter(|times| **times > 1).count();
    let states = |state: &str| turns.iter().filter(|turn| turn["state"] == state).count();
    eprintln!(
        "seed {seed}: {kills} kills in {:.0} s; {accepted} accepted ({} sent again), {delivered} delivered in {} calls; \
         {lost} lost, {twice} twice; turns: {} succeeded, {} failed, {} interrupted",
        begun.elapsed().as_secs_f64(),
        world.resent.load(Ordering::Relaxed),
        calls.len(),
        states("succeeded"),
        states("failed"),
        states("interrupted"),
    );
    assert_eq!((delivered, lost, twice), (accepted, 0, 0));
    assert_eq!(states("interrupted"), 0, "a killed server interrupts no turn");
}
