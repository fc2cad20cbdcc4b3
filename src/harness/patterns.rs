//! Regular expressions of a definition, compiled only when they are first tried: most commands never read a failure.

use std::sync::OnceLock;

use regex::{RegexSet, RegexSetBuilder};

/// Some regular expressions, of which any may match. Without case, line by line.
#[derive(Debug)]
pub(super) struct Patterns {
    texts: Vec<String>,
    compiled: OnceLock<Option<RegexSet>>,
}

impl Patterns {
    /// Takes the texts as they are. Those that nobody has checked before are to be [`check`](Self::check)ed.
    pub(super) fn new(texts: Vec<String>) -> Self {
        Self { texts, compiled: OnceLock::new() }
    }

    /// Whether every text is a regular expression; if not, which one is wrong and why.
    pub(super) fn check(&self) -> Result<(), String> {
        let compiled =
            compile(&self.texts).map_err(|error| format!("{:?} holds no regular expression: {error}", self.texts))?;
        self.compiled.get_or_init(|| Some(compiled));
        Ok(())
    }

    /// Whether one of them is found in `text`.
    pub(super) fn is_match(&self, text: &str) -> bool {
        // Unchecked texts are built in, and the tests check those.
        !self.texts.is_empty()
            && self.compiled.get_or_init(|| compile(&self.texts).ok()).as_ref().is_some_and(|set| set.is_match(text))
    }
}

fn compile(texts: &[String]) -> Result<RegexSet, regex::Error> {
    RegexSetBuilder::new(texts).case_insensitive(true).multi_line(true).build()
}
