//! Floor 8: compose the parts, start in order, recover, stop in reverse.
//!
//! Start: lock the state directory → open and migrate the store → bind → take over what runs → serve. Stop: no new
//! connections → answers under way are finished → the store is closed → the lock is let go. Turns are not ours to end:
//! they run under their shims, and the next server finds them.

mod awake;
mod housekeeping;
mod lock;
mod mcp;
mod mcp_stdio;
pub mod watching;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub use awake::can_keep_awake;
pub use lock::{Holder, ServerLock, holder, poke};
pub use mcp::principals;
pub use mcp_stdio::run_stdio;

use crate::config::Settings;
use crate::domain::{Secret, TurnId};
use crate::edges::{github_poll, github_webhook, health, listener, mcp_client};
use crate::engine::{
    Bells, Decider, Dispatcher, DispatcherSettings, Intake, Observing, Router, Sessions, TurnRunner, TurnRunnerParts,
    Watches,
};
use crate::harness::{Harnesses, Limits};
use crate::registry::Registry;
use crate::retry::Policy;
use crate::routing::Rules;
use crate::store::Store;
use crate::{engine, harness, registry, store};

/// Why the server could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another server has this state directory.
    #[error("use the state directory `{}`: another server, process {}, has it", path.display(), holder.pid)]
    Held {
        /// The state directory.
        path: PathBuf,
        /// Who has it.
        holder: Holder,
    },
    /// The lock file could not be used.
    #[error("lock the state directory `{}`", path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The address could not be listened on.
    #[error("listen on {address}")]
    Bind {
        /// The address.
        address: String,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The signals could not be listened for.
    #[error("listen for signals")]
    Signals(#[source] std::io::Error),
    /// Our own executable could not be found: it is the shim of every turn.
    #[error("find our own executable")]
    Program(#[source] std::io::Error),
    /// A harness is not configured rightly.
    #[error(transparent)]
    Harness(#[from] harness::Error),
    /// The store could not be opened.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The registry could not be opened.
    #[error(transparent)]
    Registry(#[from] registry::Error),
    /// Posting to callbacks could not be set up.
    #[error(transparent)]
    Poster(#[from] crate::clients::SetUpError),
    /// The conversation on standard input and output failed.
    #[error(transparent)]
    Stdio(#[from] crate::edges::mcp_server::StdioError),
    /// The loop could not start.
    #[error(transparent)]
    Engine(#[from] engine::Error),
}

/// What the server is started with.
pub struct Start {
    /// The resolved configuration.
    pub settings: Settings,
    /// Where everything is kept.
    pub state_dir: PathBuf,
    /// The configuration file, where there is one.
    pub config_file: Option<PathBuf>,
    /// The webhook's secrets; without any, the webhook is not served.
    pub secrets: Vec<Secret>,
    /// The MCP server's tokens, in the order of the configuration's.
    pub tokens: Vec<Secret>,
    /// Our environment, from which the turns' are made.
    pub environment: Vec<(OsString, OsString)>,
    /// Whether to wait for running turns before the end.
    pub drain: bool,
}

/// What dispatching goes by, out of the whole configuration.
pub fn dispatcher_settings(settings: &Settings) -> DispatcherSettings {
    let dispatch = &settings.dispatch;
    DispatcherSettings {
        routing: settings.routing.clone(),
        prompt: settings.prompt,
        max_concurrent_turns: dispatch.max_concurrent_turns,
        max_turns_per_hour: dispatch.max_turns_per_hour,
        max_cost_per_day_usd: dispatch.max_cost_per_day_usd,
        max_session_cost_per_day_usd: dispatch.max_session_cost_per_day_usd,
        retry: Policy {
            max_attempts: dispatch.max_attempts,
            backoff: dispatch.retry_backoff.0,
            max_backoff: dispatch.max_retry_backoff.0,
        },
        limits: Limits {
            total: dispatch.turn_timeout.0,
            first_output: dispatch.first_output_timeout.0,
            silence: dispatch.silence_timeout.0,
            grace: dispatch.kill_grace.0,
            max_output: dispatch.max_output.0,
        },
    }
}

/// Runs the server until a signal ends it. `ready` is told the address once deliveries are taken.
pub async fn run(start: Start, ready: impl FnOnce(SocketAddr)) -> Result<(), Error> {
    let Start { settings, state_dir, config_file, secrets, tokens, environment, drain } = start;
    // Before the lock names us: a command that pokes a server which cannot hear it yet would end it.
    let (bells, stop, force) = (Bells::default(), CancellationToken::new(), CancellationToken::new());
    watch_signals(stop.clone(), force.clone(), bells.clone())?;
    let lock = ServerLock::take(&state_dir)?;
    let dir = state_dir.clone();
    let deciding = tokio::task::spawn_blocking(move || ServerLock::take_deciding(&dir));
    let deciding = deciding.await.map_err(|_| engine::Error::Panicked)??;
    let store = Store::open(&state_dir)?;
    let last = last_turn_dir(&state_dir);
    store.write(move |db| db.number_turns_above(last)).await?;
    let sessions = Sessions::new(Registry::open(&state_dir)?);
    let harnesses = Harnesses::new(&settings.harness)?;
    let address = format!("{}:{}", bracketed(&settings.gh_webhook.host), settings.gh_webhook.port);
    let bound = TcpListener::bind(&address).await.map_err(|source| Error::Bind { address, source })?;
    let local = bound.local_addr().map_err(|source| Error::Bind { address: "the socket".into(), source })?;
    let path = if secrets.is_empty() { "/" } else { &settings.gh_webhook.path };
    lock.note(&Holder::now(Some(format!("http://{local}{path}"))))?;

    let every_secret: Vec<Secret> = secrets.iter().chain(&tokens).cloned().collect();
    let servers = watching::servers(&settings, &state_dir, &environment, &every_secret)?;
    let dispatching = Arc::new(dispatcher_settings(&settings));
    let observing = Observing::new(store.clone(), sessions.clone(), bells.clone(), settings.mcp.enabled);
    let reasons = awake::Sources {
        turns: bells.turns.clone(),
        store: store.clone(),
        observing: settings.github_poll.enabled.then(|| observing.clone()),
    };
    let awake = awake::run(settings.dispatch.keep_awake, reasons);
    let polling = github_poll(&settings, &environment, observing);
    let runner = TurnRunner::new(TurnRunnerParts {
        state_dir: state_dir.clone(),
        config_file,
        program: own_program()?,
        store: store.clone(),
        sessions: sessions.clone(),
        harnesses,
        settings: Arc::clone(&dispatching),
        secrets: every_secret,
        secret_names: watching::secret_names(&settings),
        environment,
        bells: bells.clone(),
    });
    let rules = Arc::new(Rules { routing: settings.routing.clone(), trust: settings.trust.clone() });
    let decider = Decider::new(sessions.clone(), rules);
    let router = Router::new(store.clone(), decider.clone(), bells.clone());
    let watches = Watches::new(store.clone(), sessions.clone(), bells.clone());
    let dispatcher = Dispatcher::new(store.clone(), sessions, dispatching, bells.clone(), runner);
    dispatcher.recover().await?;

    let making = mcp_client::Making::default();
    let mut tasks = vec![
        tokio::spawn(mcp_client::run(servers, watches.clone(), making.clone())),
        tokio::spawn(awake),
        tokio::spawn(router.run()),
        tokio::spawn(dispatcher.run()),
        tokio::spawn(housekeeping::run(store.clone(), state_dir.clone(), settings.store.clone())),
    ];
    tasks.extend(polling.map(|polling| tokio::spawn(polling.run())));
    let intake = Intake::new(store.clone(), decider, bells.clone());
    let mut app = if secrets.is_empty() {
        health::routes(intake)
    } else {
        let webhook = github_webhook::Settings {
            path: settings.gh_webhook.path.clone(),
            secrets,
            max_body: settings.gh_webhook.max_body.0,
            max_in_flight: settings.gh_webhook.max_in_flight.0,
            read_timeout: settings.gh_webhook.read_timeout.0,
        };
        github_webhook::routes(webhook, intake)
    };
    if settings.mcp_callback.is_some() {
        app = app.merge(mcp_client::routes(watches, making));
    }
    if settings.mcp.enabled {
        let (routes, more) = mcp::start(&settings, tokens, &store, &bells, &stop).await?;
        app = app.merge(routes);
        tasks.extend(more);
    }
    crate::crash_point::ready();
    ready(local);
    listener::serve(bound, app, settings.gh_webhook.max_connections, stop).await;

    tracing::info!("stopping; running turns go on and the next server takes them over");
    // No new turns from here on; those that run are watched by tasks of their own.
    for task in &tasks {
        task.abort();
    }
    if drain {
        wait_for_turns(&store, &force).await?;
    }
    store.close().await;
    drop((deciding, lock));
    Ok(())
}

/// The poller, where it is wanted.
fn github_poll(
    settings: &Settings,
    environment: &[(OsString, OsString)],
    observing: Observing,
) -> Option<github_poll::GithubPoll> {
    let poll = &settings.github_poll;
    // A person's own token is the person's setting: the agent gets it too, and here it is read when it is needed.
    let variables = environment.to_vec();
    let variable = move |name: &str| {
        let found = variables.iter().find(|(known, _)| known == name);
        found.and_then(|(_, value)| value.to_str().map(str::to_owned))
    };
    poll.enabled.then(|| {
        let polling = github_poll::Settings {
            interval: poll.interval.0,
            max_age: poll.max_age.0,
            checks: wanted_checks(&settings.routing),
            api_url: settings.github.api_url.clone(),
            variable: Box::new(variable),
        };
        github_poll::GithubPoll::new(polling, observing)
    })
}

/// Which checks of commits `wake_on` asks for.
fn wanted_checks(routing: &crate::routing::Settings) -> github_poll::Checks {
    let suites = routing.wakes("check_suite", Some("completed"));
    github_poll::Checks {
        suites,
        // As for those that the webhook brings: their workflow_run tells the same.
        of_actions: suites && !routing.wakes("workflow_run", Some("completed")),
        runs: routing.wakes("check_run", Some("completed")),
        statuses: routing.wake_on.iter().any(|wanted| wanted == "status" || wanted.starts_with("status.")),
    }
}

/// Ends with the last running turn.
async fn wait_for_turns(store: &Store, force: &CancellationToken) -> Result<(), Error> {
    loop {
        let running = engine::running(store).await?;
        if running.is_empty() {
            return Ok(());
        }
        tracing::info!(turns = running.len(), "waiting for running turns; a second signal ends the wait");
        tokio::select! {
            () = tokio::time::sleep(std::time::Duration::from_millis(500)) => {}
            () = force.cancelled() => return Ok(()),
        }
    }
}

/// SIGTERM and Ctrl-C stop the server, a second one ends its waiting for turns; SIGUSR1 says that a command has changed
/// something.
fn watch_signals(stop: CancellationToken, force: CancellationToken, bells: Bells) -> Result<(), Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
    let mut poked = signal(SignalKind::user_defined1()).map_err(Error::Signals)?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = poked.recv() => {
                    bells.router.notify_one();
                    bells.watches.notify_one();
                    bells.dispatcher.notify_one();
                    bells.observers.notify_one();
                    bells.published();
                    continue;
                }
            }
            if stop.is_cancelled() {
                force.cancel();
            }
            stop.cancel();
        }
    });
    Ok(())
}

/// The highest number of a turn that has files.
fn last_turn_dir(state_dir: &Path) -> TurnId {
    let entries = std::fs::read_dir(state_dir.join("turns")).into_iter().flatten().flatten();
    TurnId(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).max().unwrap_or(0))
}

/// An upgrade replaces the file under the running program; the kernel then adds a mark to its name, and the new file is
/// the one to run.
fn own_program() -> Result<PathBuf, Error> {
    let path = std::env::current_exe().map_err(Error::Program)?;
    Ok(match path.to_str().and_then(|text| text.strip_suffix(" (deleted)")) {
        Some(replaced) => Path::new(replaced).to_path_buf(),
        None => path,
    })
}

fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() }
}
