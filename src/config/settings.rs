//! What can be configured, with the defaults.

use std::collections::BTreeMap;

use crate::domain::{Size, Span};

// ---------------------------------------------------------------------------------------------------------------
// To be replaced by `use crate::routing::{OnClosed, PromptSettings, Settings as Routing, Trust}` and
// `use crate::harness::Definition as HarnessDefinition` once those floors are in. Same names, same fields.

/// `[routing]`: what wakes a session and how news are gathered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Routing {
    /// `EVENT` or `EVENT.ACTION` each.
    pub wake_on: Vec<String>,
    /// How long to wait for more news of the same session.
    pub debounce: Span,
    /// How long at most.
    pub max_wait: Span,
    /// How many notices one turn tells at most.
    pub max_events_per_turn: usize,
    /// What the closing of a session's own item does.
    pub on_closed: OnClosed,
}

impl Default for Routing {
    fn default() -> Self {
        let wake_on = [
            "issue_comment.created",
            "pull_request_review.submitted",
            "pull_request_review_comment.created",
            "workflow_run.completed",
            "check_suite.completed",
            "status",
            "issues.closed",
            "pull_request.closed",
        ];
        Self {
            wake_on: wake_on.map(String::from).to_vec(),
            debounce: Span::secs(1),
            max_wait: Span::secs(30),
            max_events_per_turn: 50,
            on_closed: OnClosed::Close,
        }
    }
}

/// What the closing of a session's own item does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnClosed {
    /// The session is closed.
    Close,
    /// The session is told, then closed.
    Tell,
    /// The session stays and is told.
    Keep,
}

/// `[trust]`: whose words may wake an agent. Logins compare without case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trust {
    /// GitHub's `author_association` values that are enough for an author's own words.
    pub associations: Vec<String>,
    /// Logins that are trusted whatever their association.
    pub actors: Vec<String>,
    /// Logins of bots that are trusted. No bot is, otherwise.
    pub bots: Vec<String>,
    /// The agent's own logins: their comments and acts wake nobody.
    pub ignore_actors: Vec<String>,
}

impl Default for Trust {
    fn default() -> Self {
        Self {
            associations: ["OWNER", "MEMBER", "COLLABORATOR"].map(String::from).to_vec(),
            actors: Vec::new(),
            bots: Vec::new(),
            ignore_actors: Vec::new(),
        }
    }
}

/// `[prompt]`: how much text from outside one turn may be given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PromptSettings {
    /// The most that one field may take, as it stands in the prompt.
    pub max_field: Size,
    /// The most that a prompt of several notices may take.
    pub max_prompt: Size,
}

impl Default for PromptSettings {
    fn default() -> Self {
        Self { max_field: Size(8 << 10), max_prompt: Size(64 << 10) }
    }
}

/// `[harness.NAME]`: changes a harness that is known, or defines one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HarnessDefinition {
    /// The program; the harness's own default where absent.
    pub command: Option<String>,
    /// Arguments that are added to every turn's.
    pub args: Vec<String>,
    /// Variables that are added to every turn's environment.
    pub env: BTreeMap<String, String>,
}

/// The harnesses that need no definition.
pub(crate) const BUILT_IN_HARNESSES: &[&str] = &["claude", "codex", "copilot", "cursor", "gemini", "opencode"];

// ---------------------------------------------------------------------------------------------------------------

/// The whole configuration.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Settings {
    /// `[gh_webhook]`.
    pub gh_webhook: GhWebhook,
    /// `[routing]`.
    pub routing: Routing,
    /// `[trust]`.
    pub trust: Trust,
    /// `[prompt]`.
    pub prompt: PromptSettings,
    /// `[dispatch]`.
    pub dispatch: Dispatch,
    /// `[store]`.
    pub store: StoreSettings,
    /// `[harness.NAME]`, by name; only what was configured.
    pub harness: BTreeMap<String, HarnessDefinition>,
}

impl Settings {
    /// Every harness that a session may name, in order of name.
    pub fn harness_names(&self) -> Vec<String> {
        let mut names: Vec<String> = BUILT_IN_HARNESSES.iter().map(ToString::to_string).collect();
        names.extend(self.harness.keys().cloned());
        names.sort();
        names.dedup();
        names
    }
}

/// `[gh_webhook]`: the receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GhWebhook {
    /// The address to listen at.
    pub host: String,
    /// The port to listen at; 0 takes any that is free.
    pub port: u16,
    /// The path that GitHub posts to.
    pub path: String,
    /// The environment variables that hold the secrets; a delivery signed with any of them is taken.
    pub secret_env: Vec<String>,
    /// The largest body that is taken.
    pub max_body: Size,
    /// How many bytes all bodies that are being received may take together.
    pub max_in_flight: Size,
    /// How long a sender may take over its request.
    pub read_timeout: Span,
    /// How many connections may be open at once.
    pub max_connections: usize,
}

impl Default for GhWebhook {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".into(),
            port: 8787,
            path: "/gh-webhook".into(),
            secret_env: vec!["THE_LOOP_GH_WEBHOOK_SECRET".into()],
            max_body: Size(25 << 20),
            max_in_flight: Size(128 << 20),
            read_timeout: Span::secs(30),
            max_connections: 512,
        }
    }
}

/// `[dispatch]`: how turns are run, limited and tried again.
#[derive(Clone, PartialEq, Debug)]
pub struct Dispatch {
    /// How many turns run at once.
    pub max_concurrent_turns: usize,
    /// How long a turn may take.
    pub turn_timeout: Span,
    /// How long a harness may take to say anything.
    pub first_output_timeout: Span,
    /// How long it may then be silent.
    pub silence_timeout: Span,
    /// How long a turn that is ended gets to end by itself.
    pub kill_grace: Span,
    /// How much of a turn's output is kept.
    pub max_output: Size,
    /// How many turns may fail to tell a notice before it counts as failed.
    pub max_attempts: u32,
    /// The wait after the first failure; it doubles.
    pub retry_backoff: Span,
    /// The longest that it grows to.
    pub max_retry_backoff: Span,
    /// How many turns one session may take in an hour; the rest waits.
    pub max_turns_per_hour: u32,
    /// What all sessions together may cost in a day, in US dollars.
    pub max_cost_per_day_usd: Option<f64>,
    /// What one session may cost in a day, in US dollars.
    pub max_session_cost_per_day_usd: Option<f64>,
}

impl Default for Dispatch {
    fn default() -> Self {
        Self {
            max_concurrent_turns: 4,
            turn_timeout: Span::secs(30 * 60),
            first_output_timeout: Span::secs(5 * 60),
            silence_timeout: Span::secs(15 * 60),
            kill_grace: Span::secs(5),
            max_output: Size(16 << 20),
            max_attempts: 5,
            retry_backoff: Span::secs(5),
            max_retry_backoff: Span::secs(15 * 60),
            max_turns_per_hour: 60,
            max_cost_per_day_usd: None,
            max_session_cost_per_day_usd: None,
        }
    }
}

/// `[store]`: how much of the past is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreSettings {
    /// How long deliveries and turns that are done with are kept.
    pub keep_for: Span,
    /// How many bytes their bodies may take; the oldest go first.
    pub keep_bodies: Size,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self { keep_for: Span::secs(30 * 24 * 60 * 60), keep_bodies: Size(1 << 30) }
    }
}
