//! The feed for those who read it: by polling, or as it grows.
//!
//! One task reads what is new and hands it to every stream; a stream that falls behind, or begins in the past, reads
//! from the store itself. So thousands of idle streams cost one read for each event, not thousands.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::{Notify, broadcast};

use crate::catalogue::{self, EventType, GAP};
use crate::domain::{Access, Arguments, Cursor, Place, Placed};
use crate::store::{Db, Scan, Store};

use super::Error;

/// How many events a stream may be behind before it reads from the store.
const BACKLOG: usize = 1024;
/// How many are read at a time.
const BATCH: usize = 256;
/// How many places one poll looks through before it answers with what it has.
const WINDOW: i64 = 200_000;
/// How often another process's feed is looked at.
const ELSEWHERE: Duration = Duration::from_millis(200);
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// What somebody wants to read.
#[derive(Debug, Clone)]
pub struct Interest {
    /// The event type.
    pub kind: &'static EventType,
    /// The filters.
    pub arguments: Arguments,
    /// What the reader may see.
    pub access: Access,
    /// Nothing that was recorded earlier.
    pub since: Option<Timestamp>,
}

impl Interest {
    fn wants(&self, placed: &Placed) -> bool {
        self.kind.matches(&self.arguments, &placed.occurrence) && self.access.sees(&placed.occurrence)
    }

    /// Whether something that it wants may be lost here.
    fn misses(&self, placed: &Placed) -> bool {
        self.kind.may_be_lost_in(&self.arguments, &placed.occurrence) && self.access.sees(&placed.occurrence)
    }
}

/// A part of the feed.
#[derive(Debug, Clone)]
pub struct Page {
    /// What was found, in order.
    pub events: Vec<Placed>,
    /// Up to where was read.
    pub cursor: Cursor,
    /// Something between the reader's cursor and this page is lost.
    pub truncated: bool,
    /// There may be more at once.
    pub has_more: bool,
}

/// The feed. Cheap to clone.
#[derive(Clone)]
pub struct Feed {
    store: Store,
    news: broadcast::Sender<Arc<Placed>>,
}

impl Feed {
    /// The feed in `store`.
    pub fn new(store: Store) -> Self {
        Self { store, news: broadcast::channel(BACKLOG).0 }
    }

    /// Hands what is new to the streams whenever the bell rings; for ever.
    pub async fn run(self, bell: Arc<Notify>) {
        self.follow(|| bell.notified()).await;
    }

    /// The same beside a server in another process, whose bells are not heard.
    pub async fn run_beside(self) {
        self.follow(|| tokio::time::sleep(ELSEWHERE)).await;
    }

