//! What can be known before a turn is begun: is the directory there, is the program there.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Harness;
use crate::domain::{Failure, FailureKind, Session};

/// Finds the program to run, after the directory was found to be one. `path` is the `PATH` that the turn will have. What
/// is found can be the invocation's program, so that what was looked at is what is run.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::harness::Harnesses;
    use crate::harness::samples::session;

    fn file(dir: &Path, name: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        fs::create_dir_all(dir).expect("a directory");
        fs::write(&path, "#!/bin/sh\n").expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        path
    }

    #[test]
    fn the_directory_is_looked_at_first_and_by_its_own_name() {
        let root = tempfile::tempdir().expect("a directory");
        let harnesses = Harnesses::new(&Default::default()).expect("harnesses");
        let claude = harnesses.get("claude").expect("claude");
        let program = file(&root.path().join("bin"), "claude", 0o755);
        let path = root.path().join("bin").into_os_string();
        let asked = |cwd: &Path, path: &OsStr| {
            preflight(claude, &Session { cwd: cwd.into(), ..session("claude", "x") }, Some(path))
        };
        assert_eq!(asked(root.path(), &path), Ok(program.clone()));
        for cwd in [root.path().join("nowhere"), program] {
            let failure = asked(&cwd, OsStr::new("")).expect_err("no directory");
            assert_eq!(failure.kind, FailureKind::DirectoryMissing);
            assert!(failure.message.contains(&cwd.display().to_string()), "{}", failure.message);
        }
    }

    #[test]
    fn the_first_executable_on_the_path_is_meant() {
        let root = tempfile::tempdir().expect("a directory");
        let (first, second) = (root.path().join("1"), root.path().join("2"));
        file(&first, "agent", 0o644);
        let program = file(&second, "agent", 0o755);
        let on = |dirs: &[&Path]| {
            let path = std::env::join_paths(dirs).expect("a PATH");
            found("agent", root.path(), Some(&path))
        };
        assert_eq!(on(&[&first, &second]), Ok(program));
        assert!(on(&[&first]).expect_err("no program").contains("not an executable file"));
        let nothing = on(&[root.path()]).expect_err("no program");
        assert!(nothing.contains("`agent` is not on PATH"), "{nothing}");
        assert!(found("agent", root.path(), None).expect_err("no PATH").contains("PATH is empty"));
    }

    #[test]
    fn a_path_is_taken_from_the_sessions_directory() {
        let root = tempfile::tempdir().expect("a directory");
        let program = file(&root.path().join("tools"), "agent", 0o755);
        assert_eq!(found("tools/agent", root.path(), None), Ok(program.clone()));
        assert_eq!(found(&program.display().to_string(), Path::new("/"), None), Ok(program));
        assert!(found("tools/other", root.path(), None).expect_err("no program").contains("is not there"));
    }
}
