//! `sessions register`: a session says for which work item it waits.

use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;

use super::args::{ItemArg, Json};
use super::context::Context;
use super::failure::{Exit, Failure};
use super::poke;
use super::sessions::{Row, SessionNews};
use crate::config::Environment;
use crate::domain::{Session, SessionStatus};
use crate::harness::{Harness, Harnesses};
use crate::registry::{self, Registered};

/// `the-loop sessions register …`
#[derive(Args, Debug)]
pub(super) struct Register {
    #[command(flatten)]
    item: ItemArg,
    /// The agent program that holds the conversation [default: the one that runs this]
    #[arg(long, value_name = "NAME")]
    harness: Option<String>,
    /// The conversation's id, as the harness knows it [default: that of the session that runs this]
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
    /// The directory in which its turns run [default: the working directory]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Replace the session that the work item has
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, asked: Register) -> Result<(), Failure> {
    let cwd = directory(&context.cwd.join(asked.cwd.as_deref().unwrap_or(Path::new("."))))?;
    let work_item = context.work_item(asked.item.text(), &cwd)?;
    let settings = context.configuration(&[])?.settings;
    let harnesses = Harnesses::new(&settings.harness).map_err(|error| Failure::from_error(Exit::BadConfig, &error))?;
    let (harness, session_id) =
        who(asked.harness, asked.session_id, &context.environment, &session_variables(&harnesses))?;
    check_harness(&harness, &harnesses)?;
    check_session_id(&session_id, harnesses.get(&harness))?;
    let session = Session {
        version: Session::VERSION,
        work_item,
        harness,
        session_id,
        cwd,
        status: SessionStatus::Active,
        created_at: Timestamp::now(),
        closed_reason: None,
        repository_id: None,
        unknown: serde_json::Map::new(),
    };
    let registered = match context.registry()?.register(session.clone(), asked.force) {
        // An agent that registers itself once more asks for what is so already.
        Err(registry::Error::Taken { existing }) if is_same(&existing, &session) => {
            Registered { session: *existing, replaced: None }
        }
        registered => registered?,
    };
    // A new conversation owes nothing for what its predecessor needed.
    poke::resumed(&context.state_dir()?, &registered.session.key())?;
    let session = &registered.session;
    if asked.json.json {
        return context.printer.json(&Row::new(session, &SessionNews::default()));
    }
    let instead = match &registered.replaced {
        Some(old) if old.is_open() => format!(", in place of {} session {}", old.harness, old.session_id),
        _ => String::new(),
    };
    let Session { work_item, harness, session_id, cwd, .. } = session;
    let cwd = cwd.display();
    context.printer.line(&format!("registered {work_item}: {harness} session {session_id} in {cwd}{instead}"))?;
    context.printer.note(&format!("it is woken by {}", settings.routing.wake_on.join(", ")));
    Ok(())
}

/// Whether two records are of one conversation in one place that may be woken.
fn is_same(a: &Session, b: &Session) -> bool {
    let of =
        |session: &Session| (session.harness.clone(), session.session_id.clone(), session.cwd.clone(), session.status);
    of(a) == of(b)
}

/// The directory as one absolute path without links, as long as it is one.
fn directory(path: &Path) -> Result<PathBuf, Failure> {
    let wrong = |why: String| {
        let failure = Failure::new(Exit::Usage, format!("`{}` cannot be the session's directory", path.display()));
        Failure { causes: vec![why], ..failure }.hint("say --cwd DIR, the directory that the conversation began in")
    };
    let path = path.canonicalize().map_err(|error| wrong(error.to_string()))?;
    if !path.is_dir() {
        return Err(wrong("it is not a directory".into()));
    }
    match path.to_str() {
        Some(_) => Ok(path),
        None => Err(wrong("its name is not UTF-8".into())),
    }
}

