//! What the readers of the single events share: the payload's frame, and what they make of it.

use jiff::Timestamp;

use super::facts::Facts;
use super::field::Field;
use crate::domain::{
    Author, Link, LinkKind, Nature, Node, Person, RepoName, Repository, Subject, SubjectKind, WorkItem,
};

/// The largest number that an issue is believed to have: eighteen digits, as work items are read.
const MAX_NUMBER: u64 = 999_999_999_999_999_999;

/// A payload and what every payload has.
pub(super) struct Payload<'a> {
    pub(super) action: Option<&'a str>,
    pub(super) root: Field<'a>,
    pub(super) repository: Option<Repository>,
    pub(super) sender: Option<Person>,
}

impl<'a> Payload<'a> {
    pub(super) fn new(root: Field<'a>) -> Self {
        // An action is printed in prompts and reasons, so only the form that GitHub uses is taken for one.
        let plain = |text: &&str| text.len() <= 64 && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        Self {
            action: root.at("action").text().filter(plain),
            root,
            repository: repository(root.at("repository")),
            sender: root.at("sender").person(),
        }
    }

    /// A payload that is not GitHub's: nothing in it names a repository or a person.
    pub(super) fn nowhere(root: Field<'a>) -> Self {
        Self { action: None, root, repository: None, sender: None }
    }

    pub(super) fn repo(&self) -> Option<&RepoName> {
        self.repository.as_ref().map(|repository| &repository.name)
    }

    /// The issue or pull request whose number stands at `number`.
    pub(super) fn item(&self, number: Field<'_>) -> Option<WorkItem> {
        item_of(self.repo()?, number)
    }

    /// A commit of this repository.
    pub(super) fn commit(&self, sha: Field<'_>) -> Option<Node> {
        Some(Node::Commit { repo: self.repo()?.clone(), sha: sha.sha()? })
    }

    /// A branch of this repository; the caller knows that it is one of this repository.
    pub(super) fn branch(&self, name: &str) -> Option<Node> {
        self.repo()?.branch(name).map(Node::Item)
    }

    /// Whether the repository at `other` is this one. Without both numbers, that is not known.
    pub(super) fn is_same_repository(&self, other: Field<'_>) -> Option<bool> {
        let own = self.repository.as_ref()?.id?;
        Some(other.at("id").number()? == own)
    }

    /// A key that names one thing, or none where a part of it is missing: a key with holes would be the key of many
    /// things. The repository's number stands in it rather than its name, so that a rename does not change it.
    pub(super) fn key(&self, kind: &str, parts: &[Option<String>]) -> Option<String> {
        let repository = self.repository.as_ref()?;
        let mut key = match repository.id {
            Some(id) => format!("{}/{id}/{kind}", repository.name.host().to_ascii_lowercase()),
            None => format!("{}/{kind}", repository.name.key()),
        };
        for part in parts {
            // The separator is escaped, so that two different lists of parts are never one key.
            let part = part.as_ref()?.replace('%', "%25").replace('/', "%2F");
            key.push('/');
            key.push_str(&part);
        }
        Some(key)
    }

    /// The action, as a part of a key.
    pub(super) fn action_part(&self) -> Option<String> {
        self.action.map(String::from)
    }
}

/// A part of a key that may be missing, because the other parts tell things apart.
pub(super) fn or_none(part: Option<String>) -> Option<String> {
    Some(part.unwrap_or_else(|| "-".into()))
}

/// What a reader makes of its event.
pub(super) struct Reading {
    pub(super) nature: Nature,
    pub(super) author: Option<Author>,
    pub(super) subjects: Vec<Subject>,
    pub(super) links: Vec<Link>,
    /// The happening's fingerprint, where the payload is complete enough to have one.
    pub(super) identity: Option<String>,
    pub(super) supersedes: Option<String>,
    pub(super) happened_at: Option<Timestamp>,
    pub(super) facts: Facts,
}

impl Reading {
    pub(super) fn new(nature: Nature) -> Self {
        Self {
            nature,
            author: None,
            subjects: Vec::new(),
            links: Vec::new(),
            identity: None,
            supersedes: None,
            happened_at: None,
            facts: Facts::default(),
        }
    }

    /// Adds what the event is about. Subjects are added strongest first.
    pub(super) fn about(&mut self, kind: SubjectKind, node: Option<Node>) {
        if let Some(node) = node
            && !self.subjects.iter().any(|known| known.node == node)
        {
            self.subjects.push(Subject { node, kind });
        }
    }

    /// Adds what the event teaches.
    pub(super) fn learn(&mut self, from: Option<Node>, to: Option<&WorkItem>, kind: LinkKind, by: Option<&Author>) {
        if let (Some(from), Some(to)) = (from, to)
            && from != Node::Item(to.clone())
        {
            self.links.push(Link { from, to: to.clone(), kind, by: by.cloned() });
        }
    }
}

/// The issue or pull request of `repo` whose number stands at `number`.
pub(super) fn item_of(repo: &RepoName, number: Field<'_>) -> Option<WorkItem> {
    number.number().filter(|n| (1..=MAX_NUMBER).contains(n)).map(|n| repo.item(n))
}

/// The repository that stands at `field`. Its page tells the host, which is another one for GitHub Enterprise.
pub(super) fn repository(field: Field<'_>) -> Option<Repository> {
    let page = field.at("html_url").text().and_then(|text| url::Url::parse(text).ok());
    let host = page.as_ref().and_then(|page| match (page.host_str()?, page.port()) {
        ("www.github.com", None) => Some("github.com".to_string()),
        (host, None) => Some(host.to_string()),
        (host, Some(port)) => Some(format!("{host}:{port}")),
    });
    let host = host.as_deref().unwrap_or("github.com");
    let name = RepoName::from_full_name(host, field.at("full_name").text()?).ok()?;
    Some(Repository { id: field.at("id").number(), name })
}
