//! Streams: one long request, taken up again from the cursor when it ends.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;

use crate::domain::Watch;
use crate::engine::Told;

use super::follow::{Follower, Stop};
use super::open_stream::Next;
use super::ordered::{Frame, Share};
use super::reading::Said;
use super::{Reach, question};

/// A server says something at least every 30 s; after two such intervals, and some, the stream is dead.
const DEAD: Duration = Duration::from_secs(65);
/// The wait before a stream that ended is opened again; it doubles while streams end without having said anything.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How many events share a transaction.
const MOST: usize = 100;

/// Follows a watch by streams until something stops it.
pub(super) async fn follow(follower: &Follower, watch: Watch) -> Stop {
    let mut reader = Reader { follower, cursor: watch.cursor.clone(), watch, said: false };
    let mut wait = FIRST_WAIT;
    loop {
        reader.said = false;
        if let Err(stop) = reader.one().await {
            return stop;
        }
        wait = if reader.said { FIRST_WAIT } else { (wait * 2).min(LONGEST_WAIT) };
        tokio::time::sleep(wait).await;
    }
}

struct Reader<'a> {
    follower: &'a Follower,
    watch: Watch,
    cursor: Option<String>,
    /// Whether this stream has told something new.
    said: bool,
}

impl Reader<'_> {
    /// Opens one stream and reads it to its end. `Ok` where it is to be opened again.
    async fn one(&mut self) -> Result<(), Stop> {
        let max_age = Some(self.follower.server.max_age_ms());
        let params = question(&self.watch.event, &self.watch.arguments, self.cursor.as_deref(), max_age);
        let mut stream = self.follower.link.stream(params).await?;
        let mut is_active = false;
        loop {
            match tokio::time::timeout(DEAD, stream.next()).await {
                Ok(Next::Frame(frame)) => {
                    is_active = true;
                    self.frame(frame, &mut stream.frames).await?;
                }
                Ok(Next::Answer(answer)) => {
                    // The frames came before the answer, so they are all here.
                    while let Ok(frame) = stream.frames.try_recv() {
                        is_active = true;
                        self.frame(frame, &mut stream.frames).await?;
                    }
                    return match answer {
                        Ok(_) => Ok(()),
                        // A stream that worked and broke is opened again, whatever broke it.
                        Err(error) if is_active => {
                            tracing::debug!(watch = %self.watch.id, %error, "a stream broke");
                            Ok(())
                        }
                        Err(error) => Err(error.into()),
                    };
                }
                Err(_) => {
                    tracing::info!(watch = %self.watch.id, "a stream was silent for too long; opening it again");
                    return Ok(());
                }
            }
        }
    }

    async fn frame(&mut self, frame: Frame, more: &mut mpsc::Receiver<Frame>) -> Result<(), Stop> {
        let mut next = Some(frame);
        while let Some(frame) = next.take() {
            match Said::frame(&frame.kind, frame.params) {
                Said::Event(event, cursor) => next = self.events(event, cursor, frame.share, more).await?,
                Said::Reached { cursor, truncated } => self.took(Vec::new(), cursor, truncated).await?,
                Said::Heartbeat(cursor) => {
                    self.follower.watches.nothing_new(&self.watch.id, cursor.clone());
                    self.cursor = cursor.or(self.cursor.take());
                }
                Said::PassedOver => self.passed_over().await?,
                Said::Terminated(why) => return Err(Stop::Refused(why)),
                Said::Verification(_) | Said::Other => {
                    tracing::info!(watch = %self.watch.id, "a stream told of an error and goes on");
                }
            }
        }
        Ok(())
    }

    /// Tells that something is lost. A stream over HTTP has ended with what was too large, and would end there again;
    /// a program goes on behind it.
    async fn passed_over(&mut self) -> Result<(), Stop> {
        self.follower.watches.tell_gap(&self.watch.id).await?;
        if matches!(self.follower.server.reach, Reach::Address { .. }) {
            self.follower.watches.forget_cursor(&self.watch.id).await?;
            self.cursor = None;
        }
        Ok(())
    }

    /// Takes an event and those that wait behind it; gives the frame that ended the row.
    async fn events(
        &mut self,
        first: Value,
        mut cursor: Option<String>,
        share: Share,
        more: &mut mpsc::Receiver<Frame>,
    ) -> Result<Option<Frame>, Stop> {
        // Their share is given back when they are on disk.
        let mut shares = vec![share];
        let mut events = vec![first];
        let mut other = None;
        while events.len() < MOST
            && let Ok(frame) = more.try_recv()
        {
            if frame.kind != "event" {
                other = Some(frame);
                break;
            }
            let Said::Event(event, at) = Said::frame(&frame.kind, frame.params) else { continue };
            cursor = at.or(cursor);
            events.push(event);
            shares.push(frame.share);
        }
        self.took(events, cursor, false).await?;
        Ok(other)
    }

    async fn took(&mut self, occurrences: Vec<Value>, cursor: Option<String>, truncated: bool) -> Result<(), Stop> {
        let told = Told { occurrences, cursor: cursor.clone(), truncated, max_age: None };
        self.said |= self.follower.take(&self.watch.id, told).await? > 0;
        self.cursor = cursor.or(self.cursor.take());
        Ok(())
    }
}
