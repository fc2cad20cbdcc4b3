//! Floor 4: calling out.

mod addresses;
mod callback;
mod poster;
mod webhook_sender;

pub use addresses::is_public;
pub use callback::{Callback, Exception, Refused};
pub use poster::{Lookup, PostError, Posted, Poster, SetUpError, SystemLookup};
pub use webhook_sender::{Answer, Error, send};
