//! A page of workflow runs and what was seen before, to deliveries. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use super::needs::Need;
use super::seen::{Item, Runs, Seen};

/// Beyond so many questions, all runs of the repository are asked for at once.
const MAX_QUESTIONS: usize = 4;
/// How many runs a page holds. GitHub shows the newest first.
pub(super) const PAGE: usize = 50;

/// A question for runs, and which of its runs are old news at the first look.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Question {
    /// The query, such as `branch=main`; empty for all runs.
    pub(super) query: String,
    /// Runs that were last changed up to then are old, by GitHub's clock.
    pub(super) old_until: Timestamp,
}

/// What to ask for: the runs of each branch and of each pull request's head, or, where that is much, all at once.
pub(super) fn questions(need: &Need, seen: &Seen, pulls: &BTreeMap<u64, &Item>) -> Vec<Question> {
    let mut questions = Vec::new();
    let mut ask = |key: &str, value: &str, old_until: Timestamp| {
        let query = form_urlencoded::Serializer::new(String::new()).append_pair(key, value).finish();
        if !questions.iter().any(|known: &Question| known.query == query) {
            questions.push(Question { query, old_until });
        }
    };
    for branch in &need.run_branches {
        ask("branch", branch, Timestamp::MAX);
    }
    for item in pulls.values().filter(|item| !item.is_closed() && !item.is_listed) {
        if let Some(sha) = item.text("/head/sha") {
            // A head that came while we watched has only new runs.
            ask("head_sha", sha, if item.is_new { Timestamp::MIN } else { Timestamp::MAX });
        }
    }
    // A change of the way of asking is no new beginning: what came since the last look is news.
    let last = seen.looked_at.filter(|_| !seen.runs.is_empty());
    if need.whole.runs || questions.len() > MAX_QUESTIONS {
        return vec![Question { query: String::new(), old_until: last.unwrap_or(Timestamp::MAX) }];
    }
    if seen.runs.contains_key("") {
        for question in &mut questions {
            question.old_until = question.old_until.min(last.unwrap_or(Timestamp::MAX));
        }
    }
    questions
}

/// What a page showed.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Page {
    /// Runs that were completed since the last look, in the order in which they were begun.
    pub(super) news: Vec<Value>,
    /// Everything on it, for the next look.
    pub(super) runs: Runs,
    /// Runs that go on and are too old to be on the page.
    pub(super) off_page: BTreeSet<u64>,
    /// Whether runs between this page and the last look may be on the next page.
    pub(super) is_open_ended: bool,
}

/// Reads the answer to a question. `others` is what other questions have seen.
pub(super) fn page(runs: &[Value], question: &Question, seen: &Seen) -> Page {
    let before = seen.runs.get(&question.query);
    let known = |id: u64| {
        let others = || seen.runs.values().filter_map(|runs| runs.0.get(&id)).next_back();
        before.and_then(|runs| runs.0.get(&id)).or_else(others)
    };
    let oldest = before.and_then(|runs| runs.0.iter().find(|(_, state)| !state.is_empty()).map(|(id, _)| *id));
    let mut page = Page::default();
    for run in runs {
        let Some(id) = run.get("id").and_then(Value::as_u64) else { continue };
        let state = state(run);
        let is_news = !state.is_empty()
            && match known(id) {
                Some(known) => *known != state,
                // Older than all that was there: it shows because a newer one was deleted.
                None if oldest.is_some_and(|oldest| id < oldest) => false,
                None if before.is_some() => true,
                None => changed(run).is_none_or(|at| at > question.old_until) && question.old_until < Timestamp::MAX,
            };
        if is_news {
            page.news.push(run.clone());
        }
        page.runs.0.insert(id, state);
    }
    page.news.reverse();
    if let Some(before) = before.filter(|before| !before.0.is_empty()) {
        page.is_open_ended = runs.len() >= PAGE && !before.0.keys().any(|id| page.runs.0.contains_key(id));
        let going_on = before.0.iter().filter(|(id, state)| state.is_empty() && !page.runs.0.contains_key(id));
        page.off_page = going_on.map(|(id, _)| *id).collect();
        page.runs.0.extend(page.off_page.iter().map(|id| (*id, String::new())));
    }
    page
}

/// A page that is as it was: runs that go on beside it may have ended all the same. The page holds the newest.
pub(super) fn same(runs: Runs) -> Page {
    let beside = runs.0.len().saturating_sub(PAGE);
    let off_page = runs.0.iter().take(beside).filter(|(_, state)| state.is_empty()).map(|(id, _)| *id).collect();
    Page { off_page, runs, ..Page::default() }
}

