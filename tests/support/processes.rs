//! The processes of turns, for tests that kill them.

use std::fs;
use std::process::Command;

use super::Server;

/// The process id of a turn's supervisor.
pub fn shim(server: &Server, turn: u32) -> String {
    fs::read_to_string(server.path(&format!("state/turns/{turn}/lock"))).expect("the lock").trim().to_owned()
}

/// The most memory that a process has taken so far, in MiB.
pub fn peak_memory(pid: u32) -> u64 {
    status(pid, "VmHWM:") / 1024
}

/// A number of `/proc/PID/status`.
pub fn status(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process's status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// The programs that a server of ours started to speak MCP with.
pub fn programs(server: &Server) -> Vec<String> {
    let command = |pid: &String| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    children(&server.pid().to_string()).into_iter().filter(|pid| command(pid).contains("on_stdio")).collect()
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
