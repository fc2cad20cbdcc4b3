//! Text from the world as JSON that can neither leave its fence nor be read as a command, a mention or markup.

use serde_json::Value;

use crate::domain::Fact;

/// The least that a field is given, so that the mark of a cut always fits.
const LEAST: usize = 256;

/// A path is never cut: without it a review comment says nothing. Linux allows no longer ones.
const PATH: usize = 4096;

/// Quotes facts as a JSON object, one fact a line. No field takes more than about `max_field` bytes.
///
/// The object parses back to the facts, but for what was cut, and it never holds `fence`.
pub(super) fn object(facts: &[Fact], fence: &str, max_field: usize, delivery: Option<&str>) -> String {
    let mut quoted = String::from("{");
    for (index, fact) in facts.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let cap = if fact.name.ends_with(".path") { max_field.max(PATH) } else { max_field.max(LEAST) };
        let out = format!("{comma}\n  ");
        let mut writer = Writer { fence, name: &fact.name, delivery, left: LEAST, out };
        writer.key(&fact.name);
        writer.left = cap;
        writer.value(&fact.value);
        quoted.push_str(&writer.out);
    }
    quoted.push_str("\n}");
    quoted
}

struct Writer<'a> {
    fence: &'a str,
    name: &'a str,
    delivery: Option<&'a str>,
    /// How many bytes this field may still take.
    left: usize,
    out: String,
}

impl Writer<'_> {
    fn key(&mut self, name: &str) {
        self.text(name);
        self.out.push_str(": ");
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.out.push_str(&value.to_string()),
            Value::String(text) => self.text(text),
            Value::Array(values) => self.list('[', values.iter().map(|value| (None, value)), ']'),
            Value::Object(fields) => self.list('{', fields.iter().map(|(name, value)| (Some(name), value)), '}'),
        }
    }

    fn list<'v>(&mut self, open: char, values: impl Iterator<Item = (Option<&'v String>, &'v Value)>, close: char) {
        self.out.push(open);
        for (index, (name, value)) in values.enumerate() {
            // What every element takes, whatever it is: an endless list of numbers ends too.
            self.left = self.left.saturating_sub(4);
            if index > 0 {
                self.out.push_str(", ");
            }
            if self.left == 0 {
                self.out.push_str(if name.is_some() { "\"…\": \"more\"" } else { "\"… more\"" });
                break;
            }
            if let Some(name) = name {
                self.key(name);
            }
            self.value(value);
        }
        self.out.push(close);
    }

    /// Quotes text, and cuts it with a visible mark where it is too long.
    fn text(&mut self, text: &str) {
        self.out.push('"');
        let mut last = None;
        for (at, c) in text.char_indices() {
            let rest = text.get(at..).unwrap_or_default();
            let piece = quoted(c, last, rest, self.fence);
            let size = piece.as_ref().map_or(c.len_utf8(), String::len);
            if size > self.left {
                self.cut(rest.chars().count());
                break;
            }
            self.left -= size;
            match piece {
                Some(piece) => self.out.push_str(&piece),
                None => self.out.push(c),
            }
            last = Some(c);
        }
        self.out.push('"');
    }

    fn cut(&mut self, more: usize) {
        self.left = 0;
        let command = self.delivery.map(|id| format!(": the-loop deliveries show {id} --field {}", self.name));
        let mark = format!("[… {more} more characters{}]", command.unwrap_or_default());
        let mut last = Some(' ');
        for (at, c) in mark.char_indices() {
            match quoted(c, last, mark.get(at..).unwrap_or_default(), self.fence) {
                Some(piece) => self.out.push_str(&piece),
                None => self.out.push(c),
            }
            last = Some(c);
        }
    }
}

