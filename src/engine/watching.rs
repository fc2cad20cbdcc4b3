//! Watches, for those who serve them: what a server told becomes deliveries, notices and a cursor in one transaction.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::domain::{Decision, Delivery, DeliverySeq, Event, EventOffer, Mode, Source, Watch, WatchId};
use crate::payload::{self, WATCH_ENDED, WATCH_GAP};
use crate::routing;
use crate::store::{self, Accepting, Db, Hook, ServerState, Store};

use super::{Bells, Error, Sessions};

/// Who asks what a server offers does not wait for longer.
const WANTED: SignedDuration = SignedDuration::from_mins(1);
/// How many occurrences share a transaction: others wait for the writer too.
const CHUNK: usize = 100;

/// What a server told of a watch.
#[derive(Debug, Default)]
pub struct Told {
    /// Occurrences `{eventId, name, timestamp, data}`, in the server's order.
    pub occurrences: Vec<Value>,
    /// Up to where that was everything, where the server says.
    pub cursor: Option<String>,
    /// Something between the last cursor and this is lost.
    pub truncated: bool,
    /// What is older than this is let go where we have not looked for longer.
    pub max_age: Option<SignedDuration>,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// The watch goes on.
    Goes,
    /// It is over.
    Ended,
}

/// The watches. Cheap to clone.
#[derive(Clone)]
pub struct Watches {
    store: Store,
    sessions: Sessions,
    bells: Bells,
}

impl Watches {
    /// The watches in `store`, of `sessions`.
    pub fn new(store: Store, sessions: Sessions, bells: Bells) -> Self {
        Self { store, sessions, bells }
    }

    /// Waits until a watch may have been added or ended.
    pub async fn changed(&self) {
        self.bells.watches.notified().await;
    }

    /// Says that something has changed.
    pub fn look_again(&self) {
        self.bells.watches.notify_one();
    }

    /// The watches that are to be served. Those whose sessions are over end here.
    pub async fn active(&self) -> Result<Vec<Watch>, Error> {
        let watches = self.store.read(|db| db.watches(true)).await?;
        let sessions = self.sessions.clone();
        let (open, closed): (Vec<_>, Vec<_>) = tokio::task::spawn_blocking(move || {
            let now = sessions.now()?;
            // A file that cannot be read may be that of the session: its watches wait with it until it is mended.
            let unknown = now.damaged() > 0;
            let is_open = |watch: &Watch| now.get(&watch.session()).map_or(unknown, crate::domain::Session::is_open);
            Ok::<_, Error>(watches.into_iter().partition(is_open))
        })
        .await
        .map_err(|_| Error::Panicked)??;
        for watch in closed {
            let id = watch.id.clone();
            self.store.write(move |db| db.end_watch(&id, "its session was closed", Timestamp::now())).await?;
            tracing::info!(watch = %watch.id, "a watch ended: its session was closed");
        }
        Ok(open)
    }

    /// Takes in what a server told: receipts, notices and the cursor are on disk together when this returns.
    pub async fn take(&self, watch: &WatchId, told: Told) -> Result<Taken, Error> {
        let Told { mut occurrences, cursor, truncated, max_age } = told;
        if truncated {
            self.tell_gap(watch).await?;
        }
        loop {
            let rest = if occurrences.len() > CHUNK { occurrences.split_off(CHUNK) } else { Vec::new() };
            let last = rest.is_empty();
            // The cursor goes with the last part: what was taken before it is known by its receipt.
            let cursor = if last { cursor.clone() } else { None };
            if self.take_some(watch, occurrences, cursor, last, max_age).await? == Taken::Ended {
                return Ok(Taken::Ended);
            }
            if last {
                return Ok(Taken::Goes);
            }
            occurrences = rest;
        }
    }

    async fn take_some(
        &self,
        id: &WatchId,
        occurrences: Vec<Value>,
        cursor: Option<String>,
        last: bool,
        max_age: Option<SignedDuration>,
    ) -> Result<Taken, Error> {
        let some = !occurrences.is_empty();
        let key = id.clone();
        let Some(watch) = self.store.read(move |db| db.watch(&key)).await? else { return Ok(Taken::Ended) };
        let made = tokio::task::spawn_blocking({
            let (watch, sessions) = (watch.clone(), self.sessions.clone());
            move || {
                sessions.now().map(drop)?;
                Ok::<_, Error>(occurrences.iter().filter_map(|one| read(&watch, one, max_age)).collect::<Vec<_>>())
            }
        })
        .await
        .map_err(|_| Error::Panicked)??;
        let (sessions, key) = (self.sessions.clone(), id.clone());
        let taken = self
            .store
            .write(move |db| {
                let now = Timestamp::now();
                // Read again on the writer: a person may have ended it meanwhile.
                let Some(watch) = db.watch(&key)?.filter(Watch::is_active) else { return Ok(Taken::Ended) };
                let mut heard = false;
                for Read { accepting, event, data } in &made {
                    let Some(seq) = sighted(db, &watch, accepting)? else { continue };
                    heard = true;
                    decide(db, &sessions, seq, event, data)?;
                    if let Some(end) = routing::look(&watch, data, false).end {
                        db.watch_heard(&watch.id, now)?;
                        db.end_watch(&watch.id, &end, now)?;
                        return Ok(Taken::Ended);
                    }
                }
                if heard {
                    db.watch_heard(&watch.id, now)?;
                }
                if last {
                    db.watch_checked(&watch.id, cursor.as_deref(), now)?;
                }
                Ok(Taken::Goes)
            })
            .await?;
        if some || taken == Taken::Ended {
            self.bells.dispatcher.notify_one();
        }
        if taken == Taken::Ended {
            self.bells.watches.notify_one();
        }
        Ok(taken)
    }

