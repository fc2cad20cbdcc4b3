//! A place in a payload that may not be there.

use super::tree::Tree;
use crate::domain::{Author, Person};
use jiff::Timestamp;

/// A place in a payload. Every step into it may find nothing, or something else than is documented.
#[derive(Clone, Copy)]
pub(super) struct Field<'a>(Option<&'a Tree<'a>>);

impl<'a> Field<'a> {
    /// The whole payload.
    pub(super) fn root(value: &'a Tree<'a>) -> Self {
        Self(Some(value))
    }

    /// What stands at `path`, with dots between names.
    pub(super) fn at(self, path: &str) -> Self {
        Self(path.split('.').fold(self.0, |value, name| value.and_then(|v| v.get(name))))
    }

    /// The value, unless it is null.
    pub(super) fn value(self) -> Option<&'a Tree<'a>> {
        self.0.filter(|value| **value != Tree::Null)
    }

    /// Text that is not empty.
    pub(super) fn text(self) -> Option<&'a str> {
        match self.0? {
            Tree::Text(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// A number such as an id.
    pub(super) fn number(self) -> Option<u64> {
        match self.0? {
            Tree::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    /// Whether it is `true`.
    pub(super) fn is_true(self) -> bool {
        matches!(self.0, Some(Tree::Bool(true)))
    }

    /// Whether an object stands here.
    pub(super) fn is_object(self) -> bool {
        matches!(self.0, Some(Tree::Object(_)))
    }

    /// The elements of a list. Those that were not kept are nothing.
    pub(super) fn list(self) -> impl Iterator<Item = Field<'a>> {
        let (kept, more): (&[Tree<'_>], usize) = match self.0 {
            Some(Tree::List(items, more)) => (items, *more),
            _ => (&[], 0),
        };
        kept.iter().map(|value| Field(Some(value))).chain(std::iter::repeat_n(Field(None), more))
    }

    /// An object's fields in their order.
    pub(super) fn fields(self) -> impl Iterator<Item = (&'a str, Field<'a>)> {
        let fields: &[_] = match self.0 {
            Some(Tree::Object(fields)) => fields,
            _ => &[],
        };
        fields.iter().map(|(name, value)| (name.as_ref(), Field(Some(value))))
    }

    /// A time, as text or (in `push`) as seconds.
    pub(super) fn time(self) -> Option<Timestamp> {
        match self.0? {
            Tree::Text(text) => text.parse().ok(),
            Tree::Number(seconds) => Timestamp::from_second(seconds.as_i64()?).ok(),
            _ => None,
        }
    }

    /// A commit's full hash, in lower case. GitHub writes "no commit" as zeros.
    pub(super) fn sha(self) -> Option<String> {
        let text = self.text()?;
        let hex = matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit());
        (hex && text.bytes().any(|b| b != b'0')).then(|| text.to_ascii_lowercase())
    }

    /// An account. A deleted one is null, which is nobody.
    pub(super) fn person(self) -> Option<Person> {
        let login = self.at("login").text()?;
        Some(Person { login: login.into(), bot: self.at("type").text() == Some("Bot") })
    }

    /// Who wrote the issue, pull request, comment or review that stands here.
    pub(super) fn author(self) -> Author {
        Author { person: self.at("user").person(), association: self.at("author_association").text().map(String::from) }
    }

    /// The value as a part of a key: text, a number or a truth value.
    pub(super) fn part(self) -> Option<String> {
        match self.0? {
            Tree::Text(text) if !text.is_empty() => Some(text.clone().into_owned()),
            Tree::Number(number) => Some(number.to_string()),
            Tree::Bool(flag) => Some(flag.to_string()),
            _ => None,
        }
    }
}
