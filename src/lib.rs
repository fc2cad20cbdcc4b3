//! the-loop lets a coding agent sleep until the thing it waits for happens.
//!
//! The modules are floors; each uses lower floors only, and none on its own (`tests/architecture.rs` checks it):
//!
//! | floor | modules |
//! | --- | --- |
//! | 0 | [`domain`]: the nouns and their legal states; [`room`]: memory for bodies; [`crash_point`]: where tests make the server die |
//! | 1 | [`signing`]: who sent these bytes |
//! | 2 | [`payload`]: bytes to events; [`catalogue`]: events to what others may watch; [`routing`]: events to decisions and prompts; [`retry`]: when to try again |
//! | 3 | [`store`]: SQLite; [`registry`]: sessions as files |
//! | 4 | [`harness`]: agent programs; [`clients`]: calling out |
//! | 5 | [`engine`]: intake, router, dispatcher |
//! | 6 | [`edges`]: one protocol each |
//! | 7 | [`config`] |
//! | 8 | [`daemon`]: compose, start, recover, stop |
//! | 9 | [`cli`] |

pub mod catalogue;
pub mod cli;
pub mod clients;
pub mod config;
pub mod crash_point;
pub mod daemon;
pub mod domain;
pub mod edges;
pub mod engine;
pub mod harness;
pub mod payload;
pub mod registry;
pub mod retry;
pub mod room;
pub mod routing;
pub mod signing;
pub mod store;