    /// Tells a watch's session that something may have been missed since we last knew everything.
    pub async fn tell_gap(&self, id: &WatchId) -> Result<(), Error> {
        let key = id.clone();
        let Some(watch) = self.store.read(move |db| db.watch(&key)).await? else { return Ok(()) };
        let from = watch.checked_at.or(Some(watch.created_at));
        match payload::from_gap(&watch, from, Timestamp::now()) {
            Ok(delivery) => self.tell(&watch, delivery, None).await,
            Err(error) => unreadable(&error),
        }
    }

    /// Ends a watch that its session did not end, and tells the session.
    pub async fn end(&self, id: &WatchId, reason: &str) -> Result<(), Error> {
        let key = id.clone();
        let Some(watch) = self.store.read(move |db| db.watch(&key)).await? else { return Ok(()) };
        tracing::warn!(watch = %watch.id, server = watch.server, reason, "a watch ended");
        match payload::from_end(&watch, reason, Timestamp::now()) {
            Ok(delivery) => self.tell(&watch, delivery, Some(reason.to_owned())).await?,
            Err(error) => unreadable(&error)?,
        }
        self.bells.watches.notify_one();
        Ok(())
    }

    async fn tell(&self, watch: &Watch, delivery: Delivery, end: Option<String>) -> Result<(), Error> {
        let event = match payload::read(&delivery) {
            Ok(event) => event,
            Err(error) => return unreadable(&error),
        };
        let accepting = Accepting::new(delivery)?;
        let (id, sessions) = (watch.id.clone(), self.sessions.clone());
        self.store
            .write(move |db| {
                let now = Timestamp::now();
                let Some(watch) = db.watch(&id)?.filter(Watch::is_active) else { return Ok(()) };
                if let Some(seq) = sighted(db, &watch, &accepting)? {
                    decide(db, &sessions, seq, &event, &Value::Null)?;
                }
                match end {
                    Some(reason) => db.end_watch(&watch.id, &reason, now).map(|_| ()),
                    None => Ok(()),
                }
            })
            .await?;
        self.bells.dispatcher.notify_one();
        Ok(())
    }

    /// Begins a watch anew: its server does not take the cursor any more.
    pub async fn forget_cursor(&self, id: &WatchId) -> Result<(), Error> {
        let id = id.clone();
        Ok(self.store.write(move |db| db.forget_watch_cursor(&id)).await?)
    }

    /// One watch as it is now.
    pub async fn get(&self, id: &WatchId) -> Result<Option<Watch>, Error> {
        let id = id.clone();
        Ok(self.store.read(move |db| db.watch(&id)).await?)
    }

    /// Notes how a watch's events come.
    pub async fn serves(&self, id: &WatchId, mode: Mode) -> Result<(), Error> {
        let id = id.clone();
        Ok(self.store.write(move |db| db.set_watch_delivery(&id, mode)).await?)
    }

    /// How the webhook subscription of a watch stands.
    pub async fn hook(&self, id: &WatchId) -> Result<Option<Hook>, Error> {
        let id = id.clone();
        Ok(self.store.read(move |db| db.hook(&id)).await?)
    }

    /// Keeps how the webhook subscription of a watch stands.
    pub async fn keep_hook(&self, id: &WatchId, hook: Hook) -> Result<(), Error> {
        let id = id.clone();
        Ok(self.store.write(move |db| db.set_hook(&id, &hook)).await?)
    }

    /// Ended watches whose servers still post to us, with where to.
    pub async fn hooks_to_end(&self) -> Result<Vec<(Watch, String)>, Error> {
        Ok(self.store.read(Db::hooks_to_end).await?)
    }

    /// The servers that somebody wants looked at: who cannot reach them, but can ask us.
    pub async fn offers_wanted(&self) -> Result<Vec<String>, Error> {
        let since = Timestamp::now().checked_sub(WANTED).unwrap_or(Timestamp::MIN);
        Ok(self.store.read(move |db| db.offers_wanted(since)).await?)
    }

    /// Keeps what a server offers, for those who asked.
    pub async fn keep_offers(&self, server: &str, offers: Vec<EventOffer>) -> Result<(), Error> {
        let server = server.to_owned();
        Ok(self.store.write(move |db| db.set_offers(&server, &offers, Timestamp::now())).await?)
    }

