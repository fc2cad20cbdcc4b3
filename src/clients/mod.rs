//! Floor 4: calling out.

mod github_api;
mod github_token;
mod webhook_sender;

pub use github_api::{ApiAnswer, Error as ApiError, GithubApi, api_url};
pub use github_token::{github_token, token_variables};
pub use webhook_sender::{Answer, Error, send};
