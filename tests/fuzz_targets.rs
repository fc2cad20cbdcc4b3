//! The fuzz targets on any compiler: each gets its seeds and some thousand mutations of them, the same in every run.
//!
//! `FUZZ_ROUNDS=1000000 cargo test --release --test all fuzz_targets` looks longer; `cargo +nightly fuzz run TARGET` in
//! `fuzz/` looks where the code has not been.

#[path = "../fuzz/targets.rs"]
mod targets;

use std::path::Path;

/// Pieces that mean something to one of the targets.
const WORDS: &[&str] = &[
    "null",
    "{}",
    "[]",
    "\"\"",
    "-1",
    "1e999",
    "18446744073709551616",
    "\\u0000",
    "\\ud800",
    "\u{202e}",
    "\n",
    "\r\n",
    "#",
    "@",
    "/",
    ":",
    "%2F",
    "%",
    "..",
    "github:",
    "https://",
    "sha256=",
    "=",
    "[",
    "]",
    "\"",
    "'''",
    "true",
    "0",
    "é",
    "\u{feff}",
    "\"eventId\":",
    "\"data\":",
    "\"cursor\":",
    "\"type\":",
    "\"events\":[",
    "heartbeat",
    "active",
];

struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below.max(1)
    }
}

fn mutated(mut data: Vec<u8>, other: &[u8], dice: &mut Dice) -> Vec<u8> {
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(data.len() + 1);
        let end = (at + dice.roll(24)).min(data.len());
        match dice.roll(7) {
            0 => drop(data.drain(at..end)),
            1 => drop(data.splice(at..end, WORDS[dice.roll(WORDS.len())].bytes())),
            2 => data.insert(at, dice.roll(256) as u8),
            3 if at < data.len() => data[at] ^= 1 << dice.roll(8),
            4 => {
                let piece = data[at..end].to_vec();
                let to = dice.roll(data.len() + 1);
                drop(data.splice(to..to, piece));
            }
            5 => data.truncate(at),
            _ => {
                let from = dice.roll(other.len() + 1);
                let piece = &other[from..(from + dice.roll(60)).min(other.len())];
                drop(data.splice(at..end, piece.iter().copied()));
            }
        }
    }
    data
}

fn run(name: &str, rounds: usize, target: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(name);
    let mut paths: Vec<_> =
        std::fs::read_dir(&dir).expect("seeds").map(|entry| entry.expect("a seed").path()).collect();
    paths.sort();
    let seeds: Vec<_> = paths.iter().map(|path| std::fs::read(path).expect("a seed")).collect();
    assert!(!seeds.is_empty());
    seeds.iter().for_each(|seed| target(seed));
    let rounds = std::env::var("FUZZ_ROUNDS").map_or(rounds, |rounds| rounds.parse().expect("FUZZ_ROUNDS"));
    let mut dice = Dice(1);
    for _ in 0..rounds {
        let (seed, other) = (dice.roll(seeds.len()), dice.roll(seeds.len()));
        let data = mutated(seeds[seed].clone(), &seeds[other], &mut dice);
        if std::panic::catch_unwind(|| target(&data)).is_err() {
            panic!("{name} fails for {:?}", String::from_utf8_lossy(&data));
        }
    }
}

#[test]
fn signatures() {
    run("signature", 20_000, targets::signature);
}

#[test]
fn payloads() {
    run("payload", 10_000, targets::payload);
}

#[test]
fn work_items() {
    run("work_item", 50_000, targets::work_item);
}

#[test]
fn configurations() {
    run("configuration", 2_000, targets::configuration);
}

#[test]
fn what_servers_tell() {
    run("told", 20_000, targets::told);
}

#[test]
fn conditions() {
    run("condition", 50_000, targets::condition);
}
