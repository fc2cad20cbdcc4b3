//! `doctor --set-aside-database`: the only way in which a damaged database makes room for a new one.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::daemon::{self, ServerLock};
use crate::store::{Access, Db, Store};

pub(super) fn run(context: &Context, state_dir: &Path) -> Result<(), Failure> {
    if !Db::exists(state_dir) {
        return Err(Failure::new(Exit::NotFound, format!("there is no database in `{}`", state_dir.display())));
    }
    // With the lock, no server can begin to use what is moved.
    let lock = ServerLock::take(state_dir).map_err(|error| match error {
        daemon::Error::Held { .. } => Failure::from(error).hint("stop the server first"),
        other => other.into(),
    })?;
    if Db::open(state_dir, Access::Read).and_then(|db| db.check()).is_ok() {
        return Err(Failure::new(Exit::Failed, "the database is sound, so it is left where it is"));
    }
    let stamp = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let database = Store::file(state_dir);
    let mut moved = Vec::new();
    // The log first: were it left beside a new database, its pages would be taken for that one's.
    for end in ["-wal", "-shm", ""] {
        let (from, to) = (suffixed(&database, end), suffixed(&database, &format!(".damaged-{stamp}{end}")));
        if from.exists() {
            std::fs::rename(&from, &to).map_err(|error| Failure {
                causes: vec![error.to_string()],
                ..Failure::new(Exit::Failed, format!("failed to move `{}` away", from.display()))
            })?;
            moved.push(to.display().to_string());
        }
    }
    drop(lock);
    context.printer.line(&format!("moved away: {}", moved.join(", ")))?;
    context.printer.note(
        "the next server begins a new journal: what waited in the old one is not told, and GitHub's redeliveries count as new",
    );
    Ok(())
}

fn suffixed(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}
