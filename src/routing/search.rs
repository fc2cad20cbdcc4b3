//! From what an event is about to the sessions that it concerns, strongest first.

use std::collections::{BTreeMap, HashSet};

use super::{Links, Sessions, Trust, names, trust};
use crate::domain::{
    Event, Link, LinkKind, Nature, Node, RepoName, Session, SessionKey, SubjectKind, Target, WorkItem,
};

/// How many nodes one event may lead to. A pull request may say that it closes many issues; nothing leads on for ever.
const MAX_NODES: usize = 200;

/// A place in the order of trust: smaller is stronger, and what a strong step leads to is as strong as that step.
type Rank = Vec<u8>;

const RECORDED: u8 = 0;
const ITSELF: u8 = 1;
const TRANSFERRED: u8 = 2;
const CLOSES: u8 = 3;
const HEAD_COMMIT: u8 = 4;
const BRANCH: u8 = 5;
const HEAD_BRANCH: u8 = 6;
const NAMED_BY_BRANCH: u8 = 7;

/// A work item that the event may concern.
pub(super) struct Candidate {
    pub(super) item: WorkItem,
    rank: Rank,
    /// How we know, in words.
    pub(super) how: String,
    /// Its session, if one is open.
    pub(super) session: Option<Session>,
}

/// What a search found.
pub(super) struct Found {
    /// Every work item, strongest first.
    pub(super) candidates: Vec<Candidate>,
    /// Every step, in words.
    pub(super) steps: Vec<String>,
}

impl Found {
    /// The candidates whose sessions are to be told: all with an open session at the strongest rank that has one. A
    /// conversation that is registered twice is told once.
    pub(super) fn strongest(&self) -> Vec<(&Candidate, &Session)> {
        let open = || self.candidates.iter().filter_map(|c| Some((c, c.session.as_ref()?)));
        let Some((first, _)) = open().next() else { return Vec::new() };
        let mut told = HashSet::new();
        open()
            .filter(|(candidate, _)| candidate.rank == first.rank)
            .filter(|(_, session)| told.insert((&session.harness, &session.session_id)))
            .collect()
    }

    /// The open session that is registered for exactly `item`.
    pub(super) fn own(&self, item: &WorkItem) -> Option<&Session> {
        self.candidates.iter().find(|candidate| candidate.item == *item)?.session.as_ref()
    }
}

/// Looks for the sessions that `event` concerns.
pub(super) fn search(event: &Event, trust: &Trust, links: &dyn Links, sessions: &dyn Sessions) -> Found {
    let names = event.repository.as_ref().map(|repository| links.names(repository)).unwrap_or_default();
    let mut search = Search {
        event,
        trust,
        links,
        sessions,
        names,
        queue: BTreeMap::new(),
        pushed: 0,
        candidates: Vec::new(),
        steps: Vec::new(),
    };
    search.begin();
    search.run();
    search.candidates.sort_by(|a, b| a.rank.cmp(&b.rank));
    Found { candidates: search.candidates, steps: search.steps }
}

struct Search<'a> {
    event: &'a Event,
    trust: &'a Trust,
    links: &'a dyn Links,
    sessions: &'a dyn Sessions,
    /// Other names of the event's repository.
    names: Vec<RepoName>,
    /// What is still to be looked at: by rank, then in order.
    queue: BTreeMap<(Rank, usize), (Node, String)>,
    pushed: usize,
    candidates: Vec<Candidate>,
    steps: Vec<String>,
}

