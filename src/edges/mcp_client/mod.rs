//! The MCP client: what other servers tell, brought to the sessions that watch for it (`docs/specs/watches.md`).
//!
//! One connection per server, shared by its watches; a task per watch. A connection that ends is taken up again, each
//! watch from its cursor. rmcp carries the protocol; ours is the order of frames, two dialects of errors, three ways of
//! delivery, and never giving up.

mod answers;
mod callback;
mod follow;
mod link;
mod ordered;
mod poll;
mod server;
mod stream;
mod subscribe;

use std::collections::BTreeMap;
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
use crate::engine::Watches;

use answers::Polled;
use link::Link;
use server::Wanted;

pub use callback::{CALLBACK_PATH, Making, routes};
pub use link::LinkError;

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
/// `unusable` are servers that cannot even be tried, with why not.
pub async fn run(servers: Vec<Server>, watches: Watches, unusable: Vec<(String, String)>, making: Making) {
    let servers: BTreeMap<String, Arc<Server>> =
        servers.into_iter().map(|server| (server.name.clone(), Arc::new(server))).collect();
    if let Err(error) = watches.begin().await {
        tracing::error!(error = %crate::domain::chain(&error), "could not begin with the watches");
    }
    for (name, why) in unusable {
        server::unusable(&watches, name, why).await;
    }
    let mut tasks = JoinSet::new();
    let mut wanted: BTreeMap<String, watch::Sender<Wanted>> = BTreeMap::new();
    for (name, server) in &servers {
        let (sender, receiver) = watch::channel(Wanted::default());
        wanted.insert(name.clone(), sender);
        tasks.spawn(server::serve(Arc::clone(server), watches.clone(), receiver, making.clone()));
    }
    loop {
        let looked = async { Ok::<_, crate::engine::Error>((watches.active().await?, watches.hooks_to_end().await?)) };
        match looked.await {
            Ok((active, ending)) => {
                for (name, sender) in &wanted {
                    let watches: Vec<Watch> = active.iter().filter(|watch| watch.server == *name).cloned().collect();
                    let ending = ending.iter().filter(|(watch, _)| watch.server == *name).cloned().collect();
                    let now = Wanted { watches, ending };
                    sender.send_if_modified(|before| {
                        let changed = !before.same(&now);
                        *before = now;
                        changed
                    });
                }
                for watch in active.iter().filter(|watch| !servers.contains_key(&watch.server)) {
                    tracing::warn!(watch = %watch.id, server = watch.server, "a watch waits for a server that is not configured");
                }
            }
            Err(error) => {
                tracing::error!(error = %crate::domain::chain(&error), "could not look at the watches; trying again");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        }
        watches.changed().await;
    }
}

/// What a server offers: for commands, over a connection of their own.
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

/// The cursor from which a new watch begins, so that nothing is missed from now on: where the server can be asked for
/// one by another connection than the one that will be used later.
pub async fn beginning(server: &Server, offer: &EventOffer, arguments: &Arguments) -> Option<String> {
    if !offer.delivery.contains(&Mode::Poll) || matches!(server.reach, Reach::Program { .. }) {
        return None;
    }
    let link = Link::open(server).await.ok()?;
    let polled = link.ask("events/poll", question(&offer.name, arguments, None, None)).await;
    link.close().await;
    polled.ok().and_then(|value| answers::read::<Polled>(value).ok()).and_then(|polled| polled.cursor)
}

/// The parameters that all ways of asking share.
fn question(event: &str, arguments: &Arguments, cursor: Option<&str>, max_age_ms: Option<i64>) -> Value {
    let mut params = json!({"name": event, "arguments": arguments, "cursor": cursor});
    if let (Some(ms), Some(params)) = (max_age_ms.filter(|_| cursor.is_some()), params.as_object_mut()) {
        params.insert("maxAgeMs".into(), ms.into());
    }
    params
}
