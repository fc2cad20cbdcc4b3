//! The tables, in numbered migrations, and how a connection is set up.
//!
//! Changing a table means a new entry in [`MIGRATIONS`]; an entry that has been released is never edited.

use std::path::Path;

use rusqlite::ErrorCode;
use rusqlite::config::DbConfig;

use super::{Access, Db, Error};

const MIGRATIONS: &[&str] = &[
    r"
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

    -- The journal. `seq` is the cursor; (source, id) is the receipt.
    CREATE TABLE deliveries (
        seq         INTEGER PRIMARY KEY AUTOINCREMENT,
        source      TEXT    NOT NULL,
        id          TEXT    NOT NULL,
        event       TEXT    NOT NULL,
        received_at INTEGER NOT NULL,
        body_size   INTEGER NOT NULL,
        outcome     TEXT    NOT NULL,
        reason      TEXT    NOT NULL,
        action      TEXT,
        repository  TEXT,
        decision    TEXT,
        read        TEXT,
        UNIQUE (source, id)
    ) STRICT;
    CREATE INDEX deliveries_undecided ON deliveries (seq) WHERE outcome = 'pending';
    CREATE INDEX deliveries_age ON deliveries (received_at);
    -- What is a state of what: for news that come late.
    CREATE INDEX deliveries_topic ON deliveries (json_extract(read, '$.supersedes')) WHERE read IS NOT NULL;

    -- Bodies as received, zstd: apart, so that lists do not page through them and retention can drop them first.
    CREATE TABLE bodies (seq INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;

    -- Inboxes. (session, fingerprint): one happening is told once to one session.
    CREATE TABLE notices (
        id          INTEGER PRIMARY KEY AUTOINCREMENT,
        session     TEXT    NOT NULL,
        seq         INTEGER NOT NULL,
        fingerprint TEXT    NOT NULL,
        work_item   TEXT    NOT NULL,
        how         TEXT    NOT NULL,
        state       TEXT    NOT NULL,
        created_at  INTEGER NOT NULL,
        attempts    INTEGER NOT NULL DEFAULT 0,
        turn        INTEGER,
        reason      TEXT,
        UNIQUE (session, fingerprint)
    ) STRICT;
    CREATE INDEX notices_waiting ON notices (session, id) WHERE state = 'waiting';
    CREATE INDEX notices_by_delivery ON notices (seq);
    CREATE INDEX notices_by_turn ON notices (turn) WHERE turn IS NOT NULL;

    CREATE TABLE turns (
        id               INTEGER PRIMARY KEY AUTOINCREMENT,
        session          TEXT    NOT NULL,
        work_item        TEXT    NOT NULL,
        harness          TEXT    NOT NULL,
        session_id       TEXT    NOT NULL,
        cwd              TEXT    NOT NULL,
        state            TEXT    NOT NULL,
        attempt          INTEGER NOT NULL,
        message_id       TEXT    NOT NULL,
        started_at       INTEGER NOT NULL,
        ended_at         INTEGER,
        exit_code        INTEGER,
        error            TEXT,
        cost_usd         REAL,
        session_cost_usd REAL,
        input_tokens     INTEGER,
        output_tokens    INTEGER,
        last_words       TEXT,
        failure          TEXT
    ) STRICT;
    CREATE INDEX turns_running ON turns (id) WHERE state = 'running';
    CREATE INDEX turns_by_session ON turns (session, started_at);
    -- Which notices a turn told: a notice that is tried again is in several turns.
    CREATE TABLE turn_notices (
        turn   INTEGER NOT NULL,
        notice INTEGER NOT NULL,
        seq    INTEGER NOT NULL,
        PRIMARY KEY (turn, notice)
    ) STRICT, WITHOUT ROWID;

    -- What is known of a session beside its file: the file is for people, this is for us.
    CREATE TABLE session_states (
        session          TEXT PRIMARY KEY,
        last_event_at    INTEGER,
        retry_at         INTEGER,
        attention_reason TEXT,
        attention_mend   TEXT,
        priced_session   TEXT,
        priced_usd       REAL
    ) STRICT;

    CREATE TABLE links (
        from_key   TEXT NOT NULL,
        to_key     TEXT NOT NULL,
        kind       TEXT NOT NULL,
        link       TEXT NOT NULL,
        learned_at INTEGER NOT NULL,
        PRIMARY KEY (from_key, to_key, kind)
    ) STRICT, WITHOUT ROWID;

    -- The names under which a repository's number has been seen; the newest holder of a name owns it.
    CREATE TABLE repository_names (
        host     TEXT    NOT NULL,
        id       INTEGER NOT NULL,
        name_key TEXT    NOT NULL,
        name     TEXT    NOT NULL,
        seq      INTEGER NOT NULL,
        PRIMARY KEY (host, id, name_key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX repository_names_by_name ON repository_names (name_key);

    CREATE TABLE refusals (
        id     INTEGER PRIMARY KEY AUTOINCREMENT,
        at     INTEGER NOT NULL,
        status INTEGER NOT NULL,
        reason TEXT    NOT NULL,
        hint   TEXT    NOT NULL
    ) STRICT;
",
    r"
    -- What others may watch, written with the decision (or the turn) that made it: in the order of commits, so that
    -- `place` is a cursor that never skips. `seq` is the delivery; what is of our own has none.
    CREATE TABLE occurrences (
        place       INTEGER PRIMARY KEY AUTOINCREMENT,
        seq         INTEGER,
        event_id    TEXT    NOT NULL,
        name        TEXT    NOT NULL,
        repository  TEXT,
        actor       TEXT,
        happened_at INTEGER NOT NULL,
        recorded_at INTEGER NOT NULL,
        fingerprint TEXT    NOT NULL UNIQUE,
        data        TEXT    NOT NULL
    ) STRICT;
    CREATE INDEX occurrences_by_name ON occurrences (name, place);
    CREATE INDEX occurrences_by_event ON occurrences (event_id);
    CREATE INDEX occurrences_by_age ON occurrences (recorded_at);
    -- Up to which place occurrences of a name have been let go: an older cursor has lost something.
    CREATE TABLE occurrence_floors (name TEXT PRIMARY KEY, place INTEGER NOT NULL) STRICT, WITHOUT ROWID;

    -- Who may read, as the server was last configured. JSON in `repositories` (null: all) and `acts_as`.
    CREATE TABLE principals (
        name         TEXT PRIMARY KEY,
        repositories TEXT,
        acts_as      TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE subscriptions (
        id               TEXT    PRIMARY KEY,
        principal        TEXT    NOT NULL,
        url              TEXT    NOT NULL,
        name             TEXT    NOT NULL,
        arguments        TEXT    NOT NULL,
        secret           TEXT    NOT NULL,
        old_secret       TEXT,
        old_secret_until INTEGER,
        created_at       INTEGER NOT NULL,
        refreshed_at     INTEGER NOT NULL,
        expires_at       INTEGER,
        state            TEXT    NOT NULL,
        through          INTEGER NOT NULL,
        last_delivery_at INTEGER,
        last_error       TEXT,
        failed_since     INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX subscriptions_by_name ON subscriptions (name) WHERE state = 'active';
    CREATE INDEX subscriptions_by_principal ON subscriptions (principal);

    -- What is to be posted: rows that point at occurrences, gone once taken. `kind` is event or terminated.
    CREATE TABLE owed (
        id           INTEGER PRIMARY KEY AUTOINCREMENT,
        subscription TEXT    NOT NULL REFERENCES subscriptions ON DELETE CASCADE,
        place        INTEGER NOT NULL,
        kind         TEXT    NOT NULL,
        attempts     INTEGER NOT NULL DEFAULT 0,
        due_at       INTEGER NOT NULL,
        UNIQUE (subscription, place)
    ) STRICT;
    CREATE INDEX owed_by_place ON owed (place);

    -- The last posts of each subscription.
    CREATE TABLE attempts (
        id           INTEGER PRIMARY KEY AUTOINCREMENT,
        subscription TEXT    NOT NULL REFERENCES subscriptions ON DELETE CASCADE,
        event_id     TEXT    NOT NULL,
        attempt      INTEGER NOT NULL,
        at           INTEGER NOT NULL,
        took_ms      INTEGER NOT NULL,
        status       INTEGER,
        error        TEXT
    ) STRICT;
    CREATE INDEX attempts_by_subscription ON attempts (subscription, id);

    -- Endpoints that have proved that they want our posts.
    CREATE TABLE verified_callbacks (
        principal TEXT    NOT NULL,
        url       TEXT    NOT NULL,
        until     INTEGER NOT NULL,
        PRIMARY KEY (principal, url)
    ) STRICT, WITHOUT ROWID;
",
    r"
    -- What polling has seen of a repository, beside what it tells people. `state` is the poller's own.
    CREATE TABLE github_polls (
        repository TEXT    PRIMARY KEY,
        state      TEXT    NOT NULL,
        since      INTEGER NOT NULL,
        checked_at INTEGER,
        next_at    INTEGER,
        trouble    TEXT
    ) STRICT, WITHOUT ROWID;

    -- What leads to a work item is asked for at every look.
    CREATE INDEX links_by_target ON links (to_key);
",
    r"
    -- What we watch at other MCP servers. JSON in `arguments`, `conditions` and `until`. The secrets are those with
    -- which the server signs what it posts to `hook_url`, while it does.
    CREATE TABLE watches (
        id               TEXT    PRIMARY KEY,
        server           TEXT    NOT NULL,
        event            TEXT    NOT NULL,
        arguments        TEXT    NOT NULL,
        conditions       TEXT    NOT NULL,
        until            TEXT    NOT NULL,
        once             INTEGER NOT NULL,
        work_item        TEXT    NOT NULL,
        session          TEXT    NOT NULL,
        delivery         TEXT,
        state            TEXT    NOT NULL,
        reason           TEXT,
        cursor           TEXT,
        created_at       INTEGER NOT NULL,
        checked_at       INTEGER,
        last_event_at    INTEGER,
        ended_at         INTEGER,
        secret           TEXT,
        secret_since     INTEGER,
        old_secret       TEXT,
        old_secret_until INTEGER,
        hook_url         TEXT,
        refresh_before   INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX watches_active ON watches (server) WHERE state = 'active';
    CREATE INDEX watches_by_session ON watches (session);

    -- Which delivery came by which watch: it is decided by them, and decided anew by them.
    CREATE TABLE sightings (
        seq   INTEGER NOT NULL,
        watch TEXT    NOT NULL,
        PRIMARY KEY (seq, watch)
    ) STRICT, WITHOUT ROWID;

    -- How the servers stood when they were last heard of, for commands to show.
    CREATE TABLE mcp_servers (
        name            TEXT PRIMARY KEY,
        connected_since INTEGER,
        checked_at      INTEGER,
        next_at         INTEGER,
        problem         TEXT,
        -- What it offers, as JSON, when it was last asked; and when somebody last wanted to know.
        offers          TEXT,
        looked_at       INTEGER,
        wanted_at       INTEGER
    ) STRICT, WITHOUT ROWID;
",
    r"
    -- When an issue or pull request was last reopened: what closed it before that comes too late to close its session.
    CREATE TABLE reopenings (topic TEXT PRIMARY KEY, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    -- Who reads the feed of a repository by polling or by stream, until when unless they say so again.
    CREATE TABLE readers (
        name      TEXT    NOT NULL,
        arguments TEXT    NOT NULL,
        since     INTEGER NOT NULL,
        until     INTEGER NOT NULL,
        PRIMARY KEY (name, arguments)
    ) STRICT, WITHOUT ROWID;
    -- Why nothing comes by a watch, though it is active and its server can be reached.
    ALTER TABLE watches ADD COLUMN problem TEXT;
",
];

/// Sets the connection up, checks the file and brings it to our version.
pub(super) fn prepare(db: &Db, path: &Path, access: Access) -> Result<(), Error> {
    let setup = || -> rusqlite::Result<i64> {
        let c = &db.connection;
        c.pragma_update(None, "journal_mode", "WAL")?;
        // An answer 202 must survive a power cut: every commit waits for the disk (decision 0003).
        c.pragma_update(None, "synchronous", "FULL")?;
        c.pragma_update(None, "foreign_keys", "ON")?;
        // Checkpoints run on a thread of their own, outside of the commits that somebody waits for.
        c.pragma_update(None, "wal_autocheckpoint", 0)?;
        c.pragma_update(None, "temp_store", "MEMORY")?;
        c.set_prepared_statement_cache_capacity(128);
        // Plans are kept: SQLite would otherwise look at each statement anew whenever other values are bound to it.
        c.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        c.pragma_query_value(None, "user_version", |row| row.get(0))
    };
    let found = setup().map_err(|error| opening(path, error))?;
    let known = MIGRATIONS.len() as i64;
    if found > known {
        return Err(Error::Newer { path: path.to_path_buf(), found, known });
    }
    if found < known && access == Access::Read {
        return Err(Error::Older { path: path.to_path_buf(), found, known });
    }
    if found < known {
        migrate(db, found).map_err(|error| opening(path, error))?;
    }
    Ok(())
}

fn migrate(db: &Db, found: i64) -> rusqlite::Result<()> {
    let c = &db.connection;
    c.execute_batch("BEGIN IMMEDIATE")?;
    // Another process may have migrated while we waited for the lock.
    let found = c.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))?.max(found);
    for migration in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        c.execute_batch(migration)?;
    }
    c.pragma_update(None, "user_version", MIGRATIONS.len() as i64)?;
    c.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('store', lower(hex(randomblob(8))))", ())?;
    c.execute_batch("COMMIT")
}

fn opening(path: &Path, error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            Error::Damaged { path: path.to_path_buf(), why: error.to_string() }
        }
        _ => Error::Open { path: path.to_path_buf(), source: error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_file_is_left_alone_and_said_so() {
        let dir = tempfile::tempdir().expect("dir");
        let db = Db::open(dir.path(), Access::Write).expect("new");
        db.connection.pragma_update(None, "user_version", 99).expect("bump");
        drop(db);
        let error = Db::open(dir.path(), Access::Write).err().expect("refused").to_string();
        assert!(error.contains("99") && error.contains("upgrade"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_database_is_left_alone_and_said_so() {
        let dir = tempfile::tempdir().expect("dir");
        let path = crate::store::Store::file(dir.path());
        let text =
            b"not a database at all, but long enough to be read as a header by SQLite ..........................."
                .to_vec();
        std::fs::write(&path, &text).expect("write");
        assert!(matches!(Db::open(dir.path(), Access::Write), Err(Error::Damaged { .. })));
        assert_eq!(std::fs::read(&path).expect("read"), text);
    }

    #[test]
    fn the_file_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("dir");
        let state = dir.path().join("state");
        drop(Db::open(&state, Access::Write).expect("new"));
        let mode = |p: &Path| std::fs::metadata(p).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&state), 0o700);
        assert_eq!(mode(&crate::store::Store::file(&state)), 0o600);
    }
}
