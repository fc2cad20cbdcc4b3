//! `mcp serve`: the Events server on standard input and output.

use clap::Subcommand;

use super::context::Context;
use super::failure::{Exit, Failure};
use crate::daemon;

/// `the-loop mcp …`
#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Serve the feed of events by MCP on standard input and output, beside a server that runs or not
    Serve,
}

pub(super) fn run(context: &Context, command: &Command) -> Result<(), Failure> {
    match command {
        Command::Serve => serve(context),
    }
}

fn serve(context: &Context) -> Result<(), Failure> {
    context.start_log();
    context.configuration(&[])?;
    let state_dir = context.state_dir()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::from_error(Exit::Failed, &error))?;
    let served = runtime.block_on(daemon::run_stdio(&state_dir));
    // Reading standard input blocks a thread that cannot be waited for.
    runtime.shutdown_background();
    Ok(served?)
}
