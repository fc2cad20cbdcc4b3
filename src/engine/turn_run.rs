//! One turn, from inbox to settlement.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use uuid::Uuid;

use crate::crash_point;
use crate::domain::{
    Attention, Failure, FailureKind, Notice, Secret, Session, Turn, TurnId, TurnOutcome, TurnState, Usage,
};
use crate::harness::{self, Ending, Finished, Harnesses};
use crate::retry::{self, Next};
use crate::routing;
use crate::store::{NewTurn, Settlement, Store};

use super::dispatcher::DispatcherSettings;
use super::{Bells, Error, Sessions};

/// More notices than one turn tells are read, since superseded ones make room.
const LOOK_AHEAD: usize = 1000;

/// Where a turn keeps its files: what to run, its output, its lock and its result.
pub fn turn_dir(state_dir: &Path, turn: TurnId) -> PathBuf {
    state_dir.join("turns").join(turn.0.to_string())
}

/// Starts turns and records how they ended. Cheap to clone.
#[derive(Clone)]
pub struct TurnRunner {
    parts: Arc<TurnRunnerParts>,
}

/// What a [`TurnRunner`] is made of.
pub struct TurnRunnerParts {
    /// The state directory.
    pub state_dir: PathBuf,
    /// The configuration file, where there is one.
    pub config_file: Option<PathBuf>,
    /// Our own executable, which is also the shim.
    pub program: PathBuf,
    /// Where turns are recorded.
    pub store: Store,
    /// Who can be woken.
    pub sessions: Sessions,
    /// With what.
    pub harnesses: Harnesses,
    /// Within which limits.
    pub settings: Arc<DispatcherSettings>,
    /// What no child may see.
    pub secrets: Vec<Secret>,
    /// The variables that hold, or may hold, a secret.
    pub secret_names: Vec<String>,
    /// The environment we were started with.
    pub environment: Vec<(OsString, OsString)>,
    /// Who hears of a turn's end.
    pub bells: Bells,
}

impl TurnRunner {
    /// A runner of these parts.
    pub fn new(parts: TurnRunnerParts) -> Self {
        Self { parts: Arc::new(parts) }
    }