/// Harness and session id: as said, else as the harness that runs us tells.
fn who(
    harness: Option<String>,
    session_id: Option<String>,
    environment: &Environment,
    variables: &[(String, String)],
) -> Result<(String, String), Failure> {
    let around: Vec<(&str, &str)> = variables
        .iter()
        .filter_map(|(name, variable)| environment.text(variable).map(|id| (name.as_str(), id)))
        .collect();
    let names = || around.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" and ");
    let usage = |message: String| Failure::new(Exit::Usage, message);
    match (harness, session_id) {
        (Some(harness), Some(id)) => Ok((harness, id)),
        (Some(harness), None) => match around.iter().find(|(name, _)| *name == harness) {
            Some((_, id)) => Ok((harness, (*id).to_owned())),
            None => {
                let variable = variables.iter().find(|(name, _)| *name == harness);
                let why = variable.map_or_else(String::new, |(_, variable)| format!(", and {variable} is not set"));
                Err(usage(format!("no session id is given{why}")).hint("say --session-id ID"))
            }
        },
        (None, id) => match (&around[..], id) {
            ([(harness, own)], id) => Ok(((*harness).to_owned(), id.unwrap_or_else(|| (*own).to_owned()))),
            ([], Some(_)) => Err(usage("no harness is given".into()).hint("say --harness NAME, such as claude")),
            ([], None) => Err(usage("neither harness nor session id is given, and no harness runs this".into())
                .hint("say --harness NAME --session-id ID")),
            (_, _) => Err(usage(format!("it is ambiguous whose session is meant: {} run this", names()))
                .hint("say --harness NAME")),
        },
    }
}

/// The variables in which harnesses tell the programs that they run which conversation they run in.
pub(super) fn session_variables(harnesses: &Harnesses) -> Vec<(String, String)> {
    let variable = |name: String| {
        let variable = harnesses.get(&name)?.session_env()?.to_owned();
        Some((name, variable))
    };
    harnesses.names().into_iter().filter_map(variable).collect()
}

fn check_harness(harness: &str, harnesses: &Harnesses) -> Result<(), Failure> {
    let known = harnesses.names();
    if known.iter().any(|name| name == harness) {
        return Ok(());
    }
    Err(Failure::new(Exit::Usage, format!("there is no harness `{harness}`")).hint(format!(
        "known are {}; define another as [harness.NAME] with a command in the configuration",
        known.join(", ")
    )))
}

/// An id ends up on a command line: it must not be taken for anything else there.
fn check_session_id(id: &str, harness: Option<&dyn Harness>) -> Result<(), Failure> {
    if let Some(Err(why)) = harness.map(|harness| harness.check_session_id(id)) {
        return Err(Failure { causes: vec![why], ..Failure::new(Exit::Usage, format!("`{id}` is not a session id")) }
            .hint("say the id as the harness itself prints it"));
    }
    let right = (1..=200).contains(&id.len())
        && !id.starts_with('-')
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b));
    if right {
        return Ok(());
    }
    Err(Failure::new(Exit::Usage, format!("`{id}` is not a session id"))
        .hint("an id is 1 to 200 letters, digits, . _ : - and does not begin with -"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(harness: &str, id: &str, environment: &[(&str, &str)]) -> Result<(String, String), String> {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let harnesses = Harnesses::new(&std::collections::BTreeMap::new()).expect("built in");
        let variables = session_variables(&harnesses);
        who(given(harness), given(id), &environment.iter().copied().collect(), &variables)
            .map_err(|failure| failure.message)
    }

    #[test]
    fn the_session_around_us_is_the_default() {
        const CLAUDE: (&str, &str) = ("CLAUDE_CODE_SESSION_ID", "c-1");
        const CODEX: (&str, &str) = ("CODEX_THREAD_ID", "x-1");
        let ok = |harness: &str, id: &str| Ok((harness.to_owned(), id.to_owned()));
        assert_eq!(asked("", "", &[CLAUDE]), ok("claude", "c-1"));
        assert_eq!(asked("", "", &[CODEX]), ok("codex", "x-1"));
        assert_eq!(asked("", "", &[("COPILOT_AGENT_SESSION_ID", "p-1")]), ok("copilot", "p-1"));
        assert_eq!(asked("cursor", "u-1", &[CLAUDE]), ok("cursor", "u-1"));
        assert_eq!(asked("", "other", &[CLAUDE]), ok("claude", "other"));
        assert_eq!(asked("codex", "", &[CLAUDE, CODEX]), ok("codex", "x-1"));
        let both = asked("", "", &[CLAUDE, CODEX]).expect_err("a guess was made");
        assert!(both.contains("claude and codex"), "{both}");
        assert!(asked("", "id", &[CLAUDE, CODEX]).is_err());
        assert!(asked("", "", &[]).is_err());
        let unset = asked("codex", "", &[CLAUDE]).expect_err("another harness's id was taken");
        assert!(unset.contains("CODEX_THREAD_ID"), "{unset}");
    }

    #[test]
    fn ids_are_checked() {
        for id in ["a", "5e55-0001", "019b:x_y.z", &"a".repeat(200)] {
            assert_eq!(check_session_id(id, None), Ok(()), "{id}");
        }
        for id in ["", "-x", "a b", "a/b", "$(x)", "a\n", "ä", &"a".repeat(201)] {
            assert!(check_session_id(id, None).is_err(), "{id}");
        }
    }
}
