//! Tells a running server that something changed outside it.

use std::path::Path;

use super::failure::{Exit, Failure};
use crate::daemon;
use crate::domain::SessionKey;
use crate::store::{Access, Db};

/// Tells the server of this state directory, if one runs, to look again at what waits. Where none runs, the next one
/// will look by itself.
pub(super) fn poke(state_dir: &Path) -> Result<(), Failure> {
    daemon::poke(state_dir);
    Ok(())
}

/// The same for a session that a person let go on: what it needed attention for is over, and it is tried at once.
pub(super) fn resumed(state_dir: &Path, session: &SessionKey) -> Result<(), Failure> {
    if Db::exists(state_dir) {
        let db = Db::open(state_dir, Access::Write)?;
        db.transaction(|db| db.release(session))?;
    }
    poke(state_dir)
}

/// The same for a session that a person closed: its watches end with it.
pub(super) fn closed(state_dir: &Path, session: &SessionKey) -> Result<(), Failure> {
    if Db::exists(state_dir) {
        let db = Db::open(state_dir, Access::Write)?;
        db.transaction(|db| db.end_watches_of(session, "its session was closed", jiff::Timestamp::now()))?;
    }
    poke(state_dir)
}

impl From<crate::store::Error> for Failure {
    fn from(error: crate::store::Error) -> Self {
        use crate::store::Error;
        let failure = Self::from_error(Exit::Failed, &error);
        match &error {
            Error::Damaged { path, .. } => failure.hint(format!(
                "nothing overwrites it; to begin anew, move it away with its -wal and -shm files: mv '{0}' '{0}.damaged'",
                path.display()
            )),
            _ => failure,
        }
    }
}
