//! The `[harness.NAME]` tables. Their keys are the fields of the type that the harness floor defines, read from the
//! type itself, so that this list cannot fall behind.

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Visitor, value::Error as Stopped};
use serde::forward_to_deserialize_any;
use toml::{Table, Value};

use super::settings::HarnessDefinition;

/// The keys of each `[harness.NAME]`.
pub(super) fn keys() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // It always stops with an error, after it has told the names.
    drop(HarnessDefinition::deserialize(AskNames(&mut fields)));
    fields
}

/// Sets one key of a definition, or says in what way the value is wrong.
pub(super) fn set(definition: &mut HarnessDefinition, key: &str, value: &Value) -> Result<(), String> {
    let wrong = |error: toml::de::Error| format!("is wrong: {}", error.message().replace('\n', ", "));
    // By itself first, so that the message is about this key.
    Table::from_iter([(key.to_owned(), value.clone())]).try_into::<HarnessDefinition>().map_err(wrong)?;
    let mut table = table(definition);
    table.insert(key.to_owned(), value.clone());
    *definition = table.try_into().map_err(wrong)?;
    Ok(())
}

/// The keys that a definition sets, with their values.
pub(super) fn table(definition: &HarnessDefinition) -> Table {
    Table::try_from(definition).unwrap_or_default()
}

/// What a text from the environment stands for: the first of text, list, truth and table that the key takes.
pub(super) fn plain(key: &str, text: &str) -> Value {
    let items = || text.split(',').map(str::trim).filter(|item| !item.is_empty());
    let list = || Value::Array(items().map(|item| Value::String(item.to_owned())).collect());
    let pairs = || items().filter_map(|pair| pair.split_once('='));
    let table =
        || Value::Table(pairs().map(|(name, value)| (name.to_owned(), Value::String(value.to_owned()))).collect());
    let truth = || text.trim().parse().map_or_else(|_| Value::String(text.to_owned()), Value::Boolean);
    let takes = |value: &Value| set(&mut HarnessDefinition::default(), key, value).is_ok();
    let text = Value::String(text.to_owned());
    [text.clone(), list(), truth(), table()].into_iter().find(takes).unwrap_or(text)
}

/// A deserializer that reads nothing: it keeps the names of the fields that it is asked for.
struct AskNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for AskNames<'_> {
    type Error = Stopped;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Stopped> {
        Err(Stopped::custom("not a struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Stopped> {
        *self.0 = fields;
        Err(Stopped::custom("the names are known"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_those_of_the_type() {
        assert!(keys().starts_with(&["command", "args", "env"]), "{:?}", keys());
    }

    #[test]
    fn text_becomes_what_the_key_takes() {
        assert_eq!(plain("command", "a,b"), Value::String("a,b".into()));
        assert_eq!(plain("args", "-m, opus").to_string(), r#"["-m", "opus"]"#);
        assert_eq!(plain("env", "A=1,B=x=y").to_string(), r#"{ A = "1", B = "x=y" }"#);
        assert_eq!(plain("ends_when_done", "true"), Value::Boolean(true));
    }
}
