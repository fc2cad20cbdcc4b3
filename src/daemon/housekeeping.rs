//! Housekeeping: letting go of what is old, bit by bit.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::config::StoreSettings;
use crate::store::{Kept, Retention, Store};

/// How often.
const EVERY: Duration = Duration::from_secs(3600);
/// A start is busy enough.
const FIRST: Duration = Duration::from_secs(60);

/// Lets go of what is older or larger than the settings say; for ever.
pub(super) async fn run(store: Store, state_dir: PathBuf, settings: StoreSettings) {
    let mut wait = FIRST;
    loop {
        tokio::time::sleep(wait).await;
        wait = EVERY;
        let before = Timestamp::now().checked_sub(settings.keep_for.0).unwrap_or(Timestamp::MIN);
        let retention = Retention { before, body_bytes: settings.keep_bodies.0 };
        loop {
            match store.write(move |db| db.retain(retention)).await {
                Ok(kept) if kept == Kept::default() => break,
                Ok(kept) => tracing::info!(?kept, "let go of what is old"),
                Err(error) => {
                    tracing::warn!(error = %crate::domain::chain(&error), "could not let go of what is old");
                    break;
                }
            }
        }
        let (turns, store) = (state_dir.join("turns"), store.clone());
        let swept = tokio::task::spawn_blocking(move || sweep(&turns, &store)).await;
        match swept {
            Ok(Ok(0)) => {}
            Ok(Ok(gone)) => tracing::info!(turns = gone, "removed the files of old turns"),
            Ok(Err(error)) => tracing::warn!(%error, "could not remove the files of old turns"),
            Err(error) => tracing::error!(%error, "removing the files of old turns panicked"),
        }
    }
}

/// Removes the directories of turns that the store has let go of.
fn sweep(turns: &std::path::Path, store: &Store) -> std::io::Result<usize> {
    let mut gone = 0;
    let entries = match std::fs::read_dir(turns) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let known = store
            .read_here(|db| db.turn(crate::domain::TurnId(id)))
            .map_err(|error| std::io::Error::other(crate::domain::chain(&error)))?;
        if known.is_none() {
            std::fs::remove_dir_all(entry.path())?;
            gone += 1;
        }
    }
    Ok(gone)
}
