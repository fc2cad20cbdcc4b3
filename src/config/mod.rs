//! Floor 7: the configuration in layers, and where each value came from.
//!
//! Low to high: the defaults in code, the file, the environment (`THE_LOOP_SECTION_KEY`), flags. [`keys`] is the one
//! list of keys; reading, checking, showing and the example file all follow it.

mod check;
mod environment;
mod harness_tables;
mod keys;
mod kinds;
mod layers;
mod problem;
mod secrets;
mod server_tables;
mod settings;
mod state_dir;
mod token_tables;
mod toml_file;
mod variables;

pub use environment::Environment;
pub use keys::key_names;
pub use layers::{Loaded, Origin, load};
pub use problem::{Error, Place, Problem};
pub use secrets::secrets;
pub use server_tables::{DeliveryChoice, EnvFrom, McpServer};
pub use settings::{
    Dispatch, GhWebhook, Github, GithubPoll, HarnessDefinition, KeepAwake, Mcp, McpToken, OnClosed, PromptSettings,
    Routing, Settings, StoreSettings, Trust,
};
pub use state_dir::state_dir;
