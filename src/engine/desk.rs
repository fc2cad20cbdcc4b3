//! The desk at which watches are made and ended: by commands and by agents, beside a server that may run.
//!
//! Like every command it writes the store and the registry itself; whoever comes here pokes the server afterwards.

use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::domain::{
    Arguments, Condition, EventOffer, Mode, Session, SessionKey, SessionStatus, Watch, WatchId, WatchState, WorkItem,
};
use crate::registry::Registry;
use crate::store::{Access, Db};

use super::Error;

/// Which conversation comes to the desk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The agent program that holds it.
    pub harness: String,
    /// Its id there.
    pub session_id: String,
    /// The directory in which its turns run, should it have to be registered.
    pub cwd: PathBuf,
    /// The work item of the turn that it is in, if it is in one.
    pub work_item: Option<WorkItem>,
}

/// A watch to be made.
#[derive(Clone, Debug)]
pub struct NewWatch {
    /// The server's configured name.
    pub server: String,
    /// The event type.
    pub event: String,
    /// What the server filters by.
    pub arguments: Arguments,
    /// What we filter by.
    pub only: Vec<Condition>,
    /// When all hold, the watch ends.
    pub until: Vec<Condition>,
    /// It ends with the first event that is told.
    pub once: bool,
    /// Whose session is told.
    pub work_item: WorkItem,
    /// How events will reach us, as far as that is known.
    pub delivery: Option<Mode>,
    /// From where on, where the server gave a cursor.
    pub cursor: Option<String>,
}

/// A watch that was made, or was there already.
#[derive(Clone, Debug, PartialEq)]
pub struct Added {
    /// The watch.
    pub watch: Watch,
    /// Whether it is new.
    pub is_new: bool,
}

/// The desk of one state directory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Desk {
    state_dir: PathBuf,
    registry: Registry,
}

impl Desk {
    /// The desk of `state_dir`.
    pub fn new(state_dir: PathBuf, registry: Registry) -> Self {
        Self { state_dir, registry }
    }

    /// Makes a watch. One that asks for the same is given back instead: asking twice is no reason to be told twice.
    pub fn add(&self, new: NewWatch) -> Result<Added, Error> {
        let now = Timestamp::now();
        let id = Uuid::new_v4().simple().to_string();
        let watch = Watch {
            id: WatchId(format!("w_{}", id.get(..12).unwrap_or(&id))),
            server: new.server,
            event: new.event,
            arguments: new.arguments,
            only: new.only,
            until: new.until,
            once: new.once,
            work_item: new.work_item,
            delivery: new.delivery,
            state: WatchState::Active,
            reason: None,
            checked_at: new.cursor.is_some().then_some(now),
            cursor: new.cursor,
            created_at: now,
            last_event_at: None,
            problem: None,
        };
        let db = Db::open(&self.state_dir, Access::Write)?;
        let added = db.transaction(|db| {
            if let Some(same) = db.watches(true)?.into_iter().find(|known| asks_the_same(known, &watch)) {
                return Ok(Added { watch: same, is_new: false });
            }
            db.add_watch(&watch)?;
            Ok(Added { watch, is_new: true })
        })?;
        Ok(added)
    }

    /// Asks the running server to look at what an MCP server offers; since when the answer counts.
    pub fn want_offers(&self, server: &str) -> Result<Timestamp, Error> {
        let now = Timestamp::now();
        let db = Db::open(&self.state_dir, Access::Write)?;
        db.transaction(|db| db.want_offers(server, now))?;
        Ok(now)
    }

    /// What an MCP server offers, once the running server has looked after `since`; or why it cannot be used.
    pub fn offers(&self, server: &str, since: Timestamp) -> Result<Option<Result<Vec<EventOffer>, String>>, Error> {
        let db = Db::open(&self.state_dir, Access::Write)?;
        if let Some(offers) = db.offers(server, since)? {
            return Ok(Some(Ok(offers)));
        }
        let state = db.server_states()?.into_iter().find(|state| state.server == server);
        Ok(state.and_then(|state| state.problem).map(Err))
    }

    /// Every watch, the oldest first; those that ended too.
    pub fn watches(&self) -> Result<Vec<Watch>, Error> {
        if !Db::exists(&self.state_dir) {
            return Ok(Vec::new());
        }
        Ok(Db::open(&self.state_dir, Access::Write)?.watches(false)?)
    }

    /// One watch as it is now.
    pub fn watch(&self, id: &WatchId) -> Result<Option<Watch>, Error> {
        Ok(Db::open(&self.state_dir, Access::Write)?.watch(id)?)
    }

    /// Ends a watch; whether it was active.
    pub fn end(&self, id: &WatchId, reason: &str) -> Result<bool, Error> {
        let db = Db::open(&self.state_dir, Access::Write)?;
        Ok(db.transaction(|db| db.end_watch(id, reason, Timestamp::now()))?)
    }

    /// The open sessions that are this conversation's.
    pub fn sessions(&self, who: &Who) -> Result<Vec<Session>, Error> {
        let all = self.registry.read()?.sessions;
        let is_own = |s: &Session| s.is_open() && s.harness == who.harness && s.session_id == who.session_id;
        Ok(all.into_iter().filter(is_own).collect())
    }

