//! The catalogue as a whole: it is complete, consistent, and its schemas say what its payloads hold.

use serde_json::json;

use super::*;
use crate::domain::{Arguments, Event, Fact, Nature, Person, RepoName, Repository};

fn run(facts: &[(&str, serde_json::Value)]) -> Event {
    Event {
        name: "workflow_run".into(),
        action: Some("completed".into()),
        repository: Some(Repository {
            id: Some(1),
            name: RepoName::new("github.com", "Octo-Org", "demo").expect("name"),
        }),
        sender: Some(Person { login: "octocat".into(), bot: false }),
        author: None,
        nature: Nature::Verdict,
        subjects: Vec::new(),
        links: Vec::new(),
        fingerprint: "f".into(),
        supersedes: None,
        happened_at: None,
        facts: facts.iter().map(|(name, value)| Fact { name: (*name).into(), value: value.clone() }).collect(),
    }
}

fn told(event: &Event) -> crate::domain::Occurrence {
    occurrence(event, "d-1", jiff::Timestamp::UNIX_EPOCH).expect("an occurrence")
}

#[test]
fn every_type_is_whole() {
    let mut names: Vec<_> = event_types().map(EventType::name).collect();
    for known in event_types() {
        let fields: Vec<_> = known.all_fields().map(|field| field.name).collect();
        let mut once = fields.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), fields.len(), "{} has a field twice", known.name());
        assert!(fields.contains(&"url") && fields.contains(&"repository"), "{}", known.name());
        assert!(!known.name().starts_with("github.") || fields.contains(&"actor"), "{}", known.name());
        assert!(known.about().len() > 20);
        for filter in known.filters {
            assert!(fields.contains(&filter.on), "{} filters by {}", known.name(), filter.on);
        }
        assert_eq!(known.input_schema()["properties"].as_object().map(|p| p.len()), Some(known.filters.len()));
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn a_run_is_told_in_few_fields() {
    let event = run(&[("workflow_run.name", json!("CI")), ("workflow_run.branch", json!("main"))]);
    let told = told(&event);
    assert_eq!(told.repository.as_deref(), Some("octo-org/demo"));
    assert_eq!(
        serde_json::Value::Object(told.data),
        json!({"repository": "Octo-Org/demo", "action": "completed", "actor": "octocat", "workflow": "CI", "branch": "main"})
    );
}

#[test]
fn what_is_not_ours_to_tell_is_not_told() {
    for nature in [Nature::Watched, Nature::Unmapped] {
        assert_eq!(occurrence(&Event { nature, ..run(&[]) }, "d", jiff::Timestamp::UNIX_EPOCH), None);
    }
}

#[test]
fn long_text_is_cut_between_characters_and_says_so() {
    let body = "æ".repeat(60_000);
    let event = Event { name: "issue_comment".into(), ..run(&[("comment.body", json!(body))]) };
    let told = told(&event);
    let cut = told.data["body"].as_str().expect("text");
    assert!(cut.len() <= 4096 && cut.chars().all(|c| c == 'æ'));
    assert_eq!(told.data["body_truncated"], json!(true));
}

#[test]
fn arguments_are_checked_and_compared() {
    let kind = event_type("github.workflow_run").expect("known");
    for wrong in [
        json!([]),
        json!("x"),
        json!({"branch": 5}),
        json!({"branch": ["x"]}),
        json!({"nonsense": "x"}),
        json!({"branch": ""}),
        json!({"branch": null}),
        json!({"branch": "x".repeat(257)}),
    ] {
        assert!(kind.arguments(&wrong).is_err(), "{wrong}");
    }
    let issue = event_type("github.issues").expect("known");
    for wrong in [json!({"number": 0}), json!({"number": -1}), json!({"number": 1.5}), json!({"number": "1"})] {
        assert!(issue.arguments(&wrong).is_err(), "{wrong}");
    }
    let told = told(&run(&[("workflow_run.name", json!("CI")), ("workflow_run.branch", json!("main"))]));
    for (arguments, wanted) in [
        (json!(null), true),
        (json!({}), true),
        (json!({"branch": "main"}), true),
        (json!({"branch": "Main"}), false),
        (json!({"repository": "OCTO-org/Demo"}), true),
        (json!({"actor": "OctoCat", "workflow": "CI"}), true),
        (json!({"conclusion": "success"}), false),
    ] {
        let read = kind.arguments(&arguments).expect("right");
        assert_eq!(kind.matches(&read, &told), wanted, "{arguments}");
    }
}

#[test]
fn every_payload_that_fits_holds_the_needles() {
    let kind = event_type("github.workflow_run").expect("known");
    let odd = "a\"b\\c/é\u{1}";
    let told = told(&run(&[("workflow_run.name", json!("CI")), ("workflow_run.branch", json!(odd))]));
    let arguments = kind.arguments(&json!({"branch": odd, "workflow": "CI", "actor": "x"})).expect("right");
    let text = serde_json::Value::Object(told.data).to_string();
    let needles = needles(kind, &arguments);
    assert_eq!(needles.len(), 2);
    assert!(needles.iter().all(|needle| text.contains(needle)), "{needles:?} {text}");
}

#[test]
fn equal_arguments_have_one_text() {
    let kind = event_type("github.workflow_run").expect("known");
    let read = |value| canonical(&kind.arguments(&value).expect("right"));
    assert_eq!(read(json!({"branch": "a", "workflow": "b"})), read(json!({"workflow": "b", "branch": "a"})));
    assert_eq!(canonical(&Arguments::new()), "{}");
}
