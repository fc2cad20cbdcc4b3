//! `config check` and `config show`.

use clap::Subcommand;
use serde::Serialize;
use toml::Value;

use super::args::Json;
use super::context::Context;
use super::failure::Failure;
use super::printer::Column;
use crate::config::Origin;

/// `the-loop config …`
#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Say whether the configuration is right, and everything that is not
    Check,
    /// Print every key with its value and where that came from
    Show(Json),
}

pub(super) fn run(context: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::Check => check(context),
        Command::Show(json) => show(context, json),
    }
}

fn check(context: &Context) -> Result<(), Failure> {
    let loaded = context.configuration(&[])?;
    let set = loaded.entries().iter().filter(|(_, _, origin)| *origin != Origin::Default).count();
    let file = match &loaded.file {
        Some(file) => format!("`{}`", file.display()),
        None => "no file".into(),
    };
    context
        .printer
        .line(&format!("the configuration is right ({file}; {set} keys are set, the others have their defaults)"))
}

/// One key in JSON.
#[derive(Serialize)]
struct Row {
    key: String,
    value: Option<Value>,
    origin: String,
}

fn show(context: &Context, Json { json }: Json) -> Result<(), Failure> {
    let rows = context.configuration(&[])?.entries().into_iter();
    let rows: Vec<Row> = rows.map(|(key, value, origin)| Row { key, value, origin: origin.to_string() }).collect();
    if json {
        return context.printer.json(&rows);
    }
    let text = |value: Option<Value>| value.map_or_else(|| "(none)".into(), |value| value.to_string());
    let rows = rows.into_iter().map(|row| vec![row.key, row.origin, text(row.value)]).collect();
    context.printer.table(&[Column::Whole("KEY"), Column::Whole("FROM"), Column::Prose("VALUE")], rows)
}
