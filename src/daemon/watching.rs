//! The MCP servers whose events are watched: out of the configuration, for the server and for commands.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;

use crate::clients::http_client;
use crate::config::{DeliveryChoice, McpServer, Settings};
use crate::domain::{Mode, Secret, chain};
use crate::edges::mcp_client::Reach;
use crate::harness;

pub use crate::edges::mcp_agent::{Agent, serve as serve_agent};
pub use crate::edges::mcp_client::{LinkError, Server, beginning, look};
pub use crate::edges::mcp_server::StdioError;

/// The variable that tells a turn's processes which session they are in: its work item.
pub use crate::harness::SESSION_MARK;

/// The servers that can be used, and why others cannot.
#[derive(Debug, Default)]
pub struct Servers {
    /// Those that can.
    pub usable: Vec<Server>,
    /// The names of the others, each with what is missing.
    pub unusable: Vec<(String, String)>,
}

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
) -> Servers {
    let names = secret_names(settings);
    let mut servers = Servers::default();
    for (name, configured) in &settings.mcp_servers {
        match reach(configured, state_dir, environment, secrets, &names) {
            Ok(reach) => servers.usable.push(Server {
                name: name.clone(),
                reach,
                modes: modes(configured.delivery),
                min_poll_interval: configured.min_poll_interval.0,
                max_age: SignedDuration::try_from(configured.max_age.0).unwrap_or(SignedDuration::MAX),
                callback: settings.mcp_callback.as_ref().map(|url| url.trim_end_matches('/').to_owned()),
            }),
            Err(why) => servers.unusable.push((name.clone(), why)),
        }
    }
    servers
}

fn modes(choice: DeliveryChoice) -> Vec<Mode> {
    match choice {
        DeliveryChoice::Auto => vec![Mode::Stream, Mode::Webhook, Mode::Poll],
        DeliveryChoice::Stream => vec![Mode::Stream],
        DeliveryChoice::Webhook => vec![Mode::Webhook],
        DeliveryChoice::Poll => vec![Mode::Poll],
    }
}

fn reach(
    configured: &McpServer,
    state_dir: &Path,
    environment: &[(OsString, OsString)],
    secrets: &[Secret],
    secret_names: &[String],
) -> Result<Reach, String> {
    let variable = |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    if let Some(url) = &configured.url {
        let token = match &configured.token_env {
            None => None,
            Some(name) => {
                let value =
                    variable(name).and_then(|value| value.to_str()).map(str::trim).filter(|value| !value.is_empty());
                Some(Secret::new(name.clone(), value.ok_or_else(|| format!("`{name}` is not set"))?))
            }
        };
        let headers = configured.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let client = http_client().map_err(|error| chain(&error))?;
        return Ok(Reach::Address { url: url.clone(), token, headers, client });
    }
    let program = configured.command.clone().ok_or("it has neither a command nor a url")?;
    let mut set: BTreeMap<String, String> = configured.env.clone();
    for (theirs, ours) in configured.env_from.pairs() {
        let value = variable(&ours).and_then(|value| value.to_str()).ok_or_else(|| format!("`{ours}` is not set"))?;
        set.insert(theirs, value.to_owned());
    }
    let env = harness::turn_env(environment.iter().cloned(), secrets, secret_names, &set);
    let cwd = configured.cwd.as_ref().map_or_else(|| state_dir.to_path_buf(), PathBuf::from);
    Ok(Reach::Program { program, args: configured.args.clone(), env, cwd })
}
