//! A place in a payload that may not be there.

use jiff::Timestamp;
use serde_json::Value;

use crate::domain::{Author, Person};

/// A place in a payload. Every step into it may find nothing, or something else than is documented.
#[derive(Clone, Copy)]
pub(super) struct Field<'a>(Option<&'a Value>);

impl<'a> Field<'a> {
    /// The whole payload.
    pub(super) fn root(value: &'a Value) -> Self {
        Self(Some(value))
    }

    /// What stands at `path`, with dots between names.
    pub(super) fn at(self, path: &str) -> Self {
        Self(path.split('.').fold(self.0, |value, name| value.and_then(|v| v.get(name))))
    }

    /// The value, unless it is null.
    pub(super) fn value(self) -> Option<&'a Value> {
        self.0.filter(|value| !value.is_null())
    }

    /// Text that is not empty.
    pub(super) fn text(self) -> Option<&'a str> {
        self.0.and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// A number such as an id.
    pub(super) fn number(self) -> Option<u64> {
        self.0.and_then(Value::as_u64)
    }

    /// Whether it is `true`.
    pub(super) fn is_true(self) -> bool {
        self.0.and_then(Value::as_bool).unwrap_or(false)
    }

    /// Whether an object stands here.
    pub(super) fn is_object(self) -> bool {
        self.0.is_some_and(Value::is_object)
    }

    /// The elements of a list.
    pub(super) fn list(self) -> impl Iterator<Item = Field<'a>> {
        self.0.and_then(Value::as_array).into_iter().flatten().map(|value| Field(Some(value)))
    }

    /// A time, as text or (in `push`) as seconds.
    pub(super) fn time(self) -> Option<Timestamp> {
        match self.0? {
            Value::String(text) => text.parse().ok(),
            Value::Number(seconds) => Timestamp::from_second(seconds.as_i64()?).ok(),
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
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            _ => None,
        }
    }
}
