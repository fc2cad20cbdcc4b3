//! GitHub's `X-Hub-Signature-256`: HMAC-SHA256 over the raw body, hex, after `sha256=`
//! (<https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries>).

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};

use super::Verified;
use crate::domain::Secret;

/// Why a body is not proven to be GitHub's. No variant holds a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no signature at all.
    #[error("there is no X-Hub-Signature-256 header; set a secret in the webhook's settings")]
    Missing,
    /// There is only the old SHA-1 signature.
    #[error("there is only a SHA-1 signature (X-Hub-Signature); X-Hub-Signature-256 is needed")]
    Sha1Only,
    /// The header is not `sha256=` and 64 hexadecimal digits.
    #[error("X-Hub-Signature-256 is not `sha256=` followed by 64 hexadecimal digits")]
    Malformed,
    /// No configured secret gives this signature for this body.
    #[error("the signature does not fit the body under any configured secret")]
    Mismatch,
}

/// Reads the header's value. It costs next to nothing, so it can go before reading a body.
fn digest(header: Option<&str>, sha1: bool) -> Result<[u8; 32], Error> {
    let header = header.ok_or(if sha1 { Error::Sha1Only } else { Error::Missing })?;
    let hex = header.trim().strip_prefix("sha256=").ok_or(Error::Malformed)?;
    let mut digest = [0; 32];
    hex::decode_to_slice(hex, &mut digest).map_err(|_| Error::Malformed)?;
    Ok(digest)
}

/// Checks only the form of a signature: what fails here fails for every body.
pub fn github_signature(header: Option<&str>, sha1: bool) -> Result<(), Error> {
    digest(header, sha1).map(|_| ())
}

/// Proves that GitHub sent `body`: its HMAC-SHA256 under one of `secrets` is the one in the header.
///
/// Every secret is tried and the comparison takes constant time, so that neither tells how near a guess was.
/// `sha1` says whether the request had an `X-Hub-Signature` header, for a better reason only.
pub fn verify_github<'a>(
    secrets: &[Secret],
    header: Option<&str>,
    sha1: bool,
    body: &'a Bytes,
) -> Result<Verified<'a>, Error> {
    let claimed = digest(header, sha1)?;
    let mut found = None;
    for (index, secret) in secrets.iter().enumerate() {
        let equal: Choice = hmac(secret, body).ct_eq(&claimed);
        if bool::from(equal) && found.is_none() {
            found = Some(index);
        }
    }
    found.map(|secret| Verified { bytes: body, secret }).ok_or(Error::Mismatch)
}

/// The header that GitHub would send with `body`: for test deliveries.
pub fn sign_github(secret: &Secret, body: &[u8]) -> String {
    format!("sha256={}", hex::encode(hmac(secret, body)))
}

fn hmac(secret: &Secret, body: &[u8]) -> [u8; 32] {
    #[expect(clippy::expect_used, reason = "HMAC takes keys of any length (RFC 2104)")]
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose()).expect("HMAC takes keys of any length");
    mac.update(body);
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GitHub's own example, from the page named above.
    static BODY: Bytes = Bytes::from_static(b"Hello, World!");
    const SIGNATURE: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    fn secrets(names: &[&str]) -> Vec<Secret> {
        names.iter().map(|s| Secret::new("TEST", *s)).collect()
    }

    #[test]
    fn githubs_own_example_verifies() {
        let known = secrets(&["It's a Secret to Everybody"]);
        let verified = verify_github(&known, Some(SIGNATURE), false, &BODY).expect("verifies");
        assert_eq!((verified.bytes(), verified.secret()), (&BODY, 0));
        assert_eq!(sign_github(&known[0], &BODY), SIGNATURE);
    }

    #[test]
    fn any_configured_secret_will_do_and_is_named() {
        let known = secrets(&["new", "It's a Secret to Everybody"]);
        assert_eq!(verify_github(&known, Some(SIGNATURE), false, &BODY).expect("verifies").secret(), 1);
        assert_eq!(
            verify_github(&secrets(&["new"]), Some(SIGNATURE), false, &BODY).expect_err("unknown"),
            Error::Mismatch
        );
        assert_eq!(verify_github(&[], Some(SIGNATURE), false, &BODY).expect_err("none"), Error::Mismatch);
    }

    #[test]
    fn capitals_and_spaces_around_are_the_same_digest() {
        let known = secrets(&["It's a Secret to Everybody"]);
        let upper = format!(" sha256={} ", SIGNATURE[7..].to_uppercase());
        assert!(verify_github(&known, Some(&upper), false, &BODY).is_ok());
    }

    #[test]
    fn every_changed_bit_fails() {
        let known = secrets(&["It's a Secret to Everybody"]);
        for bit in 0..BODY.len() * 8 {
            let mut body = BODY.to_vec();
            body[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                verify_github(&known, Some(SIGNATURE), false, &body.into()).expect_err("changed"),
                Error::Mismatch
            );
        }
    }

    #[test]
    fn malformed_headers_say_what_is_wrong() {
        let known = secrets(&["x"]);
        let check = |header, sha1| verify_github(&known, header, sha1, &BODY).expect_err("malformed");
        assert_eq!(check(None, false), Error::Missing);
        assert_eq!(check(None, true), Error::Sha1Only);
        for header in ["", "sha256=", "sha256=abcd", &"0".repeat(64), "sha1=00", &format!("sha256={}", "z".repeat(64))]
        {
            assert_eq!(check(Some(header), true), Error::Malformed, "{header}");
        }
    }
}
