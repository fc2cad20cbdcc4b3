//! Arguments: checked against an event type's filters, compared with payloads, and written in one way.

use serde_json::{Map, Value};

use super::event_type::{EventType, Filter, How};
use crate::domain::{Arguments, Occurrence};

/// The longest text that an argument may be.
pub(super) const LONGEST: usize = 256;

impl EventType {
    /// Reads arguments, or says in what way they are wrong. `null` is none.
    pub fn arguments(&self, given: &Value) -> Result<Arguments, String> {
        let none = Map::new();
        let given = match given {
            Value::Null => &none,
            Value::Object(given) => given,
            _ => return Err("the arguments are not an object".into()),
        };
        let mut arguments = Arguments::new();
        for (name, value) in given {
            let Some(filter) = self.filters.iter().find(|filter| filter.name == name) else {
                let known: Vec<_> = self.filters.iter().map(|filter| filter.name).collect();
                let name: String = name.chars().take(64).collect();
                return Err(format!("{} has no argument {name:?}; it has {}", self.name, known.join(", ")));
            };
            arguments.insert(name.clone(), filter.read(value)?);
        }
        Ok(arguments)
    }

    /// Whether an occurrence of this type fits the arguments.
    pub fn matches(&self, arguments: &Arguments, occurrence: &Occurrence) -> bool {
        occurrence.name == self.name
            && arguments.iter().all(|(name, wanted)| {
                let filter = self.filters.iter().find(|filter| filter.name == name);
                filter.is_some_and(|filter| filter.fits(wanted, occurrence.data.get(filter.on)))
            })
    }
}

impl Filter {
    fn read(&self, value: &Value) -> Result<Value, String> {
        match (self.how, value) {
            (How::Number, Value::Number(number)) if number.as_u64().is_some_and(|n| n > 0) => Ok(value.clone()),
            (How::Number, _) => Err(format!("the argument `{}` is not a whole number above 0", self.name)),
            (_, Value::String(text)) if (1..=LONGEST).contains(&text.chars().count()) => Ok(value.clone()),
            (_, Value::String(_)) => Err(format!("the argument `{}` is not 1 to {LONGEST} characters", self.name)),
            _ => Err(format!("the argument `{}` is not a text", self.name)),
        }
    }

    pub(super) fn fits(&self, wanted: &Value, found: Option<&Value>) -> bool {
        let same_word = |found: &Value| match (wanted.as_str(), found.as_str()) {
            (Some(wanted), Some(found)) => wanted.to_lowercase() == found.to_lowercase(),
            _ => false,
        };
        match (self.how, found) {
            (_, None) => false,
            (How::Same, Some(found)) => wanted == found,
            (How::Number, Some(found)) => wanted.as_u64().is_some() && wanted.as_u64() == found.as_u64(),
            (How::SameWord, Some(found)) => same_word(found),
            (How::Holds, Some(found)) => found.as_array().is_some_and(|list| list.iter().any(same_word)),
        }
    }
}

/// The one text that equal arguments share.
pub fn canonical(arguments: &Arguments) -> String {
    // Names are in order and values are texts and whole numbers, so JSON has one way to write them.
    Value::Object(arguments.iter().map(|(name, value)| (name.clone(), value.clone())).collect()).to_string()
}

/// Texts that the JSON of every payload that fits holds: by them a store narrows before it reads.
pub fn needles(of: &EventType, arguments: &Arguments) -> Vec<String> {
    let exact = |(name, value): (&String, &Value)| {
        let filter = of.filters.iter().find(|filter| filter.name == name)?;
        matches!(filter.how, How::Same | How::Number).then(|| format!("{}:{value}", Value::from(filter.on)))
    };
    arguments.iter().filter_map(exact).collect()
}
