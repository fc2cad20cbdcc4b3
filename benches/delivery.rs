//! What one delivery costs before and after the disk: proving, taking (with reading), reading again, routing, at four
//! sizes of body.
//!
//! `cargo bench --bench delivery`

use bytes::Bytes;
use divan::{Bencher, black_box};
use serde_json::{Value, json};
use the_loop::domain::{Event, Link, Node, RepoName, Repository, Secret, Session, SessionKey, SessionStatus, WorkItem};
use the_loop::payload::{self, Encoding, GithubHeaders};
use the_loop::routing::{self, Links, Rules, Sessions};
use the_loop::signing;

/// Sizes of bodies in KB: small, usual, a large push, GitHub's largest.
const KB: [usize; 4] = [1, 25, 250, 25_000];

fn main() {
    divan::main();
}

/// A comment whose body is filled up to `kb` with what GitHub also fills bodies with: many small objects.
fn body(kb: usize) -> Bytes {
    let user = json!({"login": "octocat", "id": 583_231, "type": "User", "html_url": "https://github.com/octocat"});
    let mut payload = json!({
        "action": "created",
        "repository": {"id": 1_296_269, "full_name": "octo-org/demo", "html_url": "https://github.com/octo-org/demo"},
        "sender": user,
        "issue": {"number": 15, "title": "An issue", "state": "open", "user": user, "author_association": "OWNER"},
        "comment": {"id": 1, "body": "Please rename the flag.", "user": user, "author_association": "OWNER"},
    });
    let piece = json!({"id": 12_345, "name": "a label or a file of a commit", "url": "https://github.com/octo-org/demo/x", "on": true});
    let missing = (kb * 1000).saturating_sub(payload.to_string().len()) / (piece.to_string().len() + 1);
    payload["filler"] = Value::Array(vec![piece; missing]);
    payload.to_string().into()
}

fn secret() -> Secret {
    Secret::new("BENCH", "It's a Secret to Everybody")
}

#[divan::bench(args = KB)]
fn verify(bencher: Bencher<'_, '_>, kb: usize) {
    let (body, secrets) = (body(kb), [secret()]);
    let signature = signing::sign_github(&secrets[0], &body);
    bencher
        .counter(divan::counter::BytesCount::new(body.len()))
        .bench(|| signing::verify_github(&secrets, Some(black_box(&signature)), false, black_box(&body)).is_ok());
}

#[divan::bench(args = KB)]
fn take(bencher: Bencher<'_, '_>, kb: usize) {
    let (body, secrets) = (body(kb), [secret()]);
    let signature = signing::sign_github(&secrets[0], &body);
    let headers = GithubHeaders { event: "issue_comment".into(), delivery: "d".into(), encoding: Encoding::Json };
    let verified = signing::verify_github(&secrets, Some(&signature), false, &body).expect("verified");
    bencher
        .counter(divan::counter::BytesCount::new(body.len()))
        .bench(|| payload::from_github(&headers, black_box(&verified), jiff::Timestamp::UNIX_EPOCH).is_ok());
}

fn delivery(kb: usize) -> the_loop::domain::Delivery {
    let (body, secrets) = (body(kb), [secret()]);
    let signature = signing::sign_github(&secrets[0], &body);
    let headers = GithubHeaders { event: "issue_comment".into(), delivery: "d".into(), encoding: Encoding::Json };
    let verified = signing::verify_github(&secrets, Some(&signature), false, &body).expect("verified");
    payload::from_github(&headers, &verified, jiff::Timestamp::UNIX_EPOCH).expect("a delivery").delivery
}

#[divan::bench(args = KB)]
fn read(bencher: Bencher<'_, '_>, kb: usize) {
    let delivery = delivery(kb);
    bencher
        .counter(divan::counter::BytesCount::new(delivery.body.len()))
        .bench(|| payload::read(black_box(&delivery)).is_ok());
}

struct NoLinks;

impl Links for NoLinks {
    fn from(&self, _: &Node) -> Vec<Link> {
        Vec::new()
    }

    fn names(&self, _: &Repository) -> Vec<RepoName> {
        Vec::new()
    }
}

struct One(Session);

impl Sessions for One {
    fn find(&self, key: &SessionKey) -> Option<Session> {
        (self.0.key() == *key).then(|| self.0.clone())
    }
}

fn session() -> Session {
    Session {
        version: Session::VERSION,
        work_item: WorkItem::parse("octo-org/demo#15").expect("an item"),
        harness: "claude".into(),
        session_id: "s".into(),
        cwd: "/".into(),
        status: SessionStatus::Active,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        closed_reason: None,
        repository_id: None,
        unknown: serde_json::Map::new(),
    }
}

#[divan::bench]
fn route(bencher: Bencher<'_, '_>) {
    let event: Event = payload::read(&delivery(25)).expect("read");
    let (rules, sessions) = (Rules::default(), One(session()));
    bencher.bench(|| routing::route(black_box(&event), &rules, &NoLinks, &sessions));
}
