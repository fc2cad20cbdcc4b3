//! The MCP client: what other servers tell, brought to the sessions that watch for it (`docs/specs/watches.md`).
//!
//! One connection per server, shared by its watches; a task per watch. A connection that ends is taken up again, each
//! watch from its cursor. rmcp carries the protocol; ours is the order of frames, two dialects of errors, three ways of
//! delivery, and never giving up.

mod answers;
mod callback;
mod follow;
mod link;
mod mended;
mod open_stream;
mod ordered;
mod poll;
pub mod reading;
mod server;
mod stream;
mod subscribe;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clients::HttpClient;
use crate::domain::{Arguments, EventOffer, Mode, Secret, Watch};
use crate::engine::{Desk, Watches};

use link::Link;
use reading::Page;
use server::Wanted;

pub use callback::{CALLBACK_PATH, Making, routes};
pub use link::LinkError;

/// How often the watches are looked at, whether something has changed or not.
const LOOKED: Duration = Duration::from_secs(60);
/// How long our running server may take to say what another server offers.
const ASKED: Duration = Duration::from_secs(35);
/// How long a server may take to say what it offers, where others are asked beside it: an agent waits for the answer.
const LISTED: Duration = Duration::from_secs(20);
/// How long is waited for a watch to begin: its server has just said what it offers, so it is there.
const BEGINS: Duration = Duration::from_secs(15);

/// How a server is reached.
#[derive(Clone, Debug)]
pub enum Reach {
    /// A program that we start.
    Program {
        /// Which.
        program: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its whole environment.
        env: Vec<(OsString, OsString)>,
        /// Where it runs.
        cwd: PathBuf,
    },
    /// Streamable HTTP.
    Address {
        /// Where.
        url: String,
        /// The bearer token.
        token: Option<Secret>,
        /// Headers beside the usual ones.
        headers: Vec<(String, String)>,
        /// What speaks HTTP.
        client: HttpClient,
    },
}

/// A server whose events are watched.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its configured name.
    pub name: String,
    /// How it is reached.
    pub reach: Reach,
    /// The ways of delivery that are wanted, the best first.
    pub modes: Vec<Mode>,
    /// It is never polled more often.
    pub min_poll_interval: Duration,
    /// What happened longer ago is let go where we have not looked for longer.
    pub max_age: SignedDuration,
    /// Where it can post to, if it can.
    pub callback: Option<String>,
    /// No answer of it takes longer.
    pub timeout: Duration,
    /// Why it cannot even be tried from here, such as a variable that is not set.
    pub trouble: Option<String>,
}

impl Server {
    /// The ways in which an event type that offers `offered` can reach us, the best first.
    pub fn modes_for(&self, offered: &[Mode]) -> Vec<Mode> {
        let can = |mode: &Mode| match mode {
            // A server on standard input and output has nobody to tell apart, so it does not post.
            Mode::Webhook => self.callback.is_some() && matches!(self.reach, Reach::Address { .. }),
            Mode::Stream | Mode::Poll => true,
        };
        self.modes.iter().copied().filter(|mode| offered.contains(mode)).filter(can).collect()
    }

    fn max_age_ms(&self) -> i64 {
        i64::try_from(self.max_age.as_millis()).unwrap_or(i64::MAX)
    }
}

