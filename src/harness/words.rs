//! The harness's own words, made fit to show: short, on one line, without control characters; and what they mean.

use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};
use regex::Regex;

use super::{Ending, Finished};
use crate::domain::{Failure, FailureKind, TurnOutcome, TurnState, Usage};

/// The longest failure message, in characters.
const LONGEST: usize = 300;
/// The longest last words, in characters: what a person reads in a list, not the whole answer.
const LONGEST_ANSWER: usize = 4000;

/// Words as one short line: control and invisible direction characters go, white space becomes single spaces.
pub(super) fn short(text: &str) -> String {
    let flat: String = text
        .lines()
        .map(|line| plain(line).split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" / ");
    cut(&flat, LONGEST)
}

/// The agent's last words: lines are kept, control characters go.
pub(super) fn answer(text: &str) -> Option<String> {
    let text = text.lines().map(plain).collect::<Vec<_>>().join("\n");
    let text = text.trim();
    (!text.is_empty()).then(|| cut(text, LONGEST_ANSWER))
}

/// Removes terminal escapes, other control characters and characters that change the direction of text.
fn plain(line: &str) -> String {
    static ESCAPES: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)").ok());
    let line = ESCAPES.as_ref().map_or(line.into(), |escapes| escapes.replace_all(line, ""));
    let hidden = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    line.chars().filter(|c| *c == '\t' || !(c.is_control() || hidden(*c))).collect()
}

fn cut(text: &str, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text.into();
    }
    text.chars().take(longest - 1).chain(['…']).collect()
}

/// The telling part of free text: its last line that speaks of an error, else its last two lines.
pub(super) fn tail(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !plain(line).trim().is_empty()).collect();
    let telling = lines.iter().rev().find(|line| {
        let start: String = line.chars().take(60).collect::<String>().to_ascii_lowercase();
        start.starts_with("error") || start.contains("error:") || start.starts_with("fatal")
    });
    match (telling, &lines[..]) {
        (Some(line), _) => Some(short(line)),
        (None, [.., before, last]) => Some(short(&format!("{before}\n{last}"))),
        (None, [only]) => Some(short(only)),
        (None, []) => None,
    }
}

/// The earliest time at which trying again makes sense, where the words name one: seconds since 1970 after a bar,
/// `retry after 30 s`, `try again in 1 hour 5 minutes`, `resets at 2026-11-30T10:00:00Z`.
pub(super) fn not_before(text: &str, ended_at: Timestamp) -> Option<Timestamp> {
    static EPOCH: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\|\s*(\d{10})\b").ok());
    static AFTER: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r"(?i)(?:try again|retry|resets?|wait)[ _-]*(?:after|in|for)?[:=\s]*((?:[\d.]+\s*(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)?\b[\s,]*(?:and\s+)?)+)",
        )
        .ok()
    });
    static PART: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?i)([\d.]+)\s*([a-z]*)").ok());
    static AT: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?i)(?:at|until|after|on)\s+(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d))")
            .ok()
    });
    let capture = |regex: &LazyLock<Option<Regex>>| {
        regex.as_ref()?.captures(text)?.get(1).map(|found| found.as_str().to_string())
    };
    let found = capture(&EPOCH)
        .and_then(|seconds| Timestamp::from_second(seconds.parse().ok()?).ok())
        .or_else(|| capture(&AT)?.parse().ok())
        .or_else(|| {
            let mut total = 0.0;
            for part in PART.as_ref()?.captures_iter(&capture(&AFTER)?) {
                let number: f64 = part.get(1)?.as_str().parse().ok()?;
                let unit = part.get(2)?.as_str().to_ascii_lowercase();
                total += number
                    * match unit.as_str() {
                        "ms" | "millisecond" | "milliseconds" => 0.001,
                        unit if unit.starts_with('m') => 60.0,
                        unit if unit.starts_with('h') => 3600.0,
                        unit if unit.starts_with('d') => 86_400.0,
                        _ => 1.0,
                    };
            }
            let wait = SignedDuration::try_from_secs_f64(total).ok()?;
            ended_at.checked_add(wait).ok()
        })?;
    // A service that names a time a month away is more likely misread than right.
    let month = ended_at.checked_add(SignedDuration::from_hours(31 * 24)).ok()?;
    (found > ended_at && found < month).then_some(found)
}

/// A failed turn in words of `kind`.
pub(super) fn failed(kind: FailureKind, text: &str, finished: &Finished) -> (TurnState, Failure) {
    let wants_time = matches!(kind, FailureKind::RateLimited | FailureKind::Overloaded | FailureKind::Busy);
    let not_before = wants_time.then(|| not_before(text, finished.ended_at)).flatten();
    (TurnState::Failed, Failure { kind, message: short(text), not_before })
}

