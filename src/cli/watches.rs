//! `watches add|list|show|remove|types`: what sessions wait for at other MCP servers.

use clap::{Args, Subcommand};
use jiff::Timestamp;

use super::args::{ItemArg, Json};
use super::context::Context;
use super::failure::{Exit, Failure};
use super::poke;
use super::printer::{Column, relative};
use crate::catalogue;
use crate::config::{self, Settings};
use crate::daemon::watching::{self, LinkError, Server};
use crate::domain::{Condition, EventOffer, Watch, WatchId, chain};
use crate::engine::{Desk, NewWatch};
use crate::store::{Access, Db};

/// `the-loop watches …`
#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Wait for an event of another MCP server
    Add(Add),
    /// List all watches
    List(List),
    /// Show one watch
    Show(One),
    /// End a watch: its events wake nobody any more
    Remove(One),
    /// List what the configured servers offer
    Types(Types),
}

/// `the-loop watches add`
#[derive(Args, Debug)]
pub(super) struct Add {
    /// The server, as the configuration names it
    #[arg(long, value_name = "NAME")]
    server: String,
    /// The event, as the server names it (see watches types)
    #[arg(long, value_name = "NAME")]
    event: String,
    /// A filter that the server applies; may be given several times
    #[arg(long = "arg", value_name = "NAME=VALUE")]
    arguments: Vec<String>,
    #[command(flatten)]
    item: ItemArg,
    /// Tell the session only where this field of the event's data has this value; of several, all must hold
    #[arg(long = "where", value_name = "FIELD=VALUE")]
    only: Vec<String>,
    /// End the watch with the event whose data has this value; of several, all must hold
    #[arg(long, value_name = "FIELD=VALUE")]
    until: Vec<String>,
    /// End the watch after the first event that is told
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    json: Json,
}

/// `the-loop watches list`
#[derive(Args, Debug)]
pub(super) struct List {
    /// Only those of this work item
    #[arg(long, value_name = "REF")]
    work_item: Option<String>,
    #[command(flatten)]
    json: Json,
}

/// The watch that a command is about.
#[derive(Args, Debug)]
pub(super) struct One {
    /// The watch's id
    #[arg(value_name = "WATCH")]
    id: String,
    #[command(flatten)]
    json: Json,
}

/// `the-loop watches types`
#[derive(Args, Debug)]
pub(super) struct Types {
    /// Only those of this server
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::Add(args) => add(context, &args),
        Command::List(args) => list(context, &args),
        Command::Show(one) => show(context, &one),
        Command::Remove(one) => remove(context, &one),
        Command::Types(args) => types(context, &args),
    }
}

/// The desk of the state directory that is meant.
pub(super) fn desk(context: &Context) -> Result<Desk, Failure> {
    Ok(Desk::new(context.state_dir()?, context.registry()?))
}

/// The configured servers, with our environment.
pub(super) fn servers(context: &Context, settings: &Settings) -> Result<Vec<Server>, Failure> {
    let secrets = config::secrets(&settings.gh_webhook.secret_env, &context.environment).unwrap_or_default();
    let environment: Vec<_> = std::env::vars_os().collect();
    // Programs run in the state directory, which may not be there before the first session.
    context.registry()?;
    watching::servers(settings, &context.state_dir()?, &environment, &secrets)
        .map_err(|error| Failure::from_error(Exit::Failed, &error))
}

fn named<'a>(servers: &'a [Server], name: &str) -> Result<&'a Server, Failure> {
    if let Some(server) = servers.iter().find(|server| server.name == name) {
        return Ok(server);
    }
    let names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
    let near = catalogue::nearest(name, names.iter().copied()).map(|near| format!("did you mean `{near}`? "));
    let there = match names.is_empty() {
        true => "add one to the configuration: [mcp.servers.NAME] with a command or a url".to_owned(),
        false => format!("{}configured are {}", near.unwrap_or_default(), names.join(", ")),
    };
    Err(Failure::new(Exit::NotFound, format!("there is no server `{name}`")).hint(there))
}

/// Runs what has to wait for servers.
pub(super) fn wait<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::from_error(Exit::Failed, &error))?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    Ok(done)
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        let failure = Self::from_error(Exit::Failed, &error);
        match &error {
            LinkError::Start { .. } | LinkError::Directory { .. } => {
                failure.hint("is the program there, and is its path right in [mcp.servers.NAME]?")
            }
            _ => failure,
        }
    }
}

impl From<crate::engine::Error> for Failure {
    fn from(error: crate::engine::Error) -> Self {
        Self::from_error(Exit::Failed, &error)
    }
}

