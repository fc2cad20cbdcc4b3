//! The kinds of values: how each is read from TOML and from plain text, and written for people.

use std::str::FromStr;

use toml::Value;

use super::settings::{KeepAwake, OnClosed};
use crate::domain::{Size, Span};

/// How a value of type `T` is written in a configuration.
pub(super) trait Kind<T> {
    /// What would be right, for a message: "a whole number".
    const SHAPE: &'static str;

    /// Reads a value, or says in what way it is wrong.
    fn read(value: &Value) -> Result<T, String>;

    /// Writes a value; `None` is one that has no value.
    fn write(value: &T) -> Option<Value>;

    /// What a text from the environment or a flag stands for.
    fn plain(text: &str) -> Value {
        Value::String(text.to_owned())
    }
}

/// Text that is not empty.
pub(super) struct Text;
/// Text that may be absent.
pub(super) struct MaybeText;
/// True or false.
pub(super) struct Truth;
/// A whole number that is not negative.
pub(super) struct Number;
/// An amount of money that may be absent.
pub(super) struct Money;
/// A duration.
pub(super) struct Duration;
/// A number of bytes.
pub(super) struct Bytes;
/// A list of texts.
pub(super) struct List;
/// A list of texts, where a single one needs no brackets.
pub(super) struct OneOrMore;
/// One of a few words.
pub(super) struct Word;

