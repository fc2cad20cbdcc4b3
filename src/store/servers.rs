//! The servers whose events are watched: how they stand, and what they offer, for those who cannot ask them.

use jiff::Timestamp;
use rusqlite::params;

use super::db::{millis, moment};
use super::{Db, Error};
use crate::domain::EventOffer;

/// How a server stood when it was last heard of.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ServerState {
    /// Its configured name.
    pub server: String,
    /// Since when we are connected; none while we are not.
    pub connected_since: Option<Timestamp>,
    /// When it last answered.
    pub checked_at: Option<Timestamp>,
    /// When it is tried again.
    pub next_at: Option<Timestamp>,
    /// Why it cannot be used.
    pub problem: Option<String>,
}

impl Db {
    /// Keeps how a server stands, for commands to show.
    pub fn set_server_state(&self, state: &ServerState) -> Result<(), Error> {
        self.execute(
            "note how a server stands",
            "INSERT INTO mcp_servers (name, connected_since, checked_at, next_at, problem) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT DO UPDATE SET connected_since = excluded.connected_since,
                 checked_at = coalesce(excluded.checked_at, checked_at), next_at = excluded.next_at,
                 problem = excluded.problem",
            params![
                state.server,
                state.connected_since.map(millis),
                state.checked_at.map(millis),
                state.next_at.map(millis),
                state.problem
            ],
        )
        .map(|_| ())
    }

    /// How the servers stood when they were last heard of.
    pub fn server_states(&self) -> Result<Vec<ServerState>, Error> {
        self.all(
            "read how servers stand",
            "SELECT s.name, s.connected_since, max(coalesce(s.checked_at, 0), coalesce((SELECT max(w.checked_at) FROM watches w
                 WHERE w.server = s.name AND w.state = 'active'), 0)), s.next_at, s.problem FROM mcp_servers s ORDER BY s.name",
            (),
            |row| {
                Ok(ServerState {
                    server: row.get(0)?,
                    connected_since: row.get::<_, Option<i64>>(1)?.map(moment),
                    checked_at: Some(row.get::<_, i64>(2)?).filter(|at| *at > 0).map(moment),
                    next_at: row.get::<_, Option<i64>>(3)?.map(moment),
                    problem: row.get(4)?,
                })
            },
        )
    }

    /// A new server knows nothing yet of how others stand.
    pub fn forget_server_states(&self) -> Result<(), Error> {
        let sql = "UPDATE mcp_servers SET connected_since = NULL, next_at = NULL, problem = NULL";
        self.execute("forget how servers stood", sql, ()).map(|_| ())
    }

    /// Asks the running server to look at what an MCP server offers.
    pub fn want_offers(&self, server: &str, now: Timestamp) -> Result<(), Error> {
        self.execute(
            "ask for what a server offers",
            "INSERT INTO mcp_servers (name, wanted_at) VALUES (?1, ?2)
             ON CONFLICT DO UPDATE SET wanted_at = excluded.wanted_at",
            params![server, millis(now)],
        )
        .map(|_| ())
    }

    /// The servers that somebody has wanted looked at since `since`, and that were not.
    pub fn offers_wanted(&self, since: Timestamp) -> Result<Vec<String>, Error> {
        self.all(
            "find what is asked for",
            "SELECT name FROM mcp_servers WHERE wanted_at >= ?1 AND wanted_at > coalesce(looked_at, 0)",
            [millis(since)],
            |row| row.get(0),
        )
    }

    /// Keeps what a server offers.
    pub fn set_offers(&self, server: &str, offers: &[EventOffer], now: Timestamp) -> Result<(), Error> {
        let offered = serde_json::to_string(offers).map_err(|error| Error::content("offer", error))?;
        self.execute(
            "keep what a server offers",
            "INSERT INTO mcp_servers (name, offers, looked_at) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET offers = excluded.offers, looked_at = excluded.looked_at",
            params![server, offered, millis(now)],
        )
        .map(|_| ())
    }

    /// What a server offered when it was looked at after `since`.
    pub fn offers(&self, server: &str, since: Timestamp) -> Result<Option<Vec<EventOffer>>, Error> {
        let found = self.one(
            "read what a server offers",
            "SELECT offers FROM mcp_servers WHERE name = ?1 AND looked_at >= ?2 AND offers IS NOT NULL",
            params![server, millis(since)],
            |row| row.get::<_, String>(0),
        )?;
        found.map(|text| serde_json::from_str(&text).map_err(|error| Error::content("offer", error))).transpose()
    }
}