fn add(context: &Context, args: &Add) -> Result<(), Failure> {
    let work_item = context.work_item(args.item.text(), &context.cwd)?;
    let pairs = args.arguments.iter().map(|text| pair(text)).collect::<Result<Vec<_>, _>>()?;
    let (only, until) = (conditions(&args.only)?, conditions(&args.until)?);
    let session = context.registry()?.find(&work_item)?.filter(crate::domain::Session::is_open);
    if session.is_none() {
        return Err(Failure::new(Exit::NotFound, format!("no open session is registered for `{work_item}`")).hint(
            format!("register it first: the-loop sessions register '{work_item}' --harness NAME --session-id ID"),
        ));
    }
    let settings = context.configuration(&[])?.settings;
    let servers = servers(context, &settings)?;
    let server = named(&servers, &args.server)?;
    let usage = |message: String| Failure::new(Exit::Usage, message).hint("see what there is: the-loop watches types");
    let (desk, state_dir) = (desk(context)?, context.state_dir()?);
    let poke = || crate::daemon::poke(&state_dir);
    let new = wait(async {
        let offers = watching::offers(server, &desk, poke).await.map_err(Failure::from)?;
        let offer = catalogue::offered(&offers, &args.event).map_err(usage)?;
        let arguments = catalogue::typed(offer, &pairs).map_err(usage)?;
        let modes = server.modes_for(&offer.delivery);
        let delivery = Some(*modes.first().ok_or_else(|| no_way(offer))?);
        let cursor = watching::beginning(server, offer, &arguments).await;
        let (server, event) = (server.name.clone(), offer.name.clone());
        let once = args.once;
        Ok::<_, Failure>(NewWatch { server, event, arguments, only, until, once, work_item, delivery, cursor })
    })??;
    let added = desk.add(new)?;
    let runs = poke();
    let watch = if runs { wait(watching::begun(&desk, added.watch))?? } else { added.watch };
    let has_begun = watch.checked_at.is_some();
    if runs && watch.is_active() && !has_begun {
        let why = watch.problem.as_ref().map_or_else(String::new, |problem| format!(" ({problem})"));
        context.printer.warning(&format!(
            "{} has not begun to tell yet{why}: what happens before it does may be missed; see: the-loop watches show {}",
            watch.server, watch.id
        ));
    }
    if args.json.json {
        return context.printer.json(&watch);
    }
    let Watch { id, event, server, work_item, .. } = &watch;
    let verb = if added.is_new { "watching" } else { "was watching already" };
    context.printer.line(&format!("{id}: {verb} {event} at {server} for {work_item}"))?;
    if !runs && has_begun {
        context.printer.note("no server runs, so nothing comes yet: the-loop gh-webhook serve");
    } else if !runs {
        context.printer.note(
            "no server runs, so nothing comes yet, and what happens before one does is missed: the-loop gh-webhook serve",
        );
    }
    Ok(())
}

fn no_way(offer: &EventOffer) -> Failure {
    let offered: Vec<_> = offer.delivery.iter().map(|mode| mode.as_str()).collect();
    let message = format!("`{}` can be had by {} only, which is not possible here", offer.name, offered.join(" and "));
    Failure::new(Exit::Failed, message)
        .hint("see `delivery` in [mcp.servers.NAME]; webhook needs a server with a url, and [mcp.callback] url")
}

fn pair(text: &str) -> Result<(String, String), Failure> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err(Failure::new(Exit::Usage, format!("`{text}` is not NAME=VALUE"))),
    }
}

fn conditions(texts: &[String]) -> Result<Vec<Condition>, Failure> {
    texts.iter().map(|text| Condition::parse(text).map_err(|why| Failure::new(Exit::Usage, why))).collect()
}

/// Every watch, with what keeps its events away.
fn rows(context: &Context) -> Result<Vec<Watch>, Failure> {
    let state_dir = context.state_dir()?;
    let watches = desk(context)?.watches()?;
    let states = match Db::exists(&state_dir) {
        true => Db::open(&state_dir, Access::Write)?.server_states()?,
        false => Vec::new(),
    };
    let runs = crate::daemon::holder(&state_dir).is_some();
    let problem = |watch: &Watch| match watch.is_active() {
        false => None,
        true if !runs => Some("no server of ours runs".to_owned()),
        true => states.iter().find(|state| state.server == watch.server).and_then(|state| state.problem.clone()),
    };
    let shown = |watch: Watch| Watch { problem: problem(&watch).or(watch.problem.clone()), ..watch };
    Ok(watches.into_iter().map(shown).collect())
}

fn list(context: &Context, args: &List) -> Result<(), Failure> {
    let item = args.work_item.as_ref().map(|text| context.work_item(text, &context.cwd)).transpose()?;
    let mut rows = rows(context)?;
    rows.retain(|row| item.as_ref().is_none_or(|item| row.work_item == *item));
    let now = Timestamp::now();
    context.printer.list(
        &rows,
        args.json.json,
        "nothing is watched; see what there is: the-loop watches types",
        &[
            (Column::Whole("WATCH"), &|watch| watch.id.to_string()),
            (Column::Whole("SERVER"), &|watch| watch.server.clone()),
            (Column::Whole("EVENT"), &|watch| watch.event.clone()),
            (Column::Whole("WORK ITEM"), &|watch| watch.work_item.to_string()),
            (Column::Whole("STATE"), &|watch| watch.state.as_str().to_owned()),
            (Column::Whole("LAST EVENT"), &|watch| {
                watch.last_event_at.map_or_else(|| "-".into(), |at| relative(at, now))
            }),
            (Column::Prose("WHY"), &|watch| {
                watch.reason.clone().or_else(|| watch.problem.clone()).unwrap_or_else(|| "-".into())
            }),
        ],
    )
}

