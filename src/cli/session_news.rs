//! What the store knows of sessions.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::context::Context;
use super::failure::Failure;
use super::sessions::SessionNews;
use crate::daemon;
use crate::domain::SessionKey;
use crate::engine;
use crate::store::{Access, Db};

/// The news of every session that has any.
pub(super) fn news(context: &Context) -> Result<BTreeMap<SessionKey, SessionNews>, Failure> {
    let state_dir = context.state_dir()?;
    if !Db::exists(&state_dir) {
        return Ok(BTreeMap::new());
    }
    let settings = daemon::dispatcher_settings(&context.configuration(&[])?.settings);
    let db = Db::open(&state_dir, Access::Read)?;
    let now = Timestamp::now();
    let mut news: BTreeMap<SessionKey, SessionNews> = BTreeMap::new();
    for (key, state) in db.session_states()? {
        let entry = news.entry(key).or_default();
        entry.last_event_at = state.last_event_at;
        entry.needs_attention = state.attention;
        entry.held = state
            .retry_at
            .filter(|at| *at > now)
            .map(|at| format!("its last turn failed; it will be tried again {}", super::printer::relative(at, now)));
    }
    for (key, waiting) in db.count_waiting()? {
        let over = engine::over_budget(&db, &key, &settings, now)?;
        let entry = news.entry(key).or_default();
        entry.pending = waiting;
        if let Some((_, why)) = over {
            entry.held = Some(why);
        }
    }
    Ok(news)
}
