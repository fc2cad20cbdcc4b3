//! Floor 4: agent programs, each as two pure functions round one process runner and its shim.
//!
//! Pure: what to run ([`Harness::invocation`]) and what came of it ([`Harness::outcome`]). Claude Code has an adapter
//! of its own; every other program is a [`Definition`], built in or from a `[harness.NAME]` table.
//!
//! Edge: a turn runs in a directory of its own under a small supervisor, [`shim`], which outlives the server.

mod claude;
mod definition;
mod environment;
mod generic;
mod harnesses;
mod patterns;
mod preflight;
mod run;
mod shim;
mod turn_dir;
mod words;

#[cfg(test)]
mod samples;

use std::path::{Path, PathBuf};

use crate::domain::{Session, TurnOutcome};

pub use definition::{Definition, Mark, Output, Place, UsagePlaces};
pub use environment::{SESSION_MARK, TURN_MARK, turn_env};
pub use harnesses::Harnesses;
pub use preflight::preflight;
pub use run::{EndMark, Ending, Finished, Invocation, Limits};
pub use shim::shim;
pub use turn_dir::{SHIM_COMMAND, Standing, cancel, prepare, standing, start, wait};

/// An agent program: what to run for a turn and what the run meant. Everything here is pure.
pub trait Harness: Send + Sync {
    /// The name by which sessions call it.
    fn name(&self) -> &str;

    /// The command to look up on `PATH`, or a path.
    fn program(&self) -> &str;

    /// Whether `id` can be a conversation of this harness; if not, why not. Never lets an option through.
    fn check_session_id(&self, id: &str) -> Result<(), String>;

    /// The variable by which an agent inside learns its own conversation's id.
    fn session_env(&self) -> Option<&str>;

    /// What to run so that `session` is told `prompt`.
    fn invocation(&self, session: &Session, prompt: &str, message_id: &str) -> Invocation;

    /// What a finished run meant.
    fn outcome(&self, session: &Session, finished: &Finished) -> TurnOutcome;

    /// Whether the harness itself skips a message id that its conversation already holds, so that a repeat after a
    /// crash is harmless.
    fn repeats_safely(&self) -> bool {
        false
    }

    /// Where the conversation may lie on disk, as patterns in which `*` stands for one path segment. Empty where that
    /// is not known.
    fn transcript_hint(&self, home: &Path, session_id: &str) -> Vec<PathBuf> {
        let _ = (home, session_id);
        Vec::new()
    }
}

/// What can go wrong round a harness; the failures of a turn itself are [`TurnOutcome`]s.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A `[harness.NAME]` table that cannot be used.
    #[error("[harness.{name}] cannot be used: {why}")]
    Definition {
        /// The table's name.
        name: String,
        /// What is wrong and what would be right.
        why: String,
    },
    /// A file of the turn's directory could not be read or written.
    #[error("{what} {} in the turn's directory: {source}", path.display())]
    File {
        /// What was tried: `write`, `read` …
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A file of the turn's directory does not hold what it should.
    #[error("read {}: it is damaged: {why}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The turn's supervisor could not be started.
    #[error("start the turn's supervisor {}: {source}", program.display())]
    Start {
        /// The executable.
        program: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The turn has a result: a directory serves one turn once.
    #[error("start the turn in {}: it is over already", dir.display())]
    Over {
        /// The turn's directory.
        dir: PathBuf,
    },
    /// Somebody else already runs this turn.
    #[error("start the turn in {}: it is running already", dir.display())]
    Running {
        /// The turn's directory.
        dir: PathBuf,
    },
}
