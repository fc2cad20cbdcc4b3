//! A GitHub request to a [`Delivery`].

use bytes::Bytes;
use jiff::Timestamp;

use super::tree::Extent;
use super::{Error, event, json};
use crate::domain::{Delivery, Event, Source};
use crate::signing::Verified;

/// How the body holds the JSON: the webhook's "Content type" setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// `application/json`: the body is the JSON.
    Json,
    /// `application/x-www-form-urlencoded`: the body's `payload` field is the JSON.
    Form,
}

/// The headers of a delivery that we use, checked. None of them is signed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GithubHeaders {
    /// `X-GitHub-Event`.
    pub event: String,
    /// `X-GitHub-Delivery`.
    pub delivery: String,
    /// From `Content-Type`.
    pub encoding: Encoding,
}

impl GithubHeaders {
    /// Reads and checks the headers. `get` is asked for names in lower case.
    pub fn read(get: &dyn Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let event = get("x-github-event").ok_or(Error::MissingHeader("X-GitHub-Event"))?;
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_';
        if !(1..=64).contains(&event.len()) || !event.bytes().all(plain) {
            let wanted = "an event's name (1 to 64 of a-z, 0-9 and _)";
            return Err(Error::BadHeader { name: "X-GitHub-Event", wanted });
        }
        let delivery = get("x-github-delivery").ok_or(Error::MissingHeader("X-GitHub-Delivery"))?;
        let plain = |c: u8| c.is_ascii_alphanumeric() || b"._:-".contains(&c);
        if !(1..=128).contains(&delivery.len()) || !delivery.bytes().all(plain) {
            let wanted = "a delivery's id (1 to 128 of A-Z, a-z, 0-9 and ._:-)";
            return Err(Error::BadHeader { name: "X-GitHub-Delivery", wanted });
        }
        let content_type = get("content-type").ok_or(Error::UnsupportedType)?;
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let encoding = match essence.as_str() {
            "application/json" => Encoding::Json,
            "application/x-www-form-urlencoded" => Encoding::Form,
            _ => return Err(Error::UnsupportedType),
        };
        Ok(Self { event, delivery, encoding })
    }
}

/// A delivery and what it says, from one pass over its bytes.
#[derive(Clone, PartialEq, Debug)]
pub struct Received {
    /// What was handed to us.
    pub delivery: Delivery,
    /// What [`read`](super::read) makes of it.
    pub event: Result<Event, Error>,
}

/// Makes a delivery of a request whose body is proven to be GitHub's. What is no JSON object is refused; a body that
/// does not fit its name is kept, with the reason in its event's place.
pub fn from_github(headers: &GithubHeaders, body: &Verified<'_>, received_at: Timestamp) -> Result<Received, Error> {
    let json = match headers.encoding {
        Encoding::Json => body.bytes().clone(),
        Encoding::Form => form_payload(body.bytes())?,
    };
    let delivery = Delivery {
        source: Source::GithubWebhook,
        id: headers.delivery.clone(),
        event: headers.event.clone(),
        body: json,
        received_at,
    };
    let event = json::with_object(&delivery.body, Extent::Lean, |root| event::read_root(&delivery, root))?;
    Ok(Received { delivery, event })
}

fn form_payload(body: &[u8]) -> Result<Bytes, Error> {
    let mut found: Vec<_> = form_urlencoded::parse(body).filter(|(name, _)| name == "payload").collect();
    match found.pop() {
        Some((_, json)) if found.is_empty() => Ok(json.into_owned().into()),
        last => Err(Error::Form(found.len() + usize::from(last.is_some()))),
    }
}
