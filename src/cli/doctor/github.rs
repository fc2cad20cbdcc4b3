//! Polling and the machine's sleep.

use std::path::Path;

use jiff::Timestamp;

use super::Check;
use crate::cli::printer::relative;
use crate::clients;
use crate::config::{Environment, KeepAwake, Settings};
use crate::daemon;
use crate::domain::RepoName;
use crate::registry::Registry;
use crate::store::{Access, Db};

/// Whether GitHub can be polled, and how each repository fares.
pub(super) fn polling(settings: &Settings, environment: &Environment, state_dir: &Path) -> Vec<Check> {
    if !settings.github_poll.enabled {
        return vec![Check::ok("polling", "github_poll.enabled is false: GitHub is not asked")];
    }
    let listing = Registry::open(state_dir).and_then(|registry| registry.read()).unwrap_or_default();
    let open = listing.sessions.iter().filter(|session| session.is_open());
    let mut hosts: Vec<String> =
        open.filter_map(|session| session.work_item.repo()).map(RepoName::host).map(str::to_ascii_lowercase).collect();
    hosts.push("github.com".into());
    hosts.sort();
    hosts.dedup();
    let variable = |name: &str| environment.text(name).map(str::to_owned);
    let token = |host: &String| match clients::github_token(host, &variable) {
        Ok(token) => Check::ok("token", format!("for {host} from {}", token.name())),
        Err(why) => Check::problem(
            "token",
            format!("for {host} {why}"),
            format!("gh auth login --hostname {host}, or set {}", clients::token_variables(host).join(" or ")),
        ),
    };
    let mut checks: Vec<Check> = hosts.iter().map(token).collect();
    if !Db::exists(state_dir) {
        return checks;
    }
    let rows = Db::open(state_dir, Access::Read).and_then(|db| db.polls()).unwrap_or_default();
    let now = Timestamp::now();
    checks.extend(rows.iter().map(|row| match &row.trouble {
        Some(trouble) => {
            let next = row.next_at.map_or_else(String::new, |at| format!("; it is asked again {}", relative(at, now)));
            Check::remark(
                "polling",
                format!("{}: {trouble}{next}", row.repository),
                "see the token's rights and GitHub's status",
            )
        }
        None => Check::ok("polling", format!("{}, since {}", row.repository, relative(row.since, now))),
    }));
    checks
}

/// Whether the machine can be kept awake, where that is wanted.
pub(super) fn awake(settings: &Settings, environment: &Environment) -> Check {
    if settings.dispatch.keep_awake == KeepAwake::Never {
        return Check::ok("keep awake", "dispatch.keep_awake is \"never\"");
    }
    match daemon::can_keep_awake(environment.get("PATH")) {
        Ok(()) => Check::ok("keep awake", "the machine does not fall asleep by itself while there is a reason"),
        Err(why) => Check::remark(
            "keep awake",
            format!("the machine may fall asleep while an agent works: {why}"),
            "on a machine that never sleeps this is nothing; dispatch.keep_awake = \"never\" ends this remark",
        ),
    }
}
