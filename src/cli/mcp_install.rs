//! `mcp install`: what to write into a harness's MCP configuration. It shows it, and writes it only when told to.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::context::Context;
use super::failure::{Exit, Failure};

/// The name under which a harness knows our tools.
const NAME: &str = "the-loop";

/// `the-loop mcp install`
#[derive(Args, Debug)]
pub(super) struct Install {
    /// The agent program
    #[arg(long, value_enum)]
    harness: Harness,
    /// Write it; without this it is only shown
    #[arg(long)]
    write: bool,
    /// Put another entry of this name out of the way
    #[arg(long, requires = "write")]
    force: bool,
}

/// The harnesses whose configuration we know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Harness {
    /// Claude Code: `.mcp.json` in the project.
    Claude,
    /// Codex: `config.toml` in its home.
    Codex,
    /// Cursor: `.cursor/mcp.json` in the project.
    Cursor,
    /// Gemini CLI: `.gemini/settings.json` in the project.
    Gemini,
}

impl Harness {
    fn path(self, context: &Context) -> Result<PathBuf, Failure> {
        Ok(match self {
            Self::Claude => context.cwd.join(".mcp.json"),
            Self::Cursor => context.cwd.join(".cursor/mcp.json"),
            Self::Gemini => context.cwd.join(".gemini/settings.json"),
            Self::Codex => {
                let home = context.environment.get("CODEX_HOME").map(PathBuf::from);
                let home = home.or_else(|| Some(PathBuf::from(context.environment.get("HOME")?).join(".codex")));
                home.ok_or_else(|| Failure::new(Exit::Failed, "neither CODEX_HOME nor HOME is set"))?
                    .join("config.toml")
            }
        })
    }
}

pub(super) fn run(context: &Context, install: &Install) -> Result<(), Failure> {
    let path = install.harness.path(context)?;
    let (command, args) = command(context)?;
    let before = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed("read", &path, &error)),
    };
    let after = match install.harness {
        Harness::Codex => in_toml(&before, &command, &args, install.force),
        _ => in_json(&before, &command, &args, install.force),
    };
    let after = after.map_err(|why| {
        Failure::new(Exit::Failed, format!("`{}` is left as it is: {why}", path.display()))
            .hint("with --write --force the entry is replaced; everything else stays")
    })?;
    if after == before {
        return context.printer.line(&format!("{} has it already", path.display()));
    }
    if install.write {
        write(&path, &after).map_err(|error| failed("write", &path, &error))?;
        context.printer.line(&format!("wrote {}", path.display()))?;
    } else {
        context.printer.line(&format!("{} would be:\n\n{}", path.display(), after.trim_end()))?;
        context.printer.note("\nnothing was written; add --write to write it");
    }
    let told = "it knows its conversation from the harness where that tells its tools, and else asks the agent for it";
    context.printer.note(told);
    Ok(())
}

/// How a harness starts us: with the state directory and configuration that are meant here.
fn command(context: &Context) -> Result<(String, Vec<String>), Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::from_error(Exit::Failed, &error))?;
    let mut args = vec!["--state-dir".to_owned(), context.state_dir()?.display().to_string()];
    if let Some(file) = &context.global.config {
        args.extend(["--config".to_owned(), context.cwd.join(file).display().to_string()]);
    }
    args.extend(["mcp", "agent"].map(String::from));
    Ok((program.display().to_string(), args))
}

/// The file with our entry in `mcpServers`: Claude Code, Cursor and Gemini CLI all read that form.
fn in_json(before: &str, command: &str, args: &[String], force: bool) -> Result<String, String> {
    let mut all: Value = match before.trim() {
        "" => json!({}),
        text => serde_json::from_str(text).map_err(|error| format!("it is not plain JSON ({error})"))?,
    };
    let servers = all
        .as_object_mut()
        .ok_or("it holds no object")?
        .entry("mcpServers")
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
        .ok_or("its `mcpServers` is no object")?;
    let entry = json!({"command": command, "args": args});
    match servers.get(NAME) {
        Some(known) if *known == entry => return Ok(before.to_owned()),
        Some(known) if !force => return Err(format!("it has another entry `{NAME}`: {known}")),
        _ => servers.insert(NAME.into(), entry),
    };
    serde_json::to_string_pretty(&all).map(|text| text + "\n").map_err(|error| error.to_string())
}

