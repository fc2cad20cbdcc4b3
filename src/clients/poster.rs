//! Posting to addresses that somebody else chose (`docs/decisions/0022-guarded-callbacks.md`).
//!
//! Names are looked up by a resolver that refuses addresses that are not public, when the connection is made; the
//! connection goes to what was checked and to nothing else, while the name stays for TLS. No redirects, no proxies, and
//! an answer that is bounded in size and time.

use std::error::Error as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use rustls::{ClientConfig, RootCertStore};

use super::addresses::is_public;
use super::callback::Callback;

/// The longest that one post may take, from the look-up to the end of the answer.
const TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// An answer is a challenge or nothing; no more of it is read.
const MAX_ANSWER: usize = 16 << 10;

/// A post that got no answer, as a category: the details of someone's network are nobody else's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// Nobody took the connection, or the address is not one that we connect to.
    #[error("connection_refused")]
    ConnectionRefused,
    /// There was no answer in time.
    #[error("timeout")]
    Timeout,
    /// The two could not agree on a secure connection.
    #[error("tls_error")]
    Tls,
}

/// What the endpoint said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    /// The HTTP status.
    pub status: u16,
    /// The beginning of the answer.
    pub body: Vec<u8>,
    /// `Retry-After` in seconds, where the endpoint asks for a pause.
    pub retry_after: Option<u64>,
}

/// Looks names up: the system's way, or a test's.
pub trait Lookup: Send + Sync + 'static {
    /// The addresses of a host.
    fn lookup(&self, host: &str) -> impl Future<Output = io::Result<Vec<IpAddr>>> + Send;
}

/// The system's resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// An address that we do not connect to.
#[derive(Debug, thiserror::Error)]
#[error("the name leads to an address that is not public")]
struct NotPublic;

/// Refuses names of which any address is not public: a mixed answer is somebody's trick.
struct Guarded<L>(Arc<L>);

impl<L: Lookup> Resolve for Guarded<L> {
    fn resolve(&self, name: Name) -> Resolving {
        let lookup = Arc::clone(&self.0);
        Box::pin(async move {
            let found = lookup.lookup(name.as_str()).await?;
            if found.is_empty() {
                return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address").into());
            }
            if !found.iter().all(|address| is_public(*address)) {
                return Err(NotPublic.into());
            }
            let addresses: Addrs = Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}

/// Why no poster could be made.
#[derive(Debug, thiserror::Error)]
#[error("prepare for posting to callbacks")]
pub struct SetUpError(#[source] pub(super) Box<dyn std::error::Error + Send + Sync>);

/// Posts to callbacks. Cheap to clone.
#[derive(Clone)]
pub struct Poster {
    guarded: reqwest::Client,
    /// For what an exception covers.
    open: reqwest::Client,
}

impl Poster {
    /// A poster that looks names up as the system does and trusts the usual certificate authorities.
    pub fn new() -> Result<Self, SetUpError> {
        let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        Self::with(SystemLookup, roots)
    }

    /// A poster with another way to look names up and other authorities.
    pub fn with(lookup: impl Lookup, roots: RootCertStore) -> Result<Self, SetUpError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| SetUpError(error.into()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let builder = || {
            reqwest::Client::builder()
                .tls_backend_preconfigured(tls.clone())
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .timeout(TIMEOUT)
                .connect_timeout(CONNECT_TIMEOUT)
                .pool_idle_timeout(Duration::from_secs(20))
                .pool_max_idle_per_host(8)
                .user_agent(concat!("the-loop/", env!("CARGO_PKG_VERSION")))
        };
        let guarded = builder().https_only(true).dns_resolver(Arc::new(Guarded(Arc::new(lookup)))).build();
        let made = |client: reqwest::Result<_>| client.map_err(|error| SetUpError(error.into()));
        Ok(Self { guarded: made(guarded)?, open: made(builder().build())? })
    }

    /// Posts `body` as JSON with `headers` beside the usual ones.
    pub async fn post(
        &self,
        callback: &Callback,
        headers: &[(&'static str, String)],
        body: Vec<u8>,
    ) -> Result<Posted, PostError> {
        let client = if callback.excepted { &self.open } else { &self.guarded };
        let mut request = client.post(callback.url.clone()).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let mut response = request.body(body).send().await.map_err(|error| category(&error))?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let mut body = Vec::new();
        while body.len() < MAX_ANSWER
            && let Some(chunk) = response.chunk().await.map_err(|error| category(&error))?
        {
            body.extend_from_slice(chunk.get(..chunk.len().min(MAX_ANSWER - body.len())).unwrap_or_default());
        }
        Ok(Posted { status, body, retry_after })
    }
}

fn category(error: &reqwest::Error) -> PostError {
    if error.is_timeout() {
        return PostError::Timeout;
    }
    let mut source = error.source();
    while let Some(cause) = source {
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if cause.is::<rustls::Error>() || inner.is_some_and(|inner| inner.is::<rustls::Error>()) {
            return PostError::Tls;
        }
        source = cause.source();
    }
    PostError::ConnectionRefused
}
