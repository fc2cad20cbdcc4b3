//! The layers put together, remembering where each value came from.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use toml::Value;

use super::keys::{KEYS, Key, nearest, variable};
use super::problem::{Error, Place, Problem};
use super::settings::Settings;
use super::toml_file::{self, Written};
use super::variables::{harness_of, is_harness_name, unknown_variables};
use super::{Environment, check, harness_tables, server_tables, token_tables};

/// Keys by which people try to put a secret itself into the file.
const SECRET_KEYS: &[&str] = &["secret", "secrets", "webhook_secret", "token", "password"];

/// Where other MCP servers post to.
const CALLBACK: &str = "mcp.callback.url";

/// Where a value came from.
pub type Origin = Place;

/// The configuration, and how it came about.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The values.
    pub settings: Settings,
    /// Where each came from, by dotted key; every key is in it.
    pub origins: BTreeMap<String, Origin>,
    /// What is odd and yet no error.
    pub warnings: Vec<String>,
    /// The file that was read, where there is one.
    pub file: Option<PathBuf>,
}

impl Loaded {
    /// Every key with its value and origin, in the order in which people read them. `None` is a key without a value.
    /// What a harness's variables hold is hidden: people put tokens there.
    pub fn entries(&self) -> Vec<(String, Option<Value>, Origin)> {
        let origin = |name: &str| self.origins.get(name).cloned().unwrap_or(Place::Default);
        let mut entries: Vec<_> =
            KEYS.iter().map(|key| (key.name.to_owned(), (key.get)(&self.settings), origin(key.name))).collect();
        for (number, token) in self.settings.mcp.tokens.iter().enumerate() {
            for (key, value) in token_tables::entries(token) {
                let name = format!("mcp.tokens.{number}.{key}");
                let origin = origin(&name);
                entries.push((name, Some(value), origin));
            }
        }
        for (server, definition) in &self.settings.mcp_servers {
            for (key, value) in server_tables::shown(definition) {
                let name = format!("mcp.servers.{server}.{key}");
                let origin = origin(&name);
                entries.push((name, Some(value), origin));
            }
        }
        if let Some(url) = &self.settings.mcp_callback {
            entries.push((CALLBACK.into(), Some(Value::String(url.clone())), origin(CALLBACK)));
        }
        for (harness, definition) in &self.settings.harness {
            for (key, mut value) in harness_tables::table(definition) {
                if let ("env", Value::Table(variables)) = (key.as_str(), &mut value) {
                    variables.iter_mut().for_each(|(_, held)| *held = Value::String("(hidden)".into()));
                }
                let name = format!("harness.{harness}.{key}");
                let origin = origin(&name);
                entries.push((name, Some(value), origin));
            }
        }
        entries
    }
}

/// Puts the layers together. `file` is the one that `--config` names; else `THE_LOOP_CONFIG` names it; else it is
/// `config.toml` in the state directory, if that is there. `flags` are dotted keys with their values.
pub fn load(
    state_dir: &Path,
    file: Option<&Path>,
    environment: &Environment,
    flags: &[(&str, String)],
) -> Result<Loaded, Error> {
    let mut layers = Layers::default();
    let file = read_file(state_dir, file, environment)?;
    if let Some((path, text)) = &file {
        let (written, problems) = toml_file::read(text, path, is_section);
        // What follows from a file that is not TOML is no news.
        if problems.is_empty() {
            written.into_iter().for_each(|written| layers.take_written(written));
        }
        layers.problems.extend(problems);
    }
    layers.take_environment(environment);
    for (name, text) in flags {
        let flag = format!("--{}", name.rsplit('.').next().unwrap_or(name).replace('_', "-"));
        layers.take_text(name, text, Place::Flag(flag));
    }
    layers.finish(environment, file.map(|(path, _)| path))
}

/// The file's path and text. One that was named must be there.
fn read_file(
    state_dir: &Path,
    named: Option<&Path>,
    environment: &Environment,
) -> Result<Option<(PathBuf, String)>, Error> {
    let named = named.map(Path::to_owned).or_else(|| environment.get("THE_LOOP_CONFIG").map(PathBuf::from));
    let must_exist = named.is_some();
    let path = named.unwrap_or_else(|| state_dir.join("config.toml"));
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some((path, text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => Ok(None),
        Err(source) => Err(Error::Read { path, source }),
    }
}

/// Whether the keys of this table count one by one.
fn is_section(path: &[String]) -> bool {
    match path {
        [section] => section == "harness" || section == "mcp" || sections().any(|known| known == section),
        [section, part] if section == "mcp" => ["tokens", "servers", "callback"].contains(&part.as_str()),
        [section, part, _] => section == "mcp" && part == "servers",
        [section, _] => section == "harness",
        _ => false,
    }
}

fn sections() -> impl Iterator<Item = &'static str> {
    let mut last = "";
    KEYS.iter().filter_map(move |key| {
        let section = key.name.split('.').next().unwrap_or_default();
        let new = section != last;
        last = section;
        new.then_some(section)
    })
}

