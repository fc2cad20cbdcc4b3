//! The environment as it was when the program started.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The variables of a process. Passed to what needs them, so that tests can say what they are.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// This process's.
    pub fn of_this_process() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// A variable's value. One that is empty is not set.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// The same as text; `None` where it is not UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(OsStr::to_str)
    }

    /// The same as bytes.
    pub(super) fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.get(name).map(OsStrExt::as_bytes)
    }

    /// The names that begin with `prefix`, in order, of variables that are set.
    pub(super) fn names<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .filter_map(|(name, _)| name.to_str())
            .filter(move |name| name.starts_with(prefix))
    }
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}
