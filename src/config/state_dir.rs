//! Which state directory is meant.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Environment, Error};

/// The directory's name, in a checkout or at home.
const NAME: &str = ".the-loop";

/// The state directory: as given, else `THE_LOOP_STATE_DIR`, else the nearest `.the-loop/` upwards from `cwd`, else
/// `~/.the-loop`. One that belongs to somebody else is passed by: its configuration would say what we run. One that
/// others can enter is refused: a `.the-loop/` that came with a clone looks like that, and would say the same.
pub fn state_dir(given: Option<&Path>, environment: &Environment, cwd: &Path) -> Result<PathBuf, Error> {
    let named = given.map(Path::to_owned).or_else(|| environment.get("THE_LOOP_STATE_DIR").map(PathBuf::from));
    if let Some(named) = named {
        return Ok(cwd.join(named));
    }
    let me = rustix::process::geteuid().as_raw();
    let ours = |dir: &PathBuf| dir.metadata().is_ok_and(|found| found.is_dir() && found.uid() == me);
    let near = cwd.ancestors().map(|above| above.join(NAME)).find(ours);
    if let Some(near) = &near
        && near.metadata().is_ok_and(|found| found.mode() & 0o077 != 0)
    {
        return Err(Error::NotPrivate { path: near.clone() });
    }
    near.or_else(|| environment.get("HOME").map(|home| Path::new(home).join(NAME))).ok_or(Error::NoStateDir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_counts() {
        let root = tempfile::tempdir().expect("tempdir");
        let deep = root.path().join("a/b");
        std::fs::create_dir_all(&deep).expect("deep");
        let home = Environment::from_iter([("HOME", root.path().join("home"))]);
        let found = |given: Option<&str>| state_dir(given.map(Path::new), &home, &deep).expect("found");
        assert_eq!(found(None), root.path().join("home/.the-loop"));
        make(&root.path().join(NAME), 0o700);
        assert_eq!(found(None), root.path().join(NAME));
        make(&root.path().join("a").join(NAME), 0o700);
        assert_eq!(found(None), root.path().join("a").join(NAME));
        assert_eq!(found(Some("here")), deep.join("here"));
        assert!(matches!(state_dir(None, &Environment::default(), Path::new("/")), Err(Error::NoStateDir)));
    }

    fn make(dir: &Path, mode: u32) {
        use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
        std::fs::DirBuilder::new().mode(mode).create(dir).expect("made");
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode)).expect("mode");
    }

    #[test]
    fn one_that_may_have_come_with_a_clone_is_refused_unless_it_is_named() {
        let clone = tempfile::tempdir().expect("tempdir");
        let dir = clone.path().join(NAME);
        make(&dir, 0o755);
        let home = Environment::from_iter([("HOME", "/home/me")]);
        let refused = state_dir(None, &home, clone.path());
        assert!(matches!(refused, Err(Error::NotPrivate { path }) if path == dir));
        assert_eq!(state_dir(Some(&dir), &home, clone.path()).expect("named"), dir);
    }

    #[test]
    fn the_variable_counts_below_the_flag() {
        let environment = Environment::from_iter([("THE_LOOP_STATE_DIR", "/env")]);
        assert_eq!(state_dir(None, &environment, Path::new("/")).expect("env"), Path::new("/env"));
        assert_eq!(
            state_dir(Some(Path::new("/flag")), &environment, Path::new("/")).expect("flag"),
            Path::new("/flag")
        );
    }
}