    /// Keeps how a server stands, for commands to show.
    pub async fn server_is(&self, state: ServerState) -> Result<(), Error> {
        Ok(self.store.write(move |db| db.set_server_state(&state)).await?)
    }

    /// Forgets how servers stood for an earlier process.
    pub async fn begin(&self) -> Result<(), Error> {
        Ok(self.store.write(Db::forget_server_states).await?)
    }
}

struct Read {
    accepting: Accepting,
    event: Event,
    data: Value,
}

/// Reads an occurrence. One that is not as the protocol says is left out: the log has it, without its words.
fn read(watch: &Watch, occurrence: &Value, max_age: Option<SignedDuration>) -> Option<Read> {
    let now = Timestamp::now();
    let name = occurrence.get("name").and_then(Value::as_str);
    if name.is_some_and(|name| name != watch.event) {
        tracing::warn!(watch = %watch.id, "a server told of another event than was asked for; left out");
        return None;
    }
    let made = payload::from_occurrence(&watch.server, &watch.event, occurrence, now)
        .and_then(|delivery| payload::read(&delivery).map(|event| (delivery, event)));
    let (delivery, event) = match made {
        Ok(made) => made,
        Err(error) => {
            tracing::warn!(watch = %watch.id, %error, "a server told something that is no event; left out");
            return None;
        }
    };
    if is_too_old(watch, &event, max_age, now) {
        tracing::info!(watch = %watch.id, "an event from before max_age was let go");
        return None;
    }
    let data = payload::occurrence_data(&delivery);
    match Accepting::new(delivery) {
        Ok(accepting) => Some(Read { accepting, event, data }),
        Err(error) => {
            tracing::error!(watch = %watch.id, %error, "an event could not be kept");
            None
        }
    }
}

/// Only where we have not looked for longer than `max_age` can an event be older than that for us: otherwise we would
/// have it, whatever the server's clock says.
fn is_too_old(watch: &Watch, event: &Event, max_age: Option<SignedDuration>, now: Timestamp) -> bool {
    let (Some(max_age), Some(checked), Some(happened)) = (max_age, watch.checked_at, event.happened_at) else {
        return false;
    };
    now.duration_since(checked) > max_age && now.duration_since(happened) > max_age
}

/// The delivery's place, if this watch has not seen it before.
fn sighted(db: &Db, watch: &Watch, accepting: &Accepting) -> Result<Option<DeliverySeq>, store::Error> {
    let seq = match db.receipt(accepting.source(), accepting.id())? {
        Some(seq) => seq,
        None => match db.accept(accepting)? {
            crate::domain::Receipt::Accepted(seq)
            | crate::domain::Receipt::Duplicate(seq)
            | crate::domain::Receipt::Requeued(seq) => seq,
        },
    };
    Ok(db.sight(&watch.id, seq)?.then_some(seq))
}

/// Whether it is we who tell of a watch, not its server.
fn is_own(event: &Event) -> bool {
    [WATCH_GAP, WATCH_ENDED].contains(&event.name.as_str())
}

/// Decides a delivery that came by watches, and makes it true.
pub(super) fn decide(
    db: &Db,
    sessions: &Sessions,
    seq: DeliverySeq,
    event: &Event,
    data: &Value,
) -> Result<(), store::Error> {
    let decision = decision(db, sessions, seq, event, data)?;
    db.record_watched(seq, event, &decision, Timestamp::now())?;
    tracing::info!(seq = seq.0, event = %event.title(), outcome = %decision.outcome, reason = ?decision.reason, "decided");
    Ok(())
}

/// What is decided about a delivery that came by watches.
pub(super) fn decision(
    db: &Db,
    sessions: &Sessions,
    seq: DeliverySeq,
    event: &Event,
    data: &Value,
) -> Result<Decision, store::Error> {
    let watches = db.watches_that_saw(seq)?;
    Ok(routing::watched(event, data, is_own(event), &watches, &sessions.seen()))
}

/// The same for a delivery by its receipt.
pub(super) fn explained(
    db: &Db,
    sessions: &Sessions,
    delivery: &Delivery,
    event: &Event,
) -> Result<Decision, store::Error> {
    let seq = db.receipt(&delivery.source, &delivery.id)?.unwrap_or(DeliverySeq(0));
    decision(db, sessions, seq, event, &payload::occurrence_data(delivery))
}

/// The data that conditions look into, of a delivery that came by a watch.
pub(super) fn data_of(delivery: &Delivery) -> Option<Value> {
    matches!(delivery.source, Source::Mcp(_)).then(|| payload::occurrence_data(delivery))
}

fn unreadable(error: &payload::Error) -> Result<(), Error> {
    // We wrote it ourselves, so this is a defect; the watch goes on all the same.
    tracing::error!(%error, "could not tell a session of its watch");
    Ok(())
}
