//! What values mean: each may be well formed and still be wrong.

use std::collections::BTreeMap;

use super::keys::nearest;
use super::server_tables;
use super::settings::Settings;
use crate::clients::Exception;
use crate::domain::{Size, Span};
use crate::harness::{self, Harnesses};

/// A value that cannot be meant.
pub(super) struct Found {
    /// The dotted key.
    pub(super) key: String,
    /// What is wrong, in words that follow the key.
    pub(super) what: String,
    /// What would be right.
    pub(super) hint: Option<String>,
    /// The other key, where two do not go together.
    pub(super) other: Option<&'static str>,
}

/// GitHub's `author_association` values (docs.github.com, "CommentAuthorAssociation").
const ASSOCIATIONS: &[&str] =
    &["OWNER", "MEMBER", "COLLABORATOR", "CONTRIBUTOR", "FIRST_TIME_CONTRIBUTOR", "FIRST_TIMER", "MANNEQUIN", "NONE"];
/// GitHub sends no body above this (docs.github.com, "Webhook events and payloads").
const GITHUB_LARGEST: Size = Size(25 << 20);

/// Events that people wait for (docs.github.com, "Webhook events and payloads"). Others are no error: GitHub adds some.
const EVENTS: &[&str] = &[
    "check_run",
    "check_suite",
    "commit_comment",
    "create",
    "delete",
    "deployment",
    "deployment_review",
    "deployment_status",
    "discussion",
    "discussion_comment",
    "issue_comment",
    "issues",
    "merge_group",
    "pull_request",
    "pull_request_review",
    "pull_request_review_comment",
    "pull_request_review_thread",
    "push",
    "release",
    "repository_dispatch",
    "status",
    "sub_issues",
    "workflow_job",
    "workflow_run",
];

/// What may be meant, but more likely is a slip.
pub(super) fn doubts(settings: &Settings) -> Vec<String> {
    let doubt = |name: &String| {
        let event = name.split('.').next().unwrap_or(name);
        let near = if EVENTS.contains(&event) { None } else { nearest(event, EVENTS.iter().copied()) };
        near.map(|near| format!("`routing.wake_on` has `{name}`; did you mean `{near}`?"))
    };
    settings.routing.wake_on.iter().filter_map(doubt).collect()
}

/// Everything that cannot be meant.
pub(super) fn check(settings: &Settings) -> Vec<Found> {
    let mut found = Findings(Vec::new());
    receiver(settings, &mut found);
    github(settings, &mut found);
    routing(settings, &mut found);
    dispatch(settings, &mut found);
    mcp(settings, &mut found);
    servers(settings, &mut found);
    harnesses(settings, &mut found);
    found.0
}

struct Findings(Vec<Found>);

impl Findings {
    fn unless(&mut self, right: bool, key: &str, what: impl Into<String>) {
        if !right {
            self.0.push(Found { key: key.to_owned(), what: what.into(), hint: None, other: None });
        }
    }

    fn unless_with(&mut self, right: bool, key: &str, what: impl Into<String>, hint: &str) {
        if !right {
            self.0.push(Found { key: key.to_owned(), what: what.into(), hint: Some(hint.to_owned()), other: None });
        }
    }

    /// `value` of `key` must not be above `limit` of `other`.
    fn unless_within<T: Ord + std::fmt::Display>(&mut self, key: &str, value: T, other: &'static str, limit: T) {
        if value > limit {
            let what = format!("is {value}, more than the {limit} of {other}");
            self.0.push(Found { key: key.to_owned(), what, hint: None, other: Some(other) });
        }
    }
}

fn receiver(settings: &Settings, found: &mut Findings) {
    let all = &settings.gh_webhook;
    let host_ok = all.host.bytes().all(|b| b.is_ascii_alphanumeric() || b".:-_[]".contains(&b));
    found.unless_with(
        host_ok,
        "gh_webhook.host",
        "is not an address",
        "write an address or a name without scheme, port and path, such as \"127.0.0.1\"",
    );
    let path_ok =
        all.path.starts_with('/') && all.path.bytes().all(|b| b.is_ascii_graphic() && !b"?#{}\\".contains(&b));
    found.unless_with(path_ok, "gh_webhook.path", "is not a path", "it starts with / and holds no ?, # or space");
    found.unless(
        !["/healthz", "/readyz", "/mcp"].contains(&all.path.trim_end_matches('/')),
        "gh_webhook.path",
        "is taken by another page",
    );
    found.unless(!all.secret_env.is_empty(), "gh_webhook.secret_env", "names no variable");
    for name in &all.secret_env {
        // The text itself is not told: somebody may have put the secret here.
        found.unless_with(
            is_variable(name),
            "gh_webhook.secret_env",
            "holds something that cannot be the name of a variable",
            "write the name of the variable, not the secret",
        );
    }
    found.unless(all.max_body > Size(0), "gh_webhook.max_body", "is 0, which takes nothing");
    found.unless(
        all.max_body <= Size(256 << 20),
        "gh_webhook.max_body",
        format!("is {}, far above the {GITHUB_LARGEST} that GitHub sends at most", all.max_body),
    );
    found.unless_within("gh_webhook.max_body", all.max_body, "gh_webhook.max_in_flight", all.max_in_flight);
    at_least(found, "gh_webhook.read_timeout", all.read_timeout, Span::secs(1));
    found.unless((1..=65_536).contains(&all.max_connections), "gh_webhook.max_connections", "should be 1 to 65536");
}

