//! Standard Webhooks: `webhook-id`, `webhook-timestamp` and `webhook-signature` (<https://www.standardwebhooks.com>).
//!
//! A signature is `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`. Several, separated by spaces, mean that
//! a secret is being replaced. MCP Events narrows secrets to 24..=64 bytes.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use sha2::Sha256;
use subtle::ConstantTimeEq;

use super::Verified;

/// How far the clocks of sender and receiver may be apart, in seconds.
pub const TOLERANCE: i64 = 300;
/// No sender has more signatures than this; the rest of a longer list is not looked at.
const MOST: usize = 16;

/// Why a secret or a message is not taken. No variant holds any of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StandardError {
    /// The secret has another form.
    #[error("the secret is not `whsec_` followed by the base64 of 24 to 64 bytes")]
    Secret,
    /// A header is missing or has another form.
    #[error("the {0} header is missing or malformed")]
    Header(&'static str),
    /// The message is too old, or from the future.
    #[error("the message's time is more than 5 minutes from ours; is one of the clocks wrong?")]
    Time,
    /// No secret gives any of the signatures.
    #[error("no signature fits the message under any known secret")]
    Mismatch,
}

/// The key of a subscription: never shown, never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct StandardSecret {
    text: String,
    key: Vec<u8>,
}

impl StandardSecret {
    /// Reads `whsec_` and base64, with padding as the alphabet has it.
    pub fn parse(text: &str) -> Result<Self, StandardError> {
        let encoded = text.strip_prefix("whsec_").ok_or(StandardError::Secret)?;
        let key = STANDARD.decode(encoded).map_err(|_| StandardError::Secret)?;
        if !(24..=64).contains(&key.len()) {
            return Err(StandardError::Secret);
        }
        Ok(Self { text: text.into(), key })
    }

    /// A secret of 32 bytes that nobody else knows.
    pub fn of(key: [u8; 32]) -> Self {
        Self { text: format!("whsec_{}", STANDARD.encode(key)), key: key.to_vec() }
    }

    /// The secret as text, for the store and the peer that must know it. Search for this name to find every use.
    pub fn expose(&self) -> &str {
        &self.text
    }

    fn mac(&self, id: &str, timestamp: &str, body: &[u8]) -> [u8; 32] {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length (RFC 2104)")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for StandardSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StandardSecret(hidden)")
    }
}

/// The `webhook-signature` of a message sent at `seconds` since 1970: one signature for each secret.
pub fn sign_standard(secrets: &[StandardSecret], id: &str, seconds: i64, body: &[u8]) -> String {
    let time = seconds.to_string();
    let signatures: Vec<_> =
        secrets.iter().map(|secret| format!("v1,{}", STANDARD.encode(secret.mac(id, &time, body)))).collect();
    signatures.join(" ")
}

/// The three headers of a message, as they came.
#[derive(Debug, Clone, Copy)]
pub struct StandardHeaders<'a> {
    /// `webhook-id`.
    pub id: Option<&'a str>,
    /// `webhook-timestamp`.
    pub timestamp: Option<&'a str>,
    /// `webhook-signature`.
    pub signature: Option<&'a str>,
}

/// Proves that somebody who knows one of `secrets` sent `body`, not long from `now`.
pub fn verify_standard<'a>(
    secrets: &[StandardSecret],
    headers: StandardHeaders<'_>,
    now: Timestamp,
    body: &'a Bytes,
) -> Result<Verified<'a>, StandardError> {
    let id = headers.id.filter(|id| !id.is_empty()).ok_or(StandardError::Header("webhook-id"))?;
    let time = headers.timestamp.ok_or(StandardError::Header("webhook-timestamp"))?;
    let seconds: i64 = time.parse().map_err(|_| StandardError::Header("webhook-timestamp"))?;
    let signatures = headers.signature.ok_or(StandardError::Header("webhook-signature"))?;
    if now.as_second().abs_diff(seconds) > TOLERANCE.unsigned_abs() {
        return Err(StandardError::Time);
    }
    // Other versions, such as `v1a`, may stand beside ours.
    let claimed = signatures.split(' ').take(MOST).filter_map(|part| part.strip_prefix("v1,"));
    let claimed: Vec<_> = claimed.filter_map(|text| STANDARD.decode(text).ok()).collect();
    let mut found = None;
    for (index, secret) in secrets.iter().enumerate() {
        let mac = secret.mac(id, time, body);
        for other in &claimed {
            if bool::from(mac.as_slice().ct_eq(other)) && found.is_none() {
                found = Some(index);
            }
        }
    }
    found.map(|secret| Verified { bytes: body, secret }).ok_or(StandardError::Mismatch)
}

