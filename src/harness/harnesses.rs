//! All known harnesses by name: built in, configured, or built in with a configured table laid over.

use std::collections::BTreeMap;

use super::claude::{Claude, RESERVED_ARGS};
use super::generic::Defined;
use super::{Definition, Error, Harness};

/// The built-in definitions, as a configuration would write them.
const BUILT_IN: &str = include_str!("definitions.toml");
const CLAUDE: &str = "claude";

/// All known harnesses: the built-in ones and the configured ones.
pub struct Harnesses {
    known: BTreeMap<String, Box<dyn Harness>>,
}

impl Harnesses {
    /// The built-in harnesses with `configured` laid over them.
    pub fn new(configured: &BTreeMap<String, Definition>) -> Result<Self, Error> {
        let mut definitions: BTreeMap<String, Definition> = toml::from_str(BUILT_IN)
            .map_err(|error| Error::Definition { name: "built in".into(), why: error.to_string() })?;
        for (name, over) in configured {
            check_name(name)?;
            let below = definitions.remove(name).unwrap_or_default();
            definitions.insert(name.clone(), below.overlaid(over.clone()));
        }
        let mut known: BTreeMap<String, Box<dyn Harness>> = BTreeMap::new();
        let claude = definitions.remove(CLAUDE).unwrap_or_default();
        known.insert(CLAUDE.into(), Box::new(claude_from(claude)?));
        for (name, definition) in definitions {
            let harness = Defined::new(&name, definition, !configured.contains_key(&name))?;
            known.insert(name, Box::new(harness));
        }
        Ok(Self { known })
    }

    /// The harness called `name`.
    pub fn get(&self, name: &str) -> Option<&dyn Harness> {
        self.known.get(name).map(AsRef::as_ref)
    }

    /// Every name, in order.
    pub fn names(&self) -> Vec<String> {
        self.known.keys().cloned().collect()
    }
}

impl std::fmt::Debug for Harnesses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.known.keys()).finish()
    }
}

fn claude_from(definition: Definition) -> Result<Claude, Error> {
    let fail = |why: String| Error::Definition { name: CLAUDE.into(), why };
    let Definition { command, args, env, .. } = definition.clone();
    if definition
        != (Definition { command: command.clone(), args: args.clone(), env: env.clone(), ..Default::default() })
    {
        return Err(fail("only `command`, `args` and `env` can be set: what it prints is known".into()));
    }
    let args = args.unwrap_or_default();
    let reserved = |arg: &&String| RESERVED_ARGS.contains(&arg.split('=').next().unwrap_or_default());
    if let Some(arg) = args.iter().find(reserved) {
        return Err(fail(format!(
            "`{arg}` cannot be among `args`: the conversation and the format are not theirs to set"
        )));
    }
    let program = command.filter(|command| !command.trim().is_empty()).unwrap_or_else(|| CLAUDE.into());
    Ok(Claude { program, args, env: env.unwrap_or_default() })
}

fn check_name(name: &str) -> Result<(), Error> {
    let sane = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.len() <= 40
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'));
    if sane {
        return Ok(());
    }
    let why = "a harness's name is lower-case letters, digits, - and _, and begins with a letter".into();
    Err(Error::Definition { name: super::words::short(name), why })
}
