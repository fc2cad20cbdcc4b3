//! MCP servers whose events are watched: whether each can be reached, and what it offers.

use super::Check;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::watches;
use crate::config::Settings;
use crate::daemon::{self, watching};
use crate::domain::{Watch, chain};
use crate::store::{Access, Db};

/// Connects to each configured server once, as a watch would.
pub(super) fn servers(context: &Context, settings: &Settings) -> Result<Vec<Check>, Failure> {
    let servers = watches::servers(context, settings)?;
    let mut checks = Vec::new();
    for server in &servers {
        let about = format!("mcp server {}", server.name);
        if let (Some(why), true) = (&server.trouble, daemon::holder(&context.state_dir()?).is_some()) {
            checks
                .push(Check::ok(about, format!("{why} here, but the running server may have it; see the-loop status")));
            continue;
        }
        checks.push(match watches::wait(watching::look(server))? {
            Ok(offers) if offers.is_empty() => {
                Check::remark(about, "it offers no events", "see what it is meant to offer")
            }
            Ok(offers) => {
                let ways = offers.iter().filter(|offer| !server.modes_for(&offer.delivery).is_empty()).count();
                if ways == 0 {
                    let found = "none of its events can be had in a way that both sides have";
                    Check::problem(about, found, "see `delivery`; webhook needs a url, and [mcp.callback] url")
                } else {
                    Check::ok(about, format!("offers {ways} {}", if ways == 1 { "event type" } else { "event types" }))
                }
            }
            Err(error) => {
                Check::problem(about, chain(&error), format!("mend [mcp.servers.{}] or the server", server.name))
            }
        });
    }
    checks.extend(lost(context, settings)?);
    Ok(checks)
}

/// Watches whose server is not configured any more: nothing comes by them.
fn lost(context: &Context, settings: &Settings) -> Result<Vec<Check>, Failure> {
    let state_dir = context.state_dir()?;
    if !Db::exists(&state_dir) {
        return Ok(Vec::new());
    }
    // The store's own check tells of one that cannot be read.
    let watches = Db::open(&state_dir, Access::Read).and_then(|db| db.watches(true)).unwrap_or_default();
    let is_lost = |watch: &&Watch| !settings.mcp_servers.contains_key(&watch.server);
    Ok(watches
        .iter()
        .filter(is_lost)
        .map(|watch| {
            Check::problem(
                format!("watch {}", watch.id),
                format!("its server `{}` is not configured", watch.server),
                format!("bring [mcp.servers.{}] back, or the-loop watches remove {}", watch.server, watch.id),
            )
        })
        .collect())
}
