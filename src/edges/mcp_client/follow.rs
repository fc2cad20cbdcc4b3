//! One watch over one connection: in the best way that both sides have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::domain::{EventOffer, Mode, Watch, WatchId};
use crate::engine::{Taken, Told, Watches};

use super::answers::{CallError, Refusal};
use super::callback::Making;
use super::link::Link;
use super::server::jitter;
use super::{Server, poll, stream, subscribe};

/// The first wait after a watch's request failed while its connection is good; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Room on a disk is not waited for longer: the news is at the server, and a session waits for it.
const UNKEPT_WAIT: Duration = Duration::from_secs(2);
/// A server that does not take its own cursor twice in this time never will: beginning anew for ever would wake a
/// session for ever.
const ANEW_AGAIN: Duration = Duration::from_secs(600);

/// What following a watch takes.
pub(super) struct Follower {
    pub(super) server: Arc<Server>,
    pub(super) link: Arc<Link>,
    pub(super) watches: Watches,
    pub(super) making: Making,
    pub(super) offers: Arc<Vec<EventOffer>>,
    /// Something was taken in since this was last looked at.
    pub(super) took: AtomicBool,
}

/// Why a watch is not followed any more over this connection.
#[derive(Debug)]
pub(super) enum Left {
    /// It is over.
    Done,
    /// The connection is of no use.
    Lost(String),
}

/// Why one way of following ended.
#[derive(Debug)]
pub(super) enum Stop {
    /// The watch is over.
    Done,
    /// This way is not to be had.
    Unsupported(String),
    /// The server will not have this watch at all.
    Refused(String),
    /// Something failed that may pass.
    Again(String),
    /// What came could not be kept: our trouble, not the server's.
    Unkept(String),
    /// The cursor is not one that the server takes.
    Cursor(String),
    /// The connection is of no use.
    Lost(String),
}

impl From<CallError> for Stop {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Lost(why) => Self::Lost(why),
            CallError::Silent(_) => Self::Lost(error.to_string()),
            // Nothing smaller can be asked for, so it cannot be had: what is there is left out, and told as a gap.
            CallError::TooLarge(_) => Self::Cursor(error.to_string()),
            CallError::Odd(_) => Self::Again(error.to_string()),
            CallError::Refused { refusal, message } => match refusal {
                Refusal::NotFound => Self::Refused(format!("the server has no such event: {message}")),
                Refusal::Forbidden => Self::Refused(format!("the server does not allow it: {message}")),
                Refusal::Invalid => Self::Cursor(format!("the server does not take it: {message}")),
                Refusal::Unsupported | Refusal::NoMethod => Self::Unsupported(message),
                Refusal::Callback => Self::Again(format!("the server could not reach our callback: {message}")),
                Refusal::Exhausted | Refusal::Other => Self::Again(message),
            },
        }
    }
}

impl From<crate::engine::Error> for Stop {
    fn from(error: crate::engine::Error) -> Self {
        Self::Unkept(format!("what came could not be kept: {}", crate::domain::chain(&error)))
    }
}

impl Follower {
    /// Takes in what the server told; how many of its events were new.
    pub(super) async fn take(&self, id: &WatchId, told: Told) -> Result<usize, Stop> {
        let told = Told { max_age: Some(self.server.max_age), ..told };
        let taken = self.watches.take(id, told).await?;
        self.took.store(true, Ordering::Relaxed);
        match taken {
            Taken::Goes(new) => Ok(new),
            Taken::Ended => Err(Stop::Done),
        }
    }

    fn modes(&self, watch: &Watch) -> Vec<Mode> {
        let offer = self.offers.iter().find(|offer| offer.name == watch.event);
        // A type that is not listed may be there all the same: the server has the last word.
        let all = [Mode::Stream, Mode::Webhook, Mode::Poll];
        self.server.modes_for(offer.map_or(&all[..], |offer| &offer.delivery))
    }
}

