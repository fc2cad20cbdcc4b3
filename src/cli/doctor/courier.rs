//! The courier's checks: whether those who subscribed get what they are owed.

use std::path::Path;

use jiff::Timestamp;

use super::Check;
use crate::config::{Environment, Settings};
use crate::store::{Access, Db};

/// Whether each principal has a token, and how the posting fares. Nothing where nobody is served.
pub(super) fn checks(settings: &Settings, environment: &Environment, state_dir: &Path, served: bool) -> Vec<Check> {
    if !settings.mcp.enabled {
        return Vec::new();
    }
    let missing: Vec<_> =
        settings.mcp.tokens.iter().filter(|token| environment.get(&token.token_env).is_none()).collect();
    let mut checks: Vec<_> = missing
        .iter()
        .map(|token| {
            let mend = format!("export {}=$(openssl rand -hex 32)", token.token_env);
            if served {
                // The server that runs has its own environment, and would not have started without it.
                let found = format!("`{}` is not set here; the server that runs has it", token.token_env);
                return Check::remark("MCP token", found, mend);
            }
            let found = format!("`{}` is not set, so {} cannot come in", token.token_env, token.principal);
            Check::problem("MCP token", found, mend)
        })
        .collect();
    if missing.is_empty() {
        checks.push(Check::ok("MCP tokens", format!("{} set", settings.mcp.tokens.len())));
    }
    // The store's own checks tell of a store that cannot be read.
    let state = Db::exists(state_dir)
        .then(|| Db::open(state_dir, Access::Read).and_then(|db| db.courier_state(Timestamp::now())).ok())
        .flatten()
        .unwrap_or_default();
    let found = format!("{} active subscriptions, {} events owed", state.active, state.owed);
    checks.push(if state.suspended + state.failing > 0 {
        let found = format!("{found}; {} failing, {} suspended", state.failing, state.suspended);
        Check::remark("subscribers", found, "the-loop subscriptions list")
    } else {
        Check::ok("subscribers", found)
    });
    checks
}
