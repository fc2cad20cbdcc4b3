//! What commands work with: where they are, what they were told, and the doors to state and configuration.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use super::args::Global;
use super::checkout;
use super::failure::{Exit, Failure};
use super::printer::Printer;
use crate::config::{self, Environment, Loaded};
use crate::domain::{ParseError, WorkItem};
use crate::registry::Registry;

/// One run of the program.
#[derive(Clone)]
pub(super) struct Context {
    /// The door to stdout and stderr.
    pub(super) printer: Printer,
    /// The environment at the start.
    pub(super) environment: Environment,
    /// The working directory, absolute.
    pub(super) cwd: PathBuf,
    /// The options of every command.
    pub(super) global: Global,
}

impl Context {
    pub(super) fn new(global: Global, printer: Printer) -> Result<Self, Failure> {
        let cwd = std::env::current_dir().map_err(|error| Failure {
            causes: vec![error.to_string()],
            ..Failure::new(Exit::Failed, "failed to find the working directory")
        })?;
        Ok(Self { printer, environment: Environment::of_this_process(), cwd, global })
    }

    /// Starts the log on stderr: `THE_LOOP_LOG` says what it holds, else `-v` and `-q`.
    pub(super) fn start_log(&self) {
        let level = match (self.global.quiet, self.global.verbose) {
            (true, _) => "warn",
            (false, 0) => "info",
            (false, 1) => "debug",
            (false, _) => "trace",
        };
        // A client that hangs up is no error of ours, whatever the library thinks.
        let usual = format!("{level},rmcp=warn,rmcp::service=off,rmcp::transport=off");
        let filter = self.environment.text("THE_LOOP_LOG").unwrap_or(&usual);
        let filter = tracing_subscriber::EnvFilter::try_new(filter)
            .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
        let plain = self.environment.get("NO_COLOR").is_some() || !std::io::stderr().is_terminal();
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(!plain);
        if log.with_target(false).try_init().is_err() {
            self.printer.warning("the log was started twice");
        }
    }

    /// The state directory, which may not be there yet.
    pub(super) fn state_dir(&self) -> Result<PathBuf, Failure> {
        Ok(config::state_dir(self.global.state_dir.as_deref(), &self.environment, &self.cwd)?)
    }

    /// The sessions.
    pub(super) fn registry(&self) -> Result<Registry, Failure> {
        Ok(Registry::open(&self.state_dir()?)?)
    }

    /// The configuration, with `flags` (dotted keys and values) on top. Its warnings are told.
    pub(super) fn configuration(&self, flags: &[(&str, String)]) -> Result<Loaded, Failure> {
        let loaded = config::load(&self.state_dir()?, self.global.config.as_deref(), &self.environment, flags)?;
        loaded.warnings.iter().for_each(|warning| self.printer.warning(warning));
        Ok(loaded)
    }

    /// The work item that `text` names, where the short forms mean the repository that is checked out in `dir`.
    pub(super) fn work_item(&self, text: &str, dir: &Path) -> Result<WorkItem, Failure> {
        let short = text.trim_start().starts_with(|c: char| c == '#' || c == '@' || c.is_ascii_digit());
        let wrong = |error: ParseError| Failure::new(Exit::Usage, error.to_string()).hint(ParseError::HINT);
        match WorkItem::parse(text) {
            Ok(item) => Ok(item),
            Err(error) if !short => Err(wrong(error)),
            Err(_) => {
                let repo = checkout::repository(dir, &self.environment);
                WorkItem::parse_in(text, repo.as_ref().ok()).map_err(|error| match repo {
                    Ok(_) => wrong(error),
                    Err(why) => {
                        Failure { causes: vec![format!("the short form needs a checkout, and {why}")], ..wrong(error) }
                    }
                })
            }
        }
    }
}
