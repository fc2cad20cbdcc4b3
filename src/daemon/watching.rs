//! The MCP servers whose events are watched: out of the configuration, for the server and for commands.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;

use crate::clients::{SetUpError, http_client};
use crate::config::{DeliveryChoice, McpServer, Settings};
use crate::domain::{Mode, Secret};
use crate::edges::mcp_client::Reach;
use crate::harness;

pub use crate::edges::mcp_agent::{Agent, serve as serve_agent};
pub use crate::edges::mcp_client::{LinkError, Server, beginning, begun, look, offers, offers_of_all};
pub use crate::edges::mcp_server::StdioError;

/// The variable that tells a turn's processes which session they are in: its work item.
pub use crate::harness::SESSION_MARK;

/// The variables that hold, or may hold, a secret of ours: no child gets them.
pub fn secret_names(settings: &Settings) -> Vec<String> {
    let theirs = settings.mcp_servers.values().filter_map(|server| server.token_env.clone());
    let ours = settings.mcp.tokens.iter().map(|token| token.token_env.clone());
    settings.gh_webhook.secret_env.iter().cloned().chain(ours).chain(theirs).collect()
}

/// The configured servers, with the environment of those that are programs: a turn's, and what the configuration adds.
pub fn servers(
    settings: &Settings,
    state_dir: &Path,
    environment: &[(OsString, OsString)],
    secrets: &[Secret],
) -> Result<Vec<Server>, SetUpError> {
    let names = secret_names(settings);
    let client = http_client()?;
    let each = settings.mcp_servers.iter().map(|(name, configured)| {
        let mut missing = Vec::new();
        let reach = match &configured.url {
            Some(url) => Reach::Address {
                url: url.clone(),
                token: token(configured, environment, &mut missing),
                headers: configured.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
                client: client.clone(),
            },
            None => Reach::Program {
                program: configured.command.clone().unwrap_or_default(),
                args: configured.args.clone(),
                env: child_environment(configured, environment, secrets, &names, &mut missing),
                cwd: configured.cwd.as_ref().map_or_else(|| state_dir.to_path_buf(), PathBuf::from),
            },
        };
        Server {
            name: name.clone(),
            reach,
            modes: modes(configured.delivery),
            min_poll_interval: configured.min_poll_interval.0,
            max_age: SignedDuration::try_from(configured.max_age.0).unwrap_or(SignedDuration::MAX),
            timeout: configured.timeout.0,
            callback: settings.mcp_callback.as_ref().map(|url| url.trim_end_matches('/').to_owned()),
            trouble: (!missing.is_empty()).then(|| format!("{} is not set", missing.join(" and "))),
        }
    });
    Ok(each.collect())
}

fn modes(choice: DeliveryChoice) -> Vec<Mode> {
    match choice {
        DeliveryChoice::Auto => vec![Mode::Stream, Mode::Webhook, Mode::Poll],
        DeliveryChoice::Stream => vec![Mode::Stream],
        DeliveryChoice::Webhook => vec![Mode::Webhook],
        DeliveryChoice::Poll => vec![Mode::Poll],
    }
}

fn variable<'a>(environment: &'a [(OsString, OsString)], name: &str) -> Option<&'a str> {
    environment.iter().find(|(known, _)| known == name).and_then(|(_, value)| value.to_str())
}

/// The token of a server; the name of its variable goes to `missing` where that is not set.
fn token(configured: &McpServer, environment: &[(OsString, OsString)], missing: &mut Vec<String>) -> Option<Secret> {
    let name = configured.token_env.as_ref()?;
    let value = variable(environment, name).map(str::trim).filter(|value| !value.is_empty());
    if value.is_none() {
        missing.push(format!("`{name}`"));
    }
    value.map(|value| Secret::new(name.clone(), value))
}

/// What a turn gets, and what the configuration adds.
fn child_environment(
    configured: &McpServer,
    environment: &[(OsString, OsString)],
    secrets: &[Secret],
    secret_names: &[String],
    missing: &mut Vec<String>,
) -> Vec<(OsString, OsString)> {
    let mut set: BTreeMap<String, String> = configured.env.clone();
    for (theirs, ours) in configured.env_from.pairs() {
        match variable(environment, &ours) {
            Some(value) => drop(set.insert(theirs, value.to_owned())),
            None => missing.push(format!("`{ours}`")),
        }
    }
    harness::turn_env(environment.iter().cloned(), secrets, secret_names, &set)
}