impl Search<'_> {
    /// Puts the event's subjects into the queue.
    fn begin(&mut self) {
        for subject in &self.event.subjects {
            let name = names::node(&subject.node);
            let (rank, how) = match subject.kind {
                SubjectKind::Object => (vec![], format!("the event is about {name}")),
                SubjectKind::Attached => (vec![], format!("the event names {name}")),
                SubjectKind::Commit => (vec![HEAD_COMMIT], format!("the event is about {name}")),
                SubjectKind::Branch => (vec![BRANCH], format!("the event is about the branch {name}")),
            };
            self.steps.push(how.clone());
            let node = self.canonical(&subject.node);
            // What a person recorded is the strongest, wherever the event comes from.
            for link in self.links_from(&node).into_iter().filter(|link| link.kind == LinkKind::Recorded) {
                self.follow(&node, &link, vec![RECORDED], "");
            }
            if let Some(number) = branch_of(&node).and_then(issue_in_branch)
                && let Some(repo) = node.repo()
            {
                let item = repo.item(number);
                let how = format!("the branch {name} is named after {}", names::item(&item));
                self.push(vec![NAMED_BY_BRANCH], Node::Item(item), how);
            }
            self.push(rank, node, how);
        }
    }

    fn push(&mut self, rank: Rank, node: Node, how: String) {
        self.pushed += 1;
        self.queue.insert((rank, self.pushed), (node, how));
    }

    /// Takes the strongest of what is to be looked at, until nothing is left. What a node leads to is never stronger
    /// than the node, so the first way to a node is the strongest.
    fn run(&mut self) {
        let mut seen = HashSet::new();
        while let Some(((rank, _), (node, how))) = self.queue.pop_first() {
            if !seen.insert(node.key()) {
                continue;
            }
            if seen.len() > MAX_NODES {
                self.steps.push(format!("more than {MAX_NODES} things belong together; the rest was not looked at"));
                break;
            }
            let links = self.links_from(&node);
            for link in &links {
                if let Some(next) = next_rank(&rank, link.kind) {
                    self.follow(&node, link, next, &how);
                }
            }
            if let Node::Item(item) = node {
                self.candidate(item, rank, how);
            } else if links.is_empty() {
                self.steps.push(format!("no pull request is known whose head is {}", names::node(&node)));
            }
        }
    }

    fn follow(&mut self, from: &Node, link: &Link, rank: Rank, how: &str) {
        let (a, b) = (names::node(from), names::item(&link.to));
        let by = link.by.as_ref().map(|by| format!(" (by {})", names::author(by))).unwrap_or_default();
        let step = match link.kind {
            LinkKind::Recorded => format!("{a} is recorded as belonging to {b}"),
            LinkKind::Transferred => format!("{a} and {b} are one issue, which was transferred"),
            LinkKind::Closes => format!("{a} closes {b}{by}"),
            LinkKind::HeadCommit => format!("{a} was seen as the head of {b}{by}"),
            LinkKind::HeadBranch if is_branch(&link.to) => {
                // Every pull request has a branch, and few branches have a session.
                if !self.has_session(&link.to) {
                    return;
                }
                format!("{b} is the head branch of {a}{by}")
            }
            LinkKind::HeadBranch => format!("{a} is the head branch of {b}{by}"),
        };
        // A stranger may claim that a pull request closes an issue, and may fail its checks on purpose with any text.
        let rests_on_words = !matches!(link.kind, LinkKind::Recorded | LinkKind::Transferred);
        let stranger = link.by.as_ref().is_some_and(|by| !trust::vouches(by, self.trust));
        if self.event.nature == Nature::Verdict && rests_on_words && stranger {
            self.step(format!("{step}, who is not trusted: a verdict does not travel over that link"));
            return;
        }
        self.step(step.clone());
        let how = if how.is_empty() || how.starts_with("the event") { step } else { format!("{how}, and {step}") };
        self.push(rank, self.canonical(&Node::Item(link.to.clone())), how);
    }

    /// Notes a step, once.
    fn step(&mut self, step: String) {
        if !self.steps.contains(&step) {
            self.steps.push(step);
        }
    }

    fn candidate(&mut self, item: WorkItem, rank: Rank, how: String) {
        let named_by_branch = rank.first() == Some(&NAMED_BY_BRANCH);
        let session = self.session(&item);
        if session.is_some() || !named_by_branch {
            let rank = rank.into_iter().chain([ITSELF]).collect();
            self.candidates.push(Candidate { item, rank, how, session });
        }
    }

    /// Whether there is a session for `item`, open or not.
    fn has_session(&self, item: &WorkItem) -> bool {
        let spellings = self.spellings(&self.canonical(&Node::Item(item.clone())));
        spellings.iter().any(|spelling| self.sessions.find(&SessionKey(spelling.key())).is_some())
    }

    /// The open session for `item`, under any name that its repository has had.
    fn session(&mut self, item: &WorkItem) -> Option<Session> {
        let here = self.event.repository.as_ref();
        let is_here = here.is_some_and(|here| item.repo() == Some(&here.name));
        for spelling in self.spellings(&Node::Item(item.clone())) {
            let Node::Item(spelling) = spelling else { continue };
            let name = names::item(&spelling);
            let Some(session) = self.sessions.find(&SessionKey(spelling.key())) else { continue };
            let id = here.and_then(|here| here.id).filter(|_| is_here);
            if let (Some(registered), Some(id)) = (session.repository_id, id)
                && registered != id
            {
                self.steps.push(format!("the session for {name} belongs to another repository that had this name"));
            } else if !session.is_open() {
                self.steps.push(format!("the session for {name} is closed"));
            } else {
                self.steps.push(format!("a session is registered for {name}"));
                return Some(session);
            }
        }
        if !self.steps.last().is_some_and(|step| step.starts_with("the session for")) {
            self.steps.push(format!("no session is registered for {}", names::item(item)));
        }
        None
    }

    /// The node under the name that its repository has now, as far as the event tells it.
    fn canonical(&self, node: &Node) -> Node {
        match (&self.event.repository, node.repo()) {
            (Some(here), Some(repo)) if self.names.contains(repo) => node.in_repo(&here.name),
            _ => node.clone(),
        }
    }

    /// The node under every name that its repository has had; its present name comes first.
    fn spellings(&self, node: &Node) -> Vec<Node> {
        let is_here = self.event.repository.as_ref().is_some_and(|here| node.repo() == Some(&here.name));
        let others = self.names.iter().filter(|_| is_here).map(|name| node.in_repo(name));
        [node.clone()].into_iter().chain(others).collect()
    }

    /// Every link that leads on from `node`: those that are kept, and those that the event itself teaches.
    fn links_from(&self, node: &Node) -> Vec<Link> {
        let kept = self.spellings(node).into_iter().flat_map(|spelling| self.links.from(&spelling));
        let taught = self.event.links.iter().filter(|link| self.canonical(&link.from) == *node).cloned();
        let mut links: Vec<Link> = Vec::new();
        for link in kept.chain(taught) {
            match links.iter_mut().find(|known| known.to == link.to && known.kind == link.kind) {
                // Who is behind a link may be known from one event and not told by another.
                Some(known) if link.by.is_some() => known.by = link.by,
                Some(_) => {}
                None => links.push(link),
            }
        }
        links
    }
}

