//! The checks of commits: whose matter, when they are asked for again, and what of an answer is news. Pure.
//!
//! GitHub has no list of a repository's check suites, check runs or commit statuses: each commit is asked for by itself.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::needs::Need;
use super::seen::{Head, Seen};

/// A change may show this much later than its own time says.
const LAG: SignedDuration = SignedDuration::from_secs(120);
/// A commit on which nothing has gone on for so long is settled …
const SETTLED: SignedDuration = SignedDuration::from_hours(1);
/// … and is asked for this seldom: somebody may run its checks again.
const SELDOM: SignedDuration = SignedDuration::from_mins(5);

/// A commit whose checks matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    /// Its hash.
    pub(super) sha: String,
    /// The branches of this repository that are known to have it for their head.
    pub(super) branches: Vec<String>,
    /// Where it is seen for the first time, what is older is old news, by GitHub's clock.
    pub(super) old_until: Timestamp,
}

/// The heads of the branches and of the open pull requests that are polled, each once.
pub(super) fn judged(need: &Need, seen: &Seen) -> Vec<Judged> {
    let home = seen.home.as_ref().and_then(|home| home.get("id")).and_then(Value::as_u64);
    let since = seen.looked_at.unwrap_or_else(|| seen.theirs(need.since));
    let recent = since.checked_sub(LAG).unwrap_or(since);
    let mut found: BTreeMap<String, (BTreeSet<String>, Timestamp)> = BTreeMap::new();
    let mut add = |sha: &str, branch: Option<&str>, is_new: bool| {
        let (branches, old_until) = found.entry(sha.to_owned()).or_insert((BTreeSet::new(), Timestamp::MAX));
        branches.extend(branch.map(str::to_owned));
        if is_new {
            *old_until = recent;
        }
    };
    for (branch, head) in &seen.branches {
        add(&head.sha, Some(branch), head.is_new);
    }
    for item in seen.items.values().filter(|item| item.is_pull && !item.is_closed()) {
        if item.is_listed && !need.whole.heads {
            continue;
        }
        let Some(sha) = item.text("/head/sha") else { continue };
        let of = item.shown.pointer("/head/repo/id").and_then(Value::as_u64);
        // A fork names its branches as it likes.
        let branch = item.text("/head/ref").filter(|_| of.is_some() && of == home);
        add(sha, branch, item.is_new);
    }
    // It becomes a part of a path.
    found.retain(|sha, _| matches!(sha.len(), 40 | 64) && sha.bytes().all(|b| b.is_ascii_hexdigit()));
    let judged = |(sha, (branches, old_until)): (String, (BTreeSet<String>, Timestamp))| Judged {
        sha,
        branches: branches.into_iter().collect(),
        old_until,
    };
    found.into_iter().map(judged).collect()
}

/// Whether a commit's checks are to be asked for at `now`.
pub(super) fn is_due(head: Option<&Head>, now: Timestamp) -> bool {
    let Some((head, asked)) = head.and_then(|head| Some((head, head.asked_at?))) else { return true };
    let goes_on =
        |checks: &Option<BTreeMap<u64, String>>| checks.iter().flat_map(BTreeMap::values).any(String::is_empty);
    head.is_pending
        || goes_on(&head.suites)
        || goes_on(&head.checks)
        || head.changed_at.is_none_or(|at| now.duration_since(at) < SETTLED)
        || now.duration_since(asked) >= SELDOM
}

/// Check suites or check runs and what was known of them: what was completed since, in the order in which it was begun,
/// and what is known now. `time` is the field that tells one completion of a check from the next.
pub(super) fn completed(
    found: &[Value],
    time: &str,
    known: Option<&BTreeMap<u64, String>>,
    old_until: Timestamp,
) -> (Vec<Value>, BTreeMap<u64, String>) {
    let (mut news, mut now) = (BTreeMap::new(), BTreeMap::new());
    for check in found {
        let text = |name: &str| check.get(name).and_then(Value::as_str);
        let Some(id) = check.get("id").and_then(Value::as_u64) else { continue };
        let is_over = text("status") == Some("completed");
        // GitHub makes a suite for every app that might check something; most stay empty for ever.
        if !is_over && check.get("latest_check_runs_count").and_then(Value::as_u64) == Some(0) {
            continue;
        }
        let at = text(time);
        let state = match is_over {
            true => format!("{}@{}", text("conclusion").unwrap_or("-"), at.unwrap_or("-")),
            false => String::new(),
        };
        let is_news = is_over
            && match known {
                Some(known) => known.get(&id) != Some(&state),
                None => is_newer(at, old_until),
            };
        if is_news {
            news.insert(id, check.clone());
        }
        now.insert(id, state);
    }
    (news.into_values().collect(), now)
}

/// Commit statuses, newest first, and which were known: the new ones, oldest first; all that are known now; and whether
/// some context is still pending.
pub(super) fn statuses(
    found: &[Value],
    known: Option<&BTreeSet<u64>>,
    old_until: Timestamp,
) -> (Vec<Value>, BTreeSet<u64>, bool) {
    let (mut news, mut now) = (Vec::new(), known.cloned().unwrap_or_default());
    let mut contexts = BTreeSet::new();
    let mut is_pending = false;
    for status in found {
        let text = |name: &str| status.get(name).and_then(Value::as_str);
        let Some(id) = status.get("id").and_then(Value::as_u64) else { continue };
        // Of each context the first that is shown is the one that counts.
        if contexts.insert(text("context").unwrap_or_default()) {
            is_pending |= text("state") == Some("pending");
        }
        if now.insert(id) && (known.is_some() || is_newer(text("created_at"), old_until)) {
            news.push(status.clone());
        }
    }
    news.reverse();
    (news, now, is_pending)
}