/// Serves the watches of all servers; for ever.
pub async fn run(servers: Vec<Server>, watches: Watches, making: Making) {
    let servers: BTreeMap<String, Arc<Server>> =
        servers.into_iter().map(|server| (server.name.clone(), Arc::new(server))).collect();
    if let Err(error) = watches.begin().await {
        tracing::error!(error = %crate::domain::chain(&error), "could not begin with the watches");
    }
    let mut tasks = JoinSet::new();
    let mut told = HashSet::new();
    let mut wanted: BTreeMap<String, watch::Sender<Wanted>> = BTreeMap::new();
    for (name, server) in &servers {
        let (sender, receiver) = watch::channel(Wanted::default());
        wanted.insert(name.clone(), sender);
        tasks.spawn(server::serve(Arc::clone(server), watches.clone(), receiver, making.clone()));
    }
    loop {
        if let Err(error) = watches.keep_quiet().await {
            tracing::warn!(error = %crate::domain::chain(&error), "could not keep up to where watches were told nothing");
        }
        let looked = async {
            let looks = watches.offers_wanted().await?;
            Ok::<_, crate::engine::Error>((watches.active().await?, watches.hooks_to_end().await?, looks))
        };
        match looked.await {
            Ok((active, ending, looks)) => {
                for (name, sender) in &wanted {
                    let watches: Vec<Watch> = active.iter().filter(|watch| watch.server == *name).cloned().collect();
                    let ending = ending.iter().filter(|(watch, _)| watch.server == *name).cloned().collect();
                    let now = Wanted { watches, ending, look: looks.contains(name) };
                    sender.send_if_modified(|before| {
                        let changed = !before.same(&now);
                        *before = now;
                        changed
                    });
                }
                let lost = active.iter().filter(|watch| !servers.contains_key(&watch.server));
                for watch in lost.filter(|watch| told.insert(watch.id.clone())) {
                    tracing::warn!(watch = %watch.id, server = watch.server, "a watch waits for a server that is not configured");
                }
            }
            Err(error) => {
                tracing::error!(error = %crate::domain::chain(&error), "could not look at the watches; trying again");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        }
        // Now and then without being told: a session's file may have changed under us.
        if tokio::time::timeout(LOOKED, watches.changed()).await.is_err() {
            tracing::trace!("looking at the watches");
        }
    }
}

/// What a server offers, over a connection of its own.
pub async fn look(server: &Server) -> Result<Vec<EventOffer>, LinkError> {
    let link = Link::open(server).await?;
    let offers = link.offers(&server.name).await;
    let said = link.last_words();
    link.close().await;
    offers.map_err(|error| {
        let said = if said.is_empty() { String::new() } else { format!("; it said: {said}") };
        LinkError::List { server: server.name.clone(), why: format!("{error}{said}") }
    })
}

/// The same for those to whom the server may be out of reach, since they lack a token: our running server, which has
/// it, is asked then. `poke` tells it; whether one runs.
pub async fn offers(server: &Server, desk: &Desk, poke: impl Fn() -> bool) -> Result<Vec<EventOffer>, LinkError> {
    let Some(trouble) = &server.trouble else { return look(server).await };
    let failed = |why: String| LinkError::List { server: server.name.clone(), why };
    let engine = |error: crate::engine::Error| failed(crate::domain::chain(&error));
    let since = desk.want_offers(&server.name).map_err(engine)?;
    if !poke() {
        return Err(failed(format!("{trouble}, and no server of ours runs that could be asked")));
    }
    let deadline = tokio::time::Instant::now() + ASKED;
    while tokio::time::Instant::now() < deadline {
        match desk.offers(&server.name, since).map_err(engine)? {
            Some(Ok(offers)) => return Ok(offers),
            Some(Err(why)) => return Err(failed(why)),
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    Err(failed(format!("{trouble}, and our running server has not answered in {} s", ASKED.as_secs())))
}

/// The same for several servers, asked side by side: one that hangs holds up no other, and is named in the end.
pub async fn offers_of_all(
    servers: &[&Server],
    desk: &Desk,
    poke: impl Fn() -> bool + Clone + Send + 'static,
) -> Vec<Result<Vec<EventOffer>, LinkError>> {
    let mut asking = JoinSet::new();
    for (at, server) in servers.iter().enumerate() {
        let (server, desk, poke) = ((*server).clone(), desk.clone(), poke.clone());
        asking.spawn(async move {
            let asked = tokio::time::timeout(LISTED, offers(&server, &desk, poke)).await;
            let why = || format!("it has not answered in {} s; ask for it alone to wait longer", LISTED.as_secs());
            (at, asked.unwrap_or_else(|_| Err(LinkError::List { server: server.name.clone(), why: why() })))
        });
    }
    let mut found = BTreeMap::new();
    while let Some(asked) = asking.join_next().await {
        found.extend(asked.ok());
    }
    let lost = |name: &str| LinkError::List { server: name.to_owned(), why: "asking it panicked".into() };
    servers.iter().enumerate().map(|(at, s)| found.remove(&at).unwrap_or_else(|| Err(lost(&s.name)))).collect()
}

/// Waits until a new watch has begun: our running server has heard from the watch's own, so that nothing is missed that
/// happens from now on. Gives the watch as it is then; without `checked_at` where that took too long or failed.
pub async fn begun(desk: &Desk, watch: Watch) -> Result<Watch, crate::engine::Error> {
    let deadline = tokio::time::Instant::now() + BEGINS;
    let mut watch = watch;
    while watch.checked_at.is_none() && watch.is_active() && watch.problem.is_none() {
        if tokio::time::Instant::now() >= deadline {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        let (desk, id) = (desk.clone(), watch.id.clone());
        let now = tokio::task::spawn_blocking(move || desk.watch(&id)).await;
        match now.map_err(|_| crate::engine::Error::Panicked)?? {
            Some(now) => watch = now,
            None => break,
        }
    }
    Ok(watch)
}

/// The cursor from which a new watch begins, so that nothing is missed from now on: where the server can be asked for
/// one by another connection than the one that will be used later.
pub async fn beginning(server: &Server, offer: &EventOffer, arguments: &Arguments) -> Option<String> {
    if !offer.delivery.contains(&Mode::Poll)
        || server.trouble.is_some()
        || matches!(server.reach, Reach::Program { .. })
    {
        return None;
    }
    let link = Link::open(server).await.ok()?;
    let polled = link.ask("events/poll", question(&offer.name, arguments, None, None)).await;
    link.close().await;
    polled.ok().and_then(|value| Page::read(value).ok()).and_then(|page| page.cursor)
}

/// The parameters that all ways of asking share.
fn question(event: &str, arguments: &Arguments, cursor: Option<&str>, max_age_ms: Option<i64>) -> Value {
    let mut params = json!({"name": event, "arguments": arguments, "cursor": cursor});
    if let (Some(ms), Some(params)) = (max_age_ms.filter(|_| cursor.is_some()), params.as_object_mut()) {
        params.insert("maxAgeMs".into(), ms.into());
    }
    params
}