fn github(settings: &Settings, found: &mut Findings) {
    let url = url::Url::parse(&settings.github.api_url).ok();
    let is_local = |url: &url::Url| matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
    let is_safe = |url: &url::Url| {
        // The token goes there: it must not travel in the clear, nor stand in the configuration.
        (url.scheme() == "https" || url.scheme() == "http" && is_local(url))
            && url.host_str().is_some()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    };
    found.unless_with(
        url.as_ref().is_some_and(is_safe),
        "github.api_url",
        "is not the address of an API",
        "write https://HOST or https://HOST/PATH; http is for this machine alone",
    );
    at_least(found, "github_poll.interval", settings.github_poll.interval, Span::secs(1));
    at_least(found, "github_poll.max_age", settings.github_poll.max_age, Span::secs(60));
}

fn routing(settings: &Settings, found: &mut Findings) {
    let all = &settings.routing;
    for name in &all.wake_on {
        found.unless_with(
            is_event(name),
            "routing.wake_on",
            format!("has `{name}`, which names no event"),
            "write EVENT or EVENT.ACTION in lower case, such as \"issue_comment.created\"",
        );
    }
    found.unless_within("routing.debounce", all.debounce, "routing.max_wait", all.max_wait);
    found.unless(
        (1..=10_000).contains(&all.max_events_per_turn),
        "routing.max_events_per_turn",
        "should be 1 to 10000",
    );
    for name in &settings.trust.associations {
        found.unless_with(
            ASSOCIATIONS.contains(&name.as_str()),
            "trust.associations",
            format!("has `{name}`, which GitHub does not know"),
            &format!("it may hold {}", ASSOCIATIONS.join(", ")),
        );
    }
    let logins = [
        ("trust.actors", &settings.trust.actors),
        ("trust.bots", &settings.trust.bots),
        ("trust.ignore_actors", &settings.trust.ignore_actors),
    ];
    for (key, names) in logins {
        for name in names {
            found.unless_with(
                is_login(name),
                key,
                format!("has `{name}`, which is no login"),
                "write the login without @, for an app such as \"name[bot]\"",
            );
        }
    }
    let prompt = &settings.prompt;
    found.unless(prompt.max_field >= Size(256), "prompt.max_field", "is less than 256B, which tells nothing");
    found.unless_within("prompt.max_field", prompt.max_field, "prompt.max_prompt", prompt.max_prompt);
}

fn dispatch(settings: &Settings, found: &mut Findings) {
    let all = &settings.dispatch;
    found.unless(
        (1..=1000).contains(&all.max_concurrent_turns),
        "dispatch.max_concurrent_turns",
        "should be 1 to 1000",
    );
    let second = Span::secs(1);
    at_least(found, "dispatch.turn_timeout", all.turn_timeout, second);
    at_least(found, "dispatch.first_output_timeout", all.first_output_timeout, second);
    at_least(found, "dispatch.silence_timeout", all.silence_timeout, second);
    found.unless(
        all.kill_grace <= Span::secs(600),
        "dispatch.kill_grace",
        format!("is {}, longer than 10m", all.kill_grace),
    );
    found.unless(all.max_output >= Size(64 << 10), "dispatch.max_output", "is less than 64KiB");
    found.unless((1..=1000).contains(&all.max_attempts), "dispatch.max_attempts", "should be 1 to 1000");
    found.unless(
        all.retry_backoff > Span::secs(0),
        "dispatch.retry_backoff",
        "is 0, which tries again without a pause",
    );
    found.unless_within(
        "dispatch.retry_backoff",
        all.retry_backoff,
        "dispatch.max_retry_backoff",
        all.max_retry_backoff,
    );
    found.unless(all.max_turns_per_hour >= 1, "dispatch.max_turns_per_hour", "is 0, which wakes nobody");
    at_least(found, "store.keep_for", settings.store.keep_for, Span::secs(60 * 60));
}