/// Whether two texts are the same, in a time that does not tell where they differ.
pub fn same(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by the Standard Webhooks libraries for Python and JavaScript.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const TIME: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn secret(text: &str) -> StandardSecret {
        StandardSecret::parse(text).expect("a secret")
    }

    fn verify(secrets: &[StandardSecret], signature: &str, skew: i64, body: &[u8]) -> Result<usize, StandardError> {
        let time = TIME.to_string();
        let headers = StandardHeaders { id: Some(ID), timestamp: Some(&time), signature: Some(signature) };
        let now = Timestamp::from_second(TIME + skew).expect("a time");
        verify_standard(secrets, headers, now, &Bytes::copy_from_slice(body)).map(|verified| verified.secret())
    }

    #[test]
    fn the_libraries_own_example_is_ours() {
        assert_eq!(sign_standard(&[secret(SECRET)], ID, TIME, BODY), SIGNATURE);
        assert_eq!(verify(&[secret(SECRET)], SIGNATURE, 0, BODY), Ok(0));
    }

    #[test]
    fn secrets_have_one_form() {
        let of = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![b'x'; bytes]));
        assert!(StandardSecret::parse(&of(24)).is_ok() && StandardSecret::parse(&of(64)).is_ok());
        let url_safe = of(25).replace('=', "").replace('+', "-");
        for text in ["", "whsec_", "plain", &of(23), &of(65), "whsec_%%%", &url_safe, &of(24)[6..], " whsec_"] {
            assert_eq!(StandardSecret::parse(text), Err(StandardError::Secret), "{text}");
        }
        assert!(!format!("{:?}", secret(SECRET)).contains("MfKQ"));
    }

    #[test]
    fn several_signatures_and_several_secrets_meet() {
        let (old, new) = (secret(SECRET), secret("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="));
        let both = sign_standard(&[new.clone(), old.clone()], ID, TIME, BODY);
        assert_eq!(verify(std::slice::from_ref(&old), &both, 0, BODY), Ok(0));
        assert_eq!(verify(&[old.clone(), new.clone()], &both, 0, BODY), Ok(0));
        assert_eq!(verify(&[new], &format!("v1a,xyz {SIGNATURE}"), 0, BODY), Err(StandardError::Mismatch));
        assert_eq!(verify(&[old], &format!("v1a,xyz v1,?? {SIGNATURE}"), 0, BODY), Ok(0));
    }

    #[test]
    fn clocks_may_differ_by_five_minutes() {
        let known = [secret(SECRET)];
        for (skew, wanted) in
            [(240, Ok(0)), (-240, Ok(0)), (360, Err(StandardError::Time)), (-360, Err(StandardError::Time))]
        {
            assert_eq!(verify(&known, SIGNATURE, skew, BODY), wanted, "{skew}");
        }
    }

    #[test]
    fn every_changed_bit_fails() {
        let known = [secret(SECRET)];
        for bit in 0..BODY.len() * 8 {
            let mut body = BODY.to_vec();
            body[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verify(&known, SIGNATURE, 0, &body), Err(StandardError::Mismatch));
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let headers = StandardHeaders { id: None, timestamp: Some("x"), signature: None };
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(verify_standard(&[], headers, now, &Bytes::new()).err(), Some(StandardError::Header("webhook-id")));
        let headers = StandardHeaders { id: Some("a"), ..headers };
        assert_eq!(
            verify_standard(&[], headers, now, &Bytes::new()).err(),
            Some(StandardError::Header("webhook-timestamp"))
        );
    }
}
