//! The command line from outside: exit code, stdout and stderr of each command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use regex::Regex;

/// A machine of its own: a home, a state directory and a directory to work in.
struct Machine {
    root: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("tempdir");
        for dir in ["home", "work", "other"] {
            fs::create_dir(root.path().join(dir)).expect(dir);
        }
        Self { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().expect("root").join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_the-loop"));
        command.args(args).current_dir(self.path("work")).stdin(Stdio::null()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.path("home"));
        command.env("THE_LOOP_STATE_DIR", self.path("state")).env("GIT_CONFIG_NOSYSTEM", "1");
        command
    }

    /// Runs and writes down all that can be seen of it.
    fn run(&self, args: &[&str]) -> String {
        self.run_with(args, &[])
    }

    fn run_with(&self, args: &[&str], environment: &[(&str, &str)]) -> String {
        let done = self.command(args).envs(environment.iter().copied()).output().expect("output");
        let code = done.status.code().map_or_else(|| "none".into(), |code| code.to_string());
        let (stdout, stderr) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        let text = format!("exit code {code}\n--- stdout\n{stdout}--- stderr\n{stderr}");
        let text = text.replace(&self.path("").display().to_string(), "ROOT/");
        let text = Regex::new(r"\d{4}-\d\d-\d\dT[0-9:.]+Z").expect("regex").replace_all(&text, "TIME").into_owned();
        Regex::new(r"\((now|\d+ s ago)\)").expect("regex").replace_all(&text, "(AGO)").into_owned()
    }

    fn register(&self, item: &str, id: &str) {
        let done = self.run(&["sessions", "register", item, "--harness", "claude", "--session-id", id]);
        assert!(done.starts_with("exit code 0"), "{done}");
    }