fn servers(settings: &Settings, found: &mut Findings) {
    for (name, server) in &settings.mcp_servers {
        for (key, what) in server_tables::check(name, server) {
            found.unless(false, &key, what);
        }
    }
    if let Some(text) = &settings.mcp_callback {
        let url = url::Url::parse(text).ok();
        let right = url.is_some_and(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.has_host()
                && url.query().is_none()
                && url.fragment().is_none()
        });
        found.unless_with(
            right,
            "mcp.callback.url",
            "is not an address that others can post to",
            "write the public address of this machine, ending in /mcp-events, such as https://loop.example.com/mcp-events",
        );
    }
}

fn harnesses(settings: &Settings, found: &mut Findings) {
    for (name, definition) in &settings.harness {
        // One by one, so that each says what is wrong with it.
        let alone = BTreeMap::from([(name.clone(), definition.clone())]);
        if let Err(error) = Harnesses::new(&alone) {
            let why = match error {
                harness::Error::Definition { why, .. } => why,
                other => other.to_string(),
            };
            found.unless(false, &format!("harness.{name}"), format!("cannot be used: {why}"));
        }
        for variable in definition.env.iter().flat_map(|env| env.keys()) {
            let plain = !variable.is_empty() && !variable.contains(['=', '\0']);
            found.unless(plain, &format!("harness.{name}.env"), format!("has `{variable}`, which names no variable"));
        }
    }
}

fn mcp(settings: &Settings, found: &mut Findings) {
    let all = &settings.mcp;
    for text in &all.allow_callbacks {
        if let Err(why) = Exception::parse(text) {
            found.unless_with(false, "mcp.allow_callbacks", format!("has `{text}`, which names no callback"), why);
        }
    }
    for (key, address) in [("mcp.public_url", &all.public_url), ("mcp.oauth_issuer", &all.oauth_issuer)] {
        let plain = |text: &String| text.starts_with("https://") || text.starts_with("http://");
        found.unless(address.as_ref().is_none_or(plain), key, "is not a URL that begins with https://");
    }
    found.unless_with(
        all.oauth_issuer.is_none() || all.public_url.is_some(),
        "mcp.oauth_issuer",
        "needs the address by which clients know us",
        "set mcp.public_url as well",
    );
    found.unless(all.retry_backoff > Span::secs(0), "mcp.retry_backoff", "is 0, which posts again without a pause");
    found.unless_within("mcp.retry_backoff", all.retry_backoff, "mcp.max_retry_backoff", all.max_retry_backoff);
    found.unless((1..=100).contains(&all.max_attempts), "mcp.max_attempts", "should be 1 to 100");
    at_least(found, "mcp.min_ttl", all.min_ttl, Span::secs(1));
    found.unless_within("mcp.min_ttl", all.min_ttl, "mcp.default_ttl", all.default_ttl);
    found.unless_within("mcp.default_ttl", all.default_ttl, "mcp.max_ttl", all.max_ttl);
    found.unless(all.max_subscriptions >= 1, "mcp.max_subscriptions", "is 0, which lets nobody subscribe");
    found.unless(all.max_streams >= 1, "mcp.max_streams", "is 0, which lets nobody listen");
    found.unless_with(
        !all.enabled || !all.tokens.is_empty(),
        "mcp.enabled",
        "lets nobody in without a token",
        "add a [[mcp.tokens]] with a principal and a token_env",
    );
    let mut names = std::collections::BTreeSet::new();
    for (number, token) in all.tokens.iter().enumerate() {
        let key = |name: &str| format!("mcp.tokens.{number}.{name}");
        found.unless(!token.principal.is_empty(), &key("principal"), "is missing");
        found.unless(names.insert(&token.principal), &key("principal"), "is there twice");
        found.unless_with(
            is_variable(&token.token_env),
            &key("token_env"),
            "is not the name of a variable",
            "write the name of the variable, not the token",
        );
        for pattern in token.repositories.iter().flatten() {
            let parts: Vec<_> = pattern.split('/').collect();
            let plain = (2..=3).contains(&parts.len()) && parts.iter().all(|part| !part.is_empty());
            let stars = pattern.matches('*').count();
            found.unless_with(
                plain && (stars == 0 || (stars == 1 && pattern.ends_with("/*"))),
                &key("repositories"),
                format!("has `{pattern}`, which names no repositories"),
                "write OWNER/REPO or OWNER/*, for GitHub Enterprise HOST/OWNER/REPO",
            );
        }
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn at_least(found: &mut Findings, key: &str, value: Span, least: Span) {
    found.unless(value >= least, key, format!("is {value}, and should be at least {least}"));
}

/// `EVENT` or `EVENT.ACTION`; events of MCP servers may have more parts.
fn is_event(name: &str) -> bool {
    name.split('.')
        .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'))
}

fn is_login(name: &str) -> bool {
    let name = name.strip_suffix("[bot]").unwrap_or(name);
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}
