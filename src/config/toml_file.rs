//! What a configuration file says, key by key, with the line of each.

use std::path::Path;

use toml::Value;
use toml::de::{DeTable, DeValue};

use super::problem::{Place, Problem};

/// One `key = value` of a file, or one table that is not a section.
pub(super) struct Written {
    /// The names of the tables and the key, outermost first.
    pub(super) path: Vec<String>,
    pub(super) value: Value,
    /// The line of the key.
    pub(super) place: Place,
}

/// Reads a file into its keys. `is_section` says of a table, by its path, whether its keys count one by one.
pub(super) fn read(text: &str, path: &Path, is_section: fn(&[String]) -> bool) -> (Vec<Written>, Vec<Problem>) {
    let place = |at: usize| {
        let line = 1 + text.bytes().take(at).filter(|b| *b == b'\n').count();
        Place::File { path: path.to_owned(), line }
    };
    let (document, errors) = DeTable::parse_recoverable(text);
    let problem = |error: toml::de::Error| Problem {
        place: place(error.span().map_or(0, |span| span.start)),
        what: format!("this is not TOML: {}", error.message().replace('\n', ", ")),
        hint: None,
    };
    let mut written = Vec::new();
    let mut tables = vec![(Vec::new(), document.get_ref())];
    while let Some((above, table)) = tables.pop() {
        for (key, value) in table {
            let mut path: Vec<String> = above.clone();
            path.push(key.get_ref().to_string());
            match value.get_ref() {
                DeValue::Table(inner) if is_section(&path) && !inner.is_empty() => tables.push((path, inner)),
                // A list of tables is so many sections, called by their number.
                DeValue::Array(items) if is_section(&path) && items.iter().all(|item| item.get_ref().is_table()) => {
                    for (number, item) in items.iter().enumerate() {
                        if let DeValue::Table(inner) = item.get_ref() {
                            let inside = path.iter().cloned().chain([number.to_string()]).collect();
                            tables.push((inside, inner));
                        }
                    }
                }
                other => written.push(Written { path, value: plain(other), place: place(key.span().start) }),
            }
        }
    }
    (written, errors.into_iter().map(problem).collect())
}

/// The value without its places.
fn plain(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        // Beyond 64 bits, the largest is as much too large as the number itself.
        DeValue::Integer(number) => {
            let least = if number.as_str().starts_with('-') { i64::MIN } else { i64::MAX };
            Value::Integer(i64::from_str_radix(number.as_str(), number.radix()).unwrap_or(least))
        }
        DeValue::Float(number) => {
            number.as_str().parse().map_or_else(|_| Value::String(number.to_string()), Value::Float)
        }
        DeValue::Boolean(truth) => Value::Boolean(*truth),
        DeValue::Datetime(time) => Value::Datetime(*time),
        DeValue::Array(items) => Value::Array(items.iter().map(|item| plain(item.get_ref())).collect()),
        DeValue::Table(table) => {
            Value::Table(table.iter().map(|(key, value)| (key.get_ref().to_string(), plain(value.get_ref()))).collect())
        }
    }
}
