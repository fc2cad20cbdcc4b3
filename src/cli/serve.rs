//! `gh-webhook serve`: the server in the foreground.

use clap::Args;

use super::context::Context;
use super::failure::{Exit, Failure};
use crate::config;
use crate::daemon::{self, Start};

/// `the-loop gh-webhook serve`
#[derive(Args, Debug)]
pub(super) struct Serve {
    /// The address to listen at
    #[arg(long, value_name = "ADDRESS")]
    host: Option<String>,
    /// The port to listen at; 0 takes any that is free
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// The path that GitHub posts to
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// When told to stop, wait for running turns first
    #[arg(long)]
    drain: bool,
}

impl Serve {
    fn flags(&self) -> Vec<(&'static str, String)> {
        let port = self.port.map(|port| port.to_string());
        [("gh_webhook.host", self.host.clone()), ("gh_webhook.port", port), ("gh_webhook.path", self.path.clone())]
            .into_iter()
            .filter_map(|(key, value)| value.map(|value| (key, value)))
            .collect()
    }
}

pub(super) fn run(context: &Context, serve: &Serve) -> Result<(), Failure> {
    context.start_log();
    let loaded = context.configuration(&serve.flags())?;
    let (settings, config_file) = (loaded.settings, loaded.file.map(|file| context.cwd.join(file)));
    let secrets = config::secrets(&settings.gh_webhook.secret_env, &context.environment)?;
    let path = settings.gh_webhook.path.clone();
    let start = Start {
        settings,
        state_dir: context.state_dir()?,
        config_file,
        secrets,
        environment: std::env::vars_os().collect(),
        drain: serve.drain,
    };
    // A relative path or a directory that goes away under us must not matter: turns have directories of their own.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::from_error(Exit::Failed, &error))?;
    let printer = context.printer;
    let ran = runtime.block_on(daemon::run(start, |address| {
        if let Err(failure) = printer.line(&format!("listening on http://{address}{path}")) {
            tracing::debug!(reason = failure.message, "nobody reads our standard output");
        }
    }));
    runtime.shutdown_background();
    Ok(ran?)
}

impl From<daemon::Error> for Failure {
    fn from(error: daemon::Error) -> Self {
        use daemon::Error;
        match &error {
            Error::Held { holder, .. } => Self::from_error(Exit::InUse, &error)
                .hint(format!("stop it first (kill {}), or give this one another --state-dir", holder.pid)),
            Error::Bind { .. } => Self::from_error(Exit::Failed, &error)
                .hint("another program may have the port: say --port N, or 0 for any that is free"),
            Error::Harness(_) => Self::from_error(Exit::BadConfig, &error),
            _ => Self::from_error(Exit::Failed, &error),
        }
    }
}
