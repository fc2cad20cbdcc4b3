//! What another server offers, and whether it is asked for rightly: said when it is typed, with what there is instead.

use serde_json::{Map, Value};

use crate::domain::{Arguments, EventOffer};

/// The offer of this name, or what there is instead.
pub fn offered<'a>(offers: &'a [EventOffer], name: &str) -> Result<&'a EventOffer, String> {
    offers.iter().find(|offer| offer.name == name).ok_or_else(|| {
        let names: Vec<_> = offers.iter().map(|offer| offer.name.as_str()).collect();
        let near =
            nearest(name, names.iter().copied()).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        match names.is_empty() {
            true => format!("there is no event `{name}`: the server offers none"),
            false => format!("there is no event `{name}`{near} The server offers {}", names.join(", ")),
        }
    })
}

/// Arguments as text, `NAME=VALUE` each, in the types that the server's schema asks for.
pub fn typed(offer: &EventOffer, pairs: &[(String, String)]) -> Result<Arguments, String> {
    let schemas = properties(offer);
    let mut arguments = Arguments::new();
    for (name, text) in pairs {
        let kind = schemas.get(name).map_or(&Value::Null, |schema| schema.get("type").unwrap_or(&Value::Null));
        let is =
            |wanted: &str| kind == wanted || kind.as_array().is_some_and(|kinds| kinds.iter().any(|k| k == wanted));
        let value = if is("string") {
            Value::String(text.clone())
        } else if is("integer") || is("number") || is("boolean") {
            serde_json::from_str(text).map_err(|_| format!("`{name}` is `{text}`, and should be {kind}"))?
        } else if is("array") {
            Value::Array(text.split(',').map(|item| Value::String(item.trim().to_owned())).collect())
        } else {
            Value::String(text.clone())
        };
        if arguments.insert(name.clone(), value).is_some() {
            return Err(format!("`{name}` is given twice"));
        }
    }
    checked(offer, &arguments)?;
    Ok(arguments)
}

/// Whether the arguments are ones that the server's schema knows. Only what is plain in a schema is checked here: names,
/// what must be there, and lists of values. The server itself has the last word.
pub fn checked(offer: &EventOffer, arguments: &Arguments) -> Result<(), String> {
    let schemas = properties(offer);
    let open = offer.arguments.get("additionalProperties").is_some_and(|more| more != &Value::Bool(false));
    for (name, value) in arguments {
        let Some(schema) = schemas.get(name) else {
            if open {
                continue;
            }
            let names: Vec<_> = schemas.keys().map(String::as_str).collect();
            let near = nearest(name, names.iter().copied());
            let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let there = if names.is_empty() { "it has none".into() } else { format!("it has {}", names.join(", ")) };
            return Err(format!("`{}` has no argument `{name}`{near} ({there})", offer.name));
        };
        let allowed = schema.get("enum").and_then(Value::as_array);
        if let Some(allowed) = allowed.filter(|allowed| !allowed.contains(value)) {
            let words: Vec<_> =
                allowed.iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned)).collect();
            return Err(format!("`{name}` cannot be {value}: it is one of {}", words.join(", ")));
        }
    }
    let required = offer.arguments.get("required").and_then(Value::as_array).into_iter().flatten();
    match required.filter_map(Value::as_str).find(|name| !arguments.contains_key(*name)) {
        Some(name) => Err(format!("`{}` needs the argument `{name}`", offer.name)),
        None => Ok(()),
    }
}

/// The names of the arguments by which an event type filters.
pub fn argument_names(offer: &EventOffer) -> Vec<String> {
    properties(offer).keys().cloned().collect()
}

fn properties(offer: &EventOffer) -> Map<String, Value> {
    offer.arguments.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// The nearest of `names`, where one is near enough to be meant.
pub fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (strsim::damerau_levenshtein(word, name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len().max(word.len()) / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn offer() -> EventOffer {
        EventOffer {
            server: "ci".into(),
            name: "github.workflow_run".into(),
            description: String::new(),
            delivery: Vec::new(),
            arguments: json!({"type": "object", "required": ["repo"], "properties": {
                "repo": {"type": "string"}, "run": {"type": "integer"}, "labels": {"type": "array"},
                "state": {"enum": ["open", "closed"]}}}),
        }
    }

    fn told(pairs: &[(&str, &str)]) -> Result<Value, String> {
        let pairs: Vec<_> = pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        typed(&offer(), &pairs).map(|arguments| json!(arguments))
    }

    #[test]
    fn text_becomes_what_the_schema_asks_for() {
        let wanted = json!({"repo": "5", "run": 5, "labels": ["a", "b"]});
        assert_eq!(told(&[("repo", "5"), ("run", "5"), ("labels", "a, b")]), Ok(wanted));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_there_is() {
        for (pairs, words) in [
            (&[("repo", "x"), ("rub", "1")][..], &["`rub`", "did you mean `run`"][..]),
            (&[("repo", "x"), ("colour", "red")], &["`colour`", "repo, run, labels, state"]),
            (&[("run", "1")], &["needs the argument `repo`"]),
            (&[("repo", "x"), ("run", "one")], &["integer"]),
            (&[("repo", "x"), ("state", "ajar")], &["open, closed"]),
            (&[("repo", "x"), ("repo", "y")], &["twice"]),
        ] {
            let error = told(pairs).expect_err("wrong");
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
        let error = offered(&[offer()], "github.workflow_rum").expect_err("wrong");
        assert!(error.contains("did you mean `github.workflow_run`"), "{error}");
        assert!(offered(&[], "x").is_err());
    }
}
