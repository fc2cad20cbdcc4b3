//! The command line as a type. One file per noun holds what a command does.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

use super::{config, deliveries, demo, doctor, gh_webhook, mcp, serve, sessions, subscriptions, turns, watches};

/// Wakes a waiting coding agent when GitHub has news for it.
#[derive(Parser, Debug)]
#[command(
    name = "the-loop",
    version,
    about,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 failed, 2 usage, 3 no such thing, 4 server not running, 5 bad configuration, \
                  6 state directory in use."
)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What every command takes.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Options of every command")]
pub(super) struct Global {
    /// Where sessions, deliveries and turns are kept [env: THE_LOOP_STATE_DIR] [default: nearest .the-loop/, else ~/.the-loop]
    #[arg(long, global = true, value_name = "DIR")]
    pub(super) state_dir: Option<PathBuf>,
    /// The configuration file [env: THE_LOOP_CONFIG] [default: config.toml in the state directory]
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Say more; twice for still more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(super) verbose: u8,
    /// Say only what was asked for
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(super) quiet: bool,
}

/// The nouns.
#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Run the server: every way in that is set up, and what wakes the sessions
    Serve(serve::Serve),
    /// Receive GitHub's webhook deliveries
    #[command(subcommand)]
    GhWebhook(gh_webhook::Command),
    /// Which agent session waits for what
    #[command(subcommand)]
    Sessions(sessions::Command),
    /// What was delivered, where it went and why
    #[command(subcommand)]
    Deliveries(deliveries::Command),
    /// What was run, with what result
    #[command(subcommand)]
    Turns(turns::Command),
    /// What sessions wait for at other MCP servers
    #[command(subcommand)]
    Watches(watches::Command),
    /// The events that others may watch, by the Model Context Protocol
    #[command(subcommand)]
    Mcp(mcp::Command),
    /// Who is posted what, and how the posting fares
    #[command(subcommand)]
    Subscriptions(subscriptions::Command),
    /// Everything on one screen
    Status(Json),
    /// What is wrong with this set-up, and how to mend it
    Doctor(doctor::Doctor),
    /// The main job end to end on this machine
    Demo(demo::Demo),
    /// The agent of the demonstration
    #[command(hide = true)]
    DemoHarness {
        /// The conversation's id
        session_id: String,
    },
    /// The configuration that counts, and where each value came from
    #[command(subcommand)]
    Config(config::Command),
}

/// `--json`, for commands that list or show.
#[derive(Args, Debug, Clone, Copy)]
pub(super) struct Json {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// The work item that a command is about, as an argument or an option.
#[derive(Args, Debug, Clone)]
pub(super) struct ItemArg {
    /// The work item: OWNER/REPO#N, OWNER/REPO@BRANCH or a URL; in a checkout, N or @BRANCH is enough
    #[arg(value_name = "REF", required_unless_present = "work_item", conflicts_with = "work_item")]
    reference: Option<String>,
    /// The same as an option
    #[arg(long, value_name = "REF")]
    work_item: Option<String>,
}

impl ItemArg {
    /// The text that was given.
    pub(super) fn text(&self) -> &str {
        self.reference.as_deref().or(self.work_item.as_deref()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
