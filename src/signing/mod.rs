//! Floor 1: prove who sent bytes. The only maker of [`Verified`].

mod github;
mod standard;

use bytes::Bytes;

pub use github::{Error, github_signature, sign_github, verify_github};
pub use standard::{StandardError, StandardHeaders, StandardSecret, TOLERANCE, same, sign_standard, verify_standard};

/// Bytes whose sender is proven, and by which secret.
#[derive(Clone, Copy, Debug)]
pub struct Verified<'a> {
    bytes: &'a Bytes,
    secret: usize,
}

impl<'a> Verified<'a> {
    /// The proven bytes.
    pub fn bytes(&self) -> &'a Bytes {
        self.bytes
    }

    /// Which of the configured secrets proved them, counted from 0: above 0 while a rotation is under way.
    pub fn secret(&self) -> usize {
        self.secret
    }
}
