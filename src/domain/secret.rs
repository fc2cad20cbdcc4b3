//! Values that must never be shown.

use std::fmt;

/// A secret as bytes. It has no `Display` and no `Serialize`; `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    name: String,
    bytes: Vec<u8>,
}

impl Secret {
    /// A secret that was read from the variable `name`.
    pub fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), bytes: bytes.into() }
    }

    /// Where the secret came from: safe to log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The secret itself. Search for this name to find every use.
    pub fn expose(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({}, hidden)", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_the_value() {
        let text = format!("{:?}", Secret::new("VAR", "hunter2"));
        assert!(text.contains("VAR") && !text.contains("hunter2"));
    }
}
