//! Floor 4: calling out.

mod webhook_sender;

pub use webhook_sender::{Answer, Error, send};