    fn git(&self, args: &[&str]) {
        let done = Command::new("git").arg("-C").arg(self.path("work")).args(args).output().expect("git");
        assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

const REGISTER: &[&str] = &["sessions", "register", "octo-org/demo#15", "--harness", "claude", "--session-id", "s-1"];

/// `REGISTER` with more arguments.
fn registering(more: &[&'static str]) -> Vec<&'static str> {
    REGISTER.iter().chain(more).copied().collect()
}

#[test]
fn help() {
    let machine = Machine::new();
    insta::assert_snapshot!(machine.run(&["--help"]));
    insta::assert_snapshot!(machine.run(&["sessions", "register", "--help"]));
}

#[test]
fn usage() {
    let machine = Machine::new();
    for args in [
        &[][..],
        &["sessions"],
        &["sesions"],
        &["sessions", "show"],
        &["sessions", "show", "o/r#1", "--work-item", "o/r#1"],
    ] {
        let seen = machine.run(args);
        assert!(seen.starts_with("exit code 2\n--- stdout\n--- stderr\n"), "{args:?}: {seen}");
    }
    assert!(machine.run(&["--version"]).starts_with("exit code 0\n--- stdout\nthe-loop "));
}

#[test]
fn register_says_what_it_did() {
    let machine = Machine::new();
    insta::assert_snapshot!(machine.run(REGISTER));
    insta::assert_snapshot!(machine.run(&registering(&["--force", "--quiet"])));
    insta::assert_snapshot!(machine.run(&registering(&["--force", "--json"])));
}

#[test]
fn register_refuses_a_second_session() {
    let machine = Machine::new();
    machine.register("octo-org/demo#15", "first");
    insta::assert_snapshot!(machine.run(&[
        "sessions",
        "register",
        "Octo-Org/Demo#15",
        "--harness",
        "cursor",
        "--session-id",
        "second"
    ]));
}

#[test]
fn a_session_may_register_itself_again() {
    let machine = Machine::new();
    let first = machine.run(REGISTER);
    assert_eq!(machine.run(REGISTER), first);
    machine.run(&["sessions", "pause", "octo-org/demo#15"]);
    assert!(machine.run(REGISTER).starts_with("exit code 1"), "a paused one is not woken, so that it is not as asked");
}

#[test]
fn register_refuses_what_is_wrong() {
    let machine = Machine::new();
    insta::assert_snapshot!(
        "register_bad_item",
        machine.run(&["sessions", "register", "--work-item", "octo-org", "--harness", "claude", "--session-id", "s"])
    );
    insta::assert_snapshot!(
        "register_bad_harness",
        machine.run(&["sessions", "register", "o/r#1", "--harness", "emacs", "--session-id", "s"])
    );
    insta::assert_snapshot!("register_bad_cwd", machine.run(&registering(&["--cwd", "nowhere"])));
    insta::assert_snapshot!(
        "register_bad_id",
        machine.run(&["sessions", "register", "o/r#1", "--harness", "claude", "--session-id=--danger"])
    );
    insta::assert_snapshot!("register_no_session", machine.run(&["sessions", "register", "o/r#1"]));
    let both = [("CLAUDE_CODE_SESSION_ID", "c"), ("CODEX_THREAD_ID", "x")];
    insta::assert_snapshot!("register_ambiguous", machine.run_with(&["sessions", "register", "o/r#1"], &both));
    insta::assert_snapshot!(
        "register_no_checkout",
        machine.run(&["sessions", "register", "15", "--harness", "claude", "--session-id", "s"])
    );
    assert!(!machine.path("state").join("sessions/o+r+1.json").exists());
}

#[test]
fn in_a_checkout_a_number_or_branch_is_enough() {
    let machine = Machine::new();
    let inside = [("CLAUDE_CODE_SESSION_ID", "c-1")];
    let item = |reference: &str| {
        let seen = machine.run_with(&["sessions", "register", reference, "--force"], &inside);
        seen.lines().nth(2).unwrap_or_default().split(": ").next().unwrap_or_default().to_owned()
    };
    machine.git(&["init", "--quiet", "--initial-branch", "feature"]);
    machine.git(&["remote", "add", "fork", "git@github.com:me/demo.git"]);
    assert_eq!(item("15"), "registered github:me/demo#15", "the only remote");
    machine.git(&["remote", "add", "origin", "https://github.com/octo-org/demo.git"]);
    assert_eq!(item("#15"), "registered github:octo-org/demo#15", "origin");
    assert_eq!(item("@main"), "registered github:octo-org/demo@main");
    machine.git(&["remote", "add", "ghe", "ssh://git@ghe.example.com:2222/team/demo"]);
    machine.git(&["config", "branch.feature.remote", "ghe"]);
    assert_eq!(item("15"), "registered github:ghe.example.com/team/demo#15", "the remote that the branch follows");
    let hook = [("CLAUDE_CODE_SESSION_ID", "c-1"), ("GIT_DIR", "/nowhere")];
    let seen = machine.run_with(&["sessions", "show", "15"], &hook);
    assert!(seen.contains("github:ghe.example.com/team/demo#15"), "inside a git hook: {seen}");
}

#[test]
fn list() {
    let machine = Machine::new();
    insta::assert_snapshot!("list_none", machine.run(&["sessions", "list"]));
    machine.register("octo-org/demo#15", "s-15");
    machine.register("octo-org/demo#2", "s-2");
    machine.register("octo-org/demo@feature/x", "s-x");
    machine.run(&["sessions", "close", "octo-org/demo#2"]);
    insta::assert_snapshot!("list_table", machine.run(&["sessions", "list"]));
    insta::assert_snapshot!("list_json", machine.run(&["sessions", "list", "--json"]));
    fs::remove_dir(machine.path("work")).expect("removed");
    fs::create_dir(machine.path("elsewhere")).expect("made");
    let done = machine.command(&["sessions", "list"]).current_dir(machine.path("elsewhere")).output().expect("output");
    let stdout = String::from_utf8_lossy(&done.stdout);
    assert!(stdout.contains("github:octo-org/demo#15 needs you: its directory"), "{stdout}");
    assert!(!stdout.contains("github:octo-org/demo#2 needs you"), "a closed one needs no directory: {stdout}");
}

#[test]
fn list_names_damaged_files_and_goes_on() {
    let machine = Machine::new();
    machine.register("octo-org/demo#15", "fine");
    let folder = machine.path("state").join("sessions");
    for (name, content) in [("broken.json", "{\"work_item\": \"github:"), ("future.json", "{\"version\": 99}")] {
        fs::write(folder.join(name), content).expect(name);
    }
    insta::assert_snapshot!("list_damaged", machine.run(&["sessions", "list"]));
    fs::write(folder.join("o+r+1.json"), "").expect("empty");
    insta::assert_snapshot!(
        "register_damaged",
        machine.run(&["sessions", "register", "o/r#1", "--harness", "claude", "--session-id", "s"])
    );
}

#[test]
fn show() {
    let machine = Machine::new();
    machine.register("octo-org/demo#15", "s-15");
    insta::assert_snapshot!("show_text", machine.run(&["sessions", "show", "octo-org/demo#15"]));
    insta::assert_snapshot!(
        "show_json",
        machine.run(&["sessions", "show", "--work-item", "octo-org/demo#15", "--json"])
    );
    insta::assert_snapshot!("show_unknown", machine.run(&["sessions", "show", "octo-org/demo#404"]));
}

#[test]
fn a_session_is_paused_resumed_and_closed() {
    let machine = Machine::new();
    machine.register("octo-org/demo#15", "s-15");
    let all: Vec<String> = ["pause", "pause", "resume", "resume", "close", "close", "pause", "resume"]
        .iter()
        .map(|verb| format!("$ sessions {verb}\n{}", machine.run(&["sessions", verb, "octo-org/demo#15"])))
        .collect();
    insta::assert_snapshot!(all.join("\n"));
    for verb in ["close", "pause", "resume"] {
        let seen = machine.run(&["sessions", verb, "octo-org/demo#404"]);
        assert!(seen.starts_with("exit code 3") && seen.contains("#404"), "{seen}");
    }
}

#[test]
fn config_check_and_show() {
    let machine = Machine::new();
    insta::assert_snapshot!("check_defaults", machine.run(&["config", "check"]));
    let file = machine.path("the-loop.toml");
    let name = file.to_str().expect("UTF-8");
    fs::write(&file, "[gh_webhook]\nport = 9000\n[harness.claude]\nargs = [\"--model\", \"opus\"]\n").expect("file");
    insta::assert_snapshot!("check_file", machine.run(&["config", "check", "--config", name]));
    let environment = [("THE_LOOP_CONFIG", name), ("THE_LOOP_DISPATCH_MAX_ATTEMPTS", "3"), ("THE_LOOP_TYPO", "hush")];
    insta::assert_snapshot!("show_table", machine.run_with(&["config", "show"], &environment));
    let json = machine.run_with(&["config", "show", "--json"], &environment);
    assert!(json.contains("\"key\": \"gh_webhook.port\",\n    \"value\": 9000,"), "{json}");
    fs::write(&file, "[gh_webhook]\nprot = 9000\n[dispatch]\nmax_attempts = 0\n").expect("file");
    insta::assert_snapshot!("check_bad", machine.run(&["config", "check", "--config", name]));
    insta::assert_snapshot!("check_missing", machine.run(&["config", "check", "--config", "missing.toml"]));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let machine = Machine::new();
    machine.register("octo-org/demo#15", "s-15");
    for args in [&["sessions", "list"][..], &["sessions", "list", "--json"], &["config", "show"], &["--help"]] {
        let (reader, writer) = std::io::pipe().expect("pipe");
        drop(reader);
        let done = machine.command(args).stdout(writer).stderr(Stdio::piped()).spawn().expect("spawn");
        let done = done.wait_with_output().expect("output");
        assert_eq!((done.status.code(), done.stderr), (Some(0), vec![]), "{args:?}");
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        return;
    }
    let machine = Machine::new();
    machine.register("octo-org/demo#15", "s-15");
    let stdout = fs::File::options().write(true).open(full).expect("full");
    let done = machine.command(&["sessions", "list"]).stdout(stdout).output().expect("output");
    assert_eq!(done.status.code(), Some(1), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn names_from_the_world_cannot_move_the_cursor() {
    let machine = Machine::new();
    let dir = machine.path("work").join("a\u{1b}[2J");
    fs::create_dir(&dir).expect("dir");
    machine.run(&["sessions", "register", "o/r#1", "--harness", "claude", "--session-id", "s", "--cwd", "a\u{1b}[2J"]);
    fs::write(machine.path("state").join("sessions/\u{1b}[31m.json"), "").expect("file");
    let seen = machine.run(&["sessions", "list"]);
    assert!(!seen.contains('\u{1b}') && seen.contains("a\\u{1b}[2J"), "{seen}");
}

#[test]
fn the_nearest_state_directory_is_used() {
    let machine = Machine::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut fs::DirBuilder::new(), 0o700)
        .create(machine.path(".the-loop"))
        .expect("made");
    let done = machine.command(REGISTER).env_remove("THE_LOOP_STATE_DIR").output().expect("output");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(machine.path(".the-loop/sessions/octo-org+demo+15.json").exists());
}
