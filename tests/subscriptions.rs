//! What is owed survives failures: suspension keeps it, a refresh revives it, and no cursor skips it.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use the_loop::catalogue;
use the_loop::domain::{Access, Arguments, Occurrence, Place, Principal, SubscriptionState};
use the_loop::engine::subscription_id;
use the_loop::store::{Access as Open, AttemptRow, Db, Parcel, PostEnd, Retention, Subscribe, Subscribed};

const NAME: &str = "github.workflow_run";

fn now() -> Timestamp {
    "2026-12-01T00:00:00Z".parse().expect("a time")
}

fn later(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

fn db() -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path(), Open::Write).expect("a database");
    set(&db, &[principal(None)]);
    (dir, db)
}

fn principal(repositories: Option<&[&str]>) -> Principal {
    let repositories = repositories.map(|list| list.iter().map(|text| (*text).to_owned()).collect());
    Principal { name: "alice".into(), access: Access { repositories, acts_as: vec!["alice-bot".into()] } }
}

fn set(db: &Db, principals: &[Principal]) -> usize {
    db.transaction(|db| db.set_principals(principals, now())).expect("set")
}

fn occurrence(id: &str, name: &str, actor: Option<&str>, data: &Value) -> Occurrence {
    Occurrence {
        event_id: id.into(),
        name: name.into(),
        at: now(),
        repository: Some("octo-org/demo".into()),
        actor: actor.map(str::to_owned),
        fingerprint: format!("f-{id}"),
        data: data.as_object().cloned().expect("an object"),
    }
}

fn publish(db: &Db, id: &str, branch: &str, actor: &str) -> Option<Place> {
    let told = occurrence(id, NAME, Some(actor), &json!({"repository": "octo-org/demo", "branch": branch}));
    db.transaction(|db| db.publish(&told, None, now())).expect("published")
}

fn publish_gap(db: &Db, id: &str, what: &str) {
    let gap = occurrence(id, catalogue::GAP, None, &json!({"repository": "octo-org/demo", "what": what}));
    db.transaction(|db| db.publish(&gap, None, now())).expect("published");
}

fn subscribe(db: &Db, arguments: &[(&str, &str)], from: Option<Place>, at: Timestamp) -> Subscribed {
    let arguments: Arguments = arguments.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let url = "https://hooks.example/x";
    let new = Subscribe {
        id: subscription_id("alice", url, NAME, &arguments),
        principal: "alice".into(),
        url: url.into(),
        name: NAME.into(),
        arguments,
        secret: "whsec_1".into(),
        old_secret_until: at,
        expires_at: Some(at + SignedDuration::from_hours(1)),
        from,
        since: None,
        limit: 2,
    };
    db.transaction(|db| db.subscribe(&new, at)).expect("subscribed")
}

fn cursor(subscribed: &Subscribed) -> i64 {
    match subscribed {
        Subscribed::Granted { cursor, .. } => cursor.place.0,
        Subscribed::Full => panic!("full"),
    }
}

/// The ids of the events that are due, with the watermark that each would be sent with.
fn owed(db: &Db) -> Vec<(String, i64)> {
    let due = db.due_after(0, 100).expect("due");
    let posts = due.iter().filter_map(|due| db.post(due.id, now()).expect("a post"));
    posts
        .map(|post| match post.parcel {
            Parcel::Event { placed, watermark } => (placed.occurrence.event_id, watermark.0),
            Parcel::Gap { place, watermark } => (format!("gap at {}", place.0), watermark.0),
            Parcel::Terminated => ("terminated".into(), 0),
        })
        .collect()
}

fn end(db: &Db, event_id: &str, end: PostEnd) {
    for due in db.due_after(0, 100).expect("due") {
        let Some(post) = db.post(due.id, now()).expect("a post") else { continue };
        if matches!(&post.parcel, Parcel::Event { placed, .. } if placed.occurrence.event_id == event_id) {
            let error = (end != PostEnd::Taken).then(|| "http_5xx".to_owned());
            let row =
                AttemptRow { event_id: event_id.into(), attempt: 1, at: now(), took_ms: 1, status: Some(500), error };
            let id = post.subscription.id;
            return db.transaction(|db| db.record_attempt(due.id, &id, &row, end)).expect("recorded");
        }
    }
    panic!("{event_id} is not owed");
}

#[test]
fn what_fits_is_owed_and_nothing_else() {
    let (_dir, db) = db();
    publish(&db, "before", "main", "octocat");
    assert_eq!(cursor(&subscribe(&db, &[("branch", "main")], None, now())), 1);
    publish(&db, "a", "main", "octocat");
    publish(&db, "b", "dev", "octocat");
    publish(&db, "own", "main", "Alice-Bot");
    assert_eq!(publish(&db, "a", "main", "octocat"), None, "one happening was told twice");
    assert_eq!(owed(&db), [("a".into(), 2)]);
}

#[test]
fn a_cursor_never_passes_what_is_owed() {
    let (_dir, db) = db();
    subscribe(&db, &[], None, now());
    for id in ["a", "b", "c"] {
        publish(&db, id, "main", "octocat");
    }
    // While a is under way, b's and c's posts promise nothing beyond what is before a.
    assert_eq!(owed(&db), [("a".into(), 1), ("b".into(), 0), ("c".into(), 0)]);
    assert_eq!(cursor(&subscribe(&db, &[], None, now())), 0);
    end(&db, "b", PostEnd::Taken);
    assert_eq!(owed(&db), [("a".into(), 1), ("c".into(), 0)]);
    end(&db, "a", PostEnd::Taken);
    assert_eq!(owed(&db), [("c".into(), 3)]);
    end(&db, "c", PostEnd::Refused);
    assert_eq!(cursor(&subscribe(&db, &[], None, now())), 3);
}

