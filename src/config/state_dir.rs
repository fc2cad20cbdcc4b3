//! Which state directory is meant.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Environment, Error};

/// The directory's name, in a checkout or at home.
const NAME: &str = ".the-loop";

/// The state directory: as given, else `THE_LOOP_STATE_DIR`, else the nearest `.the-loop/` upwards from `cwd`, else
/// `~/.the-loop`. One that belongs to somebody else is passed by: its configuration would say what we run.
pub fn state_dir(given: Option<&Path>, environment: &Environment, cwd: &Path) -> Result<PathBuf, Error> {
    let named = given.map(Path::to_owned).or_else(|| environment.get("THE_LOOP_STATE_DIR").map(PathBuf::from));
    if let Some(named) = named {
        return Ok(cwd.join(named));
    }
    let me = rustix::process::geteuid().as_raw();
    let ours = |dir: &PathBuf| dir.metadata().is_ok_and(|found| found.is_dir() && found.uid() == me);
    let near = cwd.ancestors().map(|above| above.join(NAME)).find(ours);
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
        std::fs::create_dir(root.path().join(NAME)).expect("made");
        assert_eq!(found(None), root.path().join(NAME));
        std::fs::create_dir(root.path().join("a").join(NAME)).expect("made");
        assert_eq!(found(None), root.path().join("a").join(NAME));
        assert_eq!(found(Some("here")), deep.join("here"));
        assert!(matches!(state_dir(None, &Environment::default(), Path::new("/")), Err(Error::NoStateDir)));
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
