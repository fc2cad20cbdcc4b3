//! Tells a running server that something changed outside it.

use std::path::Path;

use super::failure::Failure;
use crate::domain::SessionKey;

/// Tells the server of this state directory, if one runs, to look at its sessions again.
pub(super) fn poke(_state_dir: &Path) -> Result<(), Failure> {
    Ok(())
}

/// The same for a session that a person let go on: what it needed attention for is over, and it is tried at once.
pub(super) fn resumed(state_dir: &Path, _session: &SessionKey) -> Result<(), Failure> {
    poke(state_dir)
}
