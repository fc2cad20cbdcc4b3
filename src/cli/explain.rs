//! `deliveries explain`: every step of a decision, computed anew by the code that decided.

use serde_json::json;

use super::context::Context;
use super::deliveries::{One, find, row, title};
use super::failure::{Exit, Failure};
use crate::engine::{self, Sessions};
use crate::routing::Rules;
use crate::store::Access;

pub(super) fn run(context: &Context, one: &One) -> Result<(), Failure> {
    let (db, seq) = find(context, &one.id, Access::Read)?;
    let row = row(&db, seq)?;
    let settings = context.configuration(&[])?.settings;
    let rules = Rules { routing: settings.routing, trust: settings.trust };
    let sessions = Sessions::new(context.registry()?);
    let then = row.decision.as_ref();
    let now = match db.delivery(seq)? {
        None => None,
        Some(delivery) => Some(
            engine::explain(&db, &sessions, &rules, &delivery)
                .map_err(|error| Failure::from_error(Exit::Failed, &error))?
                .map_err(|error| error.to_string()),
        ),
    };
    let notices = db.notices_of(seq)?;
    if one.json.json {
        let now = now.map(|read| match read {
            Ok((event, decision)) => json!({"event": event, "decision": decision}),
            Err(why) => json!({"unreadable": why}),
        });
        return context.printer.json(&json!({
            "delivery": row.delivery, "outcome": row.outcome, "reason": row.reason,
            "decision": then, "notices": notices, "now": now,
        }));
    }
    let p = context.printer;
    p.line(&format!("{} in delivery {}", title(&row), row.delivery))?;
    match then {
        None => p.line("  no decision was made about it")?,
        Some(decision) => {
            for (number, step) in decision.steps.iter().enumerate() {
                p.line(&format!("  {}. {step}", number + 1))?;
            }
            p.line(&format!("decided: {}, {}", decision.outcome, decision.reason))?;
        }
    }
    for notice in &notices {
        let turn = notice.turn.map_or_else(String::new, |turn| format!(" (turn {turn})"));
        p.line(&format!("  {} for {}{turn}, because {}", notice.state, notice.session, notice.how))?;
    }
    p.line(&format!("now:     {}, {}", row.outcome, row.reason))?;
    match now {
        None => p.note("its payload has been let go, so it cannot be decided anew"),
        Some(Err(why)) => p.line(&format!("today it could not be read: {why}"))?,
        Some(Ok((_, decision))) if then.is_some_and(|then| then.reason == decision.reason) => {
            p.line("today the decision would be the same")?;
        }
        Some(Ok((_, decision))) => {
            p.line(&format!("today it would be: {}, {}", decision.outcome, decision.reason))?;
            for (number, step) in decision.steps.iter().enumerate() {
                p.line(&format!("  {}. {step}", number + 1))?;
            }
        }
    }
    Ok(())
}
