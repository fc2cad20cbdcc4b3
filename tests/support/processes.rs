//! The processes of turns, for tests that kill them.

use std::fs;
use std::process::Command;

use super::Server;

/// The process id of a turn's supervisor.
pub fn shim(server: &Server, turn: u32) -> String {
    fs::read_to_string(server.path(&format!("state/turns/{turn}/lock"))).expect("the lock").trim().to_owned()
}

/// The process ids of the children of a process.
pub fn children(parent: &str) -> Vec<String> {
    let listed = Command::new("ps").args(["-axo", "pid=,ppid="]).output().expect("ps");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let pairs = listed.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
    pairs.filter(|(_, of)| of.trim() == parent).map(|(child, _)| child.to_owned()).collect()
}

/// Kills a process as the system does when memory runs out.
pub fn kill(pid: &str) {
    assert!(Command::new("kill").args(["-9", pid]).status().expect("kill").success(), "kill {pid}");
}

/// Whether a process runs. One that has ended and was not collected does not.
pub fn runs(pid: &str) -> bool {
    let state = Command::new("ps").args(["-o", "stat=", "-p", pid]).output().expect("ps").stdout;
    String::from_utf8_lossy(&state).trim().starts_with(|state: char| state != 'Z')
}
