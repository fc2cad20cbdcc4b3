//! Floor 4: calling out.

mod addresses;
mod callback;
mod github_api;
mod github_token;
mod http;
mod poster;
mod webhook_sender;

pub use addresses::is_public;
pub use callback::{Callback, Exception, Refused};
pub use github_api::{ApiAnswer, Error as ApiError, GithubApi, api_url};
pub use github_token::{github_token, token_variables};
pub use http::{HttpClient, http_client};
pub use poster::{Lookup, PostError, Posted, Poster, SetUpError, SystemLookup};
pub use webhook_sender::{Answer, Error, send};