fn not(shape: &str, value: &Value) -> String {
    let kind = match value {
        Value::String(_) => "a text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    };
    format!("is {kind}, and should be {shape}")
}

impl Kind<String> for Text {
    const SHAPE: &'static str = "a text";

    fn read(value: &Value) -> Result<String, String> {
        match value.as_str() {
            Some(text) if !text.trim().is_empty() => Ok(text.to_owned()),
            Some(_) => Err("is empty".into()),
            None => Err(not(Self::SHAPE, value)),
        }
    }

    fn write(value: &String) -> Option<Value> {
        Some(Value::String(value.clone()))
    }
}

impl Kind<Option<String>> for MaybeText {
    const SHAPE: &'static str = "a text";

    fn read(value: &Value) -> Result<Option<String>, String> {
        Text::read(value).map(Some)
    }

    fn write(value: &Option<String>) -> Option<Value> {
        value.clone().map(Value::String)
    }
}

impl Kind<bool> for Truth {
    const SHAPE: &'static str = "true or false";

    fn read(value: &Value) -> Result<bool, String> {
        value.as_bool().ok_or_else(|| not(Self::SHAPE, value))
    }

    fn write(value: &bool) -> Option<Value> {
        Some(Value::Boolean(*value))
    }

    fn plain(text: &str) -> Value {
        text.trim().parse().map_or_else(|_| Value::String(text.to_owned()), Value::Boolean)
    }
}

impl<T: TryFrom<i64> + Copy + ToString> Kind<T> for Number {
    const SHAPE: &'static str = "a whole number";

    fn read(value: &Value) -> Result<T, String> {
        let shape = <Self as Kind<T>>::SHAPE;
        let number = value.as_integer().ok_or_else(|| not(shape, value))?;
        T::try_from(number)
            .map_err(|_| format!("is {number}, which is too {}", if number < 0 { "small" } else { "large" }))
    }

    fn write(value: &T) -> Option<Value> {
        value.to_string().parse().ok().map(Value::Integer)
    }

    fn plain(text: &str) -> Value {
        text.trim().parse().map_or_else(|_| Value::String(text.to_owned()), Value::Integer)
    }
}

impl Kind<Option<f64>> for Money {
    const SHAPE: &'static str = "a number of US dollars such as 2.5";

    fn read(value: &Value) -> Result<Option<f64>, String> {
        let number = match value {
            Value::Float(number) => *number,
            #[expect(clippy::cast_precision_loss, reason = "no budget is that large")]
            Value::Integer(number) => *number as f64,
            _ => return Err(not(Self::SHAPE, value)),
        };
        if number.is_finite() && number > 0.0 { Ok(Some(number)) } else { Err("should be more than 0".into()) }
    }

    fn write(value: &Option<f64>) -> Option<Value> {
        value.map(Value::Float)
    }

    fn plain(text: &str) -> Value {
        text.trim().parse().map_or_else(|_| Value::String(text.to_owned()), Value::Float)
    }
}

/// Reads a text by its own rules; `shape` tells of another type.
fn parsed<T: FromStr<Err = String>>(shape: &str, value: &Value) -> Result<T, String> {
    match value.as_str() {
        Some(text) => text.parse().map_err(|why: String| format!("is wrong: {why}")),
        None => Err(not(shape, value)),
    }
}

impl Kind<Span> for Duration {
    const SHAPE: &'static str = "a duration in quotes such as \"100ms\", \"1s\" or \"30m\"";

    fn read(value: &Value) -> Result<Span, String> {
        parsed(Self::SHAPE, value)
    }

    fn write(value: &Span) -> Option<Value> {
        Some(Value::String(value.to_string()))
    }
}

impl Kind<Size> for Bytes {
    const SHAPE: &'static str = "a size in quotes such as \"512KiB\" or \"25MiB\"";

    fn read(value: &Value) -> Result<Size, String> {
        parsed(Self::SHAPE, value)
    }

    fn write(value: &Size) -> Option<Value> {
        Some(Value::String(value.to_string()))
    }
}

impl Kind<Vec<String>> for List {
    const SHAPE: &'static str = "a list of texts such as [\"one\", \"two\"]";

    fn read(value: &Value) -> Result<Vec<String>, String> {
        let items = value.as_array().ok_or_else(|| not(Self::SHAPE, value))?;
        items
            .iter()
            .map(|item| {
                item.as_str().map(str::to_owned).ok_or_else(|| format!("holds something that {}", not("a text", item)))
            })
            .collect()
    }

    fn write(value: &Vec<String>) -> Option<Value> {
        Some(Value::Array(value.iter().cloned().map(Value::String).collect()))
    }

    fn plain(text: &str) -> Value {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        Value::Array(items.map(|item| Value::String(item.to_owned())).collect())
    }
}

impl Kind<Vec<String>> for OneOrMore {
    const SHAPE: &'static str = "a text or a list of texts";

    fn read(value: &Value) -> Result<Vec<String>, String> {
        match value {
            Value::String(_) => Text::read(value).map(|one| vec![one]),
            Value::Array(_) => List::read(value),
            _ => Err(not(Self::SHAPE, value)),
        }
    }

    fn write(value: &Vec<String>) -> Option<Value> {
        match &value[..] {
            [one] => Some(Value::String(one.clone())),
            _ => List::write(value),
        }
    }

    fn plain(text: &str) -> Value {
        List::plain(text)
    }
}

impl Kind<KeepAwake> for Word {
    const SHAPE: &'static str = "\"turns\", \"watches\" or \"never\"";

    fn read(value: &Value) -> Result<KeepAwake, String> {
        let shape = <Self as Kind<KeepAwake>>::SHAPE;
        let text = value.as_str().ok_or_else(|| not(shape, value))?;
        serde_json::from_value(text.into()).map_err(|_| format!("is `{text}`, and should be {shape}"))
    }

    fn write(value: &KeepAwake) -> Option<Value> {
        Value::try_from(value).ok()
    }
}

impl Kind<OnClosed> for Word {
    const SHAPE: &'static str = "\"close\", \"tell\" or \"keep\"";

    fn read(value: &Value) -> Result<OnClosed, String> {
        let shape = <Self as Kind<OnClosed>>::SHAPE;
        let text = value.as_str().ok_or_else(|| not(shape, value))?;
        serde_json::from_value(text.into()).map_err(|_| format!("is `{text}`, and should be {shape}"))
    }

    fn write(value: &OnClosed) -> Option<Value> {
        Value::try_from(value).ok()
    }
}