/// Follows a watch until it is over or the connection is of no use.
pub(super) async fn follow(follower: Follower, id: WatchId) -> Left {
    let mut wait = FIRST_WAIT;
    let mut refused: Vec<Mode> = Vec::new();
    let mut anew_at: Option<tokio::time::Instant> = None;
    loop {
        let watch = match follower.watches.get(&id).await {
            Ok(Some(watch)) if watch.is_active() => watch,
            Ok(_) => return Left::Done,
            Err(error) => {
                tracing::error!(error = %crate::domain::chain(&error), "could not read a watch; trying again");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
                continue;
            }
        };
        let Some(mode) = follower.modes(&watch).into_iter().find(|mode| !refused.contains(mode)) else {
            let offered = follower.offers.iter().find(|offer| offer.name == watch.event);
            let offered = offered.map(|offer| offer.delivery.iter().map(|mode| mode.as_str()).collect::<Vec<_>>());
            tracing::warn!(watch = %id, server = follower.server.name, ?offered, "no way of delivery that both sides have; trying again later");
            refused.clear();
            failed(&follower, &id, "the server offers it in no way that is possible here").await;
            tokio::time::sleep(LONGEST_WAIT).await;
            continue;
        };
        if watch.delivery != Some(mode)
            && let Err(error) = follower.watches.serves(&id, mode).await
        {
            tracing::error!(error = %crate::domain::chain(&error), "could not note how a watch is served");
        }
        let stop = match mode {
            Mode::Poll => poll::follow(&follower, watch).await,
            Mode::Stream => stream::follow(&follower, watch).await,
            Mode::Webhook => subscribe::follow(&follower, watch).await,
        };
        // Waits grow while nothing works, not from one trouble to the next.
        if follower.took.swap(false, Ordering::Relaxed) {
            wait = FIRST_WAIT;
        }
        match stop {
            Stop::Done => return Left::Done,
            Stop::Lost(why) => return Left::Lost(why),
            Stop::Unsupported(why) => {
                tracing::info!(watch = %id, mode = mode.as_str(), why, "not to be had this way");
                refused.push(mode);
            }
            Stop::Cursor(why) if may_begin_anew(&follower, &id, anew_at).await => {
                anew_at = Some(tokio::time::Instant::now());
                // It may have forgotten all: what is between is a gap, and we begin anew.
                tracing::warn!(watch = %id, why, "a server does not take its cursor back; beginning anew");
                if let Err(error) = anew(&follower, &id).await {
                    tracing::error!(error = %crate::domain::chain(&error), "could not begin a watch anew");
                }
                tokio::time::sleep(FIRST_WAIT).await;
            }
            Stop::Refused(why) | Stop::Cursor(why) => match follower.watches.end(&id, &why).await {
                Ok(()) => return Left::Done,
                Err(error) => {
                    tracing::error!(error = %crate::domain::chain(&error), "could not end a watch; trying again");
                    tokio::time::sleep(FIRST_WAIT).await;
                }
            },
            Stop::Unkept(why) => {
                tracing::error!(watch = %id, why, "a watch failed; trying again");
                failed(&follower, &id, &why).await;
                wait = wait.min(UNKEPT_WAIT);
                tokio::time::sleep(wait).await;
                wait *= 2;
            }
            Stop::Again(why) => {
                tracing::warn!(watch = %id, why, "a watch failed; trying again");
                failed(&follower, &id, &why).await;
                tokio::time::sleep(wait.mul_f64(0.75 + jitter() / 2.0)).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        }
    }
}

/// Says why nothing comes, for `watches list`.
async fn failed(follower: &Follower, id: &WatchId, why: &str) {
    if let Err(error) = follower.watches.failed(id, why).await {
        tracing::error!(error = %crate::domain::chain(&error), "could not note a watch's problem");
    }
}

/// Whether it may be the cursor that the server does not take.
async fn may_begin_anew(follower: &Follower, id: &WatchId, anew_at: Option<tokio::time::Instant>) -> bool {
    let has_cursor = matches!(follower.watches.get(id).await, Ok(Some(watch)) if watch.cursor.is_some());
    has_cursor && anew_at.is_none_or(|at| at.elapsed() > ANEW_AGAIN)
}

async fn anew(follower: &Follower, id: &WatchId) -> Result<(), crate::engine::Error> {
    follower.watches.tell_gap(id).await?;
    follower.watches.forget_cursor(id).await
}