    /// Begins a turn for what waits in a session's inbox. `None` where nothing was begun: the session was held, or the
    /// inbox is empty after all.
    pub(super) async fn start(&self, session: &Session) -> Result<Option<Turn>, Error> {
        let p = &self.parts;
        let Some(harness) = p.harnesses.get(&session.harness) else {
            let failure = Failure {
                kind: FailureKind::HarnessMissing,
                message: format!("the harness `{}` is not configured", session.harness),
                not_before: None,
            };
            return self.hold(session, &failure).await;
        };
        let path = p.environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
        let program = match harness::preflight(harness, session, path) {
            Ok(program) => program,
            Err(failure) => return self.hold(session, &failure).await,
        };
        let key = session.key();
        let waiting = match p.store.read(move |db| db.waiting(&key, LOOK_AHEAD)).await {
            // What cannot be read now cannot be read later either; other sessions are not to wait for it.
            Err(error @ crate::store::Error::Content { .. }) => {
                let message = format!("its inbox cannot be read: failed to {}", crate::domain::chain(&error));
                return self.hold(session, &Failure { kind: FailureKind::Refused, message, not_before: None }).await;
            }
            waiting => waiting?,
        };
        let (waiting, repeat) = self.unknown_first(waiting).await?;
        let batch = routing::coalesce(&waiting, &p.settings.routing, &p.settings.prompt);
        let Some(first) = batch.tell.first() else { return Ok(None) };
        let attempt = batch.tell.iter().map(|notice| notice.attempts).max().unwrap_or(0) + 1;
        // Only where nobody knows what came of it does the same id help: a harness that ended its turn in good order
        // has recorded the message, and would skip it.
        let lost = |turn: &&Turn| turn.failure == Some(FailureKind::Interrupted) && harness.repeats_safely();
        let same_id = repeat.as_ref().filter(lost).map(|turn| turn.message_id.clone());
        // A harness that skips a message which it has answered never shows this line; in any other case the earlier
        // prompt stands in the conversation, and its agent may have begun to act on it.
        let told_again = repeat.is_some() || attempt > 1;
        let message_id = same_id.unwrap_or_else(|| message_id(session, first, attempt));
        let fence = Uuid::new_v4().simple().to_string();
        let prompt = routing::prompt(session, &batch, &fence, &p.settings.prompt, told_again);
        let mut invocation = harness.invocation(session, &prompt, &message_id);
        invocation.program = program.to_string_lossy().into_owned();
        let new = NewTurn {
            session: session.key(),
            work_item: session.work_item.clone(),
            harness: session.harness.clone(),
            session_id: session.session_id.clone(),
            cwd: session.cwd.to_string_lossy().into_owned(),
            attempt,
            message_id,
            started_at: Timestamp::now(),
            tell: batch.tell.iter().map(|notice| notice.id).collect(),
            superseded: batch.superseded.clone(),
        };
        let turn = self.record_start(new).await?;
        crash_point::reached("after-turn-start-commit");
        let dir = turn_dir(&p.state_dir, turn.id);
        let mut set = invocation.env.clone();
        // `the-loop` inside a turn finds its own state, and knows whose turn it is.
        set.insert(harness::SESSION_MARK.into(), session.work_item.to_string());
        for (name, path) in [("THE_LOOP_STATE_DIR", Some(&p.state_dir)), ("THE_LOOP_CONFIG", p.config_file.as_ref())] {
            if let Some(path) = path.and_then(|path| path.to_str()) {
                set.insert(name.into(), path.to_owned());
            }
        }
        let env = harness::turn_env(p.environment.iter().cloned(), &p.secrets, &p.secret_names, &set);
        let limits = p.settings.limits;
        let own_program = p.program.clone();
        let started = tokio::task::spawn_blocking(move || {
            harness::prepare(&dir, &invocation, &limits)?;
            crash_point::reached("after-prepare");
            harness::start(&own_program, &dir, env)
        })
        .await;
        match started {
            Ok(Ok(shim)) => {
                crash_point::reached("after-shim-start");
                tracing::info!(turn = turn.id.0, session = %turn.session, harness = turn.harness, events = batch.tell.len(), "turn started");
                self.watch(turn.clone(), Some(shim));
                Ok(Some(turn))
            }
            Ok(Err(error)) => {
                // It is recorded on a task of its own: what kept it from beginning may keep it from being recorded.
                let not_begun = Failure {
                    kind: FailureKind::NotBegun,
                    message: format!("failed to {}", crate::domain::chain(&error)),
                    not_before: None,
                };
                let (this, begun) = (self.clone(), turn.clone());
                tokio::spawn(async move { this.record_end(&begun, failed(not_begun), None).await });
                Ok(Some(turn))
            }
            Err(_) => {
                self.watch(turn.clone(), None);
                Ok(Some(turn))
            }
        }
    }

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
    async fn record_end(&self, turn: &Turn, outcome: TurnOutcome, exit_code: Option<i32>) {
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

    async fn record_start(&self, new: NewTurn) -> Result<Turn, Error> {
        let draft = new.clone();
        let id = self.parts.store.write(move |db| db.start_turn(&draft)).await?;
        self.parts.bells.published();
        Ok(Turn {
            id,
            session: new.session,
            work_item: new.work_item,
            harness: new.harness,
            session_id: new.session_id,
            cwd: new.cwd,
            state: TurnState::Running,
            attempt: new.attempt,
            message_id: new.message_id,
            started_at: new.started_at,
            ended_at: None,
            exit_code: None,
            error: None,
            failure: None,
            usage: Usage::default(),
            last_words: None,
        })
    }

    async fn hold(&self, session: &Session, failure: &Failure) -> Result<Option<Turn>, Error> {
        let attention = Attention {
            reason: failure.message.clone(),
            mend: format!("mend that, then run `the-loop sessions resume --work-item {}`", session.work_item),
        };
        tracing::warn!(session = %session.key(), reason = %attention.reason, "a session needs attention");
        let key = session.key();
        self.parts.store.write(move |db| db.set_attention(&key, &attention, Timestamp::now())).await?;
        self.parts.bells.published();
        Ok(None)
    }

    /// Notices whose last turn ended nobody knows how are told again by themselves: the same news under the same
    /// message id are skipped by a harness that has answered them already.
    async fn unknown_first(&self, waiting: Vec<Notice>) -> Result<(Vec<Notice>, Option<Turn>), Error> {
        // Not only the first: a notice that was replayed by hand may stand before them.
        let mut turns: Vec<TurnId> = waiting.iter().filter_map(|notice| notice.last_turn).collect();
        turns.dedup();
        for id in turns {
            let last = self.parts.store.read(move |db| db.turn(id)).await?;
            if let Some(turn) = last.filter(|turn| turn.state == TurnState::Interrupted) {
                let same = waiting.into_iter().filter(|notice| notice.last_turn == Some(id)).collect();
                return Ok((same, Some(turn)));
            }
        }
        Ok((waiting, None))
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

/// A message id that no other turn of the conversation has had: a replay is a new message, not a repeat.
fn message_id(session: &Session, first: &Notice, attempt: u32) -> String {
    let last = first.last_turn.map_or(0, |turn| turn.0);
    let name = format!("{}|{}|{}|{last}|{attempt}", session.key(), session.session_id, first.id.0);
    Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes()).to_string()
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

fn failed(failure: Failure) -> TurnOutcome {
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
