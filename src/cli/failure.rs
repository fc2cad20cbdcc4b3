//! Failures: what the program says when it could not do what it was asked, and its exit codes.

use std::error::Error;

use crate::{config, registry};

/// How the program ends. Scripts rely on these numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// It could not be done.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// There is no such session, delivery or turn.
    NotFound = 3,
    /// The command needs a server, and none runs.
    NotServing = 4,
    /// The configuration is wrong.
    BadConfig = 5,
    /// Another server uses the state directory.
    InUse = 6,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A failure as it is shown: `error: …`, `caused by: …`, `hint: …`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What failed, after "error: ". Empty where there is nothing to say.
    pub message: String,
    /// Why, outermost first.
    pub causes: Vec<String>,
    /// What to do.
    pub hint: Option<String>,
    /// How the program ends.
    pub code: Exit,
}

impl Failure {
    /// A failure with a message alone.
    pub fn new(code: Exit, message: impl Into<String>) -> Self {
        Self { message: message.into(), causes: Vec::new(), hint: None, code }
    }

    /// An error whose message reads after "failed to", with its causes.
    pub fn from_error(code: Exit, error: &dyn Error) -> Self {
        let causes = std::iter::successors(error.source(), |cause: &&dyn Error| (*cause).source())
            .map(ToString::to_string)
            .collect();
        Self { message: format!("failed to {error}"), causes, hint: None, code }
    }

    /// The same, with what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The end of a command whose reader has gone (`… | head`): nothing is wrong, and there is nobody to tell.
    pub fn reader_gone() -> Self {
        Self::new(Exit::Done, "")
    }
}

impl From<registry::Error> for Failure {
    fn from(error: registry::Error) -> Self {
        use registry::Error;
        let failure = Self::from_error(Exit::Failed, &error);
        match &error {
            Error::Taken { existing } => {
                let item = &existing.work_item;
                failure.hint(format!("add --force to replace it, or close it first: the-loop sessions close '{item}'"))
            }
            Error::Unknown(_) => {
                Self { code: Exit::NotFound, ..failure }.hint("see what is registered: the-loop sessions list")
            }
            Error::Damaged(damaged) => failure.hint(format!(
                "look at the file, then mend it or move it away (mv '{0}' '{0}.damaged'); nothing overwrites it",
                damaged.path.display()
            )),
            Error::Io { .. } | Error::Moved { .. } => failure,
        }
    }
}

impl From<config::Error> for Failure {
    fn from(error: config::Error) -> Self {
        use config::Error;
        let mut failure = Self::from_error(Exit::BadConfig, &error);
        match &error {
            Error::Problems(problems) => {
                failure.causes = problems.iter().map(ToString::to_string).collect();
                failure.hint("config.example.toml has every key; check again with: the-loop config check")
            }
            Error::NoSecret(names) => {
                let name = names.first().map_or("THE_LOOP_GH_WEBHOOK_SECRET", String::as_str);
                failure.hint(format!(
                    "make one and give the same to GitHub (Settings, Webhooks, Secret): export {name}=$(openssl rand -hex 32)"
                ))
            }
            Error::NoStateDir => failure.hint("say --state-dir DIR, or set THE_LOOP_STATE_DIR"),
            Error::NotPrivate { path } => failure.hint(format!(
                "its configuration says what is run: if it is yours, chmod 700 '{}', or name it with --state-dir",
                path.display()
            )),
            Error::Read { .. } => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_secret_is_told_with_how_to_make_one() {
        let names = ["NEW", "OLD"].map(String::from).to_vec();
        let failure = Failure::from(config::Error::NoSecret(names));
        assert_eq!(failure.code, Exit::BadConfig);
        assert_eq!(failure.message, "failed to find a secret: none of `NEW`, `OLD` is set");
        assert!(failure.hint.is_some_and(|hint| hint.contains("export NEW=$(openssl rand -hex 32)")));
    }

    #[test]
    fn causes_are_told_outermost_first() {
        let source = std::io::Error::other("the disk is on fire");
        let error = registry::Error::Io { doing: "write", path: "/x".into(), source };
        let failure = Failure::from(error);
        assert_eq!(failure.message, "failed to write `/x`");
        assert_eq!(failure.causes, ["the disk is on fire"]);
    }
}
