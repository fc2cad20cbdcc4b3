//! Agent programs and sessions: found, with which version; directories and conversations there.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Check;
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::session_news;
use crate::config::Settings;
use crate::daemon::Holder;
use crate::domain::{FailureKind, Session};
use crate::harness::{self, Harnesses};

/// A program that does not tell its version by then is not waited for.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

fn all(settings: &Settings) -> Result<Harnesses, Failure> {
    Harnesses::new(&settings.harness).map_err(|error| Failure::from_error(Exit::BadConfig, &error))
}

/// The programs of the harnesses that open sessions use.
pub(super) fn programs(context: &Context, settings: &Settings, server: Option<&Holder>) -> Result<Vec<Check>, Failure> {
    let harnesses = all(settings)?;
    let open: Vec<Session> = context.registry()?.read()?.sessions.into_iter().filter(Session::is_open).collect();
    let used: BTreeSet<_> = open.iter().map(|session| session.harness.clone()).collect();
    // The server may run with another PATH than this shell: it is the one that counts.
    let path: Option<OsString> = server
        .and_then(|holder| holder.path.clone().map(OsString::from))
        .or_else(|| context.environment.get("PATH").map(Into::into));
    let whose = if server.is_some() { "the server's PATH" } else { "PATH" };
    let mut checks = Vec::new();
    for name in used {
        let about = format!("harness {name}");
        let Some(harness) = harnesses.get(&name) else {
            checks.push(Check::problem(
                about,
                "sessions use it, and it is not configured",
                "add [harness.NAME] with a command",
            ));
            continue;
        };
        let Some(session) = open.iter().find(|session| session.harness == name && session.cwd.is_dir()) else {
            continue;
        };
        checks.push(match harness::preflight(harness, session, path.as_deref()) {
            Ok(program) => Check::ok(about, format!("{} ({})", program.display(), version(&program))),
            Err(failure) if failure.kind == FailureKind::HarnessMissing => Check::problem(
                about,
                format!("{}, looked for on {whose}", failure.message),
                format!("install it, or set harness.{name}.command to its path; then restart the server if its PATH is wrong"),
            ),
            Err(failure) => Check::problem(about, failure.message, "mend that"),
        });
    }
    Ok(checks)
}

/// Directories and conversations of open sessions, and what they need a person for.
pub(super) fn sessions(context: &Context, settings: &Settings) -> Result<Vec<Check>, Failure> {
    let harnesses = all(settings)?;
    let news = session_news::news(context).unwrap_or_default();
    let home = context.environment.get("HOME").map(PathBuf::from);
    let mut checks = Vec::new();
    for session in context.registry()?.read()?.sessions.iter().filter(|session| session.is_open()) {
        let about = format!("session {}", session.work_item);
        if !session.cwd.is_dir() {
            checks.push(Check::problem(
                about,
                format!("its directory `{}` is missing", session.cwd.display()),
                "bring it back, or register the session again with another --cwd and --force",
            ));
            continue;
        }
        if let Some(attention) = news.get(&session.key()).and_then(|news| news.needs_attention.clone()) {
            checks.push(Check::problem(about, attention.reason, attention.mend));
            continue;
        }
        let places = match (&home, harnesses.get(&session.harness)) {
            (Some(home), Some(harness)) => harness.transcript_hint(home, &session.session_id),
            _ => Vec::new(),
        };
        checks.push(if places.is_empty() || places.iter().any(|place| exists(place)) {
            Check::ok(about, format!("{} session {} in {}", session.harness, session.session_id, session.cwd.display()))
        } else {
            Check::remark(
                about,
                format!(
                    "no conversation {} of {} was found in this home directory",
                    session.session_id, session.harness
                ),
                "if it is gone, register another one with --force",
            )
        });
    }
    Ok(checks)
}

/// Whether there is a path that fits the pattern, in which `*` stands for a segment or a part of one.
fn exists(pattern: &Path) -> bool {
    let mut found = vec![PathBuf::new()];
    for segment in pattern.iter() {
        let text = segment.to_string_lossy();
        let Some((before, after)) = text.split_once('*') else {
            found = found.into_iter().map(|path| path.join(segment)).filter(|path| path.exists()).collect();
            continue;
        };
        let fits =
            |name: &str| name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after);
        found = found
            .into_iter()
            .filter_map(|dir| std::fs::read_dir(dir).ok())
            .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
            .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(fits))
            .collect();
    }
    !found.is_empty()
}

/// The first line of `PROGRAM --version`.
fn version(program: &Path) -> String {
    let spawned = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = spawned else { return "it cannot be run".into() };
    let deadline = Instant::now() + VERSION_TIMEOUT;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            _ => {
                if child.kill().and_then(|()| child.wait()).is_err() {
                    return "it did not tell its version, and could not be ended".into();
                }
                return "it did not tell its version".into();
            }
        }
    }
    let mut text = String::new();
    let read = child.stdout.take().map(|stdout| stdout.take(4096).read_to_string(&mut text));
    match (read, text.lines().next()) {
        (Some(Ok(_)), Some(line)) if !line.trim().is_empty() => line.trim().to_owned(),
        _ => "it tells no version".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_segments() {
        let dir = tempfile::tempdir().expect("dir");
        std::fs::create_dir_all(dir.path().join("projects/-srv-a")).expect("made");
        std::fs::write(dir.path().join("projects/-srv-a/id-1.jsonl"), "").expect("written");
        assert!(exists(&dir.path().join("projects/*/id-1.jsonl")));
        assert!(exists(&dir.path().join("projects/*/id-*.jsonl")));
        assert!(!exists(&dir.path().join("projects/*/id-2.jsonl")));
        assert!(!exists(&dir.path().join("other/*/id-1.jsonl")));
    }
}
