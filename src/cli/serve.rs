//! `serve` and `gh-webhook serve`: the server in the foreground.

use clap::Args;

use super::context::Context;
use super::failure::{Exit, Failure};
use crate::config::{self, Loaded};
use crate::daemon::{self, Start};
use crate::domain::Secret;

/// `the-loop serve` and `the-loop gh-webhook serve`
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

/// Serves the webhook, which must be set up, and whatever else is.
pub(super) fn webhook(context: &Context, serve: &Serve) -> Result<(), Failure> {
    context.start_log();
    let loaded = context.configuration(&serve.flags())?;
    let secrets = config::secrets(&loaded.settings.gh_webhook.secret_env, &context.environment)?;
    let path = loaded.settings.gh_webhook.path.clone();
    run(context, serve, loaded, secrets, &path)
}

/// Serves every edge that is set up, and says which is not.
pub(super) fn all(context: &Context, serve: &Serve) -> Result<(), Failure> {
    context.start_log();
    let loaded = context.configuration(&serve.flags())?;
    let settings = &loaded.settings;
    let names = &settings.gh_webhook.secret_env;
    let secrets = config::secrets(names, &context.environment).unwrap_or_default();
    if secrets.is_empty() {
        tracing::warn!("the webhook is not served: {} is not set", names.join(", "));
    } else {
        tracing::info!("the webhook is served at {}", settings.gh_webhook.path);
    }
    if !settings.github_poll.enabled {
        tracing::info!("GitHub is not polled: github_poll.enabled is false");
    }
    if settings.mcp_servers.is_empty() {
        tracing::info!("no other MCP server is watched: none is configured as [mcp.servers.NAME]");
    }
    run(context, serve, loaded, secrets, "/")
}

fn run(context: &Context, serve: &Serve, loaded: Loaded, secrets: Vec<Secret>, path: &str) -> Result<(), Failure> {
    let (settings, config_file) = (loaded.settings, loaded.file.map(|file| context.cwd.join(file)));
    let tokens = tokens(context, &settings)?;
    let start = Start {
        settings,
        state_dir: context.state_dir()?,
        config_file,
        secrets,
        tokens,
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

/// The MCP server's tokens: one for each principal, and no two the same.
fn tokens(context: &Context, settings: &config::Settings) -> Result<Vec<Secret>, Failure> {
    let mut tokens: Vec<Secret> = Vec::new();
    if !settings.mcp.enabled {
        return Ok(tokens);
    }
    for token in &settings.mcp.tokens {
        let names = std::slice::from_ref(&token.token_env);
        let found = config::secrets(names, &context.environment).map_err(|error| {
            Failure::from(error).hint(format!(
                "make a token for the principal {} and give it to the client: export {}=$(openssl rand -hex 32)",
                token.principal, token.token_env
            ))
        })?;
        for secret in found {
            if let Some(other) = tokens.iter().find(|other| other.expose() == secret.expose()) {
                let what = format!("`{}` and `{}` hold the same token", other.name(), secret.name());
                return Err(Failure::new(Exit::BadConfig, what).hint("give each principal a token of its own"));
            }
            tokens.push(secret);
        }
    }
    Ok(tokens)
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
