//! `deliveries backfill`: what GitHub's webhook sent while we could not take it.
//!
//! Reference: <https://docs.github.com/en/rest/repos/webhooks#list-deliveries-for-a-repository-webhook>. GitHub keeps
//! deliveries for three days.

use std::collections::BTreeSet;

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::args::Json;
use super::context::Context;
use super::failure::{Exit, Failure};
use super::poke;
use crate::clients::{self, ApiAnswer, GithubApi};
use crate::config::Settings;
use crate::domain::{Receipt, RepoName, Source, Span};
use crate::payload;
use crate::store::{Accepting, Access, Db};

/// How many pages of a hook's deliveries are read; each holds a hundred.
const MAX_PAGES: usize = 100;

/// `the-loop deliveries backfill`
#[derive(Args, Debug)]
pub(super) struct Backfill {
    /// How far to look back; GitHub keeps three days
    #[arg(long, value_name = "DURATION", default_value = "3d")]
    since: Span,
    /// The repository, as OWNER/REPO or HOST/OWNER/REPO; may be given again [default: those of open sessions]
    #[arg(long, value_name = "REPO")]
    repo: Vec<String>,
    /// The webhook's number [default: those that post to the configured path]
    #[arg(long, value_name = "ID")]
    hook: Option<u64>,
    #[command(flatten)]
    json: Json,
}

/// What was done for one hook.
#[derive(Debug, Default, Serialize)]
struct Done {
    repository: String,
    hook: u64,
    /// How many GitHub tells of.
    listed: usize,
    /// How many we had.
    known: usize,
    /// How many were taken in.
    taken: usize,
    /// How many cannot be: GitHub shows no body, or one that we do not take.
    unreadable: usize,
}

pub(super) fn run(context: &Context, args: &Backfill) -> Result<(), Failure> {
    let settings = context.configuration(&[])?.settings;
    let repos = repositories(context, args)?;
    let since = Timestamp::now().checked_sub(args.since.0).unwrap_or(Timestamp::MIN);
    let state_dir = context.state_dir()?;
    let db = Db::open(&state_dir, Access::Write)?;
    let mut all = Vec::new();
    for repo in &repos {
        let api = api(context, &settings, repo)?;
        let hooks = match args.hook {
            Some(hook) => vec![hook],
            None => hooks(&api, repo, &settings.gh_webhook.path)?,
        };
        for hook in hooks {
            all.push(one(&db, &api, repo, hook, since)?);
        }
    }
    if all.iter().any(|done| done.taken > 0) {
        poke::poke(&state_dir)?;
    }
    if args.json.json {
        return context.printer.json(&all);
    }
    for done in &all {
        let odd = if done.unreadable == 0 { String::new() } else { format!(", {} unreadable", done.unreadable) };
        context.printer.line(&format!(
            "{}, hook {}: {} deliveries since {since}, {} known, {} taken in{odd}",
            done.repository, done.hook, done.listed, done.known, done.taken
        ))?;
    }
    Ok(())
}

fn repositories(context: &Context, args: &Backfill) -> Result<Vec<RepoName>, Failure> {
    if !args.repo.is_empty() {
        return args.repo.iter().map(|text| repository(text)).collect();
    }
    let mut repos: Vec<RepoName> = Vec::new();
    for session in context.registry()?.read()?.sessions.iter().filter(|session| session.is_open()) {
        if let Some(repo) = session.work_item.repo().filter(|repo| !repos.contains(repo)) {
            repos.push(repo.clone());
        }
    }
    if repos.is_empty() {
        return Err(Failure::new(Exit::Usage, "no session is open, so no repository is named")
            .hint("say which: --repo OWNER/REPO"));
    }
    Ok(repos)
}

fn repository(text: &str) -> Result<RepoName, Failure> {
    let named = match text.split('/').collect::<Vec<_>>()[..] {
        [host, owner, name] => RepoName::new(host, owner, name),
        _ => RepoName::from_full_name("github.com", text),
    };
    named.map_err(|error| Failure::new(Exit::Usage, error.to_string()).hint("write OWNER/REPO or HOST/OWNER/REPO"))
}

fn api(context: &Context, settings: &Settings, repo: &RepoName) -> Result<GithubApi, Failure> {
    let variable = |name: &str| context.environment.text(name).map(str::to_owned);
    let token = clients::github_token(repo.host(), &variable).map_err(|why| {
        Failure { causes: vec![why], ..Failure::new(Exit::Failed, format!("failed to ask GitHub about {repo}")) }
            .hint("sign in with gh auth login, or set the variable")
    })?;
    let base = clients::api_url(repo.host(), &settings.github.api_url);
    GithubApi::new(&base, token).map_err(|error| Failure::from_error(Exit::Failed, &error))
}

