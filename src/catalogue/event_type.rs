//! What an event type is: its fields, where they come from, and its filters.

/// One type of event.
#[derive(Debug)]
pub struct EventType {
    pub(super) name: &'static str,
    /// When it happens, in words by which a model can choose.
    pub(super) about: &'static str,
    pub(super) fields: &'static [&'static [Field]],
    pub(super) filters: &'static [Filter],
}

impl EventType {
    /// The name, such as `github.workflow_run`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// When it happens.
    pub fn about(&self) -> &'static str {
        self.about
    }

    pub(super) fn all_fields(&self) -> impl Iterator<Item = &'static Field> {
        self.fields.iter().flat_map(|group| group.iter())
    }
}

/// One field of a payload.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) kind: Kind,
    pub(super) from: From,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Flag,
    Texts,
    Numbers,
}

/// Where a field of GitHub's comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum From {
    /// The first of these facts that is there.
    Fact(&'static [&'static str]),
    /// A fact's text, cut to what fits a summary; `NAME_truncated` says so.
    Excerpt(&'static str),
    /// A fact that is a branch's full name: `refs/heads/` is taken off.
    Branch(&'static str),
    /// A fact that is `OWNER:BRANCH`.
    Label(&'static str),
    /// The page of the commit whose hash is the fact.
    CommitPage(&'static str),
    /// The repository's page.
    RepositoryPage,
    Repository,
    Action,
    Actor,
    /// Not GitHub's.
    Own,
}

/// One argument by which events are chosen.
#[derive(Debug)]
pub(super) struct Filter {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// The field that it looks at.
    pub(super) on: &'static str,
    pub(super) how: How,
}

/// How a filter compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// The same text.
    Same,
    /// The same text but for its case.
    SameWord,
    /// The same number.
    Number,
    /// A list that holds this text, but for its case.
    Holds,
}

pub(super) const fn text(name: &'static str, about: &'static str, from: From) -> Field {
    Field { name, about, kind: Kind::Text, from }
}

pub(super) const fn number(name: &'static str, about: &'static str, from: From) -> Field {
    Field { name, about, kind: Kind::Number, from }
}

pub(super) const fn flag(name: &'static str, about: &'static str, from: From) -> Field {
    Field { name, about, kind: Kind::Flag, from }
}

pub(super) const fn texts(name: &'static str, about: &'static str, from: From) -> Field {
    Field { name, about, kind: Kind::Texts, from }
}

pub(super) const fn numbers(name: &'static str, about: &'static str, from: From) -> Field {
    Field { name, about, kind: Kind::Numbers, from }
}

/// A filter on the field of the same name.
pub(super) const fn by(name: &'static str, about: &'static str, how: How) -> Filter {
    Filter { name, about, on: name, how }
}
