//! `gh-webhook serve|send`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use uuid::Uuid;

use super::context::Context;
use super::failure::{Exit, Failure};
use super::samples;
use super::serve::{self, Serve};
use crate::clients;
use crate::config;
use crate::daemon;
use crate::domain::Secret;

/// `the-loop gh-webhook …`
#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Receive signed GitHub deliveries and wake the sessions they concern
    Serve(Serve),
    /// Sign and post test deliveries, as GitHub would
    Send(Send),
}

/// `the-loop gh-webhook send`
#[derive(Args, Debug)]
pub(super) struct Send {
    /// The event's name, such as issue_comment
    #[arg(long, value_name = "NAME")]
    event: Option<String>,
    /// The payload: a JSON file, - for standard input, or a directory of EVENT.json or EVENT.ANYTHING.json files
    #[arg(long, value_name = "FILE")]
    payload: Option<PathBuf>,
    /// Without a payload: the work item that a sample payload is about
    #[arg(long, value_name = "REF", default_value = "octo-org/demo#1", conflicts_with = "payload")]
    work_item: String,
    /// Where to post to [default: the running server, else the configured address]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The delivery id [default: a new one]
    #[arg(long, value_name = "ID")]
    delivery: Option<String>,
}

pub(super) fn run(context: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(serve) => serve::webhook(context, &serve),
        Command::Send(send) => self::send(context, &send),
    }
}

fn send(context: &Context, send: &Send) -> Result<(), Failure> {
    let settings = context.configuration(&[])?.settings;
    let secrets = config::secrets(&settings.gh_webhook.secret_env, &context.environment)?;
    let secret = secrets.first().ok_or_else(|| Failure::new(Exit::BadConfig, "there is no secret to sign with"))?;
    let running = daemon::holder(&context.state_dir()?).and_then(|holder| holder.listening);
    let hook = &settings.gh_webhook;
    let url =
        send.url.clone().or(running).unwrap_or_else(|| format!("http://{}:{}{}", hook.host, hook.port, hook.path));
    let mut refused = 0;
    for (event, body) in deliveries(context, send)? {
        let delivery = send.delivery.clone().unwrap_or_else(|| Uuid::new_v4().to_string());
        refused += usize::from(!post(context, &url, secret, &event, &delivery, &body)?);
    }
    if refused == 0 { Ok(()) } else { Err(Failure::new(Exit::Failed, format!("{refused} of them were refused"))) }
}

/// Posts one and tells how it went; whether it was taken.
fn post(
    context: &Context,
    url: &str,
    secret: &Secret,
    event: &str,
    delivery: &str,
    body: &[u8],
) -> Result<bool, Failure> {
    let answer = clients::send(url, secret, event, delivery, body).map_err(|error| {
        Failure::from_error(Exit::NotServing, &error).hint("start a server: the-loop gh-webhook serve")
    })?;
    context.printer.line(&format!("{event} {delivery}: {} {}", answer.status, answer.text.trim()))?;
    Ok((200..300).contains(&answer.status))
}

/// What to send, as event names and bodies.
fn deliveries(context: &Context, send: &Send) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let usage = |message: &str| Failure::new(Exit::Usage, message);
    let named = || send.event.clone().ok_or_else(|| usage("no event is named; say --event NAME"));
    match &send.payload {
        None => {
            let event = named()?;
            let item = context.work_item(&send.work_item, &context.cwd)?;
            let body = samples::payload(&event, &item).ok_or_else(|| {
                usage(&format!("there is no sample of `{event}`"))
                    .hint(format!("say --payload FILE; there are samples of {}", samples::EVENTS.join(", ")))
            })?;
            Ok(vec![(event, body.to_string().into_bytes())])
        }
        Some(path) if path == Path::new("-") => {
            let mut body = Vec::new();
            std::io::Read::read_to_end(&mut std::io::stdin().lock(), &mut body)
                .map_err(|error| unreadable(path, &error))?;
            Ok(vec![(named()?, body)])
        }
        Some(path) if path.is_dir() => recorded(path),
        Some(path) => {
            let body = std::fs::read(path).map_err(|error| unreadable(path, &error))?;
            let event = send.event.clone().or_else(|| event_of(path)).ok_or_else(|| usage("say --event NAME"))?;
            Ok(vec![(event, body)])
        }
    }
}

/// A recorded set: every JSON file, in order of name, as the event that its name begins with.
fn recorded(dir: &Path) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let entries = std::fs::read_dir(dir).map_err(|error| unreadable(dir, &error))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(|error| unreadable(dir, &error))?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    paths
        .iter()
        .filter_map(|path| event_of(path).map(|event| (event, path)))
        .map(|(event, path)| std::fs::read(path).map(|body| (event, body)).map_err(|error| unreadable(path, &error)))
        .collect()
}

/// `issue_comment.created.json` is an `issue_comment`.
fn event_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.split('.').next()?;
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure {
        causes: vec![error.to_string()],
        ..Failure::new(Exit::Failed, format!("failed to read `{}`", path.display()))
    }
}
