//! What can be configured, with the defaults.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::server_tables::McpServer;
pub use super::token_tables::McpToken;
use crate::domain::{Size, Span};
pub use crate::harness::Definition as HarnessDefinition;
use crate::harness::Harnesses;
pub use crate::routing::{OnClosed, PromptSettings, Settings as Routing, Trust};

/// The whole configuration.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Settings {
    /// `[gh_webhook]`.
    pub gh_webhook: GhWebhook,
    /// `[github]`.
    pub github: Github,
    /// `[github_poll]`.
    pub github_poll: GithubPoll,
    /// `[routing]`.
    pub routing: Routing,
    /// `[trust]`.
    pub trust: Trust,
    /// `[prompt]`.
    pub prompt: PromptSettings,
    /// `[dispatch]`.
    pub dispatch: Dispatch,
    /// `[mcp]`.
    pub mcp: Mcp,
    /// `[store]`.
    pub store: StoreSettings,
    /// `[mcp.servers.NAME]`, by name: whose events are watched.
    pub mcp_servers: BTreeMap<String, McpServer>,
    /// `mcp.callback.url`: the address under which such servers reach `/mcp-events`, where they can.
    pub mcp_callback: Option<String>,
    /// `[harness.NAME]`, by name; only what was configured.
    pub harness: BTreeMap<String, HarnessDefinition>,
}

impl Settings {
    /// Every harness that a session may name, in order of name.
    pub fn harness_names(&self) -> Vec<String> {
        // Definitions that are wrong were refused when the configuration was read.
        Harnesses::new(&self.harness).map(|harnesses| harnesses.names()).unwrap_or_default()
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

/// `[github]`: how GitHub's API is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Github {
    /// The API of github.com. That of an Enterprise host follows from the host's name.
    pub api_url: String,
}

impl Default for Github {
    fn default() -> Self {
        Self { api_url: "https://api.github.com".into() }
    }
}

/// `[github_poll]`: asking GitHub where no webhook reaches us.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GithubPoll {
    /// Whether GitHub is asked at all.
    pub enabled: bool,
    /// How often, unless GitHub asks for patience.
    pub interval: Span,
    /// What happened longer ago than this is told as a gap, not one by one.
    pub max_age: Span,
}

impl Default for GithubPoll {
    fn default() -> Self {
        Self { enabled: false, interval: Span::secs(15), max_age: Span::secs(3 * 24 * 60 * 60) }
    }
}

/// When the machine is kept from falling asleep by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepAwake {
    /// While turns run.
    #[default]
    Turns,
    /// Also while a watch is active, or GitHub is polled for somebody.
    Watches,
    /// Not at all.
    Never,
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
    /// When the machine is kept awake.
    pub keep_awake: KeepAwake,
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
            keep_awake: KeepAwake::Turns,
        }
    }
}

/// `[mcp]`: the Events server, and the courier that posts to its subscribers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mcp {
    /// Whether it is served beside the webhook.
    pub enabled: bool,
    /// The address under which the world reaches us.
    pub public_url: Option<String>,
    /// The OAuth issuer that the protected-resource metadata names.
    pub oauth_issuer: Option<String>,
    /// Exceptions to "https and public addresses only".
    pub allow_callbacks: Vec<String>,
    /// The wait after a first failed post; it doubles.
    pub retry_backoff: Span,
    /// The longest that it grows to.
    pub max_retry_backoff: Span,
    /// How many posts of one event may fail before its subscription is suspended.
    pub max_attempts: u32,
    /// No subscription is granted for less.
    pub min_ttl: Span,
    /// What is granted where nothing is asked for.
    pub default_ttl: Span,
    /// What is granted at most, except to those who ask for no end.
    pub max_ttl: Span,
    /// How many subscriptions a principal may have.
    pub max_subscriptions: usize,
    /// How many streams may be open at once.
    pub max_streams: usize,
    /// `[[mcp.tokens]]`: who may come in.
    pub tokens: Vec<McpToken>,
}

impl Default for Mcp {
    fn default() -> Self {
        Self {
            enabled: false,
            public_url: None,
            oauth_issuer: None,
            allow_callbacks: Vec::new(),
            retry_backoff: Span::secs(5),
            max_retry_backoff: Span::secs(5 * 60),
            max_attempts: 8,
            min_ttl: Span::secs(60),
            default_ttl: Span::secs(7 * 24 * 60 * 60),
            max_ttl: Span::secs(30 * 24 * 60 * 60),
            max_subscriptions: 1000,
            max_streams: 10_000,
            tokens: Vec::new(),
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
