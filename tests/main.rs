//! Every test against the real program, in one: a library of this size is linked once and not thirty times.
//!
//! A module per subject; `cargo test --test all SUBJECT::` runs one.

mod support;

mod architecture;
mod both_ends;
mod callbacks;
mod cli;
mod config;
mod crash_points;
mod examples;
mod faults;
mod fuzz_targets;
mod github_branches;
mod github_checks;
mod github_poll;
mod github_readers;
mod late_news;
mod load;
mod mcp_peers;
mod power_loss;
mod prompts;
mod properties;
mod real_agents;
mod real_agents_troubles;
mod real_circle;
mod real_payloads;
mod registry;
mod serve;
mod shim;
mod store_properties;
mod subscriptions;
mod thousand_kills;
mod watch_begins;
mod watch_faults;
mod watch_load;
mod watch_peers;
mod watches;
mod webhook;

/// The program that `Events::as_program` starts; nothing when it is run by itself.
#[test]
#[ignore = "a server on standard input and output, which other tests start"]
fn on_stdio() {
    support::events_on_stdio::on_stdio();
}
