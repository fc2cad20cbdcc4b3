//! The files in `examples/` are what they say: they are read by the programs that they are written for, where those
//! are at hand.
#![allow(clippy::print_stderr, reason = "what is left out is told")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(example(name)).expect(name)
}

/// Both streams of a program that has ended.
fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn systemd_takes_the_unit() {
    let root = tempfile::tempdir().expect("tempdir");
    let unit = root.path().join("the-loop.service");
    // The program is where this test has it, and the secret's file is there: systemd looks for both.
    let env_file = root.path().join("env");
    std::fs::write(&env_file, "THE_LOOP_GH_WEBHOOK_SECRET=x\n").expect("env");
    let (program, secret) = ("%h/.cargo/bin/the-loop", "%h/.config/the-loop/env");
    let written = text("systemd/the-loop.service");
    assert!(written.contains(&format!("ExecStart={program} ")) && written.contains(&format!("={secret}\n")));
    let written = written.replace(program, env!("CARGO_BIN_EXE_the-loop"));
    std::fs::write(&unit, written.replace(secret, &env_file.display().to_string())).expect("unit");
    let asked = Command::new("systemd-analyze")
        .args(["verify", "--user", "--man=no"])
        .arg(&unit)
        .env("XDG_RUNTIME_DIR", root.path())
        .output();
    let Ok(output) = asked else {
        eprintln!("systemd-analyze is not here: the unit was not verified");
        return;
    };
    // It warns of unknown keys and values and still exits 0.
    let said = said(&output);
    if !said.contains("the-loop.service") && !output.status.success() {
        eprintln!("systemd-analyze cannot work here: {said}");
        return;
    }
    assert!(output.status.success() && !said.contains("the-loop.service"), "{said}");
}

#[test]
fn turns_survive_a_restart_by_a_service_manager() {
    let unit = text("systemd/the-loop.service");
    let has = |line: &str| assert!(unit.lines().any(|found| found == line), "{line}");
    ["KillMode=process", "OOMPolicy=continue", "Restart=on-failure"].iter().for_each(|line| has(line));
    let plist = text("launchd/com.example.the-loop.plist");
    assert!(plist.contains("<key>AbandonProcessGroup</key>\n  <true/>"), "{plist}");
}

#[test]
fn the_plist_is_well_formed() {
    let path = example("launchd/com.example.the-loop.plist");
    let read = "import plistlib, sys; print(plistlib.load(open(sys.argv[1], 'rb'))['Label'])";
    match Command::new("python3").args(["-c", read]).arg(&path).output() {
        Ok(output) => assert_eq!(said(&output), "com.example.the-loop\n"),
        Err(error) => eprintln!("python3 is not here ({error}): the plist was not read"),
    }
}

#[test]
fn the_harness_of_ones_own_is_a_right_configuration() {
    let root = tempfile::tempdir().expect("tempdir");
    let output = Command::new(env!("CARGO_BIN_EXE_the-loop"))
        .arg("--config")
        .arg(example("harness-of-your-own.toml"))
        .args(["config", "check"])
        .env_clear()
        .env("HOME", root.path())
        .current_dir(root.path())
        .output()
        .expect("config check");
    assert!(output.status.success(), "{}", said(&output));
}

/// A worktree on `branch` with the hook in its place, asked as Claude Code asks it.
fn hooked(branch: &str, session: &str) -> String {
    let root = tempfile::tempdir().expect("tempdir");
    let work = root.path().join("work");
    std::fs::create_dir(&work).expect("work");
    for args in [
        &["init", "-q"][..],
        &["symbolic-ref", "HEAD", &format!("refs/heads/{branch}")],
        &["remote", "add", "origin", "https://github.com/octo-org/demo.git"],
    ] {
        let done = Command::new("git").arg("-C").arg(&work).args(args).output().expect("git");
        assert!(done.status.success(), "{}", said(&done));
    }
    let here = Path::new(env!("CARGO_BIN_EXE_the-loop")).parent().expect("a directory").to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([here].into_iter().chain(std::env::split_paths(&path))).expect("PATH");
    let mut hook = Command::new(example("claude-hook/register.sh"));
    hook.current_dir(&work).env_clear().env("PATH", path).env("HOME", root.path());
    hook.env("THE_LOOP_STATE_DIR", root.path().join("state")).env("CLAUDE_CODE_SESSION_ID", session);
    let output = hook.output().expect("the hook");
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

#[test]
fn the_hook_registers_the_session_of_an_issues_branch_only() {
    for branch in ["issue-15", "agent/issue-15-rename-flag"] {
        let said = hooked(branch, "5e55-0001");
        assert!(said.starts_with("registered github:octo-org/demo#15: claude session 5e55-0001 in "), "{said}");
    }
    for (branch, session) in [("main", "5e55-0001"), ("tissue-15", "5e55-0001"), ("issue-15", "")] {
        assert_eq!(hooked(branch, session), "", "{branch}");
    }
}
