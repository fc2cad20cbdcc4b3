//! The shim.
use super::Error;
use std::path::Path;
/// Runs the turn in `dir`.
pub fn shim(dir: &Path) -> std::process::ExitCode {
    let _ = dir;
    std::process::ExitCode::SUCCESS
}
pub(super) fn end_orphans(_dir: &Path) {}
pub(super) fn terminate(_pid: rustix::process::Pid, still: impl Fn() -> Result<bool, Error>) -> Result<bool, Error> {
    still()
}
