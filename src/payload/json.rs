//! JSON text, read once: what can be read is taken, and what is taken can be read.

use serde_json::Value;

use super::Error;
use super::field::Field;
use super::tree::{Extent, Tree};

/// The deepest nesting that is taken: what serde_json follows before it gives up.
const MAX_DEPTH: usize = 127;

/// Reads one complete JSON text and shows it to `then` as a tree. Half a surrogate pair, which JSON allows and Unicode
/// does not, becomes U+FFFD.
fn with_tree<T>(json: &[u8], extent: Extent, then: impl FnOnce(&Tree<'_>) -> T) -> Result<T, Error> {
    let text = std::str::from_utf8(json).map_err(|e| Error::NotJson(format!("it is not UTF-8 ({e})")))?;
    match Tree::read(text, extent) {
        Ok(tree) => Ok(then(&tree)),
        Err(error) => {
            let mut mended = json.to_vec();
            if replace_lone_surrogates(&mut mended) {
                return with_tree(&mended, extent, then);
            }
            Err(if depth(json) > MAX_DEPTH { Error::TooDeep(MAX_DEPTH) } else { Error::NotJson(error.to_string()) })
        }
    }
}

/// As [`with_tree`], for what must be an object.
pub(super) fn with_object<T>(json: &[u8], extent: Extent, then: impl FnOnce(Field<'_>) -> T) -> Result<T, Error> {
    with_tree(json, extent, |tree| match tree {
        Tree::Object(_) => Ok(then(Field::root(tree))),
        _ => Err(Error::NotAnObject),
    })?
}

/// Checks that `json` is one complete JSON object that can be read.
pub(super) fn check_object(json: &[u8], extent: Extent) -> Result<(), Error> {
    with_object(json, extent, |_| ())
}

/// Reads what another server posted; text that was cut in the middle of a character is still text.
pub fn read_json(json: &[u8]) -> Result<Value, Error> {
    with_tree(json, Extent::Whole, |tree| tree.to_value())
}

/// About how much memory a tree takes: many small values weigh more than their text.
pub fn weight(value: &Value) -> usize {
    const EACH: usize = size_of::<Value>();
    match value {
        Value::String(text) => EACH + text.len(),
        Value::Array(items) => EACH + items.iter().map(weight).sum::<usize>(),
        // A key is a string of its own, and is found by a hash of it.
        Value::Object(fields) => {
            EACH + fields.iter().map(|(name, value)| 2 * EACH + name.len() + weight(value)).sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => EACH,
    }
}

/// How deep JSON nests.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Replaces every escape in JSON text that is half a surrogate pair by that of U+FFFD; whether there was one. What is
/// no JSON stays none.
pub fn replace_lone_surrogates(json: &mut [u8]) -> bool {
    let (mut at, mut changed) = (0, false);
    while let Some(found) = json.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'\\')) {
        at += found;
        match (unit(json, at), unit(json, at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => at += 12,
            (Some(0xd800..=0xdfff), _) => {
                if let Some(digits) = json.get_mut(at + 2..at + 6) {
                    digits.copy_from_slice(b"fffd");
                    changed = true;
                }
                at += 6;
            }
            (Some(_), _) => at += 6,
            (None, _) => at += 2,
        }
    }
    changed
}

/// The UTF-16 unit that a `\uXXXX` at `at` stands for.
fn unit(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + 6)?.strip_prefix(b"\\u")?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &[u8]) -> Result<(), Error> {
        check_object(json, Extent::Lean)
    }

    #[test]
    fn half_a_surrogate_pair_becomes_the_replacement_character() {
        let read =
            |text: &str| with_object(text.as_bytes(), Extent::Lean, |root| root.at("a").text().map(String::from));
        for (text, wanted) in [
            (r#"{"a":"\ud83d"}"#, "\u{fffd}"),
            (r#"{"a":"\ude00x"}"#, "\u{fffd}x"),
            (r#"{"a":"\ud83d\ud83d\ude00"}"#, "\u{fffd}😀"),
            (r#"{"a":"\uD83Dn\u0041"}"#, "\u{fffd}nA"),
            (r#"{"a":"\\ud83d \ud83d"}"#, "\\ud83d \u{fffd}"),
            (r#"{"a":"\ud83d\n"}"#, "\u{fffd}\n"),
            (r#"{"a":"😀"}"#, "😀"),
        ] {
            check(text.as_bytes()).expect(text);
            assert_eq!(read(text), Ok(Some(wanted.into())), "{text}");
        }
        for text in [r#"{"a":"\ud83"}"#, r#"{"a":"\ud83d"#, r#"{"a":"\x"}"#, "{\"a\":\"\\"] {
            assert!(matches!(read(text), Err(Error::NotJson(_))), "{text}");
        }
    }

    #[test]
    fn only_one_complete_object_is_taken() {
        for text in ["{}", " {\"a\":[1,2]}\n", r#"{"a":"\"}{"}"#, r#"{"a":1,"a":2}"#] {
            assert_eq!(check(text.as_bytes()), Ok(()), "{text}");
        }
        for text in ["", "{", "{}{}", "{\"a\":}", "nul", "{'a':1}", "\u{feff}{}"] {
            assert!(matches!(check(text.as_bytes()), Err(Error::NotJson(_))), "{text}");
        }
        for text in ["[]", "1", "\"x\"", "null"] {
            assert_eq!(check(text.as_bytes()), Err(Error::NotAnObject), "{text}");
        }
        assert!(matches!(check(b"{\"a\":\"\xff\"}"), Err(Error::NotJson(_))));
    }

    #[test]
    fn whatever_is_taken_can_be_read() {
        let nested = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        assert_eq!(check(nested(MAX_DEPTH).as_bytes()), Ok(()));
        assert_eq!(check(nested(MAX_DEPTH + 1).as_bytes()), Err(Error::TooDeep(MAX_DEPTH)));
        assert!(check(br#"{"a":"[[[[\"[[["}"#).is_ok());
    }
}
