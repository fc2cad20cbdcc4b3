//! Programs and data of others, from npm: installed once, into a directory that builds keep.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where it is set, a test that cannot have what it needs from npm fails and is not left out.
const MUST: &str = "THE_LOOP_TESTS_MUST_RUN";

/// The directory of the installed package `NAME@VERSION`, or `None` after a notice that says why it is not to be had.
pub fn package(name: &str, version: &str) -> Option<PathBuf> {
    match installed(name, version) {
        Ok(dir) => Some(dir),
        Err(why) => {
            let notice = format!("{name}@{version} is not to be had from npm: {why}");
            assert!(std::env::var_os(MUST).is_none(), "{notice}");
            // Not by a macro: what macros print of a test that passes is not shown.
            writeln!(std::io::stderr(), "LEFT OUT: {notice}").expect("stderr");
            None
        }
    }
}

fn installed(name: &str, version: &str) -> Result<PathBuf, String> {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("npm");
    fs::create_dir_all(&cache).map_err(|error| error.to_string())?;
    let slug = format!("{}-{version}", name.trim_start_matches('@').replace('/', "-"));
    // Tests run at the same time, and one of them installs.
    let lock = File::create(cache.join(format!("{slug}.lock"))).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    let dir = cache.join(&slug);
    let package = dir.join("node_modules").join(name);
    if package.is_dir() {
        return Ok(package);
    }
    // It gets its name when it is whole.
    let partial = cache.join(format!("{slug}.partial"));
    drop(fs::remove_dir_all(&partial));
    fs::create_dir(&partial).map_err(|error| error.to_string())?;
    let done = Command::new("npm")
        .args(["install", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--prefix"])
        .arg(&partial)
        .arg(format!("{name}@{version}"))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("npm cannot be run: {error}"))?;
    if !done.status.success() {
        let words = String::from_utf8_lossy(&done.stderr);
        return Err(format!("npm install: {}: {}", done.status, words.lines().take(3).collect::<Vec<_>>().join(" ")));
    }
    fs::rename(&partial, &dir).map_err(|error| error.to_string())?;
    if package.is_dir() { Ok(package) } else { Err(format!("npm installed no {}", package.display())) }
}