fn is_newer(at: Option<&str>, old_until: Timestamp) -> bool {
    at.and_then(|text| text.parse::<Timestamp>().ok()).is_some_and(|at| at > old_until)
}

#[cfg(test)]
mod tests {
    use super::super::seen::{BranchHead, Item};
    use super::*;
    use serde_json::json;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("time")
    }

    fn suite(id: u64, conclusion: Option<&str>, second: i64) -> Value {
        let status = if conclusion.is_some() { "completed" } else { "in_progress" };
        json!({"id": id, "status": status, "conclusion": conclusion, "updated_at": at(second).to_string(),
            "latest_check_runs_count": 1})
    }

    fn ids(news: &[Value]) -> Vec<u64> {
        news.iter().filter_map(|one| one["id"].as_u64()).collect()
    }

    fn need() -> Need {
        let waiting = crate::engine::Waiting {
            item: crate::domain::WorkItem::parse("o/r@x").expect("item"),
            since: at(500),
            own: true,
        };
        super::super::needs::needs(&[waiting], &[], Default::default()).remove("o/r").expect("a need")
    }

    #[test]
    fn a_head_is_judged_once_for_all_that_are_there_and_a_fork_s_branch_is_nobody_s() {
        let pull = |home: u64, branch: &str| Item {
            is_pull: true,
            shown: json!({"state": "open", "head": {"sha": A, "ref": branch, "repo": {"id": home}}}),
            reviews: None,
            is_new: false,
            is_listed: false,
        };
        let mut seen = Seen { home: Some(json!({"id": 1})), looked_at: Some(at(1000)), ..Seen::default() };
        seen.items = BTreeMap::from([(1, pull(1, "x")), (2, pull(2, "main"))]);
        seen.branches.insert("y".into(), BranchHead { sha: A.into(), is_new: false });
        seen.branches.insert("z".into(), BranchHead { sha: "../..".into(), is_new: false });
        let wanted = Judged { sha: A.into(), branches: vec!["x".into(), "y".into()], old_until: Timestamp::MAX };
        assert_eq!(judged(&need(), &seen), std::slice::from_ref(&wanted));
        seen.branches.insert("y".into(), BranchHead { sha: A.into(), is_new: true });
        assert_eq!(judged(&need(), &seen), [Judged { old_until: at(880), ..wanted.clone() }]);
        seen.looked_at = None;
        assert_eq!(judged(&need(), &seen), [Judged { old_until: at(380), ..wanted }]);
    }

    #[test]
    fn what_is_completed_after_the_first_sight_is_news_once_and_again_after_a_re_run() {
        let first = [suite(1, Some("failure"), 10), suite(2, None, 10)];
        let (news, known) = completed(&first, "updated_at", None, Timestamp::MAX);
        assert!(news.is_empty(), "the baseline");
        let next = [suite(1, Some("failure"), 10), suite(3, Some("success"), 30), suite(2, Some("success"), 20)];
        let (news, known) = completed(&next, "updated_at", Some(&known), Timestamp::MAX);
        assert_eq!(ids(&news), [2, 3]);
        assert!(completed(&next, "updated_at", Some(&known), Timestamp::MAX).0.is_empty());
        let again = [suite(1, Some("failure"), 40)];
        assert_eq!(ids(&completed(&again, "updated_at", Some(&known), Timestamp::MAX).0), [1]);
        // A head that came while we watched has news, but for what was said of it elsewhere before.
        assert_eq!(ids(&completed(&next, "updated_at", None, at(15)).0), [2, 3]);
    }

    #[test]
    fn statuses_are_news_once_and_the_newest_of_a_context_says_whether_it_goes_on() {
        let status = |id: u64, context: &str, state: &str, second: i64| json!({"id": id, "context": context, "state": state, "created_at": at(second).to_string()});
        let first = [status(2, "a", "pending", 20), status(1, "a", "failure", 10)];
        let (news, known, is_pending) = statuses(&first, None, Timestamp::MAX);
        assert!(news.is_empty() && is_pending);
        let next = [status(4, "b", "success", 40), status(3, "a", "success", 30), first[0].clone(), first[1].clone()];
        let (news, known, is_pending) = statuses(&next, Some(&known), Timestamp::MAX);
        assert_eq!((ids(&news), is_pending), (vec![3, 4], false));
        assert!(statuses(&next, Some(&known), Timestamp::MAX).0.is_empty());
        assert_eq!(ids(&statuses(&next, None, at(25)).0), [3, 4]);
    }

    #[test]
    fn a_settled_commit_is_asked_for_seldom_and_one_that_goes_on_always() {
        let now = at(100_000);
        let settled = Head { asked_at: Some(at(99_900)), changed_at: Some(at(10)), ..Head::default() };
        assert!(is_due(None, now));
        assert!(!is_due(Some(&settled), now));
        assert!(is_due(Some(&Head { asked_at: Some(at(99_700)), ..settled.clone() }), now), "a re-run is found");
        assert!(is_due(Some(&Head { changed_at: Some(at(99_000)), ..settled.clone() }), now), "it changed lately");
        assert!(is_due(Some(&Head { is_pending: true, ..settled.clone() }), now));
        let going = Some(completed(&[suite(1, None, 1)], "updated_at", None, now).1);
        assert!(is_due(Some(&Head { suites: going, ..settled.clone() }), now));
        let mut empty = suite(1, None, 1);
        empty["latest_check_runs_count"] = 0.into();
        let empty = Some(completed(&[empty], "updated_at", None, now).1);
        assert!(!is_due(Some(&Head { suites: empty, ..settled }), now), "an app that checks nothing is not waited for");
    }
}