/// The file with our table `[mcp_servers.the-loop]`, which Codex reads, at its end: the rest stays as a person wrote it.
fn in_toml(before: &str, command: &str, args: &[String], force: bool) -> Result<String, String> {
    let all: toml::Table =
        before.parse().map_err(|error: toml::de::Error| format!("it is not TOML ({})", error.message()))?;
    let known = all.get("mcp_servers").and_then(|servers| servers.get(NAME));
    let mut entry = toml::Table::new();
    entry.insert("command".into(), command.into());
    entry.insert("args".into(), args.to_vec().into());
    // Codex gives its servers nothing but what is named here; in a turn of ours, this says whose it is.
    let passed = ["THE_LOOP_SESSION", "THE_LOOP_STATE_DIR", "THE_LOOP_CONFIG"].map(String::from);
    entry.insert("env_vars".into(), passed.to_vec().into());
    if let Some(known) = known {
        let same = known.as_table().is_some_and(|known| entry.iter().all(|(key, value)| known.get(key) == Some(value)));
        if same {
            return Ok(before.to_owned());
        }
        let why = format!("it has another table [mcp_servers.{NAME}]");
        return Err(if force { format!("{why}, which only a person can take out of it") } else { why });
    }
    let gap = if before.is_empty() {
        ""
    } else if before.ends_with('\n') {
        "\n"
    } else {
        "\n\n"
    };
    let text = toml::to_string(&entry).map_err(|error| error.to_string())?;
    Ok(format!("{before}{gap}[mcp_servers.{NAME}]\n{text}"))
}

/// Writes beside and renames, so that a harness never reads half of it.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    // A link stays one: people keep such files elsewhere.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir)?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    if let Ok(before) = std::fs::metadata(&path) {
        file.as_file().set_permissions(before.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.persist(&path).map(|_| ()).map_err(|error| error.error)
}

fn failed(doing: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure {
        causes: vec![error.to_string()],
        ..Failure::new(Exit::Failed, format!("failed to {doing} `{}`", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> Vec<String> {
        vec!["mcp".into(), "agent".into()]
    }

    #[test]
    fn what_is_there_stays() {
        let before = r#"{"theme": "dark", "mcpServers": {"other": {"url": "https://x"}}}"#;
        let after = in_json(before, "/bin/the-loop", &args(), false).expect("added");
        let value: Value = serde_json::from_str(&after).expect("JSON");
        assert_eq!(value["theme"], "dark");
        assert_eq!(value["mcpServers"]["other"]["url"], "https://x");
        assert_eq!(value["mcpServers"][NAME], json!({"command": "/bin/the-loop", "args": ["mcp", "agent"]}));
        assert_eq!(in_json(&after, "/bin/the-loop", &args(), false), Ok(after.clone()));
        assert!(in_json(&after, "/elsewhere", &args(), false).expect_err("another").contains("/bin/the-loop"));
        assert!(in_json(&after, "/elsewhere", &args(), true).expect("forced").contains("/elsewhere"));
        assert!(in_json("// a comment\n{}", "x", &args(), true).is_err());
        assert!(in_json("[]", "x", &args(), true).is_err());
    }

    #[test]
    fn a_table_is_added_at_the_end() {
        let before = "# mine\nmodel = \"x\"\n[mcp_servers.other]\ncommand = \"y\"\n";
        let after = in_toml(before, "/bin/the-loop", &args(), false).expect("added");
        assert!(after.starts_with(before), "{after}");
        let table: toml::Table = after.parse().expect("TOML");
        assert_eq!(table["mcp_servers"][NAME]["args"][1].as_str(), Some("agent"));
        assert_eq!(in_toml(&after, "/bin/the-loop", &args(), false), Ok(after.clone()));
        assert!(in_toml(&after, "/elsewhere", &args(), true).is_err());
        assert!(in_toml("", "/x", &args(), false).is_ok_and(|text| text.starts_with('[')));
    }
}