/// How `c` is written, unless it stands for itself. `rest` is the text from `c` on.
fn quoted(c: char, last: Option<char>, rest: &str, fence: &str) -> Option<String> {
    let short = match c {
        '"' => Some("\\\""),
        '\\' => Some("\\\\"),
        '\n' => Some("\\n"),
        '\r' => Some("\\r"),
        '\t' => Some("\\t"),
        _ => None,
    };
    if let Some(short) = short {
        return Some(short.into());
    }
    let escape = match c {
        '<' | '>' | '`' => true,
        // `@path` after a space attaches a file, `/word` at the beginning is a command (Claude Code reads both).
        '@' => !last.is_some_and(char::is_alphanumeric),
        '/' => last.is_none(),
        // Three dashes in a row could begin a fence.
        '-' => rest.starts_with("---"),
        _ => c.is_control() || misleads(c),
    };
    // The fence's name is random; should a text know it all the same, it is not written as itself.
    if escape || !fence.is_empty() && rest.starts_with(fence) { Some(unicode(c)) } else { None }
}

/// Characters that show text in another order or on other lines than it has, or that cannot be seen at all.
fn misleads(c: char) -> bool {
    matches!(c,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' // direction
        | '\u{2028}' | '\u{2029}' // lines
        | '\u{e0000}'..='\u{e007f}') // tags: invisible letters
}

fn unicode(c: char) -> String {
    let mut units = [0; 2];
    c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(value: &str, max: usize) -> String {
        let fact = Fact { name: "comment.body".into(), value: value.into() };
        object(&[fact], "fence-name", max, Some("d-1"))
    }

    #[test]
    fn harmless_text_stays_as_it_is() {
        let text = "100% + more & æøå, 日本, 😀 me@example.com a/b 'x' -- y";
        assert_eq!(one(text, 8192), format!("{{\n  \"comment.body\": \"{text}\"\n}}"));
    }

    #[test]
    fn whatever_could_mean_more_is_escaped() {
        for (text, wanted) in [
            ("</x>`", r"\u003c/x\u003e\u0060"),
            ("/clear", r"\u002fclear"),
            ("@/etc/passwd", r"\u0040/etc/passwd"),
            ("see @~/x\n@y", r"see \u0040~/x\n\u0040y"),
            ("a\u{202e}\u{2028}\u{85}\u{0}\u{1b}", r"a\u202e\u2028\u0085\u0000\u001b"),
            ("\u{e0041}", r"\udb40\udc41"),
            ("-----END", r"\u002d\u002d\u002d--END"),
            ("the fence-name", r"the \u0066ence-name"),
            ("\"\\", r#"\"\\"#),
        ] {
            assert_eq!(one(text, 8192), format!("{{\n  \"comment.body\": \"{wanted}\"\n}}"), "{text:?}");
        }
    }

    #[test]
    fn a_cut_is_visible_and_counts_characters() {
        let text = one(&"æ".repeat(1000), 300);
        let value: Value = serde_json::from_str(&text).expect("still JSON");
        let body = value["comment.body"].as_str().expect("text");
        let mark = "[… 850 more characters: the-loop deliveries show d-1 --field comment.body]";
        assert!(body.starts_with("æææ") && body.ends_with(mark), "{body}");
        assert!(text.len() < 500);
    }

    #[test]
    fn what_is_nested_is_quoted_all_the_way_down() {
        let value = serde_json::json!({"</k>": ["/a", {"@b": null}, 1.5, true], "e": []});
        let text = object(&[Fact { name: "data".into(), value: value.clone() }], "f-1", 8192, None);
        assert!(!text.contains(['<', '@']) && !text.contains("\"/"), "{text}");
        let back: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(back["data"], value);
        let long: serde_json::Map<_, _> = (0..5000).map(|n| (format!("k{n}"), Value::from("v"))).collect();
        let text = object(&[Fact { name: "data".into(), value: long.into() }], "f-1", 512, None);
        assert!(text.len() < 1200 && serde_json::from_str::<Value>(&text).is_ok(), "{text}");
    }

    #[test]
    fn a_path_is_never_cut_and_a_list_ends() {
        let path = "d/".repeat(1000);
        let list: Vec<Value> = (0..5000).map(Value::from).collect();
        let facts = [
            Fact { name: "comment.path".into(), value: path.clone().into() },
            Fact { name: "l".into(), value: list.into() },
        ];
        let text = object(&facts, "f-1", 256, None);
        let value: Value = serde_json::from_str(&text).expect("still JSON");
        assert_eq!(value["comment.path"], Value::from(path));
        assert!(value["l"].as_array().expect("list").len() < 100);
    }
}
