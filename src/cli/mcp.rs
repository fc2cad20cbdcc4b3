//! `mcp serve`, the Events server on standard input and output; `mcp agent` and `mcp install`, the tools by which an agent
//! subscribes for itself.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};

use super::context::Context;
use super::failure::{Exit, Failure};
use super::mcp_install::{self, Install};
use super::session_register::session_variables;
use super::watches::{desk, servers, wait};
use crate::config::Settings;
use crate::daemon::{self, watching};
use crate::domain::WorkItem;
use crate::engine::Who;
use crate::harness::Harnesses;

/// `the-loop mcp …`
#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Serve the feed of events by MCP on standard input and output, beside a server that runs or not; without one, GitHub
    /// is polled from here where `[github_poll]` is enabled
    Serve,
    /// Serve the agent's own tools on standard input and output, for a harness to start
    Agent(AgentArgs),
    /// Put the agent's tools into a harness's configuration, or show how
    Install(Install),
}

/// `the-loop mcp agent`
#[derive(Args, Debug)]
pub(super) struct AgentArgs {
    /// The agent program whose tools these are [default: the one that runs this]
    #[arg(long, value_name = "NAME", requires = "session_id")]
    harness: Option<String>,
    /// The conversation's id, as the harness knows it [default: that of the session that runs this]
    #[arg(long, value_name = "ID", requires = "harness")]
    session_id: Option<String>,
}

pub(super) fn run(context: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve => serve(context),
        Command::Agent(args) => agent(context, args),
        Command::Install(install) => mcp_install::run(context, &install),
    }
}

fn serve(context: &Context) -> Result<(), Failure> {
    context.start_log();
    let settings = context.configuration(&[])?.settings;
    let state_dir = context.state_dir()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::from_error(Exit::Failed, &error))?;
    let served = runtime.block_on(daemon::run_stdio(&state_dir, settings, std::env::vars_os().collect()));
    // Reading standard input blocks a thread that cannot be waited for.
    runtime.shutdown_background();
    Ok(served?)
}

fn agent(context: &Context, args: AgentArgs) -> Result<(), Failure> {
    context.start_log();
    let settings = context.configuration(&[])?.settings;
    let servers = servers(context, &settings)?;
    let state_dir = context.state_dir()?;
    let poked = state_dir.clone();
    let agent = watching::Agent {
        servers: Arc::new(servers),
        desk: desk(context)?,
        who: who(context, args, &settings)?,
        cwd: cwd(context)?,
        harnesses: settings.harness_names(),
        poke: Arc::new(move || daemon::poke(&poked)),
    };
    wait(watching::serve_agent(agent))?.map_err(|error| Failure::from_error(Exit::Failed, &error))
}

/// Whose agent this is: what is said, else what the harness tells its children, else the turn that we are in.
fn who(context: &Context, args: AgentArgs, settings: &Settings) -> Result<Option<Who>, Failure> {
    let mark = context.environment.text(watching::SESSION_MARK);
    let work_item = mark.and_then(|text| WorkItem::parse(text).ok());
    let cwd = cwd(context)?;
    let harnesses = Harnesses::new(&settings.harness).map_err(|error| Failure::from_error(Exit::BadConfig, &error))?;
    let told = session_variables(&harnesses)
        .into_iter()
        .find_map(|(harness, variable)| Some((harness, context.environment.text(&variable)?.to_owned())));
    if let Some((harness, session_id)) = args.harness.zip(args.session_id).or(told) {
        return Ok(Some(Who { harness, session_id, cwd, work_item }));
    }
    let Some(item) = work_item else { return Ok(None) };
    let session = context.registry()?.find(&item)?;
    Ok(session.map(|session| Who {
        harness: session.harness,
        session_id: session.session_id,
        cwd: session.cwd,
        work_item: Some(item),
    }))
}

fn cwd(context: &Context) -> Result<PathBuf, Failure> {
    context.cwd.canonicalize().map_err(|error| Failure::from_error(Exit::Failed, &error))
}