fn ask(api: &GithubApi, repo: &RepoName, path: &str) -> Result<ApiAnswer, Failure> {
    let answer = api.get(path, None).map_err(|error| Failure::from_error(Exit::Failed, &error))?;
    let failed = |why: String| Failure::new(Exit::Failed, why);
    match answer.status {
        200..=299 => Ok(answer),
        401 => Err(failed(format!("GitHub does not take the token from {}", api.token_name()))),
        403 | 429 if answer.remaining == Some(0) || answer.retry_after.is_some() => {
            Err(failed("GitHub's rate limit is used up".into())
                .hint("run it again later; what was taken in is not asked for again"))
        }
        403 | 404 => Err(failed(format!("GitHub does not show the webhooks of {repo} to the token from {}", api.token_name()))
            .hint("that takes admin rights in the repository: the scope admin:repo_hook (gh auth refresh -s admin:repo_hook), or the permission Webhooks of a fine-grained token")),
        status => Err(failed(format!("GitHub answered {status} to {path}"))),
    }
}

/// The hooks that post to our path, wherever a proxy or tunnel has its address.
fn hooks(api: &GithubApi, repo: &RepoName, path: &str) -> Result<Vec<u64>, Failure> {
    let answer = ask(api, repo, &format!("/repos/{}/hooks?per_page=100", repo.full_name()))?;
    let all = answer.body.as_array().cloned().unwrap_or_default();
    let path = path.trim_end_matches('/');
    let is_ours = |hook: &&Value| {
        let url = hook.pointer("/config/url").and_then(Value::as_str).and_then(|text| url::Url::parse(text).ok());
        url.is_some_and(|url| url.path().trim_end_matches('/').ends_with(path))
    };
    let ours: Vec<u64> = all.iter().filter(is_ours).filter_map(|hook| hook.get("id")?.as_u64()).collect();
    if ours.is_empty() {
        let text = format!("none of the {} webhooks of {repo} posts to a path that ends in {path}", all.len());
        return Err(Failure::new(Exit::NotFound, text).hint("name the webhook by its number: --hook ID"));
    }
    Ok(ours)
}

/// Takes in what one hook sent and we never got, oldest first.
fn one(db: &Db, api: &GithubApi, repo: &RepoName, hook: u64, since: Timestamp) -> Result<Done, Failure> {
    let base = format!("/repos/{}/hooks/{hook}/deliveries", repo.full_name());
    let mut done = Done { repository: repo.to_string(), hook, ..Done::default() };
    let mut seen = BTreeSet::new();
    let mut missing = Vec::new();
    let mut next = Some(format!("{base}?per_page=100"));
    for _ in 0..MAX_PAGES {
        let Some(path) = next.take() else { break };
        let answer = ask(api, repo, &path)?;
        let mut old = false;
        for row in answer.body.as_array().into_iter().flatten() {
            let text = |name: &str| row.get(name).and_then(Value::as_str);
            let at = text("delivered_at").and_then(|text| text.parse::<Timestamp>().ok());
            if at.is_some_and(|at| at < since) {
                old = true;
                continue;
            }
            let (Some(id), Some(guid), Some(event)) =
                (row.get("id").and_then(Value::as_u64), text("guid"), text("event"))
            else {
                continue;
            };
            // GitHub's tries of one delivery share its guid.
            if event == "ping" || !seen.insert(guid.to_owned()) {
                continue;
            }
            done.listed += 1;
            if db.has_delivery(&Source::GithubWebhook.key(), guid)? {
                done.known += 1;
            } else {
                missing.push((id, guid.to_owned(), event.to_owned()));
            }
        }
        next = answer.next.filter(|_| !old);
    }
    for (id, guid, event) in missing.into_iter().rev() {
        let answer = ask(api, repo, &format!("{base}/{id}"))?;
        let body = answer.body.pointer("/request/payload").unwrap_or(&Value::Null);
        let Ok(delivery) = payload::from_github_list(&guid, &event, body, Timestamp::now()) else {
            done.unreadable += 1;
            continue;
        };
        let accepting = Accepting::new(delivery)?;
        match db.transaction(|db| db.accept(&accepting))? {
            Receipt::Accepted(_) | Receipt::Requeued(_) => done.taken += 1,
            Receipt::Duplicate(_) => done.known += 1,
        }
    }
    Ok(done)
}
