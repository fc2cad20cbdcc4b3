//! A tree of GitHub's payload without the API addresses that fill most of it.
//!
//! An account carries twelve `…_url` fields and a repository forty, and a payload holds several of each. None is ever
//! used, and leaving them out makes reading about twice as quick.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The `…_url` fields that readers use: pages for people, and where an issue's comment belongs.
const KEPT: &[&str] = &["html_url", "details_url", "target_url", "environment_url", "log_url", "issue_url"];

/// Of longer lists the rest is `null`: a body of 25 MB is a long list, and its tree would be several times that.
const MAX_ITEMS: usize = 100;

/// A payload as a tree, without fields that nobody uses.
pub(super) struct Lean(pub(super) Value);

impl<'de> Deserialize<'de> for Lean {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LeanVisitor).map(Self)
    }
}

struct LeanVisitor;

impl<'de> DeserializeSeed<'de> for LeanVisitor {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for LeanVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while list.len() < MAX_ITEMS
            && let Some(item) = items.next_element_seed(LeanVisitor)?
        {
            list.push(item);
        }
        // What no reader looks at is counted all the same.
        while items.next_element::<IgnoredAny>()?.is_some() {
            list.push(Value::Null);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if name.ends_with("_url") && !KEPT.contains(&name.as_str()) {
                fields.next_value::<IgnoredAny>()?;
            } else {
                map.insert(name, fields.next_value_seed(LeanVisitor)?);
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_keep_their_length_and_not_their_weight() {
        let text = serde_json::to_string(&vec![serde_json::json!({"a": 1}); 150]).expect("text");
        let Lean(Value::Array(list)) = serde_json::from_str(&text).expect("lean") else { panic!("no list") };
        assert_eq!((list.len(), &list[99]["a"], &list[100]), (150, &1.into(), &Value::Null));
    }

    #[test]
    fn what_is_kept_is_as_it_was() {
        let text = r#"{"a":[1,-2,1.5,true,null,"x\n\u00e6"],"keys_url":"https://api.github.com/x","b":{"html_url":"https://github.com/x","followers_url":{"deep":[1]}},"n":18446744073709551615}"#;
        let Lean(lean) = serde_json::from_str(text).expect("lean");
        let mut whole: Value = serde_json::from_str(text).expect("whole");
        whole.as_object_mut().expect("object").shift_remove("keys_url");
        whole["b"].as_object_mut().expect("object").shift_remove("followers_url");
        assert_eq!(lean, whole);
    }
}
