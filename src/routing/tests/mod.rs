//! The order of trust, the filters and the words of decisions, on events made by hand.

mod batches;
mod filters;
mod ways;

use super::{Links, OnClosed, Rules, Sessions, coalesce, route};
use crate::domain::{
    Author, Decision, DeliverySeq, Event, Fact, Link, LinkKind, Nature, Node, Notice, NoticeId, Outcome, Person,
    RepoName, Repository, Session, SessionKey, SessionStatus, Subject, SubjectKind, WorkItem,
};
use crate::routing::{PromptSettings, Settings};

fn item(text: &str) -> WorkItem {
    WorkItem::parse_in(text, Some(&repo("demo"))).expect(text)
}

fn repo(name: &str) -> RepoName {
    RepoName::new("github.com", "octo-org", name).expect(name)
}

fn commit() -> Node {
    Node::Commit { repo: repo("demo"), sha: "a".repeat(40) }
}

fn person(login: &str) -> Person {
    Person { login: login.into(), bot: false }
}

fn author(login: &str, association: &str) -> Author {
    Author { person: Some(person(login)), association: Some(association.into()) }
}

fn link(from: Node, kind: LinkKind, to: &str) -> Link {
    Link { from, to: item(to), kind, by: Some(author("octocat", "OWNER")) }
}

fn node(text: &str) -> Node {
    Node::Item(item(text))
}

/// An event of octocat's, who owns the repository.
fn event(title: &str, nature: Nature, subjects: Vec<(SubjectKind, Node)>) -> Event {
    let (name, action) = title.split_once('.').map_or((title, None), |(name, action)| (name, Some(action.into())));
    Event {
        name: name.into(),
        action,
        repository: Some(Repository { id: Some(1), name: repo("demo") }),
        sender: Some(person("octocat")),
        author: Some(author("octocat", "OWNER")),
        nature,
        subjects: subjects.into_iter().map(|(kind, node)| Subject { node, kind }).collect(),
        links: Vec::new(),
        fingerprint: "f".into(),
        supersedes: None,
        happened_at: None,
        facts: Vec::new(),
    }
}

fn comment(on: &str) -> Event {
    event("issue_comment.created", Nature::Words, vec![(SubjectKind::Object, node(on))])
}

fn run(subjects: Vec<(SubjectKind, Node)>) -> Event {
    event("workflow_run.completed", Nature::Verdict, subjects)
}

#[derive(Default)]
struct World {
    links: Vec<Link>,
    sessions: Vec<Session>,
    names: Vec<RepoName>,
    rules: Rules,
}

impl Links for World {
    fn from(&self, node: &Node) -> Vec<Link> {
        self.links.iter().filter(|link| link.from == *node).cloned().collect()
    }
    fn names(&self, _: &Repository) -> Vec<RepoName> {
        self.names.clone()
    }
}

impl Sessions for World {
    fn find(&self, key: &SessionKey) -> Option<Session> {
        self.sessions.iter().find(|session| session.key() == *key).cloned()
    }
}

impl World {
    fn with(sessions: &[&str]) -> Self {
        let mut world = Self::default();
        for text in sessions {
            world.sessions.push(Session {
                version: Session::VERSION,
                work_item: item(text),
                harness: "claude".into(),
                session_id: format!("s-{text}"),
                cwd: "/tmp".into(),
                status: SessionStatus::Active,
                created_at: "2026-11-30T09:00:00Z".parse().expect("time"),
                closed_reason: None,
                repository_id: None,
                unknown: serde_json::Map::new(),
            });
        }
        world
    }

    fn linked(mut self, from: Node, kind: LinkKind, to: &str) -> Self {
        self.links.push(link(from, kind, to));
        self
    }

    fn decide(&self, event: &Event) -> Decision {
        route(event, &self.rules, self, self)
    }

    /// The work items whose sessions are told.
    fn told(&self, event: &Event) -> Vec<String> {
        self.decide(event).assignments.iter().map(|told| told.session.to_string()).collect()
    }

    /// Why nobody is told.
    fn refusal(&self, event: &Event) -> String {
        let decision = self.decide(event);
        assert_eq!(decision.outcome, Outcome::Filtered, "{decision:?}");
        decision.reason
    }
}

fn keys(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| item(text).key()).collect()
}