#[derive(Default)]
struct Layers {
    settings: Settings,
    origins: BTreeMap<String, Place>,
    problems: Vec<Problem>,
}

impl Layers {
    fn take_written(&mut self, written: Written) {
        let Written { path, value, place } = written;
        let names: Vec<&str> = path.iter().map(String::as_str).collect();
        let name = names.join(".");
        match names[..] {
            ["harness", harness, key] if is_harness_name(harness) => {
                if harness_tables::keys().contains(&key) {
                    self.set_harness(harness, key, &value, place);
                } else {
                    let near = nearest(key, harness_tables::keys().iter().copied());
                    self.unknown(&name, place, near.map(|near| format!("harness.{harness}.{near}")));
                }
            }
            ["harness", harness, ..] if !is_harness_name(harness) => self.problem(
                place,
                format!("`{harness}` cannot name a harness"),
                Some("a name is lower case letters, digits, - and _".into()),
            ),
            ["harness", harness] if value.is_table() => {
                self.settings.harness.entry(harness.to_owned()).or_default();
                self.origins.insert(name, place);
            }
            ["mcp", "servers", server, key] if server_tables::is_name(server) => {
                self.set_server(server, key, &value, place);
            }
            ["mcp", "servers", server] if value.is_table() && server_tables::is_name(server) => {
                self.settings.mcp_servers.entry((*server).to_owned()).or_default();
                self.origins.insert(name, place);
            }
            ["mcp", "servers", ..] => self.problem(
                place,
                format!("`{name}` is no key of a server"),
                Some("write [mcp.servers.NAME]; a name is letters, digits, - and _".into()),
            ),
            ["mcp", "callback", "url"] => self.set_callback(&value, place),
            ["mcp", "tokens", number, key] => self.set_token(number, key, &value, place),
            ["mcp", "tokens"] => {
                self.problem(place, "`mcp.tokens` is a list of tables".into(), Some("write [[mcp.tokens]]".into()));
            }
            ["harness"] | ["harness", _] => {
                self.problem(place, format!("`{name}` is a table"), Some("write [harness.NAME]".into()));
            }
            [section] if sections().any(|known| known == section) => {
                if !value.as_table().is_some_and(toml::Table::is_empty) {
                    self.problem(place, format!("`{section}` is a table"), Some(format!("write [{section}]")));
                }
            }
            _ => match KEYS.iter().find(|known| known.name == name) {
                Some(known) => self.set_one(known, &value, place),
                None => self.unknown_written(&names, &name, &value, place),
            },
        }
    }

    fn unknown_written(&mut self, names: &[&str], name: &str, value: &Value, place: Place) {
        let key = names.last().copied().unwrap_or_default();
        if SECRET_KEYS.contains(&key) {
            self.problem(
                place,
                format!("`{name}` would put a secret into a file"),
                Some("name the environment variable that holds it instead: gh_webhook.secret_env = \"NAME\"".into()),
            );
            return;
        }
        let near = match names {
            [section] if value.is_table() => {
                nearest(section, sections().chain(["harness"])).map(|near| format!("[{near}]"))
            }
            [section, key] if sections().any(|known| known == *section) => {
                let same = KEYS.iter().filter_map(|known| known.name.strip_prefix(section)?.strip_prefix('.'));
                nearest(key, same).map(|near| format!("{section}.{near}"))
            }
            _ => None,
        };
        let elsewhere = || KEYS.iter().map(|known| known.name).find(|known| known.rsplit('.').next() == Some(key));
        self.unknown(name, place, near.or_else(|| elsewhere().map(str::to_owned)));
    }

    fn take_environment(&mut self, environment: &Environment) {
        for known in KEYS {
            let name = variable(known.name);
            if let Some(text) = environment.get(&name) {
                match text.to_str() {
                    Some(text) => self.set_one(known, &(known.plain)(text), Place::Variable(name)),
                    None => self.problem(Place::Variable(name), format!("`{}` is not UTF-8", known.name), None),
                }
            }
        }
        for name in environment.names("THE_LOOP_HARNESS_") {
            if let Some((harness, key)) = harness_of(name)
                && let Some(text) = environment.text(name)
            {
                self.set_harness(&harness, key, &harness_tables::plain(key, text), Place::Variable(name.to_owned()));
            }
        }
    }

    fn take_text(&mut self, name: &str, text: &str, place: Place) {
        match KEYS.iter().find(|known| known.name == name) {
            Some(known) => self.set_one(known, &(known.plain)(text), place),
            None => self.unknown(name, place, None),
        }
    }

    fn set_one(&mut self, key: &Key, value: &Value, place: Place) {
        match (key.set)(&mut self.settings, value) {
            Ok(()) => drop(self.origins.insert(key.name.to_owned(), place)),
            Err(why) => self.problem(place, format!("`{}` {why}", key.name), None),
        }
    }

