//! What one turn tells, and the settings.

use super::*;

#[test]
fn the_newest_state_is_told_and_words_are_never_merged() {
    let notice = |id: i64, key: Option<&str>, seconds: Option<i64>, nature: Nature| Notice {
        id: NoticeId(id),
        session: SessionKey("x".into()),
        seq: DeliverySeq(id),
        delivery: format!("d-{id}"),
        event: Event {
            supersedes: key.map(String::from),
            happened_at: seconds.map(|s| jiff::Timestamp::from_second(s).expect("time")),
            ..event("workflow_run.completed", nature, vec![])
        },
        how: String::new(),
        created_at: "2026-11-30T10:00:00Z".parse().expect("time"),
        attempts: 0,
        last_turn: None,
    };
    let batch = |waiting: &[Notice], most: usize, prompt: PromptSettings| {
        let batch = coalesce(waiting, &Settings { max_events_per_turn: most, ..Settings::default() }, &prompt);
        let told: Vec<_> = batch.tell.iter().map(|notice| notice.id.0).collect();
        let old: Vec<_> = batch.superseded.iter().map(|(old, by)| (old.0, by.0)).collect();
        (told, old)
    };
    let (v, w) = (Nature::Verdict, Nature::Words);
    let roomy = PromptSettings::default();
    let ci = |id, seconds| notice(id, Some("ci"), seconds, v);
    assert_eq!(batch(&[ci(1, None), ci(2, None), ci(3, None)], 50, roomy), (vec![3], vec![(1, 3), (2, 3)]));
    assert_eq!(batch(&[ci(1, Some(9)), ci(2, Some(5))], 50, roomy), (vec![1], vec![(2, 1)]), "overtaken");
    assert_eq!(batch(&[ci(1, Some(9)), ci(2, Some(9))], 50, roomy), (vec![2], vec![(1, 2)]), "same second");
    assert_eq!(batch(&[ci(1, Some(9)), ci(2, None)], 50, roomy), (vec![2], vec![(1, 2)]));
    let words = [notice(1, Some("ci"), None, w), notice(2, Some("ci"), None, w), notice(3, None, None, v)];
    assert_eq!(batch(&words, 50, roomy), (vec![1, 2, 3], vec![]));
    assert_eq!(batch(&words, 2, roomy), (vec![1, 2], vec![]));
    assert_eq!(batch(&words, 0, roomy), (vec![1], vec![]), "always one");
    let tiny = PromptSettings { max_prompt: crate::domain::Size(1), ..roomy };
    assert_eq!(batch(&words, 50, tiny), (vec![1], vec![]), "always one");
    // What is replaced waits with what replaces it.
    let mixed = [ci(1, None), notice(2, None, None, w), ci(3, None)];
    assert_eq!(batch(&mixed, 1, roomy), (vec![2], vec![]));
}

#[test]
fn settings_read_as_documented_and_refuse_what_they_do_not_know() {
    let defaults: Settings = serde_json::from_str("{}").expect("empty");
    assert_eq!(defaults, Settings::default());
    assert_eq!(defaults.wake_on.len(), 8);
    let changed: Settings = serde_json::from_str(r#"{"debounce": "0s", "on_closed": "tell"}"#).expect("settings");
    assert_eq!((changed.on_closed, changed.debounce.to_string().as_str()), (OnClosed::Tell, "0s"));
    assert!(serde_json::from_str::<Settings>(r#"{"debounc": "1s"}"#).is_err());
    assert!(serde_json::from_str::<crate::routing::Trust>(r#"{"actor": []}"#).is_err());
    let prompt: PromptSettings = serde_json::from_str(r#"{"max_field": "1KiB"}"#).expect("prompt");
    assert_eq!((prompt.max_field.0, prompt.max_prompt.0), (1024, 64 << 10));
}
