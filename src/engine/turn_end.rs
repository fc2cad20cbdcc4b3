//! One turn, from the end of its process to settlement.

use std::path::PathBuf;

use jiff::Timestamp;
use uuid::Uuid;

use crate::crash_point;
use crate::domain::{Attention, Failure, FailureKind, Session, Turn, TurnOutcome, TurnState, Usage};
use crate::harness::{self, Ending, Finished};
use crate::retry::{self, Next};
use crate::store::Settlement;

use super::Error;
use super::turn_run::{TurnRunner, turn_dir};

impl TurnRunner {
    /// Waits for a turn's end and records it; `shim` where we are its parent.
    pub(super) fn watch(&self, turn: Turn, shim: Option<std::process::Child>) {
        let this = self.clone();
        let counted = self.parts.bells.turns.count();
        tokio::spawn(async move {
            let _counted = counted;
            let dir = turn_dir(&this.parts.state_dir, turn.id);
            let waited = tokio::task::spawn_blocking(move || {
                let finished = harness::wait(&dir);
                if let Some(mut shim) = shim {
                    // It has let go of its lock, so it ends now; this takes it off the process table.
                    if let Err(error) = shim.wait() {
                        tracing::warn!(%error, "could not collect a shim");
                    }
                }
                finished
            })
            .await;
            crash_point::reached("after-result");
            let finished = match waited {
                Ok(Ok(finished)) => finished,
                Ok(Err(error)) => lost(crate::domain::chain(&error)),
                Err(_) => lost("waiting for it panicked".into()),
            };
            this.finish(turn, &finished).await;
        });
    }

    async fn finish(&self, turn: Turn, finished: &Finished) {
        let session = self.session_of(&turn);
        let outcome = match self.parts.harnesses.get(&turn.harness) {
            Some(harness) => harness.outcome(&session, finished),
            None => failed(Failure {
                kind: FailureKind::HarnessMissing,
                message: format!("the harness `{}` is not configured any more", turn.harness),
                not_before: None,
            }),
        };
        // The result is a file until it is recorded, so a store that is full costs nothing but time.
        self.record_end(&turn, outcome, finished.exit_code).await;
    }

    /// Records how a turn ended, for as long as that takes: until then its session and its place are not free.
    pub(super) async fn record_end(&self, turn: &Turn, outcome: TurnOutcome, exit_code: Option<i32>) {
        loop {
            match self.settle(turn, outcome.clone(), exit_code).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::error!(turn = turn.id.0, error = %crate::domain::chain(&error), "could not record a turn; trying again");
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        }
    }

    async fn settle(&self, turn: &Turn, outcome: TurnOutcome, exit_code: Option<i32>) -> Result<(), Error> {
        let p = &self.parts;
        let now = Timestamp::now();
        let replaced = self.was_replaced(turn)?;
        let settlement = match &outcome.failure {
            None => Settlement::Delivered,
            Some(failure) => {
                let jitter = (Uuid::new_v4().as_u128() % 1000) as f64 / 1000.0;
                match retry::next(&p.settings.retry, turn.attempt, failure, now, jitter) {
                    Next::Again { at, counts } => Settlement::Retry { at, counts },
                    // Somebody has registered another conversation meanwhile: what was wrong with this one is past.
                    Next::Hold if replaced => Settlement::Retry { at: now, counts: false },
                    Next::Hold => Settlement::Hold(attention(turn, failure)),
                    Next::GiveUp => Settlement::GiveUp {
                        reason: format!("turn {} was attempt {}, the last: {}", turn.id, turn.attempt, failure.message),
                        max_attempts: match failure.kind {
                            FailureKind::Cancelled => 0,
                            _ => p.settings.retry.max_attempts,
                        },
                        at: now.checked_add(p.settings.retry.backoff).unwrap_or(now),
                    },
                }
            }
        };
        if let Some(new_id) = &outcome.new_session_id {
            self.follow(turn, new_id)?;
            crash_point::reached("after-follow");
        }
        let error = outcome.failure.as_ref().map(|failure| failure.message.clone());
        tracing::info!(turn = turn.id.0, session = %turn.session, state = outcome.state.as_str(), ?error, "turn ended");
        let (id, recorded) = (turn.id, outcome);
        p.store.write(move |db| db.finish_turn(id, &recorded, exit_code, &settlement, now)).await?;
        crash_point::reached("after-finish-commit");
        p.bells.dispatcher.notify_one();
        p.bells.published();
        Ok(())
    }

    /// The registry follows a conversation that goes on under another id, unless it was replaced meanwhile.
    fn follow(&self, turn: &Turn, new_id: &str) -> Result<(), Error> {
        let changed = self.parts.sessions.registry().update(&turn.work_item, |session| {
            if session.session_id == turn.session_id {
                session.session_id = new_id.to_owned();
            }
        });
        match changed {
            Ok(_) => Ok(()),
            Err(crate::registry::Error::Unknown(_)) => Ok(()),
            Err(error @ crate::registry::Error::Damaged(_)) => {
                // The turn ended all the same, and a person has to mend the file anyway.
                let error = crate::domain::chain(&error);
                tracing::warn!(turn = turn.id.0, new_id, error, "could not follow a conversation to its new id");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the session has another conversation or another place than the turn had.
    fn was_replaced(&self, turn: &Turn) -> Result<bool, Error> {
        let now = self.parts.sessions.since(std::time::Instant::now())?;
        Ok(now.get(&turn.session).is_some_and(|session| {
            session.harness != turn.harness
                || session.session_id != turn.session_id
                || session.cwd.as_os_str() != turn.cwd.as_str()
        }))
    }

    /// The session as it was when the turn began: that is what its harness was asked to resume.
    fn session_of(&self, turn: &Turn) -> Session {
        Session {
            version: Session::VERSION,
            work_item: turn.work_item.clone(),
            harness: turn.harness.clone(),
            session_id: turn.session_id.clone(),
            cwd: PathBuf::from(&turn.cwd),
            status: crate::domain::SessionStatus::Active,
            created_at: turn.started_at,
            closed_reason: None,
            repository_id: None,
            unknown: serde_json::Map::new(),
        }
    }
}

/// A run of which nobody knows how it ended.
fn lost(why: String) -> Finished {
    let now = Timestamp::now();
    Finished {
        ending: Ending::Lost,
        exit_code: None,
        stdout: String::new(),
        stderr: why,
        started_at: now,
        ended_at: now,
        dropped_bytes: 0,
    }
}

/// The outcome of a turn that failed before, or without, a word of its harness.
pub(super) fn failed(failure: Failure) -> TurnOutcome {
    TurnOutcome {
        state: TurnState::Failed,
        failure: Some(failure),
        new_session_id: None,
        usage: Usage::default(),
        last_words: None,
        remarks: Vec::new(),
    }
}

/// What a person has to do about a failure that time does not mend.
fn attention(turn: &Turn, failure: &Failure) -> Attention {
    let resume = format!("the-loop sessions resume --work-item {}", turn.work_item);
    let mend = match failure.kind {
        FailureKind::NotSignedIn => {
            format!("sign in to {} as the user that runs the-loop, then run `{resume}`", turn.harness)
        }
        FailureKind::ConversationGone => format!(
            "register another conversation: `the-loop sessions register --force --work-item {} --harness {} --session-id ID`",
            turn.work_item, turn.harness
        ),
        FailureKind::OverBudget => format!("raise the harness's budget, then run `{resume}`"),
        _ => format!("mend that, then run `{resume}`"),
    };
    Attention { reason: failure.message.clone(), mend }
}
