//! Work items: what a session works on. `github:OWNER/REPO#N`, `github:OWNER/REPO@BRANCH`,
//! `github:HOST/OWNER/REPO#N` and `local:NAME`.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The host that is meant where none is named.
const GITHUB: &str = "github.com";

/// A repository by name. Host, owner and name compare without case, as GitHub compares them.
#[derive(Clone, Debug)]
pub struct RepoName {
    host: String,
    owner: String,
    name: String,
}

impl RepoName {
    /// Checks and joins the three parts.
    pub fn new(host: &str, owner: &str, name: &str) -> Result<Self, ParseError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let host_ok = host.len() <= 253
            && !host.is_empty()
            && !host.starts_with(['-', '.'])
            && host.chars().all(|c| plain(c) || c == '.' || c == ':');
        let owner_ok = (1..=100).contains(&owner.len()) && !owner.starts_with('-') && owner.chars().all(plain);
        let name_ok = (1..=100).contains(&name.len())
            && name.chars().all(|c| plain(c) || c == '.')
            && name != "."
            && name != "..";
        if host_ok && owner_ok && name_ok {
            Ok(Self { host: host.into(), owner: owner.into(), name: name.into() })
        } else {
            Err(ParseError { text: format!("{owner}/{name}"), why: "it does not name a repository" })
        }
    }

    /// `OWNER/REPO` on `host`.
    pub fn from_full_name(host: &str, full_name: &str) -> Result<Self, ParseError> {
        let (owner, name) = full_name
            .split_once('/')
            .ok_or(ParseError { text: full_name.into(), why: "it does not name a repository" })?;
        Self::new(host, owner, name)
    }

    /// The host, `github.com` unless it is an Enterprise one.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// `OWNER/REPO` as it was written.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    /// The account that owns the repository.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The one text that all spellings share: lower case, host left out for github.com.
    pub fn key(&self) -> String {
        self.to_string().to_ascii_lowercase()
    }

    /// The work item `#number` of this repository.
    pub fn item(&self, number: u64) -> WorkItem {
        WorkItem::Github { repo: self.clone(), target: Target::Number(number) }
    }

    /// The work item `@branch` of this repository, if the name can be a branch's.
    pub fn branch(&self, branch: &str) -> Option<WorkItem> {
        is_branch(branch).then(|| WorkItem::Github { repo: self.clone(), target: Target::Branch(branch.into()) })
    }
}

impl fmt::Display for RepoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.host.eq_ignore_ascii_case(GITHUB) {
            write!(f, "{}/", self.host)?;
        }
        write!(f, "{}/{}", self.owner, self.name)
    }
}

impl PartialEq for RepoName {
    fn eq(&self, other: &Self) -> bool {
        self.host.eq_ignore_ascii_case(&other.host)
            && self.owner.eq_ignore_ascii_case(&other.owner)
            && self.name.eq_ignore_ascii_case(&other.name)
    }
}

impl Eq for RepoName {}

impl Serialize for RepoName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RepoName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        repo_path(&text).map_err(serde::de::Error::custom)
    }
}

/// What of a repository is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An issue or pull request; GitHub numbers both from one sequence.
    Number(u64),
    /// A branch. Git compares branch names with case, and so do we.
    Branch(String),
}

/// What a session works on. Two work items are equal when their [`key`](Self::key)s are.
#[derive(Clone, Debug)]
pub enum WorkItem {
    /// An issue, pull request or branch on GitHub.
    Github {
        /// The repository it belongs to.
        repo: RepoName,
        /// Which issue, pull request or branch.
        target: Target,
    },
    /// A name of one's own, for a session that is woken by watches only.
    Local(String),
}

