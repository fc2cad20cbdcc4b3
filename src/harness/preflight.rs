//! What can be known before a turn is begun: is the directory there, is the program there.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Harness;
use crate::domain::{Failure, FailureKind, Session};

/// Finds the program to run, after the directory was found to be one. `path` is the `PATH` that the turn will have.
pub fn preflight(harness: &dyn Harness, session: &Session, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    check_directory(&session.cwd).map_err(|message| failure(FailureKind::DirectoryMissing, message))?;
    let program = harness.program();
    found(program, &session.cwd, path)
        .map_err(|message| failure(FailureKind::HarnessMissing, format!("{}: {message}", harness.name())))
}

/// Whether turns can run in `cwd`; if not, why not. Asked apart from the program, since starting a program in a
/// missing directory fails as if the program were missing.
pub(super) fn check_directory(cwd: &Path) -> Result<(), String> {
    match fs::metadata(cwd) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(format!("the session's directory {} is not a directory", cwd.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(format!("the session's directory {} is not there", cwd.display()))
        }
        Err(error) => Err(format!("the session's directory {} cannot be used: {error}", cwd.display())),
    }
}

fn found(program: &str, cwd: &Path, path: Option<&OsStr>) -> Result<PathBuf, String> {
    if program.contains('/') {
        let file = cwd.join(program);
        return match is_program(&file) {
            Some(true) => Ok(file),
            Some(false) => Err(format!("{} is not an executable file", file.display())),
            None => Err(format!("{} is not there", file.display())),
        };
    }
    let Some(path) = path.filter(|path| !path.is_empty()) else {
        return Err(format!("`{program}` cannot be looked up: PATH is empty"));
    };
    let mut unusable = None;
    for dir in std::env::split_paths(path).filter(|dir| dir.is_absolute()) {
        let file = dir.join(program);
        match is_program(&file) {
            Some(true) => return Ok(file),
            Some(false) => unusable = unusable.or(Some(file)),
            None => {}
        }
    }
    Err(match unusable {
        Some(file) => format!("{} is not an executable file", file.display()),
        None => format!("`{program}` is not on PATH ({})", path.to_string_lossy()),
    })
}

/// `None` where there is nothing of that name.
fn is_program(file: &Path) -> Option<bool> {
    let found = fs::metadata(file).ok()?;
    Some(found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn failure(kind: FailureKind, message: String) -> Failure {
    Failure { kind, message, not_before: None }
}
