//! `doctor`: what is wrong with this set-up, and how to mend it.

mod courier;
mod github;
mod harnesses;
mod servers;
mod set_aside;
mod setup;

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::args::Json;
use super::context::Context;
use super::failure::{Exit, Failure};
use super::printer::relative;
use crate::config::Settings;
use crate::daemon;
use crate::store::{Access, Db, Refused};

/// How many refusals are shown.
const REFUSALS: usize = 5;

/// `the-loop doctor`
#[derive(Args, Debug)]
pub(super) struct Doctor {
    #[command(flatten)]
    json: Json,
    /// Move a database that cannot be read away, so that the server can begin a new one; it is kept beside
    #[arg(long, conflicts_with = "json")]
    set_aside_database: bool,
}

/// How a check came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// As it should be.
    Ok,
    /// It works, but a person should know.
    Remark,
    /// It does not work.
    Problem,
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Check {
    about: String,
    verdict: Verdict,
    found: String,
    mend: Option<String>,
}

impl Check {
    fn ok(about: impl Into<String>, found: impl Into<String>) -> Self {
        Self { about: about.into(), verdict: Verdict::Ok, found: found.into(), mend: None }
    }

    fn remark(about: impl Into<String>, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { about: about.into(), verdict: Verdict::Remark, found: found.into(), mend: Some(mend.into()) }
    }

    fn problem(about: impl Into<String>, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { about: about.into(), verdict: Verdict::Problem, found: found.into(), mend: Some(mend.into()) }
    }
}

pub(super) fn run(context: &Context, doctor: &Doctor) -> Result<(), Failure> {
    let state_dir = context.state_dir()?;
    if doctor.set_aside_database {
        return set_aside::run(context, &state_dir);
    }
    let server = daemon::holder(&state_dir);
    let mut checks = Vec::new();
    let settings = match context.configuration(&[]) {
        Ok(loaded) => {
            let file = loaded.file.as_ref().map_or_else(|| "no file, all defaults".into(), |f| f.display().to_string());
            checks.push(Check::ok("configuration", file));
            loaded.settings
        }
        Err(failure) => {
            let why = std::iter::once(failure.message).chain(failure.causes).collect::<Vec<_>>().join("; ");
            checks.push(Check::problem("configuration", why, "the-loop config check"));
            Settings::default()
        }
    };
    checks.push(setup::secret(&settings, &context.environment, server.as_ref()));
    checks.push(setup::listening(&settings, server.as_ref()));
    checks.extend(setup::state(&state_dir));
    checks.push(setup::clock(&state_dir));
    checks.extend(github::polling(&settings, &context.environment, &state_dir));
    checks.push(github::awake(&settings, &context.environment));
    checks.extend(courier::checks(&settings, &context.environment, &state_dir, server.is_some()));
    checks.extend(harnesses::programs(context, &settings, server.as_ref())?);
    checks.extend(harnesses::sessions(context, &settings)?);
    checks.extend(servers::servers(context, &settings)?);
    let refused = refusals(&state_dir);
    let problems = checks.iter().filter(|check| check.verdict == Verdict::Problem).count();
    if doctor.json.json {
        context.printer.json(&json!({"checks": checks, "refusals": refused, "problems": problems}))?;
    } else {
        show(context, &settings, &checks, &refused)?;
    }
    match problems {
        0 => Ok(()),
        1 => Err(Failure::new(Exit::Failed, "there is one problem, see above")),
        n => Err(Failure::new(Exit::Failed, format!("there are {n} problems, see above"))),
    }
}

fn show(context: &Context, settings: &Settings, checks: &[Check], refused: &[Refused]) -> Result<(), Failure> {
    let p = context.printer;
    for check in checks {
        let mark = match check.verdict {
            Verdict::Ok => "ok      ",
            Verdict::Remark => "remark  ",
            Verdict::Problem => "PROBLEM ",
        };
        p.line(&format!("{mark} {}: {}", check.about, check.found))?;
        if let Some(mend) = &check.mend {
            p.line(&format!("         {mend}"))?;
        }
    }
    let now = Timestamp::now();
    if !refused.is_empty() {
        p.line("\nThe last refusals:")?;
    }
    for refusal in refused {
        let hint = if refusal.hint.is_empty() { String::new() } else { format!(" ({})", refusal.hint) };
        p.line(&format!("  {}: {} {}{hint}", relative(refusal.at, now), refusal.status, refusal.reason))?;
    }
    p.line("\nWhat to type into GitHub (Settings, Webhooks, Add webhook):")?;
    setup::github_settings(settings).iter().try_for_each(|line| p.line(&format!("  {line}")))
}

/// The store's own checks tell of a store that cannot be read.
fn refusals(state_dir: &std::path::Path) -> Vec<Refused> {
    if !Db::exists(state_dir) {
        return Vec::new();
    }
    Db::open(state_dir, Access::Read).and_then(|db| db.last_refusals(REFUSALS)).unwrap_or_default()
}
