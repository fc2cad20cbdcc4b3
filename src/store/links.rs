//! What belongs together, as deliveries and people have shown it.

use std::cell::RefCell;

use jiff::Timestamp;
use rusqlite::params;

use super::db::{millis, moment};
use super::{Db, Error};
use crate::domain::{DeliverySeq, Link, Node, RepoName, Repository, WorkItem};
use crate::routing::Links;

impl Db {
    /// Keeps a link; one that is known already is renewed.
    pub fn learn(&self, link: &Link, at: Timestamp) -> Result<(), Error> {
        let text = serde_json::to_string(link).map_err(|error| Error::content("link", error))?;
        self.execute(
            "keep a link",
            "INSERT INTO links (from_key, to_key, kind, link, learned_at) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT DO UPDATE SET link = excluded.link, learned_at = excluded.learned_at",
            params![link.from.key(), link.to.key(), link.kind.as_str(), text, millis(at)],
        )
        .map(|_| ())
    }

    /// Forgets the links of one kind that lead away from `node`: the pull request's text no longer says so.
    pub fn forget(&self, node: &Node, kind: crate::domain::LinkKind) -> Result<(), Error> {
        self.execute(
            "forget links",
            "DELETE FROM links WHERE from_key = ?1 AND kind = ?2",
            params![node.key(), kind.as_str()],
        )
        .map(|_| ())
    }

    /// Where `node` leads.
    pub fn links_from(&self, node: &Node) -> Result<Vec<Link>, Error> {
        let rows = self.all(
            "follow links",
            "SELECT link FROM links WHERE from_key = ?1 ORDER BY learned_at DESC, to_key",
            [node.key()],
            |row| row.get::<_, String>(0),
        )?;
        rows.iter().map(|text| serde_json::from_str(text).map_err(|error| Error::content("link", error))).collect()
    }

    /// The issues and pull requests that lead to the work item `key`, as people and pull requests have said.
    pub fn items_leading_to(&self, key: &str) -> Result<Vec<WorkItem>, Error> {
        let rows = self.all(
            "follow links backwards",
            "SELECT link FROM links WHERE to_key = ?1 AND kind IN ('recorded', 'closes', 'transferred')",
            [key],
            |row| row.get::<_, String>(0),
        )?;
        let mut items = Vec::new();
        for text in rows {
            let link: Link = serde_json::from_str(&text).map_err(|error| Error::content("link", error))?;
            if let Node::Item(item) = link.from {
                items.push(item);
            }
        }
        Ok(items)
    }

    /// Remembers that the issue or pull request of this topic was reopened: what closed it before that is no news.
    pub(super) fn learn_reopened(&self, topic: &str, at: Timestamp) -> Result<(), Error> {
        self.execute(
            "note a reopening",
            "INSERT INTO reopenings (topic, at) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET at = max(at, excluded.at)",
            params![topic, millis(at)],
        )
        .map(|_| ())
    }

    /// When the issue or pull request of this topic was last reopened.
    pub fn reopened_at(&self, topic: &str) -> Result<Option<Timestamp>, Error> {
        let sql = "SELECT at FROM reopenings WHERE topic = ?1";
        self.one("look for a reopening", sql, [topic], |row| row.get(0).map(moment))
    }

    /// Remembers under which name a repository's number was seen.
    pub(super) fn learn_name(&self, repository: &Repository, seq: DeliverySeq) -> Result<(), Error> {
        let Some(id) = repository.id.and_then(|id| i64::try_from(id).ok()) else { return Ok(()) };
        let name = &repository.name;
        self.execute(
            "keep a repository's name",
            "INSERT INTO repository_names (host, id, name_key, name, seq) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT DO UPDATE SET seq = max(seq, excluded.seq)
             WHERE seq < excluded.seq AND EXISTS (SELECT 1 FROM repository_names o
                 WHERE o.name_key = excluded.name_key AND o.id <> excluded.id AND o.seq > repository_names.seq)",
            params![name.host().to_ascii_lowercase(), id, name.key(), name.to_string(), seq.0],
        )
        .map(|_| ())
    }

    /// Other names of the same repository, except those that another repository has taken since.
    pub fn names_of(&self, repository: &Repository) -> Result<Vec<RepoName>, Error> {
        let Some(id) = repository.id.and_then(|id| i64::try_from(id).ok()) else { return Ok(Vec::new()) };
        let name = &repository.name;
        let rows = self.all(
            "read a repository's names",
            "SELECT n.name FROM repository_names n
             WHERE n.host = ?1 AND n.id = ?2 AND n.name_key <> ?3 AND NOT EXISTS (
                 SELECT 1 FROM repository_names o WHERE o.name_key = n.name_key AND o.id <> n.id AND o.seq > n.seq)
             ORDER BY n.seq DESC",
            params![name.host().to_ascii_lowercase(), id, name.key()],
            |row| row.get::<_, String>(0),
        )?;
        Ok(rows.iter().filter_map(|text| text.rsplit_once('/').map(|_| text)).filter_map(|t| read_name(t)).collect())
    }
}

fn read_name(text: &str) -> Option<RepoName> {
    serde_json::from_value(serde_json::Value::String(text.into())).ok()
}

/// The stored links as routing asks for them. Routing has no errors, so the first one is kept for the caller.
pub struct LinksInStore<'a> {
    db: &'a Db,
    failed: RefCell<Option<Error>>,
}

impl<'a> LinksInStore<'a> {
    /// The links of `db`.
    pub fn new(db: &'a Db) -> Self {
        Self { db, failed: RefCell::new(None) }
    }

    /// Whether every question could be answered: a decision made in spite of an error must not be kept.
    pub fn finish(self) -> Result<(), Error> {
        self.failed.into_inner().map_or(Ok(()), Err)
    }

    fn or_note<T: Default>(&self, result: Result<T, Error>) -> T {
        result.unwrap_or_else(|error| {
            self.failed.borrow_mut().get_or_insert(error);
            T::default()
        })
    }
}

impl Links for LinksInStore<'_> {
    fn from(&self, node: &Node) -> Vec<Link> {
        self.or_note(self.db.links_from(node))
    }

    fn names(&self, repository: &Repository) -> Vec<RepoName> {
        self.or_note(self.db.names_of(repository))
    }

    fn reopened_at(&self, topic: &str) -> Option<Timestamp> {
        self.or_note(self.db.reopened_at(topic))
    }
}
