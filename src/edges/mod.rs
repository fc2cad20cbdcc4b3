//! Floor 6: one protocol each, translated to or from the engine.

pub mod github_poll;
pub mod github_webhook;
pub mod health;
pub mod listener;
pub mod mcp_agent;
pub mod mcp_client;
pub mod mcp_server;
