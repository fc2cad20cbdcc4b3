//! What watching costs: publishing to many subscriptions, and polling a long feed with and without filters.
//!
//! `cargo bench --bench feed`. The long feed is made once in a temporary directory; `FEED_EVENTS` says how long.

use std::sync::OnceLock;

use divan::Bencher;
use jiff::Timestamp;
use serde_json::json;
use the_loop::catalogue;
use the_loop::domain::{Access, Arguments, Cursor, Occurrence, Place, Principal};
use the_loop::engine::{Feed, Interest, subscription_id};
use the_loop::store::{Access as Open, Db, Store, Subscribe};

const NAME: &str = "github.workflow_run";

fn main() {
    divan::main();
}

fn occurrence(number: usize) -> Occurrence {
    let branch = if number.is_multiple_of(1000) { "rare" } else { "main" };
    let data = json!({
        "repository": "octo-org/demo", "action": "completed", "actor": "octocat", "workflow": "CI",
        "status": "completed", "conclusion": "success", "branch": branch, "sha": format!("{number:040}"),
        "run_number": number, "url": format!("https://github.com/octo-org/demo/actions/runs/{number}"),
    });
    Occurrence {
        event_id: format!("delivery-{number}"),
        name: NAME.into(),
        at: Timestamp::UNIX_EPOCH,
        repository: Some("octo-org/demo".into()),
        actor: Some("octocat".into()),
        fingerprint: format!("f-{number}"),
        data: data.as_object().cloned().unwrap_or_default(),
    }
}

/// One event put down for so many subscriptions, in a transaction of its own.
#[divan::bench(args = [0, 1, 100, 1000], sample_count = 30)]
fn publish(bencher: Bencher<'_, '_>, subscriptions: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path(), Open::Write).expect("a database");
    let now = Timestamp::now();
    let principal = Principal { name: "p".into(), access: Access::default() };
    db.transaction(|db| {
        db.set_principals(std::slice::from_ref(&principal), now)?;
        for number in 0..subscriptions {
            let url = format!("https://hooks.example/{number}");
            let new = Subscribe {
                id: subscription_id("p", &url, NAME, &Arguments::new()),
                principal: "p".into(),
                url,
                name: NAME.into(),
                arguments: Arguments::new(),
                secret: String::new(),
                old_secret_until: now,
                expires_at: None,
                from: None,
                since: None,
                limit: usize::MAX,
            };
            db.subscribe(&new, now)?;
        }
        Ok(())
    })
    .expect("subscribed");
    let mut number = 0;
    bencher.bench_local(|| {
        number += 1;
        db.transaction(|db| db.publish(&occurrence(number), None, now)).expect("published")
    });
}

/// A feed of a million events, or as many as `FEED_EVENTS` says.
fn long_feed() -> &'static (tempfile::TempDir, Feed, Cursor) {
    static FEED: OnceLock<(tempfile::TempDir, Feed, Cursor)> = OnceLock::new();
    FEED.get_or_init(|| {
        let count = std::env::var("FEED_EVENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
        let dir = tempfile::tempdir().expect("a directory");
        let db = Db::open(dir.path(), Open::Write).expect("a database");
        let now = Timestamp::now();
        db.transaction(|db| (1..=count).try_for_each(|number| db.publish(&occurrence(number), None, now).map(|_| ())))
            .expect("published");
        let head = db.head().expect("a head");
        let store = Store::beside(dir.path()).expect("a store");
        (dir, Feed::new(store), head)
    })
}

fn poll(bencher: Bencher<'_, '_>, arguments: &serde_json::Value, back: i64) {
    let (_, feed, head) = long_feed();
    let kind = catalogue::event_type(NAME).expect("known");
    let arguments = kind.arguments(arguments).expect("right");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let place = Place((head.place.0 - back).max(0));
    bencher.bench_local(|| {
        let interest = Interest { kind, arguments: arguments.clone(), access: Access::default(), since: None };
        let cursor = Cursor { place, ..head.clone() };
        runtime.block_on(feed.poll(interest, Some(cursor), 100)).expect("a page").events.len()
    });
}

/// Nothing new: what most polls are.
#[divan::bench]
fn poll_at_the_head(bencher: Bencher<'_, '_>) {
    poll(bencher, &json!({}), 0);
}

/// A page of a hundred from the very beginning.
#[divan::bench]
fn poll_from_the_beginning(bencher: Bencher<'_, '_>) {
    poll(bencher, &json!({}), i64::MAX / 2);
}

/// A page of a hundred of which one event in a thousand is.
#[divan::bench(sample_count = 20)]
fn poll_for_the_rare(bencher: Bencher<'_, '_>) {
    poll(bencher, &json!({"branch": "rare"}), i64::MAX / 2);
}

/// What is not there at all, as far as one poll looks.
#[divan::bench(sample_count = 20)]
fn poll_for_nothing(bencher: Bencher<'_, '_>) {
    poll(bencher, &json!({"branch": "never"}), i64::MAX / 2);
}
