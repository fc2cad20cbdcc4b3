//! Floor 9: words in, words out, exit codes. One file per noun.

mod args;
mod backfill;
mod checkout;
mod config;
mod context;
mod deliveries;
mod demo;
mod doctor;
mod explain;
pub mod failure;
mod gh_webhook;
mod links;
mod mcp;
mod mcp_install;
mod poke;
pub mod printer;
mod samples;
mod serve;
mod session_news;
mod session_register;
mod sessions;
mod status;
mod subscriptions;
mod turns;
mod watches;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use context::Context;
use failure::Exit;
use printer::Printer;

/// Runs the command line and gives the exit code.
pub fn main() -> ExitCode {
    // The shim of a turn starts often and must start fast: it takes no part in all of this.
    let mut words = std::env::args_os().skip(1);
    if let (Some(command), Some(dir)) = (words.next(), words.next())
        && command == crate::harness::SHIM_COMMAND
    {
        return crate::harness::shim(dir.as_ref());
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            Printer::new(false).clap(&error);
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage as u8));
        }
    };
    let printer = Printer::new(cli.global.quiet);
    let done = Context::new(cli.global, printer).and_then(|context| match cli.command {
        Command::Serve(args) => serve::all(&context, &args),
        Command::GhWebhook(command) => gh_webhook::run(&context, command),
        Command::Deliveries(command) => deliveries::run(&context, command),
        Command::Turns(command) => turns::run(&context, command),
        Command::Mcp(command) => mcp::run(&context, command),
        Command::Subscriptions(command) => subscriptions::run(&context, command),
        Command::Status(json) => status::run(&context, json),
        Command::Doctor(args) => doctor::run(&context, &args),
        Command::Demo(demo) => demo::run(&context, &demo),
        Command::DemoHarness { session_id } => demo::harness(&context, &session_id),
        Command::Sessions(command) => sessions::run(&context, command),
        Command::Watches(command) => watches::run(&context, command),
        Command::Config(command) => config::run(&context, command),
    });
    match done {
        Ok(()) => Exit::Done.into(),
        Err(failure) => {
            printer.failure(&failure);
            failure.code.into()
        }
    }
}
