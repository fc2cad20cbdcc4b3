//! The client by which we speak to MCP servers that a person configured.

use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, RootCertStore};

use super::poster::SetUpError;

/// Speaks HTTP. Cheap to clone.
pub type HttpClient = reqwest::Client;

/// A client that follows no redirects, so that a token goes where it was meant to go and nowhere else. Streams last for
/// as long as they last: only connecting has a limit.
pub fn http_client() -> Result<HttpClient, SetUpError> {
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| SetUpError(error.into()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(10))
        .user_agent(concat!("the-loop/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| SetUpError(error.into()))
}