impl WorkItem {
    /// Reads any spelling: `github:…`, `OWNER/REPO#N`, a pasted URL, `local:NAME`.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let text = text.trim();
        let fail = |why| ParseError { text: text.into(), why };
        if let Some(name) = text.strip_prefix("local:") {
            let ok = (1..=100).contains(&name.len())
                && !name.starts_with('-')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
            return if ok { Ok(Self::Local(name.into())) } else { Err(fail("a local name is letters, digits, - _ .")) };
        }
        if text.starts_with("https://") || text.starts_with("http://") {
            return from_url(text).ok_or_else(|| fail("the URL names no issue, pull request or branch"));
        }
        let rest = text.strip_prefix("github:").unwrap_or(text);
        let at = rest.find(['#', '@']).ok_or_else(|| fail("neither #NUMBER nor @BRANCH follows the repository"))?;
        let repo = repo_path(&rest[..at]).map_err(|e| fail(e.why))?;
        let value = &rest[at + 1..];
        if rest[at..].starts_with('#') {
            number(value)
                .map(|n| repo.item(n))
                .ok_or_else(|| fail("after # comes the number of an issue or pull request"))
        } else {
            repo.branch(value).ok_or_else(|| fail("after @ comes the name of a branch"))
        }
    }

    /// Reads what [`parse`](Self::parse) reads and, with a repository at hand, `15`, `#15` and `@BRANCH` too.
    pub fn parse_in(text: &str, repo: Option<&RepoName>) -> Result<Self, ParseError> {
        let text = text.trim();
        let short = text.strip_prefix('#').unwrap_or(text);
        match repo {
            Some(repo) if !short.is_empty() && short.bytes().all(|b| b.is_ascii_digit()) => {
                number(short).map(|n| repo.item(n)).ok_or(ParseError { text: text.into(), why: "numbers start at 1" })
            }
            Some(repo) if text.starts_with('@') => repo
                .branch(&text[1..])
                .ok_or(ParseError { text: text.into(), why: "after @ comes the name of a branch" }),
            _ => Self::parse(text),
        }
    }

    /// The page of it that a person can open; GitHub leads on from an issue's to a pull request's.
    pub fn page(&self) -> Option<String> {
        match self {
            Self::Github { repo, target: Target::Number(number) } => {
                Some(format!("https://{}/{}/issues/{number}", repo.host(), repo.full_name()))
            }
            Self::Github { repo, target: Target::Branch(branch) } => {
                Some(format!("https://{}/{}/tree/{branch}", repo.host(), repo.full_name()))
            }
            Self::Local(_) => None,
        }
    }

    /// The repository, unless the work item is local.
    pub fn repo(&self) -> Option<&RepoName> {
        match self {
            Self::Github { repo, .. } => Some(repo),
            Self::Local(_) => None,
        }
    }

    /// The same target in another repository: how a renamed repository's items are found.
    pub fn in_repo(&self, repo: &RepoName) -> Self {
        match self {
            Self::Github { target, .. } => Self::Github { repo: repo.clone(), target: target.clone() },
            Self::Local(_) => self.clone(),
        }
    }

    /// The one text that all spellings of this work item share.
    pub fn key(&self) -> String {
        match self {
            Self::Github { repo, target: Target::Number(n) } => format!("github:{}#{n}", repo.key()),
            Self::Github { repo, target: Target::Branch(b) } => format!("github:{}@{b}", repo.key()),
            Self::Local(name) => format!("local:{name}"),
        }
    }
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Github { repo, target: Target::Number(n) } => write!(f, "github:{repo}#{n}"),
            Self::Github { repo, target: Target::Branch(b) } => write!(f, "github:{repo}@{b}"),
            Self::Local(name) => write!(f, "local:{name}"),
        }
    }
}

impl PartialEq for WorkItem {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for WorkItem {}

impl Hash for WorkItem {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl Serialize for WorkItem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WorkItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// A text that names no work item, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a work item: {why}")]
pub struct ParseError {
    text: String,
    why: &'static str,
}

impl ParseError {
    /// What would have been right.
    pub const HINT: &str = "write github:OWNER/REPO#NUMBER, github:OWNER/REPO@BRANCH, github:HOST/OWNER/REPO#NUMBER, \
                            local:NAME, or paste the URL of an issue or pull request";
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.len() <= 18 && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|n| digits && *n > 0)
}

/// Git's rules for a branch name, as far as they keep us safe (git-check-ref-format(1)).
fn is_branch(text: &str) -> bool {
    (1..=244).contains(&text.len())
        && !text.starts_with(['-', '/', '.'])
        && !text.ends_with(['/', '.'])
        && !text.ends_with(".lock")
        && !text.contains("..")
        && !text.contains("//")
        && !text.contains("@{")
        && !text.chars().any(|c| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c))
}

