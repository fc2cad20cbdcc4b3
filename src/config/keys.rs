//! Every key, once: its name, what it may be, and where it stands in [`Settings`].

use toml::Value;

use super::kinds::{Bytes, Duration, Kind, List, MaybeText, Money, Number, OneOrMore, Text, Truth, Word};
use super::{harness_tables, server_tables, settings::Settings, token_tables};

/// One key.
pub(super) struct Key {
    /// The dotted name.
    pub(super) name: &'static str,
    /// Takes a value from a file, or says in what way it is wrong.
    pub(super) set: fn(&mut Settings, &Value) -> Result<(), String>,
    /// The value as a file would hold it; `None` where it has none.
    pub(super) get: fn(&Settings) -> Option<Value>,
    /// What a text from the environment or a flag stands for.
    pub(super) plain: fn(&str) -> Value,
}

macro_rules! key {
    ($($field:ident).+ : $type:ty as $kind:ident) => {
        Key {
            name: dotted!($($field).+),
            set: |all, value| {
                all.$($field).+ = <$kind as Kind<$type>>::read(value)?;
                Ok(())
            },
            get: |all| <$kind as Kind<$type>>::write(&all.$($field).+),
            plain: <$kind as Kind<$type>>::plain,
        }
    };
}

macro_rules! dotted {
    ($section:ident . $key:ident) => {
        concat!(stringify!($section), ".", stringify!($key))
    };
}

type Texts = Vec<String>;
type Span = crate::domain::Span;
type Size = crate::domain::Size;
type KeepAwake = super::settings::KeepAwake;
type OnClosed = super::settings::OnClosed;

/// The keys that have one place, in the order in which people read them.
pub(super) const KEYS: &[Key] = &[
    key!(gh_webhook.host: String as Text),
    key!(gh_webhook.port: u16 as Number),
    key!(gh_webhook.path: String as Text),
    key!(gh_webhook.secret_env: Texts as OneOrMore),
    key!(gh_webhook.max_body: Size as Bytes),
    key!(gh_webhook.max_in_flight: Size as Bytes),
    key!(gh_webhook.read_timeout: Span as Duration),
    key!(gh_webhook.max_connections: usize as Number),
    key!(github.api_url: String as Text),
    key!(github_poll.enabled: bool as Truth),
    key!(github_poll.interval: Span as Duration),
    key!(github_poll.max_age: Span as Duration),
    key!(routing.wake_on: Texts as List),
    key!(routing.debounce: Span as Duration),
    key!(routing.max_wait: Span as Duration),
    key!(routing.max_events_per_turn: usize as Number),
    key!(routing.on_closed: OnClosed as Word),
    key!(trust.associations: Texts as List),
    key!(trust.actors: Texts as List),
    key!(trust.bots: Texts as List),
    key!(trust.ignore_actors: Texts as List),
    key!(prompt.max_field: Size as Bytes),
    key!(prompt.max_prompt: Size as Bytes),
    key!(dispatch.max_concurrent_turns: usize as Number),
    key!(dispatch.turn_timeout: Span as Duration),
    key!(dispatch.first_output_timeout: Span as Duration),
    key!(dispatch.silence_timeout: Span as Duration),
    key!(dispatch.kill_grace: Span as Duration),
    key!(dispatch.max_output: Size as Bytes),
    key!(dispatch.max_attempts: u32 as Number),
    key!(dispatch.retry_backoff: Span as Duration),
    key!(dispatch.max_retry_backoff: Span as Duration),
    key!(dispatch.max_turns_per_hour: u32 as Number),
    key!(dispatch.max_cost_per_day_usd: Option<f64> as Money),
    key!(dispatch.max_session_cost_per_day_usd: Option<f64> as Money),
    key!(dispatch.keep_awake: KeepAwake as Word),
    key!(mcp.enabled: bool as Truth),
    key!(mcp.public_url: Option<String> as MaybeText),
    key!(mcp.oauth_issuer: Option<String> as MaybeText),
    key!(mcp.allow_callbacks: Texts as List),
    key!(mcp.retry_backoff: Span as Duration),
    key!(mcp.max_retry_backoff: Span as Duration),
    key!(mcp.max_attempts: u32 as Number),
    key!(mcp.min_ttl: Span as Duration),
    key!(mcp.default_ttl: Span as Duration),
    key!(mcp.max_ttl: Span as Duration),
    key!(mcp.max_subscriptions: usize as Number),
    key!(mcp.max_streams: usize as Number),
    key!(store.keep_for: Span as Duration),
    key!(store.keep_bodies: Size as Bytes),
];

/// The dotted names of all keys; those of a harness are `harness.NAME.KEY`, those of a token `mcp.tokens.N.KEY`, those of
/// a server `mcp.servers.NAME.KEY`.
pub fn key_names() -> impl Iterator<Item = String> {
    let harness = harness_tables::keys().iter().map(|key| format!("harness.NAME.{key}"));
    let tokens = token_tables::KEYS.iter().map(|key| format!("mcp.tokens.N.{key}"));
    let servers = server_tables::KEYS.iter().map(|key| format!("mcp.servers.NAME.{key}"));
    let callback = std::iter::once("mcp.callback.url".to_owned());
    KEYS.iter().map(|key| key.name.to_owned()).chain(tokens).chain(callback).chain(servers).chain(harness)
}

/// The variable that sets a key.
pub(super) fn variable(name: &str) -> String {
    format!("THE_LOOP_{}", name.replace(['.', '-'], "_").to_ascii_uppercase())
}

/// The nearest of `names`, where one is near enough to be meant.
pub(super) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (strsim::damerau_levenshtein(word, name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len().max(word.len()) / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}
