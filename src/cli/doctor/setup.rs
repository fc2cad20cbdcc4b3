//! The set-up itself: secret, port, state directory, clock, and what GitHub has to be told.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use jiff::Timestamp;

use super::Check;
use crate::config::{self, Environment, Settings};
use crate::daemon::Holder;
use crate::domain::chain;
use crate::registry::Registry;
use crate::store::{Access, Db};

/// A clock that shows an earlier time than this program's own day of birth is not set.
const BIRTH: &str = "2026-11-01T00:00:00Z";

pub(super) fn secret(settings: &Settings, environment: &Environment, server: Option<&Holder>) -> Check {
    let names = &settings.gh_webhook.secret_env;
    match config::secrets(names, environment) {
        Ok(secrets) => {
            let names: Vec<_> = secrets.iter().map(|secret| secret.name().to_owned()).collect();
            Check::ok("secret", format!("{} is set", names.join(", ")))
        }
        Err(_) if server.is_some() => {
            Check::ok("secret", format!("{} is not set here, but the running server has one", names.join(", ")))
        }
        Err(_) if settings.github_poll.enabled => Check::remark(
            "secret",
            format!("{} is not set: the-loop serve polls and takes no webhook", names.join(", ")),
            format!("for the webhook: export {}=$(openssl rand -hex 32)", names.first().map_or("", String::as_str)),
        ),
        Err(_) => Check::problem(
            "secret",
            format!("{} is not set: the server will not start", names.join(", ")),
            format!(
                "export {}=$(openssl rand -hex 32), and give GitHub the same",
                names.first().map_or("", String::as_str)
            ),
        ),
    }
}

pub(super) fn listening(settings: &Settings, server: Option<&Holder>) -> Check {
    let hook = &settings.gh_webhook;
    if let Some(holder) = server {
        let at = holder.listening.as_deref().unwrap_or("nothing yet");
        return Check::ok("server", format!("process {} listens on {at}", holder.pid));
    }
    match TcpListener::bind((hook.host.as_str(), hook.port)) {
        Ok(_) => Check::remark(
            "server",
            format!("none is running; port {} is free", hook.port),
            "start it: the-loop gh-webhook serve",
        ),
        Err(error) => Check::problem(
            "server",
            format!("none is running, and {}:{} cannot be listened on: {error}", hook.host, hook.port),
            "end the program that has the port, or set gh_webhook.port",
        ),
    }
}

pub(super) fn state(state_dir: &Path) -> Vec<Check> {
    let Ok(found) = std::fs::metadata(state_dir) else {
        return vec![Check::ok("state directory", format!("{} will be made", state_dir.display()))];
    };
    let mut checks = Vec::new();
    let mode = found.permissions().mode() & 0o777;
    checks.push(if mode & 0o077 != 0 {
        Check::remark(
            "state directory",
            format!("{} can be entered by others (mode {mode:o})", state_dir.display()),
            format!("chmod 700 '{}'", state_dir.display()),
        )
    } else {
        Check::ok("state directory", state_dir.display().to_string())
    });
    checks.push(match tempfile::tempfile_in(state_dir) {
        Ok(_) => Check::ok("disk", "the state directory can be written"),
        Err(error) => Check::problem(
            "disk",
            format!("the state directory cannot be written: {error}"),
            "make room, or give the directory to the user that runs the-loop",
        ),
    });
    if Db::exists(state_dir) {
        checks.push(match Db::open(state_dir, Access::Read).and_then(|db| db.check()) {
            Ok(()) => Check::ok("database", "sound"),
            Err(error) => Check::problem(
                "database",
                chain(&error),
                "nothing overwrites it; stop the server and set it aside: the-loop doctor --set-aside-database",
            ),
        });
    }
    match Registry::open(state_dir).and_then(|registry| registry.read()) {
        Ok(listing) => checks.extend(listing.damaged.iter().map(|damaged| {
            Check::problem(
                "session file",
                format!("{} {}", damaged.path.display(), damaged.why),
                "mend it or move it away, then register the session again; nothing overwrites it",
            )
        })),
        Err(error) => checks.push(Check::problem("sessions", chain(&error), "see that the directory can be read")),
    }
    checks
}

pub(super) fn clock(state_dir: &Path) -> Check {
    let now = Timestamp::now();
    let birth = BIRTH.parse().unwrap_or(Timestamp::UNIX_EPOCH);
    if now < birth {
        return Check::problem("clock", format!("it shows {now}, which is in the past"), "set the machine's clock");
    }
    let newest = Db::exists(state_dir)
        .then(|| Db::open(state_dir, Access::Read).and_then(|db| db.newest_delivery()).ok().flatten())
        .flatten();
    match newest {
        Some(newest) if newest > now => Check::remark(
            "clock",
            format!("it shows {now}, and a delivery came at {newest}: it was set back"),
            "nothing is lost; times in lists are off until then",
        ),
        _ => Check::ok("clock", now.to_string()),
    }
}

/// What GitHub's form asks for, and how it reaches a machine without a public address.
pub(super) fn github_settings(settings: &Settings) -> Vec<String> {
    let hook = &settings.gh_webhook;
    let mut events: Vec<_> =
        settings.routing.wake_on.iter().map(|name| name.split('.').next().unwrap_or(name).to_owned()).collect();
    events.extend(["issues", "pull_request", "push"].map(String::from));
    events.sort();
    events.dedup();
    let local = format!("http://{}:{}{}", hook.host, hook.port, hook.path);
    vec![
        format!("Payload URL   the public address of your tunnel, ending in {}", hook.path),
        "Content type  application/json".into(),
        format!("Secret        the value of {}", hook.secret_env.first().map_or("", String::as_str)),
        format!("Events        {}", events.join(", ")),
        String::new(),
        "To reach this machine without a public address:".into(),
        format!("  cloudflared tunnel --url http://{}:{}", hook.host, hook.port),
        format!("  npx smee-client --url https://smee.io/YOUR-CHANNEL --target {local}"),
        "  (a relay that prints the JSON anew breaks the signature; the refusals above would say so)".into(),
    ]
}