/// The rank of what a link leads to from a node of rank `rank`, or none where such a link does not lead on.
fn next_rank(rank: &[u8], kind: LinkKind) -> Option<Rank> {
    let then = |step: u8| Some(rank.iter().copied().chain([step]).collect());
    match kind {
        LinkKind::Recorded => then(RECORDED),
        LinkKind::Transferred => then(TRANSFERRED),
        // An issue closes nothing: from there, "closes" would be read twice.
        LinkKind::Closes => {
            if rank.contains(&CLOSES) {
                None
            } else {
                then(CLOSES)
            }
        }
        LinkKind::HeadCommit => Some(rank.to_vec()),
        // From a pull request to its branch and on to others of that branch would be too far.
        LinkKind::HeadBranch => (!rank.contains(&HEAD_BRANCH)).then(|| vec![HEAD_BRANCH]),
    }
}

fn branch_of(node: &Node) -> Option<&str> {
    match node {
        Node::Item(WorkItem::Github { target: Target::Branch(name), .. }) => Some(name),
        _ => None,
    }
}

fn is_branch(item: &WorkItem) -> bool {
    matches!(item, WorkItem::Github { target: Target::Branch(_), .. })
}

/// The issue after which a branch is named: a segment `issue-15`, perhaps with more words after it.
fn issue_in_branch(branch: &str) -> Option<u64> {
    branch.split('/').find_map(|segment| {
        let rest = segment.strip_prefix("issue-")?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, after) = rest.split_at(end);
        let ends = after.is_empty() || after.starts_with(['-', '_']);
        digits.parse().ok().filter(|number| ends && digits.len() <= 18 && *number > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_of_a_branch_names_an_issue() {
        for (branch, wanted) in [
            ("issue-15", Some(15)),
            ("agent/issue-15", Some(15)),
            ("issue-15-rename-flag", Some(15)),
            ("x/issue-7_b/y", Some(7)),
            ("tissue-15", None),
            ("issue-", None),
            ("issue-x", None),
            ("issue-15x", None),
            ("issue-0", None),
            ("issue-99999999999999999999", None),
            ("main", None),
        ] {
            assert_eq!(issue_in_branch(branch), wanted, "{branch}");
        }
    }
}
