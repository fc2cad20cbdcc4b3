//! A stand-in for agent programs: a shell script that writes down how it was called, waits while it is held, and
//! answers as the program of its name does.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;

/// The programs that every machine has a stub of.
pub(super) const NAMES: &[&str] = &["claude", "codex", "cursor-agent"];

/// One file for each thing that was seen, since a shell writes no JSON. `started` and `ended` mark the call's stages.
const SCRIPT: &str = r#"#!/bin/sh
root='ROOT'
name=${0##*/}
call=$(mktemp -d "$root/calls/$name.XXXXXX")
for arg; do printf '%s\0' "$arg"; done > "$call/argv"
env -0 > "$call/env"
pwd > "$call/cwd"
cat > "$call/stdin"
: > "$call/started"
while [ -e "$root/hold" ]; do sleep 0.02; done
id=unknown
previous=
for arg; do
    case $previous in --resume) id=$arg ;; esac
    case $arg in ????????-????-????-????-????????????) id=$arg ;; esac
    previous=$arg
done
if [ -e "$root/plan/$name" ]; then . "$root/plan/$name"; fi
: > "$call/ended"
case $name in
codex)
    printf '{"type":"thread.started","thread_id":"%s"}\n' "$id"
    printf '{"type":"item.completed","item":{"type":"agent_message","text":"done"}}\n'
    printf '{"type":"turn.completed","usage":{"input_tokens":10,"output_tokens":5}}\n' ;;
*)
    printf '{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"%s",' "$id"
    printf '"num_turns":1,"total_cost_usd":0.0123,"usage":{"input_tokens":10,"output_tokens":5}}\n' ;;
esac
"#;

/// Puts the stubs into `root/bin`.
pub(super) fn install(root: &Path) {
    for dir in ["bin", "calls", "plan"] {
        fs::create_dir(root.join(dir)).expect(dir);
    }
    for name in NAMES {
        let path = root.join("bin").join(name);
        fs::write(&path, SCRIPT.replace("ROOT", &root.display().to_string())).expect("a stub");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("an executable stub");
    }
}

/// How a stub was called.
#[derive(Debug, Clone)]
pub struct Call {
    /// The program's name.
    pub name: String,
    /// Its arguments.
    pub argv: Vec<String>,
    /// Its standard input, whole.
    pub stdin: String,
    /// Its working directory.
    pub cwd: PathBuf,
    /// Its environment.
    pub env: BTreeMap<String, String>,
    /// When it had read its input.
    pub started: SystemTime,
    /// When it was about to answer; `None` while it works, and where it was killed or planned to fail.
    pub ended: Option<SystemTime>,
}

impl Call {
    /// Every call so far, in the order of their starts.
    pub(super) fn all(root: &Path) -> Vec<Self> {
        let mut calls: Vec<_> = fs::read_dir(root.join("calls"))
            .expect("calls")
            .filter_map(|entry| Self::read(&entry.expect("a call").path()))
            .collect();
        calls.sort_by_key(|call| call.started);
        calls
    }

    fn read(dir: &Path) -> Option<Self> {
        let moment = |stage: &str| fs::metadata(dir.join(stage)).ok()?.modified().ok();
        let started = moment("started")?;
        let read = |part: &str| String::from_utf8_lossy(&fs::read(dir.join(part)).expect(part)).into_owned();
        let list = |part: &str| read(part).split_terminator('\0').map(String::from).collect::<Vec<_>>();
        let pair = |text: &String| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Some(Self {
            name: dir.file_name()?.to_str()?.rsplit_once('.')?.0.to_owned(),
            argv: list("argv"),
            stdin: read("stdin"),
            cwd: read("cwd").trim_end().into(),
            env: list("env").iter().filter_map(pair).collect(),
            started,
            ended: moment("ended"),
        })
    }

    /// The prompt: on standard input as text, or as the content of stream-json messages.
    pub fn prompt(&self) -> String {
        let message = |line: &str| {
            let message: Value = serde_json::from_str(line).ok()?;
            message["message"]["content"].as_str().map(String::from)
        };
        self.stdin.lines().map(|line| message(line).unwrap_or_else(|| line.into())).collect::<Vec<_>>().join("\n")
    }
}