    fn set_harness(&mut self, harness: &str, key: &str, value: &Value, place: Place) {
        let name = format!("harness.{harness}.{key}");
        let definition = self.settings.harness.entry(harness.to_owned()).or_default();
        match harness_tables::set(definition, key, value) {
            Ok(()) => drop(self.origins.insert(name, place)),
            Err(why) => self.problem(place, format!("`{name}` {why}"), None),
        }
    }

    fn set_token(&mut self, number: &str, key: &str, value: &Value, place: Place) {
        let name = format!("mcp.tokens.{number}.{key}");
        let tokens = &mut self.settings.mcp.tokens;
        let Ok(index) = number.parse::<usize>() else { return };
        if tokens.len() <= index {
            tokens.resize_with(index + 1, Default::default);
        }
        let Some(token) = tokens.get_mut(index) else { return };
        match token_tables::set(token, key, value) {
            Some(Ok(())) => drop(self.origins.insert(name, place)),
            Some(Err(why)) => self.problem(place, format!("`mcp.tokens.{key}` {why}"), None),
            None if SECRET_KEYS.contains(&key) => self.problem(
                place,
                format!("`mcp.tokens.{key}` would put a secret into a file"),
                Some("name the environment variable that holds it instead: token_env = \"NAME\"".into()),
            ),
            None => {
                let near = nearest(key, token_tables::KEYS.iter().copied());
                self.unknown(&format!("mcp.tokens.{key}"), place, near.map(|near| format!("mcp.tokens.{near}")));
            }
        }
    }

    fn set_server(&mut self, server: &str, key: &str, value: &Value, place: Place) {
        let name = format!("mcp.servers.{server}.{key}");
        if SECRET_KEYS.contains(&key) {
            let hint = "name the environment variable that holds it instead: token_env = \"NAME\"";
            self.problem(place, format!("`{name}` would put a secret into a file"), Some(hint.into()));
            return;
        }
        if !server_tables::KEYS.contains(&key) {
            let near = nearest(key, server_tables::KEYS.iter().copied());
            self.unknown(&name, place, near.map(|near| format!("mcp.servers.{server}.{near}")));
            return;
        }
        let definition = self.settings.mcp_servers.entry(server.to_owned()).or_default();
        match server_tables::set(definition, key, value) {
            Ok(()) => drop(self.origins.insert(name, place)),
            Err(why) => self.problem(place, format!("`{name}` {why}"), None),
        }
    }

    fn set_callback(&mut self, value: &Value, place: Place) {
        match value.as_str().filter(|text| !text.trim().is_empty()) {
            Some(text) => {
                self.settings.mcp_callback = Some(text.to_owned());
                self.origins.insert(CALLBACK.into(), place);
            }
            None => self.problem(place, format!("`{CALLBACK}` should be a text"), None),
        }
    }

    fn unknown(&mut self, name: &str, place: Place, near: Option<String>) {
        let hint = near.map(|near| format!("did you mean `{near}`?"));
        self.problem(place, format!("`{name}` is not a key"), hint);
    }

    fn problem(&mut self, place: Place, what: String, hint: Option<String>) {
        self.problems.push(Problem { place, what, hint });
    }

    /// Where a person finds what is wrong with a key: where it is set, else where the other key is that it does not go
    /// with, else, for one that is missing, where its neighbours are.
    fn place_of(&self, key: &str, other: Option<&str>) -> Place {
        // A key of a harness, or the whole table of one: `harness.NAME` is where both are.
        let depth = if key.starts_with("mcp.servers.") { 3 } else { 2 };
        let table = key.split('.').take(depth).map(|name| format!("{name}.")).collect::<String>();
        let neighbours = || {
            let mut keys = self.origins.iter();
            let listed = ["harness.", "mcp.servers.", "mcp.tokens."].iter().any(|tables| key.starts_with(tables));
            keys.find(|(name, _)| listed && format!("{name}.").starts_with(&table)).map(|(_, place)| place)
        };
        let set = self.origins.get(key).or_else(|| other.and_then(|other| self.origins.get(other)));
        set.or_else(neighbours).cloned().unwrap_or(Place::Default)
    }

    fn finish(mut self, environment: &Environment, file: Option<PathBuf>) -> Result<Loaded, Error> {
        for found in check::check(&self.settings) {
            let place = self.place_of(&found.key, found.other);
            self.problem(place, format!("`{}` {}", found.key, found.what), found.hint);
        }
        if !self.problems.is_empty() {
            self.problems.sort_by_key(|problem| match &problem.place {
                Place::File { line, .. } => (0, *line),
                Place::Variable(_) => (1, 0),
                Place::Flag(_) => (2, 0),
                Place::Default => (3, 0),
            });
            return Err(Error::Problems(self.problems));
        }
        let mut warnings = unknown_variables(&self.settings, environment);
        warnings.extend(check::doubts(&self.settings));
        let mut loaded = Loaded { settings: self.settings, origins: self.origins, warnings, file };
        for (name, _, origin) in loaded.entries() {
            loaded.origins.entry(name).or_insert(origin);
        }
        Ok(loaded)
    }
}
