//! Why a delivery goes where it goes: the same pure calls as the router's, with nothing recorded.

use crate::domain::{Decision, Delivery, Event, Source};
use crate::payload;
use crate::routing::{self, Rules};
use crate::store::{Db, LinksInStore};

use super::{Error, Sessions, sighting};

/// What would be decided about a delivery now.
pub fn explain(
    db: &Db,
    sessions: &Sessions,
    rules: &Rules,
    delivery: &Delivery,
) -> Result<Result<(Event, Decision), payload::Error>, Error> {
    let event = match payload::read(delivery) {
        Ok(event) => event,
        Err(error) => return Ok(Err(error)),
    };
    if matches!(delivery.source, Source::Mcp(_)) {
        sessions.now().map(drop)?;
        let decision = sighting::explained(db, sessions, delivery, &event)?;
        return Ok(Ok((event, decision)));
    }
    let links = LinksInStore::new(db);
    let decision = routing::route(&event, rules, &links, &sessions.now()?);
    links.finish()?;
    Ok(Ok((event, decision)))
}