fn find(context: &Context, id: &str) -> Result<Watch, Failure> {
    rows(context)?.into_iter().find(|row| row.id.0 == id).ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("there is no watch `{id}`"))
            .hint("see which there are: the-loop watches list")
    })
}

fn show(context: &Context, one: &One) -> Result<(), Failure> {
    let row = find(context, &one.id)?;
    if one.json.json {
        return context.printer.json(&row);
    }
    let now = Timestamp::now();
    let watch = &row;
    let ago = |at: Timestamp| format!("{at} ({})", relative(at, now));
    let texts = |conditions: &[Condition]| {
        let each: Vec<_> = conditions.iter().map(ToString::to_string).collect();
        (!each.is_empty()).then(|| each.join(", "))
    };
    let arguments: Vec<_> = watch
        .arguments
        .iter()
        .map(|(name, value)| format!("{name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        .collect();
    let fields = [
        ("watch", Some(watch.id.to_string())),
        ("event", Some(format!("{} at {}", watch.event, watch.server))),
        ("arguments", (!arguments.is_empty()).then(|| arguments.join(", "))),
        ("where", texts(&watch.only)),
        ("until", texts(&watch.until)),
        ("once", watch.once.then(|| "yes".to_owned())),
        ("work item", Some(watch.work_item.to_string())),
        ("delivery", watch.delivery.map(|mode| mode.as_str().to_owned())),
        ("state", Some(watch.state.as_str().to_owned())),
        ("because", watch.reason.clone()),
        ("problem", watch.problem.clone()),
        ("made", Some(ago(watch.created_at))),
        ("last checked", Some(watch.checked_at.map_or_else(|| "not yet".into(), ago))),
        ("last event", Some(watch.last_event_at.map_or_else(|| "none yet".into(), ago))),
        ("cursor", watch.cursor.clone()),
    ];
    let there = fields.into_iter().filter_map(|(name, value)| value.map(|value| (name, value)));
    there.into_iter().try_for_each(|(name, value)| context.printer.line(&format!("{:<14} {value}", format!("{name}:"))))
}

fn remove(context: &Context, one: &One) -> Result<(), Failure> {
    let row = find(context, &one.id)?;
    let id = WatchId(one.id.clone());
    let ended = desk(context)?.end(&id, "removed by hand")?;
    poke::poke(&context.state_dir()?)?;
    if one.json.json {
        return context.printer.json(&find(context, &one.id)?);
    }
    let Watch { event, server, .. } = &row;
    let what = if ended { "is watched no more" } else { "was not watched any more" };
    context.printer.line(&format!("{id}: {event} at {server} {what}"))
}

fn types(context: &Context, args: &Types) -> Result<(), Failure> {
    let settings = context.configuration(&[])?.settings;
    let servers = servers(context, &settings)?;
    let asked: Vec<&Server> = match &args.server {
        Some(name) => vec![named(&servers, name)?],
        None => servers.iter().collect(),
    };
    if asked.is_empty() {
        return Err(Failure::new(Exit::NotFound, "no server is configured")
            .hint("add one to the configuration: [mcp.servers.NAME] with a command or a url"));
    }
    let (desk, state_dir) = (desk(context)?, context.state_dir()?);
    let found = wait(async {
        let poke = move || crate::daemon::poke(&state_dir);
        match asked[..] {
            // Asked for alone, it has all the time that its configuration gives it.
            [one] => vec![watching::offers(one, &desk, poke).await],
            _ => watching::offers_of_all(&asked, &desk, poke).await,
        }
    })?;
    let mut offers = Vec::new();
    for (server, looked) in asked.into_iter().zip(found) {
        match looked {
            Ok(some) => offers.extend(some.into_iter().map(|offer| (server, offer))),
            Err(error) if args.server.is_some() => return Err(error.into()),
            Err(error) => context.printer.warning(&format!("failed to {}", chain(&error))),
        }
    }
    if args.json.json {
        return context.printer.json(&offers.iter().map(|(_, offer)| offer).collect::<Vec<_>>());
    }
    let p = context.printer;
    for (server, offer) in &offers {
        let modes: Vec<_> = offer.delivery.iter().map(|mode| mode.as_str()).collect();
        let chosen =
            server.modes_for(&offer.delivery).first().map_or("none that is possible here", |mode| mode.as_str());
        p.line(&format!("{} at {}", offer.name, offer.server))?;
        p.line(&format!("  {}", offer.description.replace('\n', " ")))?;
        p.line(&format!("  delivery   {} (here: {chosen})", modes.join(", ")))?;
        let names = catalogue::argument_names(offer);
        p.line(&format!("  arguments  {}", if names.is_empty() { "none".into() } else { names.join(", ") }))?;
    }
    Ok(())
}