    async fn follow<F: Future<Output = ()>>(&self, wait: impl Fn() -> F) {
        let mut last = None;
        loop {
            match self.hand_out(last).await {
                Ok((place, full)) => {
                    last = Some(place);
                    if !full {
                        wait().await;
                    }
                }
                Err(error) => {
                    tracing::error!(error = %crate::domain::chain(&error), "could not read the feed; trying again");
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
    }

    /// Hands out what follows `last`; gives how far it got, and whether there may be more.
    async fn hand_out(&self, last: Option<Place>) -> Result<(Place, bool), Error> {
        let Some(last) = last else { return Ok((self.store.read(Db::head).await?.place, true)) };
        let found = self.store.read(move |db| db.occurrences_after(last, BATCH)).await?;
        let (count, place) = (found.len(), found.last().map_or(last, |placed| placed.place));
        for placed in found {
            // Nobody listening is no failure.
            let _listeners = self.news.send(Arc::new(placed));
        }
        Ok((place, count == BATCH))
    }

    /// Reads on from a cursor; without one, nothing but where the feed is now.
    pub async fn poll(&self, interest: Interest, cursor: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        Ok(self.store.read(move |db| poll(db, &interest, cursor.as_ref(), limit)).await?)
    }

    /// A stream from a cursor on.
    pub fn stream(&self, interest: Interest, cursor: Option<Cursor>) -> Stream {
        // It listens before it reads, so that nothing falls between the two.
        Stream { feed: self.clone(), news: self.news.subscribe(), interest, cursor, head: None, caught_up: false }
    }

    /// The newest events that somebody may see and wants, newest first.
    pub async fn recent(
        &self,
        kind: Option<&'static EventType>,
        arguments: Arguments,
        access: Access,
        limit: usize,
    ) -> Result<Vec<Placed>, Error> {
        let wants = move |placed: &Placed| {
            let is_wanted = match kind {
                Some(kind) => kind.matches(&arguments, &placed.occurrence),
                None => placed.occurrence.name != GAP,
            };
            is_wanted && access.sees(&placed.occurrence)
        };
        let read = self.store.read(move |db| {
            let (mut found, mut before) = (Vec::new(), Place(i64::MAX));
            // A few thousand are looked through; what is older is for those who poll.
            for _ in 0..20 {
                let page = db.recent_occurrences(kind.map(EventType::name), before, BATCH)?;
                let count = page.len();
                before = page.last().map_or(before, |placed| placed.place);
                found.extend(page.into_iter().filter(&wants));
                if count < BATCH || found.len() >= limit {
                    break;
                }
            }
            found.truncate(limit);
            Ok(found)
        });
        Ok(read.await?)
    }

    /// One event with its delivery's whole body, if it is there and may be seen.
    pub async fn record(&self, event_id: String, access: Access) -> Result<Option<(Placed, Option<Bytes>)>, Error> {
        let read = self.store.read(move |db| {
            let Some((placed, seq)) = db.occurrence(&event_id)? else { return Ok(None) };
            if !access.sees(&placed.occurrence) {
                return Ok(None);
            }
            let delivery = seq.map(|seq| db.delivery(seq)).transpose()?.flatten();
            Ok(Some((placed, delivery.map(|delivery| delivery.body))))
        });
        Ok(read.await?)
    }
}

fn poll(db: &Db, interest: &Interest, cursor: Option<&Cursor>, limit: usize) -> Result<Page, crate::store::Error> {
    let head = db.head()?;
    let nothing = |truncated| Page { events: Vec::new(), cursor: head.clone(), truncated, has_more: false };
    let Some(cursor) = cursor else { return Ok(nothing(false)) };
    if !is_ours(cursor, &head) {
        return Ok(nothing(true));
    }
    let mut truncated = cursor.place < db.feed_floor(interest.kind.name())?;
    let until = Place(head.place.0.min(cursor.place.0.saturating_add(WINDOW)));
    let scan = Scan {
        name: interest.kind.name().into(),
        needles: catalogue::needles(interest.kind, &interest.arguments),
        after: cursor.place,
        until,
        since: interest.since,
    };
    let mut events = Vec::new();
    let mut more = false;
    db.scan(&scan, |placed| {
        if interest.wants(&placed) {
            if events.len() == limit {
                more = true;
                return false;
            }
            events.push(placed);
        }
        true
    })?;
    let place = if more { events.last().map_or(until, |placed: &Placed| placed.place) } else { until };
    let has_more = more || until < head.place;
    db.gaps(cursor.place, place, |placed| truncated |= interest.misses(&placed))?;
    Ok(Page { events, cursor: Cursor { place, ..head }, truncated, has_more })
}

/// Whether a cursor is one of this journal, and not of a later state of it that was lost.
fn is_ours(cursor: &Cursor, head: &Cursor) -> bool {
    cursor.journal == head.journal && cursor.place <= head.place
}

/// Where a subscription begins that names a cursor: the place, and whether something is lost.
pub(super) fn begin(db: &Db, name: &str, cursor: &Cursor) -> Result<(Option<Place>, bool), crate::store::Error> {
    let head = db.head()?;
    if !is_ours(cursor, &head) {
        return Ok((None, true));
    }
    Ok((Some(cursor.place), cursor.place < db.feed_floor(name)?))
}

/// What a stream says next.
#[derive(Debug, Clone)]
pub enum Said {
    /// It stands: from here on, and whether something before is lost.
    Active(Cursor, bool),
    /// Something happened; and up to where everything has been told.
    Event(Arc<Placed>, Cursor),
}

/// One reader's way along the feed.
pub struct Stream {
    feed: Feed,
    news: broadcast::Receiver<Arc<Placed>>,
    interest: Interest,
    cursor: Option<Cursor>,
    head: Option<Cursor>,
    caught_up: bool,
}

impl Stream {
    /// How far it has got, once it has begun.
    pub fn cursor(&self) -> Option<&Cursor> {
        self.head.as_ref()
    }

    /// Reads what is in the store; empty once it has caught up.
    pub async fn past(&mut self) -> Result<Vec<Said>, Error> {
        if self.caught_up {
            return Ok(Vec::new());
        }
        let from = self.head.clone().or_else(|| self.cursor.take());
        let page = self.feed.poll(self.interest.clone(), from, BATCH).await?;
        let mut said = Vec::new();
        let first = self.head.is_none();
        let journal = page.cursor.journal.clone();
        if first || page.truncated {
            let begin = page.events.first().map_or(page.cursor.place, |placed| Place(placed.place.0 - 1));
            said.push(Said::Active(Cursor { journal: journal.clone(), place: begin }, page.truncated));
        }
        said.extend(page.events.into_iter().map(|placed| {
            let cursor = Cursor { journal: journal.clone(), place: placed.place };
            Said::Event(Arc::new(placed), cursor)
        }));
        self.head = Some(page.cursor);
        self.caught_up = !page.has_more;
        Ok(said)
    }

    /// Waits for what comes next; `None` means that the store is to be read again. Safe to give up at any time.
    pub async fn next(&mut self) -> Option<Said> {
        loop {
            let placed = match self.news.recv().await {
                Ok(placed) => placed,
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    self.caught_up = false;
                    return None;
                }
                // The feed's own task holds a sender for as long as we do.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            };
            let Some(head) = self.head.as_mut().filter(|head| head.place < placed.place) else { continue };
            head.place = placed.place;
            if self.interest.wants(&placed) {
                return Some(Said::Event(placed, head.clone()));
            }
            if self.interest.misses(&placed) {
                return Some(Said::Active(head.clone(), true));
            }
        }
    }
}
