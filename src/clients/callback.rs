//! Callbacks: addresses that somebody else chose. Which may be posted to at all.

use std::net::IpAddr;

use url::{Host, Url};

use super::addresses::is_public;

/// The longest URL that is taken.
const LONGEST: usize = 2048;

/// An exception to "https and public addresses only", such as `http://127.0.0.1:*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exception {
    scheme: String,
    host: String,
    /// `None` is any port.
    port: Option<u16>,
}

impl Exception {
    /// Reads `SCHEME://HOST`, `SCHEME://HOST:PORT` or `SCHEME://HOST:*`.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let wrong = "write SCHEME://HOST, SCHEME://HOST:PORT or SCHEME://HOST:*, such as \"http://127.0.0.1:*\"";
        let (text, any) = match text.strip_suffix(":*") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let url = Url::parse(text).map_err(|_| wrong)?;
        let plain = url.path().trim_matches('/').is_empty() && url.query().is_none() && url.username().is_empty();
        let host = url.host_str().filter(|_| plain && matches!(url.scheme(), "http" | "https")).ok_or(wrong)?;
        let port = if any { None } else { url.port_or_known_default() };
        Ok(Self { scheme: url.scheme().into(), host: host.into(), port })
    }

    fn covers(&self, url: &Url) -> bool {
        url.scheme() == self.scheme
            && url.host_str() == Some(&self.host)
            && (self.port.is_none() || self.port == url.port_or_known_default())
    }
}

/// Why a callback is refused before any connection is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is no URL with a host.
    #[error("the callback is not an absolute URL with a host")]
    NoUrl,
    /// It is too long.
    #[error("the callback is longer than 2048 characters")]
    TooLong,
    /// It would send everything in the open.
    #[error("the callback is not https")]
    NotHttps,
    /// It holds a user name or a password.
    #[error("the callback holds a user name or password")]
    Credentials,
    /// Its port is one that something else than a webhook listens at.
    #[error("the callback's port is neither 443 nor 1024 or above")]
    Port,
    /// It names an address that is not public.
    #[error("the callback's address is not a public one")]
    Address,
}

/// How a callback is to be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callback {
    pub(super) url: Url,
    /// Whether an exception covers it: it may then be anywhere.
    pub(super) excepted: bool,
}

impl Callback {
    /// Checks a URL as far as that can be done without a connection.
    pub fn check(text: &str, exceptions: &[Exception]) -> Result<Self, Refused> {
        if text.len() > LONGEST {
            return Err(Refused::TooLong);
        }
        let mut url = Url::parse(text).map_err(|_| Refused::NoUrl)?;
        url.set_fragment(None);
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refused::Credentials);
        }
        if exceptions.iter().any(|exception| exception.covers(&url)) {
            return Ok(Self { url, excepted: true });
        }
        if url.scheme() != "https" {
            return Err(Refused::NotHttps);
        }
        let address = match url.host().ok_or(Refused::NoUrl)? {
            Host::Domain("") => return Err(Refused::NoUrl),
            Host::Domain(_) => None,
            // All odd spellings of an address (decimal, hexadecimal, short) are read as one by the URL standard.
            Host::Ipv4(address) => Some(IpAddr::V4(address)),
            Host::Ipv6(address) => Some(IpAddr::V6(address)),
        };
        if address.is_some_and(|address| !is_public(address)) {
            return Err(Refused::Address);
        }
        match url.port_or_known_default() {
            Some(port) if port == 443 || port >= 1024 => Ok(Self { url, excepted: false }),
            _ => Err(Refused::Port),
        }
    }

    /// Host and port: what is limited together.
    pub fn endpoint(&self) -> String {
        format!("{}:{}", self.url.host_str().unwrap_or_default(), self.url.port_or_known_default().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_meant_for_us_is_refused_by_its_form() {
        for (text, why) in [
            ("", Refused::NoUrl),
            ("notaurl", Refused::NoUrl),
            ("https://", Refused::NoUrl),
            ("ftp://example.com/", Refused::NotHttps),
            ("http://example.com/", Refused::NotHttps),
            ("file:///etc/passwd", Refused::NotHttps),
            ("https://user:pw@example.com/", Refused::Credentials),
            ("https://example.com@10.0.0.1/", Refused::Credentials),
            ("https://example.com:22/", Refused::Port),
            ("https://example.com:80/", Refused::Port),
            ("https://127.0.0.1/", Refused::Address),
            ("https://127.1/", Refused::Address),
            ("https://2130706433/", Refused::Address),
            ("https://0x7f.1/", Refused::Address),
            ("https://0177.0.0.1/", Refused::Address),
            ("https://①②⑦.0.0.1/", Refused::Address),
            ("https://10.0.0.1:8443/", Refused::Address),
            ("https://[::1]/", Refused::Address),
            ("https://[::ffff:127.0.0.1]/", Refused::Address),
            ("https://[64:ff9b::7f00:1]/", Refused::Address),
            ("https://[2002:7f00:1::]/", Refused::Address),
        ] {
            assert_eq!(Callback::check(text, &[]).err(), Some(why), "{text}");
        }
        for text in ["https://example.com/hook?a=b", "https://example.com:8443/", "https://8.8.8.8/"] {
            assert_eq!(Callback::check(text, &[]).map(|callback| callback.excepted), Ok(false), "{text}");
        }
    }

    #[test]
    fn exceptions_cover_what_they_name_and_nothing_else() {
        let exceptions =
            ["http://127.0.0.1:*", "https://hooks.test:8443"].map(|text| Exception::parse(text).expect(text));
        let excepted = |text| Callback::check(text, &exceptions).map(|callback| callback.excepted);
        assert_eq!(excepted("http://127.0.0.1:9/x"), Ok(true));
        assert_eq!(excepted("https://hooks.test:8443/x"), Ok(true));
        assert_eq!(excepted("https://hooks.test/x"), Ok(false));
        assert_eq!(excepted("https://127.0.0.1:9/x"), Err(Refused::Address));
        assert_eq!(excepted("http://127.0.0.1.evil.test:9/x"), Err(Refused::NotHttps));
        assert_eq!(excepted("http://u@127.0.0.1:9/x"), Err(Refused::Credentials));
        for text in ["127.0.0.1", "http://", "*", "http://a/b", "ftp://a", "http://a?b", "http://u@a"] {
            assert!(Exception::parse(text).is_err(), "{text}");
        }
    }
}
