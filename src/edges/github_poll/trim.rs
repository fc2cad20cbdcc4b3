//! What of GitHub's answers is kept: the fields that deliveries are read by.

use serde_json::{Map, Value, json};

/// No text that is kept between looks is longer. GitHub's own limit is 65,536 characters.
const LONGEST: usize = 64 << 10;

fn fields(of: &Value, names: &[&str]) -> Value {
    let mut kept = Map::new();
    for name in names {
        if let Some(value) = of.get(*name) {
            let value = match value {
                Value::String(text) if text.len() > LONGEST => {
                    let end = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
                    Value::String(text.get(..end).unwrap_or_default().to_owned())
                }
                value => value.clone(),
            };
            kept.insert((*name).to_owned(), value);
        }
    }
    Value::Object(kept)
}

fn put(kept: &mut Value, name: &str, value: Value) {
    if let Some(kept) = kept.as_object_mut() {
        kept.insert(name.to_owned(), value);
    }
}

/// A repository.
pub(super) fn repository(of: &Value) -> Value {
    let mut kept = fields(of, &["id", "name", "full_name", "private", "fork", "html_url", "default_branch"]);
    if let Some(owner) = of.get("owner") {
        put(&mut kept, "owner", fields(owner, &["login", "id", "type"]));
    }
    kept
}

fn person(of: &Value) -> Value {
    if of.is_object() { fields(of, &["login", "id", "type"]) } else { Value::Null }
}

const ITEM: &[&str] = &[
    "id",
    "number",
    "title",
    "state",
    "state_reason",
    "body",
    "author_association",
    "html_url",
    "created_at",
    "updated_at",
    "closed_at",
];

fn item(of: &Value) -> Value {
    let mut kept = fields(of, ITEM);
    put(&mut kept, "user", person(of.get("user").unwrap_or(&Value::Null)));
    let labels = of.get("labels").and_then(Value::as_array).into_iter().flatten();
    put(&mut kept, "labels", labels.map(|label| fields(label, &["name"])).collect());
    kept
}

/// An issue.
pub(super) fn issue(of: &Value) -> Value {
    let mut kept = item(of);
    put(&mut kept, "closed_by", person(of.get("closed_by").unwrap_or(&Value::Null)));
    if of.get("pull_request").is_some_and(Value::is_object) {
        put(&mut kept, "pull_request", json!({}));
    }
    kept
}

/// A pull request.
pub(super) fn pull(of: &Value) -> Value {
    let mut kept = item(of);
    for name in ["merged", "draft", "merged_at"] {
        if let Some(value) = of.get(name) {
            put(&mut kept, name, value.clone());
        }
    }
    put(&mut kept, "merged_by", person(of.get("merged_by").unwrap_or(&Value::Null)));
    for end in ["head", "base"] {
        let Some(from) = of.get(end) else { continue };
        let mut to = fields(from, &["ref", "sha", "label"]);
        let repo = from.get("repo").filter(|repo| repo.is_object());
        put(&mut to, "repo", repo.map_or(Value::Null, |repo| fields(repo, &["id", "full_name", "html_url"])));
        put(&mut kept, end, to);
    }
    kept
}

/// A pull request as comments on it show it: as an issue.
pub(super) fn as_issue(pull: &Value) -> Value {
    let mut issue = item(pull);
    put(&mut issue, "pull_request", json!({}));
    issue
}
