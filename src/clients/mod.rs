//! Floor 4: calling out.

mod addresses;
mod callback;
mod http;
mod poster;
mod webhook_sender;

pub use addresses::is_public;
pub use callback::{Callback, Exception, Refused};
pub use http::{HttpClient, http_client};
pub use poster::{Lookup, PostError, Posted, Poster, SetUpError, SystemLookup};
pub use webhook_sender::{Answer, Error, send};
