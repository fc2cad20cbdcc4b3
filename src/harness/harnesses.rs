//! All known harnesses by name.
use std::collections::BTreeMap;

use super::{Definition, Error, Harness};

/// All known harnesses: the built-in ones and the configured ones.
pub struct Harnesses {
    known: BTreeMap<String, Box<dyn Harness>>,
}

impl Harnesses {
    /// The built-in harnesses with `configured` laid over them.
    pub fn new(configured: &BTreeMap<String, Definition>) -> Result<Self, Error> {
        let _ = configured;
        Ok(Self { known: BTreeMap::new() })
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