    /// The session that this conversation's watches belong to; it is registered under a name of its own if it has none.
    pub fn session(&self, who: &Who) -> Result<Session, Error> {
        let own = self.sessions(who)?;
        let in_turn = own.iter().find(|session| Some(&session.work_item) == who.work_item.as_ref());
        if let Some(session) = in_turn.or(own.first()) {
            return Ok(session.clone());
        }
        let session = Session {
            version: Session::VERSION,
            work_item: WorkItem::Local(local_name(&who.harness, &who.session_id)),
            harness: who.harness.clone(),
            session_id: who.session_id.clone(),
            cwd: who.cwd.clone(),
            status: SessionStatus::Active,
            created_at: Timestamp::now(),
            closed_reason: None,
            repository_id: None,
            unknown: serde_json::Map::new(),
        };
        match self.registry.register(session, false) {
            Ok(registered) => Ok(registered.session),
            // Another call of the same conversation was quicker.
            Err(crate::registry::Error::Taken { existing }) => Ok(*existing),
            Err(error) => Err(error.into()),
        }
    }

    /// The active and ended watches of this conversation.
    pub fn watches_of(&self, who: &Who) -> Result<Vec<Watch>, Error> {
        let own: Vec<_> = self.sessions(who)?.iter().map(Session::key).collect();
        Ok(self.watches()?.into_iter().filter(|watch| own.contains(&watch.session())).collect())
    }

    /// The whole record of an event that this conversation was told or watches for: its name and its body.
    pub fn event(&self, who: &Who, event_id: &str) -> Result<Option<(String, Value)>, Error> {
        if !Db::exists(&self.state_dir) {
            return Ok(None);
        }
        let own: Vec<SessionKey> = self.sessions(who)?.iter().map(Session::key).collect();
        let db = Db::open(&self.state_dir, Access::Write)?;
        let Some(seq) = db.find_delivery(event_id)? else { return Ok(None) };
        let told = db.notices_of(seq)?.iter().any(|notice| own.iter().any(|key| key.0 == notice.session));
        let seen = db.watches_that_saw(seq)?.iter().any(|watch| own.contains(&watch.session()));
        if !told && !seen {
            return Ok(None);
        }
        let Some(delivery) = db.delivery(seq)? else { return Ok(None) };
        let body = serde_json::from_slice(&delivery.body).unwrap_or_default();
        Ok(Some((delivery.event, body)))
    }
}

fn asks_the_same(a: &Watch, b: &Watch) -> bool {
    let of = |w: &Watch| {
        let asked = (w.server.clone(), w.event.clone(), w.arguments.clone());
        (asked, w.only.clone(), w.until.clone(), w.once, w.session())
    };
    of(a) == of(b)
}

/// A name that a work item can have, the same for the same conversation.
fn local_name(harness: &str, session_id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = format!("{harness}-{session_id}").chars().map(plain).collect();
    if name.len() <= 80 && name == format!("{harness}-{session_id}") {
        return name;
    }
    let hash = Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("{harness}|{session_id}").as_bytes()).simple().to_string();
    let start: String = name.chars().take(50).collect();
    format!("{start}-{}", hash.get(..12).unwrap_or(&hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desk() -> (tempfile::TempDir, Desk) {
        let dir = tempfile::tempdir().expect("dir");
        let registry = Registry::open(dir.path()).expect("registry");
        let desk = Desk::new(dir.path().to_path_buf(), registry);
        (dir, desk)
    }

    fn who(id: &str) -> Who {
        Who { harness: "claude".into(), session_id: id.into(), cwd: "/".into(), work_item: None }
    }

    fn new(item: &WorkItem) -> NewWatch {
        NewWatch {
            server: "ci".into(),
            event: "run".into(),
            arguments: Arguments::new(),
            only: Vec::new(),
            until: Vec::new(),
            once: false,
            work_item: item.clone(),
            delivery: None,
            cursor: None,
        }
    }

    #[test]
    fn a_conversation_is_registered_once_and_sees_its_own() {
        let (_dir, desk) = desk();
        let (one, other) = (who("a"), who("b"));
        let session = desk.session(&one).expect("registered");
        assert_eq!(session.work_item, WorkItem::Local("claude-a".into()));
        assert_eq!(desk.session(&one).expect("again").work_item, session.work_item);
        let added = desk.add(new(&session.work_item)).expect("added");
        let again = desk.add(new(&session.work_item)).expect("again");
        assert!(added.is_new && !again.is_new && added.watch.id == again.watch.id);
        assert_eq!(desk.watches_of(&one).expect("own").len(), 1);
        assert!(desk.watches_of(&other).expect("none").is_empty());
        assert!(desk.end(&added.watch.id, "by hand").expect("ended"));
        assert!(!desk.end(&added.watch.id, "by hand").expect("ended already"));
        assert!(desk.add(new(&session.work_item)).expect("anew").is_new);
    }

    #[test]
    fn names_of_conversations_are_names_of_work_items() {
        for id in ["5e55-a9e7", "019b:x_y.z", &"x".repeat(200), "a b"] {
            let name = local_name("claude", id);
            assert!(WorkItem::parse(&format!("local:{name}")).is_ok(), "{name}");
        }
        assert_ne!(local_name("claude", "a:b"), local_name("claude", "a-b"));
    }
}
