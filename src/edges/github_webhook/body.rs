//! Reading bodies: within a size, within a time, within a bound on memory that all senders share.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::refusal::Refusal;
use crate::room::Room;

/// The unit of the memory budget: a body takes room as it arrives, so a stalled sender holds only what it has sent.
const STEP: usize = 64 << 10;
/// Bodies up to this have a budget of their own, so that large ones never keep them out.
const SMALL: u64 = 1 << 20;
/// How long a sender waits for room before it is told to come again.
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a refused sender may go on sending before it is cut off.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// How much memory bodies may take, in steps. Half of it is for small ones.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Budget {
    pub(super) fn new(bytes: u64) -> Self {
        let half = usize::try_from(bytes / 2).unwrap_or(usize::MAX / 2) / STEP;
        // At least one body of the largest size must fit.
        Self { small: Arc::new(Semaphore::new(half.max(16))), large: Arc::new(Semaphore::new(half.max(512))) }
    }

    fn lane(&self, length: Option<u64>) -> &Arc<Semaphore> {
        if length.is_some_and(|length| length <= SMALL) { &self.small } else { &self.large }
    }
}

/// What a body must keep to.
#[derive(Debug, Clone)]
pub(super) struct BodyLimits {
    pub(super) max_body: u64,
    pub(super) timeout: Duration,
    pub(super) budget: Budget,
}

/// What a body takes of the budget; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    _permits: Vec<OwnedSemaphorePermit>,
}

/// Reads a body whole. `length` is what its head announced.
pub(super) async fn read(body: Body, length: Option<u64>, limits: &BodyLimits) -> Result<(Bytes, Share), Refusal> {
    if length.is_some_and(|length| length > limits.max_body) {
        drain(body, STEP as u64).await;
        return Err(Refusal::too_large(limits.max_body));
    }
    tokio::time::timeout(limits.timeout, collect(body, length, limits)).await.map_err(|_| Refusal::too_slow())?
}

async fn collect(mut body: Body, length: Option<u64>, limits: &BodyLimits) -> Result<(Bytes, Share), Refusal> {
    let lane = limits.budget.lane(length);
    let mut permits = Vec::new();
    let announced = length.unwrap_or(STEP as u64).min(limits.max_body);
    let mut room = Room::new(usize::try_from(announced).unwrap_or(STEP));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::cut_off())?;
        let Some(data) = frame.data_ref() else { continue };
        let needed = room.len() + data.len();
        if needed as u64 > limits.max_body {
            return Err(Refusal::too_large(limits.max_body));
        }
        while permits.len() * STEP < needed {
            let permit = tokio::time::timeout(ROOM_TIMEOUT, Arc::clone(lane).acquire_owned()).await;
            match permit {
                Ok(Ok(permit)) => permits.push(permit),
                _ => return Err(Refusal::no_room()),
            }
        }
        room.extend(data);
    }
    Ok((room.into_bytes(), Share { _permits: permits }))
}

/// Reads and forgets a little of a body that is refused: a sender that is cut off in mid-sending does not read the
/// answer.
pub(super) async fn drain(mut body: Body, limit: u64) {
    let reading = async {
        let mut left = limit;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, |data| data.len() as u64);
            left = left.saturating_sub(length);
            if left == 0 {
                break;
            }
        }
    };
    // Either way it is over; the answer follows.
    let _over = tokio::time::timeout(DRAIN_TIMEOUT, reading).await;
}