#[test]
fn a_suspended_subscription_keeps_what_it_is_owed_and_catches_up() {
    let (_dir, db) = db();
    subscribe(&db, &[], None, now());
    publish(&db, "a", "main", "octocat");
    publish(&db, "b", "main", "octocat");
    end(&db, "a", PostEnd::Suspend);
    assert_eq!(db.subscriptions().expect("list")[0].state, SubscriptionState::Suspended);
    publish(&db, "while", "main", "octocat");
    assert_eq!(owed(&db), [], "a suspended subscription is posted to");
    let again = subscribe(&db, &[], None, later(60));
    assert_eq!(cursor(&again), 0);
    let ids: Vec<_> = owed(&db).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["a", "b", "while"]);
}

#[test]
fn a_gap_is_owed_to_those_whom_it_may_concern_also_after_a_suspension() {
    let (_dir, db) = db();
    subscribe(&db, &[("repository", "Octo-Org/Demo")], None, now());
    subscribe(&db, &[("repository", "octo-org/other")], None, now());
    publish(&db, "a", "main", "octocat");
    publish_gap(&db, "g", "workflow runs");
    publish_gap(&db, "h", "comments");
    publish(&db, "b", "main", "octocat");
    assert_eq!(owed(&db), [("a".into(), 1), ("gap at 2".into(), 0), ("b".into(), 0)]);
    end(&db, "a", PostEnd::Suspend);
    publish_gap(&db, "i", "workflow runs");
    subscribe(&db, &[("repository", "Octo-Org/Demo")], None, later(60));
    assert_eq!(owed(&db).into_iter().map(|(id, _)| id).collect::<Vec<_>>(), ["a", "gap at 2", "b", "gap at 5"]);
    set(&db, &[principal(Some(&["octo-org/other"]))]);
    assert!(!owed(&db).iter().any(|(id, _)| id.starts_with("gap")), "a gap is told of what may not be seen");
}

#[test]
fn what_was_let_go_while_a_subscription_was_suspended_is_said_when_it_is_revived() {
    let (_dir, db) = db();
    subscribe(&db, &[], None, now());
    publish(&db, "a", "main", "octocat");
    end(&db, "a", PostEnd::Suspend);
    publish(&db, "while", "main", "octocat");
    db.transaction(|db| db.retain(Retention { before: later(1), body_bytes: u64::MAX })).expect("kept");
    let is_cut = |subscribed: Subscribed| matches!(subscribed, Subscribed::Granted { truncated: true, .. });
    assert!(is_cut(subscribe(&db, &[], None, later(60))));
    assert!(!is_cut(subscribe(&db, &[], None, later(61))), "it is said once");
}

#[test]
fn the_past_is_owed_from_a_cursor_on() {
    let (_dir, db) = db();
    for id in ["a", "b", "c"] {
        publish(&db, id, "main", "octocat");
    }
    assert_eq!(cursor(&subscribe(&db, &[], Some(Place(1)), now())), 1);
    let ids: Vec<_> = owed(&db).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["b", "c"]);
}

#[test]
fn lost_access_ends_with_a_last_word() {
    let (_dir, db) = db();
    subscribe(&db, &[("repository", "octo-org/demo")], None, now());
    publish(&db, "a", "main", "octocat");
    assert_eq!(set(&db, &[principal(Some(&["octo-org/other"]))]), 1);
    publish(&db, "b", "main", "octocat");
    assert_eq!(owed(&db), [("terminated".into(), 0)]);
}

#[test]
fn narrowed_access_holds_for_what_was_owed_before() {
    let (_dir, db) = db();
    subscribe(&db, &[], None, now());
    publish(&db, "a", "main", "octocat");
    assert_eq!(set(&db, &[principal(Some(&["octo-org/other"]))]), 0);
    assert_eq!(owed(&db), []);
}

#[test]
fn limits_and_ends_are_kept() {
    let (_dir, db) = db();
    subscribe(&db, &[("branch", "a")], None, now());
    subscribe(&db, &[("branch", "b")], None, now());
    assert_eq!(subscribe(&db, &[("branch", "c")], None, now()), Subscribed::Full);
    publish(&db, "a", "a", "octocat");
    let due = db.due_after(0, 10).expect("due");
    assert!(db.post(due[0].id, later(3601)).expect("a post").is_none(), "posted after its end");
    db.transaction(|db| db.expire_subscriptions(later(3601), now())).expect("expired");
    assert!(db.subscriptions().expect("list").is_empty() && db.due_after(0, 10).expect("due").is_empty());
}

#[test]
fn what_is_owed_outlives_retention_and_what_went_is_known() {
    let (_dir, db) = db();
    publish(&db, "gone", "main", "octocat");
    subscribe(&db, &[], None, now());
    publish(&db, "owed", "main", "octocat");
    let retention = Retention { before: later(3600), body_bytes: u64::MAX };
    assert_eq!(db.transaction(|db| db.retain(retention)).expect("kept").occurrences, 1);
    assert_eq!(db.feed_floor(NAME).expect("floor"), Place(1));
    assert_eq!(db.feed_floor("github.push").expect("floor"), Place(0));
    assert_eq!(owed(&db), [("owed".into(), 2)]);
}
