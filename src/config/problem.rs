//! What can be wrong with a configuration, and how it is told.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Where a value stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// In a file, at a line that counts from 1.
    File {
        /// Which file.
        path: PathBuf,
        /// Which line.
        line: usize,
    },
    /// In an environment variable.
    Variable(String),
    /// In a flag.
    Flag(String),
    /// In the defaults; only a combination of values is wrong there.
    Default,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "{name}"),
            Self::Flag(name) => write!(f, "{name}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What is wrong, with the key's name.
    pub what: String,
    /// What would be right.
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that was named, or is in its usual place, cannot be read.
    #[error("read the configuration file `{path}`")]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Everything that is wrong with the values.
    #[error("use the configuration: {}", if .0.len() == 1 { "1 problem".to_owned() } else { format!("{} problems", .0.len()) })]
    Problems(Vec<Problem>),
    /// No secret is set.
    #[error("find a secret: {}", unset(.0))]
    NoSecret(Vec<String>),
    /// Neither a state directory nor a home directory to put one in.
    #[error("choose a state directory: neither --state-dir nor HOME is set")]
    NoStateDir,
    /// A state directory that was found, not named, and that may have come with a clone.
    #[error("trust the state directory `{}`: others can enter it, so it may have come with a clone", path.display())]
    NotPrivate {
        /// The directory.
        path: PathBuf,
    },
}

fn unset(names: &[String]) -> String {
    match names {
        [] => "`gh_webhook.secret_env` names no variable".into(),
        [one] => format!("`{one}` is not set"),
        many => format!("none of `{}` is set", many.join("`, `")),
    }
}
