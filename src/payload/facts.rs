//! The useful fields of a payload, chosen one by one: what is not named here never reaches an agent.

use serde_json::Value;

use super::field::Field;
use super::tree::Tree;
use crate::domain::Fact;

/// How many elements of a list are kept.
const LIST: usize = 20;

/// Gathers facts in the order in which a reader wants them. What is null, empty or of another kind is left out.
#[derive(Default)]
pub(super) struct Facts(Vec<Fact>);

impl Facts {
    /// Adds text, a number or a truth value.
    pub(super) fn add(&mut self, name: &str, field: Field<'_>) {
        match field.value() {
            Some(Tree::Text(text)) if text.is_empty() => {}
            Some(value @ (Tree::Text(_) | Tree::Number(_) | Tree::Bool(_))) => self.put(name, value.to_value()),
            _ => {}
        }
    }

    /// Adds several fields of one object under a common prefix; `from` may differ from the name a reader sees.
    pub(super) fn all(&mut self, prefix: &str, object: Field<'_>, names: &[(&str, &str)]) {
        for (name, from) in names {
            self.add(&format!("{prefix}.{name}"), object.at(from));
        }
    }

    /// Adds the address of a page that a person can open. The API's own addresses are of no use to an agent.
    pub(super) fn page(&mut self, name: &str, field: Field<'_>) {
        let api = |url: &str| url.contains("://api.") || url.contains("/api/v3/") || url.contains("api.github.com");
        if field.text().is_some_and(|url| !api(url)) {
            self.add(name, field);
        }
    }

    /// Adds a list of texts or numbers, unless it is empty.
    pub(super) fn list(&mut self, name: &str, values: impl Iterator<Item = Value>) {
        let values: Vec<_> = values.take(LIST).collect();
        if !values.is_empty() {
            self.put(name, Value::Array(values));
        }
    }

    /// Adds the names of labels.
    pub(super) fn labels(&mut self, name: &str, labels: Field<'_>) {
        self.list(name, labels.list().filter_map(|label| label.at("name").text().map(Value::from)));
    }

    /// Adds a value as it is.
    pub(super) fn put(&mut self, name: &str, value: Value) {
        self.0.push(Fact { name: name.into(), value });
    }

    /// The facts.
    pub(super) fn done(self) -> Vec<Fact> {
        self.0
    }
}