/// The attempt and conclusion of a run that is completed; empty for one that goes on.
pub(super) fn state(run: &Value) -> String {
    if run.get("status").and_then(Value::as_str) != Some("completed") {
        return String::new();
    }
    let attempt = run.get("run_attempt").and_then(Value::as_u64).unwrap_or(1);
    format!("{attempt}:{}", run.get("conclusion").and_then(Value::as_str).unwrap_or("-"))
}

fn changed(run: &Value) -> Option<Timestamp> {
    run.get("updated_at").and_then(Value::as_str).and_then(|text| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(id: u64, conclusion: Option<&str>) -> Value {
        let status = if conclusion.is_some() { "completed" } else { "in_progress" };
        json!({"id": id, "status": status, "conclusion": conclusion, "run_attempt": 1, "updated_at": "2026-12-01T10:00:00Z"})
    }

    fn main(old_until: Timestamp) -> Question {
        Question { query: "branch=main".into(), old_until }
    }

    fn ids(page: &Page) -> Vec<u64> {
        page.news.iter().filter_map(|run| run["id"].as_u64()).collect()
    }

    /// What is seen after the first look at `runs`.
    fn after(runs: &[Value]) -> Seen {
        let first = page(runs, &main(Timestamp::MAX), &Seen::default());
        assert!(first.news.is_empty(), "the first look is the baseline");
        Seen { runs: BTreeMap::from([("branch=main".into(), first.runs)]), ..Seen::default() }
    }

    #[test]
    fn what_completes_after_the_first_look_is_news_once() {
        let seen = after(&[run(11, None), run(10, Some("success"))]);
        let now = [run(12, Some("failure")), run(11, Some("failure")), run(10, Some("success"))];
        let next = page(&now, &main(Timestamp::MAX), &seen);
        assert_eq!(ids(&next), [11, 12], "oldest first");
        let seen = Seen { runs: BTreeMap::from([("branch=main".into(), next.runs)]), ..Seen::default() };
        assert!(page(&now, &main(Timestamp::MAX), &seen).news.is_empty());
    }

    #[test]
    fn another_attempt_is_another_happening() {
        let seen = after(&[run(10, Some("failure"))]);
        let mut again = run(10, Some("failure"));
        again["run_attempt"] = 2.into();
        assert_eq!(ids(&page(&[again], &main(Timestamp::MAX), &seen)), [10]);
    }

    #[test]
    fn a_head_that_came_while_we_watched_has_only_news() {
        let runs = [run(10, Some("failure"))];
        assert_eq!(ids(&page(&runs, &main(Timestamp::MIN), &Seen::default())), [10]);
        let later = "2026-12-01T10:00:01Z".parse().expect("time");
        assert!(page(&runs, &main(later), &Seen::default()).news.is_empty());
    }

    #[test]
    fn a_run_that_falls_off_the_page_is_not_forgotten_while_it_goes_on() {
        let seen = after(&[run(11, Some("success")), run(10, None)]);
        let next = page(&[run(12, Some("success")), run(11, Some("success"))], &main(Timestamp::MAX), &seen);
        assert_eq!(next.off_page, BTreeSet::from([10]));
        assert!(!next.is_open_ended);
    }

    #[test]
    fn an_old_run_that_surfaces_is_no_news_and_a_full_page_without_a_known_one_is_a_gap() {
        let seen = after(&[run(11, Some("success"))]);
        assert!(page(&[run(5, Some("failure"))], &main(Timestamp::MAX), &seen).news.is_empty());
        let many: Vec<_> = (0..PAGE as u64).map(|n| run(1000 - n, Some("success"))).collect();
        assert!(page(&many, &main(Timestamp::MAX), &seen).is_open_ended);
    }

    #[test]
    fn many_questions_become_one() {
        let waiting = crate::engine::Waiting {
            item: crate::domain::WorkItem::parse("o/r@a").expect("item"),
            since: Timestamp::UNIX_EPOCH,
            own: true,
        };
        let mut need = super::super::needs::needs(&[waiting], &[], Default::default()).remove("o/r").expect("a need");
        need.run_branches = ["a b".to_owned()].into();
        let none = BTreeMap::new();
        let asked = questions(&need, &Seen::default(), &none);
        assert_eq!(asked, [Question { query: "branch=a+b".into(), old_until: Timestamp::MAX }]);
        need.run_branches.extend((0..9).map(|n| format!("b{n}")));
        let all = questions(&need, &Seen::default(), &none);
        assert_eq!(all, [Question { query: String::new(), old_until: Timestamp::MAX }]);
        let looked = Timestamp::from_second(5).ok();
        let seen =
            Seen { runs: BTreeMap::from([("branch=a".into(), Runs::default())]), looked_at: looked, ..Seen::default() };
        assert_eq!(questions(&need, &seen, &none)[0].old_until, Timestamp::from_second(5).expect("time"));
    }
}
