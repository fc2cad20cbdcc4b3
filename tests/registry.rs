//! The registry on a real disk: many writers, killed writers, damaged files, and a view that misses nothing.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use serde_json::json;
use the_loop::domain::{Session, SessionStatus, WorkItem};
use the_loop::registry::{Error, Registry, View, file_name};

fn item(text: &str) -> WorkItem {
    WorkItem::parse(text).expect(text)
}

fn session(work_item: &str, session_id: &str) -> Session {
    Session {
        version: Session::VERSION,
        work_item: item(work_item),
        harness: "claude".into(),
        session_id: session_id.into(),
        cwd: "/".into(),
        status: SessionStatus::Active,
        created_at: Timestamp::UNIX_EPOCH,
        closed_reason: None,
        repository_id: None,
        unknown: serde_json::Map::new(),
    }
}

fn registry() -> (tempfile::TempDir, Registry) {
    let dir = tempfile::tempdir().expect("tempdir");
    let registry = Registry::open(&dir.path().join("state")).expect("registry");
    (dir, registry)
}

fn ids(registry: &Registry) -> Vec<String> {
    registry.read().expect("listing").sessions.into_iter().map(|session| session.session_id).collect()
}

/// The command `sessions register ITEM` as a process of its own.
fn register(state: &Path, item: &str, id: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_the-loop"));
    command.arg("--state-dir").arg(state).args(["sessions", "register", item, "--harness", "claude"]);
    command.args(["--cwd", "/", "--session-id", id]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn one_session_per_item_and_force_replaces_it() {
    let (_dir, registry) = registry();
    registry.register(session("o/r#1", "first"), false).expect("first");
    match registry.register(session("O/R#1", "second"), false) {
        Err(Error::Taken { existing }) => assert_eq!(existing.session_id, "first"),
        other => panic!("{other:?}"),
    }
    let registered = registry.register(session("O/R#1", "second"), true).expect("forced");
    assert_eq!(registered.replaced.map(|old| old.session_id).as_deref(), Some("first"));
    assert_eq!(ids(&registry), ["second"]);

    registry.update(&item("o/r#1"), |session| session.status = SessionStatus::Paused).expect("paused");
    assert!(matches!(registry.register(session("o/r#1", "third"), false), Err(Error::Taken { .. })), "paused is open");
    registry.update(&item("o/r#1"), |session| session.status = SessionStatus::Closed).expect("closed");
    registry.register(session("o/r#1", "third"), false).expect("a closed one is no hindrance");
    assert_eq!(ids(&registry), ["third"]);
    assert!(matches!(registry.update(&item("o/r#2"), |_| ()), Err(Error::Unknown(_))));
    let moved = registry.update(&item("o/r#1"), |session| session.work_item = item("o/r#2"));
    assert!(matches!(moved, Err(Error::Moved { .. })), "{moved:?}");
}

#[test]
fn files_are_private_and_sorted_as_people_count() {
    let (_dir, registry) = registry();
    for text in ["o/r@main", "o/r#15", "local:x", "a/b#3", "o/r#2"] {
        registry.register(session(text, "s"), false).expect(text);
    }
    let sorted: Vec<String> =
        registry.read().expect("listing").sessions.iter().map(|session| session.work_item.to_string()).collect();
    assert_eq!(sorted, ["local:x", "github:a/b#3", "github:o/r#2", "github:o/r#15", "github:o/r@main"]);
    let mode = |path: &Path| fs::metadata(path).expect("metadata").permissions().mode() & 0o777;
    assert_eq!(mode(registry.dir()), 0o700);
    for entry in fs::read_dir(registry.dir()).expect("dir") {
        let path = entry.expect("entry").path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn a_directory_that_others_could_read_is_made_private() {
    let dir = tempfile::tempdir().expect("tempdir");
    let sessions = dir.path().join("sessions");
    fs::create_dir(&sessions).expect("sessions");
    fs::set_permissions(&sessions, fs::Permissions::from_mode(0o755)).expect("mode");
    Registry::open(dir.path()).expect("registry");
    assert_eq!(fs::metadata(&sessions).expect("metadata").permissions().mode() & 0o777, 0o700);
}

#[test]
fn fields_that_we_do_not_know_survive() {
    let (_dir, registry) = registry();
    registry.register(session("o/r#1", "s"), false).expect("registered");
    let path = registry.path_of(&item("o/r#1"));
    let mut file: serde_json::Value = serde_json::from_slice(&fs::read(&path).expect("file")).expect("json");
    file["colour"] = json!({ "deep": [1, 2.5, null] });
    fs::write(&path, file.to_string()).expect("written");
    registry.update(&item("o/r#1"), |session| session.status = SessionStatus::Paused).expect("paused");
    let after: serde_json::Value = serde_json::from_slice(&fs::read(&path).expect("file")).expect("json");
    assert_eq!(after["colour"], file["colour"]);
    assert_eq!(after["status"], "paused");
}

#[test]
fn damaged_files_are_named_kept_and_hurt_nobody() {
    let whole = serde_json::to_string(&session("o/r#1", "s")).expect("json");
    let without = |field: &str| {
        let mut value = serde_json::to_value(session("o/r#1", "s")).expect("json");
        value.as_object_mut().expect("object").remove(field);
        value.to_string()
    };
    let table: &[(&str, &str)] = &[
        ("", "is empty"),
        ("\0\0\0\0", "NUL"),
        (&whole[..40], "not complete JSON"),
        (&format!("{whole}}}"), "not complete JSON"),
        ("[]", "not an object"),
        ("\"text\"", "not an object"),
        (&without("version"), "no `version`"),
        (&whole.replace("\"version\":1", "\"version\":99"), "newer the-loop (version 99"),
        (&whole.replace("\"version\":1", "\"version\":0"), "never in use"),
        (&without("harness"), "missing field `harness`"),
        (&whole.replace("active", "dozing"), "dozing"),
        (&whole.replace("o/r#1", "o/r"), "not a work item"),
        (&whole.replace("o/r#1", "o/r#2"), "`o+r+2.json`"),
        (&" ".repeat(2 << 20), "too large"),
    ];
    for (content, why) in table {
        let (_dir, registry) = registry();
        registry.register(session("o/fine#1", "fine"), false).expect("fine");
        let path = registry.path_of(&item("o/r#1"));
        fs::write(&path, content).expect("written");
        let listing = registry.read().expect("listing");
        assert_eq!(listing.sessions.len(), 1, "{why}");
        assert_eq!(listing.damaged.len(), 1, "{why}");
        assert_eq!(listing.damaged[0].path, path);
        assert!(listing.damaged[0].why.contains(why), "{} does not say {why}", listing.damaged[0].why);
        for force in [false, true] {
            let refused = registry.register(session("o/r#1", "new"), force);
            assert!(matches!(refused, Err(Error::Damaged(_))), "{why}: {refused:?}");
        }
        assert!(matches!(registry.update(&item("o/r#1"), |_| ()), Err(Error::Damaged(_))), "{why}");
        registry.register(session("o/fine#2", "also fine"), false).expect("another");
        assert_eq!(fs::read(&path).expect("file"), content.as_bytes(), "{why}: it was written over");
    }
}

#[test]
fn what_is_no_session_file_is_damaged_or_passed_by() {
    let (_dir, registry) = registry();
    fs::create_dir(registry.dir().join("folder.json")).expect("folder");
    fs::write(registry.dir().join("notes.txt"), "mine").expect("notes");
    fs::write(registry.dir().join(".hidden.json"), "mine").expect("hidden");
    std::os::unix::fs::symlink("/nowhere", registry.dir().join("link.json")).expect("link");
    let made = Command::new("mkfifo").arg(registry.dir().join("pipe.json")).status().expect("mkfifo");
    assert!(made.success());
    let damaged = registry.read().expect("listing").damaged;
    let names: Vec<_> = damaged.iter().filter_map(|damaged| damaged.path.file_name()?.to_str()).collect();
    assert_eq!(names, ["folder.json", "link.json", "pipe.json"]);
}

#[test]
fn processes_that_register_at_once_lose_nothing() {
    let (dir, registry) = registry();
    let state = dir.path().join("state");
    let items: Vec<String> = (1..=12).map(|n| format!("o/r#{n}")).collect();
    let running: Vec<_> = items.iter().map(|item| register(&state, item, "s").spawn().expect("spawn")).collect();
    for child in running {
        let done = child.wait_with_output().expect("output");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    let listing = registry.read().expect("listing");
    assert_eq!((listing.sessions.len(), listing.damaged), (items.len(), vec![]));
}

#[test]
fn of_processes_that_register_one_item_one_wins() {
    let (dir, registry) = registry();
    let state = dir.path().join("state");
    let running: Vec<_> =
        (0..12).map(|n| register(&state, "o/r#1", &format!("s-{n}")).spawn().expect("spawn")).collect();
    let done: Vec<_> = running.into_iter().map(|child| child.wait_with_output().expect("output")).collect();
    let winner = ids(&registry);
    assert_eq!(winner.len(), 1);
    assert_eq!(done.iter().filter(|done| done.status.success()).count(), 1);
    for loser in done.iter().filter(|done| !done.status.success()) {
        let stderr = String::from_utf8_lossy(&loser.stderr);
        assert!(stderr.contains(&winner[0]) && stderr.contains("--force"), "{stderr}");
    }
}

/// Not a test by itself: the process that the next test kills.
#[test]
#[ignore = "writes without end; another test runs it"]
fn writer_without_end() {
    let Some(state) = std::env::var_os("WRITER_STATE") else { return };
    let registry = Registry::open(Path::new(&state)).expect("registry");
    for n in 0_u64.. {
        let mut next = session("o/r#1", &format!("s-{n}"));
        next.closed_reason = Some("x".repeat(100_000));
        registry.register(next, true).expect("written");
    }
}

#[test]
fn a_killed_writer_leaves_the_old_or_the_new() {
    let (dir, registry) = registry();
    let state = dir.path().join("state");
    registry.register(session("o/r#1", "s-0"), false).expect("first");
    let mut seen = BTreeSet::new();
    for round in 0..25 {
        let mut writer = Command::new(std::env::current_exe().expect("exe"))
            .args(["--exact", "registry::writer_without_end", "--ignored"])
            .env("WRITER_STATE", &state)
            .stdout(Stdio::null())
            .spawn()
            .expect("writer");
        let before = ids(&registry);
        let end = Instant::now() + Duration::from_secs(20);
        while ids(&registry) == before {
            assert!(Instant::now() < end, "the writer wrote nothing");
        }
        // A little later each time, so that every step of a write is hit.
        let later = Instant::now() + Duration::from_micros(round * 130);
        while Instant::now() < later {}
        writer.kill().expect("killed");
        writer.wait().expect("ended");
        let listing = registry.read().expect("listing");
        assert_eq!(listing.damaged, vec![], "round {round}");
        assert_eq!(listing.sessions.len(), 1, "round {round}");
        seen.insert(listing.sessions[0].session_id.clone());
        registry
            .register(session("o/r#1", &format!("after-{round}")), true)
            .expect("the lock is free, and so is the way");
    }
    assert!(!seen.is_empty());
}

#[test]
fn what_a_killed_writer_left_is_no_hindrance() {
    let (_dir, registry) = registry();
    registry.register(session("o/r#1", "old"), false).expect("old");
    fs::write(registry.dir().join(".unfinished"), "{\"version\":1,\"work_it").expect("left over");
    assert_eq!(ids(&registry), ["old"]);
    registry.register(session("o/r#1", "new"), true).expect("new");
    assert_eq!(ids(&registry), ["new"]);
    assert!(!registry.dir().join(".unfinished").exists());
}

fn view_ids(view: &View) -> Vec<&str> {
    view.sessions().map(|session| session.session_id.as_str()).collect()
}

#[test]
fn a_view_sees_every_change_made_before_it_looks() {
    let (_dir, registry) = registry();
    let mut view = View::default();
    registry.register(session("o/r#1", "a-000"), false).expect("registered");
    let path = registry.path_of(&item("o/r#1"));
    let text = fs::read_to_string(&path).expect("file");
    // As fast as can be, by renaming and in place, with one size: time stamps alone would not tell.
    for n in 1..300 {
        let id = format!("a-{n:03}");
        if n % 2 == 0 {
            registry.update(&item("o/r#1"), |session| session.session_id.clone_from(&id)).expect("updated");
        } else {
            fs::write(&path, text.replace("a-000", &id)).expect("written");
        }
        view.refresh(&registry).expect("refreshed");
        assert_eq!(view_ids(&view), [id.as_str()]);
    }
}

#[test]
fn a_view_rests_when_nothing_changes_and_wakes_for_everything() {
    let (_dir, registry) = registry();
    for n in 1..=5 {
        registry.register(session(&format!("o/r#{n}"), &format!("s-{n}")), false).expect("registered");
    }
    let mut view = View::default();
    assert!(view.refresh(&registry).expect("refreshed"));
    let old = SystemTime::now() - Duration::from_secs(3600);
    let path = registry.path_of(&item("o/r#2"));
    settle(&mut view, &registry, &path);
    assert!(!view.refresh(&registry).expect("refreshed"), "nothing had changed");

    // The same size, and a modification time that a careless tool set back to what it was.
    let before = fs::metadata(&path).expect("metadata").modified().expect("modified");
    let text = fs::read_to_string(&path).expect("file").replace("s-2", "t-2");
    fs::write(&path, text).expect("written");
    set_modified(&path, before);
    assert!(view.refresh(&registry).expect("refreshed"));
    assert_eq!(view_ids(&view), ["s-1", "t-2", "s-3", "s-4", "s-5"]);

    fs::rename(registry.path_of(&item("o/r#3")), registry.dir().join("o+r+3.away")).expect("moved");
    assert!(view.refresh(&registry).expect("refreshed"));
    assert_eq!(view_ids(&view), ["s-1", "t-2", "s-4", "s-5"]);
    assert!(view.find(&session("o/r#3", "").key()).is_none());

    set_modified(&registry.dir().join("o+r+3.away"), old);
    fs::rename(registry.dir().join("o+r+3.away"), registry.path_of(&item("o/r#3"))).expect("moved back");
    fs::write(registry.path_of(&item("o/r#4")), "{").expect("damaged");
    assert!(view.refresh(&registry).expect("refreshed"));
    assert_eq!(view.find(&session("O/R#3", "").key()).map(|found| found.session_id.as_str()), Some("s-3"));
    assert_eq!(view.damaged().len(), 1);
    assert!(view.damaged()[0].path.ends_with(file_name(&item("o/r#4"))));

    fs::remove_dir_all(registry.dir()).expect("removed");
    assert!(view.refresh(&registry).is_err(), "a directory that is gone is told of");
}

/// Waits until the files are old enough that the view may trust their time stamps.
fn settle(view: &mut View, registry: &Registry, path: &Path) {
    let written = fs::metadata(path).expect("metadata").modified().expect("modified");
    while written.elapsed().is_ok_and(|age| age < Duration::from_millis(200)) {
        std::thread::yield_now();
    }
    view.refresh(registry).expect("refreshed");
}

fn set_modified(path: &Path, time: SystemTime) {
    let file = fs::File::options().write(true).open(path).expect("opened");
    file.set_modified(time).expect("time set");
}
