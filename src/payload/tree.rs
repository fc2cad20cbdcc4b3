//! A payload as a tree that borrows its text from the body.
//!
//! Of GitHub's payloads, the API addresses that fill most of them are left out: an account carries twelve `…_url`
//! fields and a repository forty, a payload holds several of each, and none is ever used.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

/// The `…_url` fields that readers use: pages for people, and where an issue's comment belongs.
const KEPT: &[&str] = &["html_url", "details_url", "target_url", "environment_url", "log_url", "issue_url"];

/// How much of a payload is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Every field.
    Whole,
    /// No `…_url` fields but those that are read, and of longer lists the first elements: a body of 25 MB is a long
    /// list, and its tree would be several times that.
    Lean,
}

/// How many elements of a list are kept in a lean tree.
const MAX_ITEMS: usize = 100;

/// One value of a payload.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Tree<'a> {
    /// `null`.
    Null,
    /// A truth value.
    Bool(bool),
    /// A number.
    Number(Number),
    /// Text; borrowed unless it holds escapes.
    Text(Cow<'a, str>),
    /// A list: the elements that were kept, and how many were not.
    List(Vec<Tree<'a>>, usize),
    /// An object's fields in their order. Of two with one name the last counts.
    Object(Vec<(Cow<'a, str>, Tree<'a>)>),
}

impl<'a> Tree<'a> {
    /// Reads one complete JSON text.
    pub(super) fn read(text: &'a str, extent: Extent) -> Result<Self, serde_json::Error> {
        let mut json = serde_json::Deserializer::from_str(text);
        let tree = extent.deserialize(&mut json)?;
        json.end()?;
        Ok(tree)
    }

    /// The field of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(fields) => fields.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The tree of a value.
    pub(super) fn of(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(flag) => Self::Bool(*flag),
            Value::Number(number) => Self::Number(number.clone()),
            Value::String(text) => Self::Text(Cow::Borrowed(text)),
            Value::Array(items) => Self::List(items.iter().map(Self::of).collect(), 0),
            Value::Object(fields) => Self::Object(
                fields.iter().map(|(name, value)| (Cow::Borrowed(name.as_str()), Self::of(value))).collect(),
            ),
        }
    }

    /// The same as a value that owns its text. What was not kept of a list is `null`.
    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(flag) => Value::Bool(*flag),
            Self::Number(number) => Value::Number(number.clone()),
            Self::Text(text) => Value::String(text.clone().into_owned()),
            Self::List(items, more) => {
                let kept = items.iter().map(Self::to_value);
                Value::Array(kept.chain(std::iter::repeat_n(Value::Null, *more)).collect())
            }
            Self::Object(fields) => Value::Object(
                fields.iter().map(|(name, value)| (name.clone().into_owned(), value.to_value())).collect(),
            ),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Extent {
    type Value = Tree<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Extent {
    type Value = Tree<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Tree<'de>, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Tree<'de>, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Tree<'de>, E> {
        Ok(Tree::Number(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Tree<'de>, E> {
        Ok(Tree::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Tree<'de>, E> {
        Ok(Number::from_f64(value).map_or(Tree::Null, Tree::Number))
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Tree<'de>, E> {
        Ok(Tree::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Tree<'de>, E> {
        Ok(Tree::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree<'de>, A::Error> {
        let (mut list, mut more) = (Vec::new(), 0);
        while (self == Self::Whole || list.len() < MAX_ITEMS)
            && let Some(item) = items.next_element_seed(self)?
        {
            list.push(item);
        }
        // What no reader looks at is counted all the same.
        while items.next_element::<IgnoredAny>()?.is_some() {
            more += 1;
        }
        Ok(Tree::List(list, more))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Tree<'de>, A::Error> {
        let mut object = Vec::new();
        while let Some(Name(name)) = fields.next_key()? {
            if self == Self::Lean && name.ends_with("_url") && !KEPT.contains(&name.as_ref()) {
                fields.next_value::<IgnoredAny>()?;
            } else {
                object.push((name, fields.next_value_seed(self)?));
            }
        }
        Ok(Tree::Object(object))
    }
}

/// A field's name; borrowed unless it holds escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Borrowed(name)))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Owned(name.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_keep_their_length_and_not_their_weight() {
        let text = serde_json::to_string(&vec![serde_json::json!({"a": 1}); 150]).expect("text");
        let Ok(Tree::List(list, more)) = Tree::read(&text, Extent::Lean) else { panic!("no list") };
        assert_eq!((list.len(), list[99].get("a"), more), (100, Some(&Tree::Number(1.into())), 50));
        let Ok(Value::Array(list)) = Tree::read(&text, Extent::Lean).map(|tree| tree.to_value()) else {
            panic!("no list")
        };
        assert_eq!((list.len(), &list[100]), (150, &Value::Null));
        assert!(matches!(Tree::read(&text, Extent::Whole), Ok(Tree::List(list, 0)) if list.len() == 150));
    }

    #[test]
    fn what_is_kept_is_as_it_was() {
        let text = r#"{"a":[1,-2,1.5,true,null,"x\n\u00e6"],"keys_url":"https://api.github.com/x","b":{"html_url":"https://github.com/x","followers_url":{"deep":[1]}},"n":18446744073709551615,"\u0061\n":"æ"}"#;
        let lean = Tree::read(text, Extent::Lean).expect("lean").to_value();
        let mut wanted: Value = serde_json::from_str(text).expect("whole");
        assert_eq!(Tree::read(text, Extent::Whole).expect("whole").to_value(), wanted);
        assert_eq!(Tree::of(&wanted).to_value(), wanted);
        wanted.as_object_mut().expect("object").shift_remove("keys_url");
        wanted["b"].as_object_mut().expect("object").shift_remove("followers_url");
        assert_eq!(lean, wanted);
    }

    #[test]
    fn of_two_fields_with_one_name_the_last_counts() {
        let tree = Tree::read(r#"{"a":1,"a":2}"#, Extent::Whole).expect("tree");
        assert_eq!(tree.get("a"), Some(&Tree::Number(2.into())));
        assert!(Tree::read("{}{}", Extent::Whole).is_err());
    }
}
