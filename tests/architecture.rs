//! The floors of the house (`src/lib.rs`): a module uses lower floors only, and none on its own; some crates may appear
//! in some places only; no file outgrows its subject.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const FLOORS: &[&[&str]] = &[
    &["domain", "room", "crash_point"],
    &["signing"],
    &["catalogue", "payload", "routing", "retry"],
    &["store", "registry"],
    &["harness", "clients"],
    &["engine"],
    &["edges"],
    &["config"],
    &["daemon"],
    &["cli"],
];

/// Edges have the engine as their waist, and the command line has no business with HTTP.
const BANS: &[(&str, &[&str])] =
    &[("edges", &["store", "registry", "harness", "routing"]), ("cli", &["edges"]), ("signing", &["payload"])];

/// Which crate may be named in which modules.
const QUARANTINE: &[(&str, &[&str])] = &[
    ("rusqlite", &["store"]),
    ("zstd", &["store"]),
    ("memmap2", &["room"]),
    ("axum", &["edges"]),
    ("hyper", &["edges"]),
    ("hyper_util", &["edges"]),
    ("ureq", &["clients"]),
    ("reqwest", &["clients"]),
    ("rustls", &["clients"]),
    ("webpki_roots", &["clients"]),
    ("rmcp", &["edges"]),
    ("sse_stream", &["edges"]),
    ("futures_util", &["edges"]),
    ("clap", &["cli"]),
    ("comfy_table", &["cli"]),
    ("toml", &["config", "harness", "cli"]),
    ("hmac", &["signing"]),
    ("subtle", &["signing"]),
    ("pulldown_cmark", &["payload", "routing"]),
    ("tempfile", &["registry", "harness", "cli"]),
    ("rustix", &["harness", "daemon", "cli", "registry", "config", "crash_point"]),
    ("base64", &["signing"]),
    ("tokio", &["store", "clients", "engine", "edges", "daemon", "cli"]),
];

/// Lines at which a file has more than one subject. Tests beside the code count.
const MAX_LINES: usize = 520;

fn sources() -> Vec<(PathBuf, String)> {
    fn walk(dir: &Path, into: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(dir).expect("a source directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, into);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                into.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    found
}

/// The top-level module that a file belongs to; `None` for `lib.rs` and `main.rs`.
fn module(path: &Path) -> Option<String> {
    let inside = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).ok()?;
    let first = inside.iter().next()?.to_str()?.trim_end_matches(".rs");
    (first != "lib" && first != "main").then(|| first.to_owned())
}

fn floor(module: &str) -> usize {
    FLOORS.iter().position(|floor| floor.contains(&module)).unwrap_or_else(|| panic!("`{module}` is on no floor"))
}

/// The code of a file: comments and what stands in string literals do not use anything.
fn code(text: &str) -> String {
    let mut code = String::new();
    for line in text.lines() {
        let line = line.trim_start();
        if line.starts_with("//") {
            continue;
        }
        let mut quoted = false;
        let mut previous = ' ';
        for c in line.chars() {
            if c == '"' && previous != '\\' && previous != '\'' {
                quoted = !quoted;
            }
            if !quoted {
                code.push(c);
            }
            previous = c;
        }
        code.push('\n');
    }
    code
}

/// The code without the tests beside it.
fn production(text: &str) -> String {
    code(text.split("#[cfg(test)]").next().unwrap_or_default())
}

/// The modules that follow `crate::` (also inside braces, also after `super::super`).
fn used_modules(code: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if let Some(inside) = rest.strip_prefix('{') {
            let mut depth = 1;
            let mut word = String::new();
            let mut head = true;
            for c in inside.chars() {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
                if depth == 1 && (c.is_alphanumeric() || c == '_') {
                    if head {
                        word.push(c);
                    }
                } else {
                    if !word.is_empty() {
                        used.insert(std::mem::take(&mut word));
                    }
                    head = c == ',' && depth == 1 || (head && c.is_whitespace());
                }
                if depth == 0 {
                    break;
                }
            }
        } else {
            used.insert(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    used.retain(|name| FLOORS.iter().any(|floor| floor.contains(&name.as_str())));
    used
}

fn names_crate(code: &str, name: &str) -> bool {
    let path = format!("{name}::");
    let used = code.match_indices(&path).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
    });
    used || code.contains(&format!("use {name};"))
}

#[test]
fn modules_use_lower_floors_only() {
    let mut faults = Vec::new();
    for (path, text) in sources() {
        let Some(own) = module(&path) else { continue };
        for used in used_modules(&code(&text)) {
            if used == own {
                continue;
            }
            let banned = BANS.iter().any(|(from, to)| *from == own && to.contains(&used.as_str()));
            if floor(&used) >= floor(&own) || banned {
                faults.push(format!(
                    "{}: {own} (floor {}) uses {used} (floor {})",
                    path.display(),
                    floor(&own),
                    floor(&used)
                ));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn crates_stay_where_they_belong() {
    let mut faults = Vec::new();
    for (path, text) in sources() {
        let Some(own) = module(&path) else { continue };
        let code = production(&text);
        for (name, places) in QUARANTINE {
            if names_crate(&code, name) && !places.contains(&own.as_str()) {
                faults.push(format!("{}: {own} names {name}, which belongs in {}", path.display(), places.join(", ")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn only_payload_makes_deliveries_and_only_signing_makes_proof() {
    for (path, text) in sources() {
        let Some(own) = module(&path) else { continue };
        // The store reads back what payload made.
        let production = production(&text);
        let makes = |name: &str| {
            production.contains(&format!("{name} {{")) && !production.contains(&format!("struct {name} {{"))
        };
        if makes("Verified") {
            assert_eq!(own, "signing", "{} makes a Verified", path.display());
        }
        if production.contains("Delivery { ") && !production.contains("struct Delivery {") {
            assert!(["payload", "store"].contains(&own.as_str()), "{} makes a Delivery", path.display());
        }
    }
}

#[test]
fn no_file_outgrows_its_subject() {
    let long: Vec<_> = sources()
        .into_iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn the_checks_see_what_they_should() {
    let text = "use crate::{store::{Db, Store}, engine, domain::Event};\n// crate::cli\nlet x = \"crate::daemon\"; crate::retry::next();";
    let used: Vec<_> = used_modules(&code(text)).into_iter().collect();
    assert_eq!(used, ["domain", "engine", "retry", "store"]);
    assert!(names_crate("let a = rusqlite::Error;", "rusqlite"));
    assert!(!names_crate("let a = my_rusqlite::Error; x::rusqlite::y", "rusqlite"));
}
