//! Sessions and finished runs for the adapters' tests.

use jiff::Timestamp;

use super::{Ending, Finished};
use crate::domain::{Session, SessionStatus, WorkItem};

/// A session of `harness` with the conversation `id`.
pub(super) fn session(harness: &str, id: &str) -> Session {
    Session {
        version: Session::VERSION,
        work_item: WorkItem::parse("octo-org/demo#15").expect("a work item"),
        harness: harness.into(),
        session_id: id.into(),
        cwd: "/home/a b/demo".into(),
        status: SessionStatus::Active,
        created_at: Timestamp::UNIX_EPOCH,
        closed_reason: None,
        repository_id: None,
        unknown: serde_json::Map::new(),
    }
}

/// A run that exited with `code` after it printed this.
pub(super) fn exited(code: i32, stdout: &str, stderr: &str) -> Finished {
    Finished { exit_code: Some(code), ..ended(Ending::Exited { code }, stdout, stderr) }
}

/// A run that ended like this after it printed this.
pub(super) fn ended(ending: Ending, stdout: &str, stderr: &str) -> Finished {
    Finished {
        ending,
        exit_code: None,
        stdout: stdout.into(),
        stderr: stderr.into(),
        started_at: "2026-11-30T10:00:00Z".parse().expect("a time"),
        ended_at: "2026-11-30T10:01:00Z".parse().expect("a time"),
        dropped_bytes: 0,
    }
}