fn repo_path(path: &str) -> Result<RepoName, ParseError> {
    match path.split('/').collect::<Vec<_>>()[..] {
        [owner, name] => RepoName::new(GITHUB, owner, name),
        [host, owner, name] => RepoName::new(host, owner, name),
        _ => Err(ParseError { text: path.into(), why: "the repository is OWNER/REPO or HOST/OWNER/REPO" }),
    }
}

fn from_url(text: &str) -> Option<WorkItem> {
    let url = url::Url::parse(text).ok()?;
    let host = match (url.host_str()?, url.port()) {
        (host, Some(port)) => format!("{host}:{port}"),
        ("www.github.com", None) => GITHUB.into(),
        (host, None) => host.into(),
    };
    let path: Vec<_> = url.path_segments()?.filter(|s| !s.is_empty()).collect();
    let repo = RepoName::new(&host, path.first()?, path.get(1)?).ok()?;
    match *path.get(2)? {
        "issues" | "pull" => number(path.get(3)?).map(|n| repo.item(n)),
        "tree" => repo.branch(&percent_decoded(&path[3..].join("/"))),
        _ => None,
    }
}

fn percent_decoded(text: &str) -> String {
    // `+` is literal in a path, and form_urlencoded would read it as a space.
    form_urlencoded::parse(format!("x={}", text.replace('+', "%2B").replace('&', "%26")).as_bytes())
        .next()
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_means_the_same() {
        for text in [
            "github:octo-org/demo#15",
            "octo-org/demo#15",
            "github:github.com/Octo-Org/Demo#15",
            "https://github.com/octo-org/demo/pull/15",
            "https://github.com/octo-org/demo/pull/15/files?w=1#diff",
            "https://www.github.com/octo-org/demo/issues/15#issuecomment-1",
        ] {
            assert_eq!(WorkItem::parse(text).expect(text).key(), "github:octo-org/demo#15", "{text}");
        }
        let branch = WorkItem::parse("https://github.com/o/r/tree/feature/x%23y").expect("branch");
        assert_eq!(branch.key(), "github:o/r@feature/x#y");
        let ghe = WorkItem::parse("https://ghe.example.com/o/r/issues/3").expect("ghe");
        assert_eq!(ghe.to_string(), "github:ghe.example.com/o/r#3");
    }

    #[test]
    fn a_number_is_enough_where_the_repository_is_known() {
        let repo = RepoName::new(GITHUB, "o", "r").expect("repo");
        for text in ["15", "#15"] {
            assert_eq!(WorkItem::parse_in(text, Some(&repo)).expect(text).key(), "github:o/r#15");
        }
        assert_eq!(WorkItem::parse_in("@main", Some(&repo)).expect("main").key(), "github:o/r@main");
        assert!(WorkItem::parse_in("15", None).is_err());
        assert!(WorkItem::parse_in("0", Some(&repo)).is_err());
    }

    #[test]
    fn malformed_ones_are_refused() {
        for text in [
            "",
            "octo-org",
            "github:octo-org/demo",
            "github:octo-org/demo#x",
            "github:octo-org/demo#0",
            "github:../x#1",
            "github:a/..#1",
            "github:a/b@",
            "github:a/b@-x",
            "github:a/b@x y",
            "github:a/b@x..y",
            "a/b/c/d#1",
            "github:-a/b#1",
            "https://github.com/a/b",
            "https://github.com/a/b/wiki/1",
            "local:",
            "local:-x",
            "github:a/b#99999999999999999999",
        ] {
            assert!(WorkItem::parse(text).is_err(), "{text} was taken");
        }
    }

    #[test]
    fn branch_names_keep_their_case() {
        let upper = WorkItem::parse("o/r@Main").expect("Main");
        assert_ne!(upper, WorkItem::parse("o/r@main").expect("main"));
        assert_eq!(upper, WorkItem::parse("O/R@Main").expect("Main"));
    }
}