/// What an ending means by itself, where the harness did not end by itself.
pub(super) fn from_ending(name: &str, finished: &Finished) -> Option<(TurnState, Failure)> {
    let took = finished.ended_at.duration_since(finished.started_at).as_secs();
    let (state, kind, message) = match &finished.ending {
        Ending::Exited { code: 143 } => {
            (TurnState::Failed, FailureKind::Crashed, format!("{name} was asked to end by somebody else (SIGTERM)"))
        }
        Ending::Exited { .. } | Ending::AfterAnswer => return None,
        Ending::Signalled { signal } => {
            let hint = if *signal == 9 { "; the system may have run out of memory" } else { "" };
            (TurnState::Failed, FailureKind::Crashed, format!("{name} was ended by signal {signal}{hint}"))
        }
        Ending::TimedOut => {
            (TurnState::TimedOut, FailureKind::TimedOut, format!("{name} was ended at its time limit, after {took} s"))
        }
        Ending::NoFirstOutput => {
            (TurnState::TimedOut, FailureKind::Hung, format!("{name} said nothing at all for {took} s and was ended"))
        }
        Ending::Silent => {
            (TurnState::TimedOut, FailureKind::Hung, format!("{name} fell silent and was ended after {took} s"))
        }
        Ending::Cancelled => (TurnState::Cancelled, FailureKind::Cancelled, "it was cancelled".into()),
        // Not `Interrupted`: the harness had the time to record the message id as done, which it was not.
        Ending::Stopped => (
            TurnState::Interrupted,
            FailureKind::Crashed,
            "the machine or its service manager ended the turn's supervisor".into(),
        ),
        Ending::NotStarted { error, kind } => (TurnState::Failed, *kind, error.clone()),
        Ending::Lost => (
            TurnState::Interrupted,
            FailureKind::Interrupted,
            "the turn's supervisor went away without a result".into(),
        ),
    };
    Some((state, Failure { kind, message: short(&message), not_before: None }))
}

/// A turn that did not succeed.
pub(super) fn outcome_of((state, failure): (TurnState, Failure), usage: Usage, answer: Option<String>) -> TurnOutcome {
    TurnOutcome { state, failure: Some(failure), new_session_id: None, usage, last_words: answer, remarks: Vec::new() }
}

/// The JSON documents of an output that has one per line; what is no JSON object is passed over.
pub(super) fn json_lines(text: &str) -> Vec<serde_json::Value> {
    text.lines()
        .map(str::trim)
        .filter(|line| line.starts_with('{'))
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// The JSON documents of an output that is one document, perhaps over many lines and with noise round it.
pub(super) fn json_documents(text: &str) -> Vec<serde_json::Value> {
    let whole = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok().filter(|value| value.is_object());
    if let Some(document) = whole(text.trim()) {
        return vec![document];
    }
    let lines = json_lines(text);
    if !lines.is_empty() {
        return lines;
    }
    // The document starts a line; what stands before it is noise.
    text.match_indices('{')
        .filter(|(at, _)| *at == 0 || text[..*at].ends_with('\n'))
        .find_map(|(at, _)| whole(text.get(at..=text.rfind('}')?)?))
        .into_iter()
        .collect()
}

/// Whether an id can stand in an argument list: it begins with a letter or digit and holds no white space, slash,
/// wildcard or control character.
pub(super) fn check_id(id: &str) -> Result<(), String> {
    let sane = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    if id.is_empty() {
        Err("a session id cannot be empty".into())
    } else if !id.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        Err(format!("`{}` cannot be a session id: it must begin with a letter or digit", short(id)))
    } else if id.len() > 200 || !id.chars().all(sane) {
        Err(format!("`{}` cannot be a session id: at most 200 of letters, digits, - _ . :", short(id)))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_short_and_plain() {
        assert_eq!(short("\x1b[31mbad\x1b[0m \u{202e}thing\r\n\n  more\t here "), "bad thing / more here");
        let long = short(&"x".repeat(1000));
        assert_eq!((long.chars().count(), long.ends_with('…')), (300, true));
        assert_eq!(answer("  \n"), None);
        assert_eq!(answer("a\n\u{7}b\n"), Some("a\nb".into()));
    }

    #[test]
    fn the_tail_is_what_tells() {
        assert_eq!(tail("model overloaded\n"), Some("model overloaded".into()));
        assert_eq!(tail("Error: no such model\n    at a.js:1\n    at b.js:2\n"), Some("Error: no such model".into()));
        assert_eq!(tail("one\ntwo\nthree\n"), Some("two / three".into()));
        assert_eq!(tail(" \n"), None);
    }

    #[test]
    fn times_are_read_from_words() {
        let now: Timestamp = "2026-11-30T10:00:00Z".parse().expect("a time");
        let at = |text: &str| not_before(text, now).map(|time| time.to_string());
        assert_eq!(at("usage limit reached|1796036400"), Some("2026-11-30T11:00:00Z".into()));
        assert_eq!(at("429: retry after 30 seconds"), Some("2026-11-30T10:00:30Z".into()));
        assert_eq!(at("retry-after: 3600"), Some("2026-11-30T11:00:00Z".into()));
        assert_eq!(at("Please try again in 1 hour 5 minutes."), Some("2026-11-30T11:05:00Z".into()));
        assert_eq!(at("try again in 250ms"), Some("2026-11-30T10:00:00.25Z".into()));
        assert_eq!(at("resets at 2026-11-30T12:00:00Z"), Some("2026-11-30T12:00:00Z".into()));
        for text in ["overloaded", "retry", "limit|1000000000", "try again in 9000 days", "try again in"] {
            assert_eq!(at(text), None, "{text}");
        }
    }

    #[test]
    fn ids_are_never_options_or_paths() {
        for good in ["5e55-0001", "abc-123", "late", "chat-77", "ses_1", "3fe4598b-0000-4000-8000-000000000000"] {
            assert_eq!(check_id(good), Ok(()), "{good}");
        }
        for bad in ["", "-x", "--dangerously-skip-permissions", "a b", "/etc/passwd", "../x", "a\nb", "é", "_x", "a*"]
        {
            assert!(check_id(bad).is_err(), "{bad}");
        }
        assert!(check_id(&"x".repeat(201)).is_err());
    }

    #[test]
    fn a_document_is_found_among_noise() {
        assert_eq!(json_documents("{\"a\":1}\n").len(), 1);
        assert_eq!(json_documents("warning: {x}\n{\n \"a\": 1\n}\n")[0]["a"], 1);
        assert!(json_documents("no {json} here").is_empty());
    }
}
