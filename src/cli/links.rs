//! `sessions link`: a person records that a pull request delivers a work item.

use clap::Args;
use jiff::Timestamp;

use super::context::Context;
use super::failure::{Exit, Failure};
use super::poke;
use crate::domain::{Link, LinkKind, Node};
use crate::store::{Access, Db};

/// `the-loop sessions link`
#[derive(Args, Debug)]
pub(super) struct LinkArgs {
    /// The pull request (or issue, or branch) that belongs to a work item
    #[arg(long, value_name = "REF")]
    work_item: String,
    /// The work item that it belongs to
    #[arg(long, value_name = "REF")]
    to: String,
}

pub(super) fn link(context: &Context, args: &LinkArgs) -> Result<(), Failure> {
    let from = context.work_item(&args.work_item, &context.cwd)?;
    let to = context.work_item(&args.to, &context.cwd)?;
    if from == to {
        return Err(Failure::new(Exit::Usage, format!("`{from}` cannot be linked to itself")));
    }
    let state_dir = context.state_dir()?;
    let link = Link { from: Node::Item(from.clone()), to: to.clone(), kind: LinkKind::Recorded, by: None };
    let db = Db::open(&state_dir, Access::Write)?;
    db.transaction(|db| {
        // One pull request delivers one work item: the last word counts.
        db.forget(&link.from, LinkKind::Recorded)?;
        db.learn(&link, Timestamp::now())
    })?;
    poke::poke(&state_dir)?;
    context.printer.line(&format!("{from} belongs to {to}: its news goes to the session of {to}"))
}
