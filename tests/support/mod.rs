//! A whole machine for tests: the real program as a server, stubs for agent programs, GitHub's payloads.
//!
//! Every wait is for a condition. Whatever a test starts ends with it.
#![allow(
    unreachable_pub,
    clippy::print_stderr,
    reason = "it is for the modules beside it; failures are told on stderr"
)]

pub mod desk;
pub mod events;
pub mod events_on_stdio;
mod github;
pub mod model;
pub mod npm;
pub mod payloads;
pub mod processes;
mod server;
pub mod small_disk;
mod stub;
mod wait;

pub use github::GitHub;
pub use server::{SECRET, Server, sign};
pub use stub::Call;
pub use wait::{wait_for, wait_until};
