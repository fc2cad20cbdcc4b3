//! One turn, from inbox to its process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use uuid::Uuid;

use crate::crash_point;
use crate::domain::{Attention, Failure, FailureKind, Notice, Secret, Session, Turn, TurnId, TurnState, Usage};
use crate::harness::{self, Harnesses};
use crate::routing;
use crate::store::{NewTurn, Store};

use super::dispatcher::DispatcherSettings;
use super::turn_end::failed;
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
    pub(super) parts: Arc<TurnRunnerParts>,
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
}

/// A message id that no other turn of the conversation has had: a replay is a new message, not a repeat.
fn message_id(session: &Session, first: &Notice, attempt: u32) -> String {
    let last = first.last_turn.map_or(0, |turn| turn.0);
    let name = format!("{}|{}|{}|{last}|{attempt}", session.key(), session.session_id, first.id.0);
    Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes()).to_string()
}
