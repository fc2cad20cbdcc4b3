//! Principals as the server was last configured, so that what is owed follows what they may see.

use jiff::Timestamp;
use rusqlite::{Row, params};

use super::{Db, Error};
use crate::domain::{Access, Principal};

impl Db {
    /// Makes these the principals, and ends the subscriptions that none of them may have any more; how many.
    pub fn set_principals(&self, principals: &[Principal], now: Timestamp) -> Result<usize, Error> {
        self.execute("forget principals", "DELETE FROM principals", ())?;
        for principal in principals {
            let json = |list: &Vec<String>| serde_json::to_string(list).map_err(|e| Error::content("principal", e));
            let repositories = principal.access.repositories.as_ref().map(json).transpose()?;
            self.execute(
                "keep a principal",
                "INSERT INTO principals (name, repositories, acts_as) VALUES (?1, ?2, ?3)",
                params![principal.name, repositories, json(&principal.access.acts_as)?],
            )?;
        }
        let mut ended = 0;
        for subscription in self.subscriptions()? {
            let access = principals.iter().find(|known| known.name == subscription.principal);
            let repository = subscription.arguments.get("repository").and_then(serde_json::Value::as_str);
            let allowed = access.is_some_and(|p| repository.is_none_or(|name| p.access.allows(Some(name))));
            if !allowed && self.end_subscription(&subscription.id, now)? {
                ended += 1;
            }
        }
        Ok(ended)
    }

    /// What a principal may see; `None` for one that is not configured.
    pub fn access(&self, principal: &str) -> Result<Option<Access>, Error> {
        let sql = "SELECT repositories, acts_as FROM principals WHERE name = ?1";
        self.one("read a principal", sql, [principal], |row| raw_access(row, 0))?.map(read_access).transpose()
    }
}

pub(super) type RawAccess = (Option<String>, String);

pub(super) fn raw_access(row: &Row<'_>, at: usize) -> rusqlite::Result<RawAccess> {
    Ok((row.get(at)?, row.get(at + 1)?))
}

pub(super) fn read_access((repositories, acts_as): RawAccess) -> Result<Access, Error> {
    let list = |text: &str| serde_json::from_str(text).map_err(|error| Error::content("principal", error));
    Ok(Access { repositories: repositories.as_deref().map(list).transpose()?, acts_as: list(&acts_as)? })
}
