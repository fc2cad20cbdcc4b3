//! The name of a session's file: readable, and never one name for two work items.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::domain::{RepoName, Target, WorkItem};

/// File systems allow 255 bytes; the rest is for `.json` and for what other programs append.
const LONGEST: usize = 200;
/// How much of a name that is too long is kept for people to read.
const KEPT: usize = 120;

/// The file name of a work item: `octo-org+demo+15.json`, `HOST+owner+repo+15.json`, `owner+repo+@feature%2fx.json`,
/// `local+NAME.json`.
///
/// Parts are joined by `+`, and inside a part everything but `[a-z0-9._-]` is percent-encoded: capitals too, because
/// some file systems ignore case. So the parts can be read back, and two work items never share a name. A name that is
/// too long is cut and ends in `~` and a hash; no other name holds a `~`.
pub fn file_name(item: &WorkItem) -> String {
    let stem = stem(item);
    if stem.len() <= LONGEST {
        return format!("{stem}.json");
    }
    let hash = hex::encode(Sha256::digest(item.key()));
    // Both are ASCII, so that any place may be cut.
    format!("{}~{}.json", &stem[..KEPT], &hash[..32])
}

fn stem(item: &WorkItem) -> String {
    match item {
        WorkItem::Github { repo, target: Target::Number(number) } => format!("{}+{number}", place(repo)),
        WorkItem::Github { repo, target: Target::Branch(branch) } => format!("{}+@{}", place(repo), encoded(branch)),
        WorkItem::Local(name) => format!("local+{}", encoded(name)),
    }
}

/// The repository's parts; their letters do not differ by case.
fn place(repo: &RepoName) -> String {
    repo.key().split('/').map(encoded).collect::<Vec<_>>().join("+")
}

fn encoded(part: &str) -> String {
    let mut out = String::with_capacity(part.len());
    for byte in part.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' => out.push(char::from(byte)),
            // Writing to a String cannot fail.
            _ => drop(write!(out, "%{byte:02x}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(text: &str) -> String {
        file_name(&WorkItem::parse(text).expect(text))
    }

    #[test]
    fn names_can_be_read() {
        for (item, name) in [
            ("github:Octo-Org/Demo#15", "octo-org+demo+15.json"),
            ("github:ghe.example.com/o/r#15", "ghe.example.com+o+r+15.json"),
            ("github:ghe.example.com:8443/o/r#15", "ghe.example.com%3a8443+o+r+15.json"),
            ("o/r@feature/x", "o+r+@feature%2fx.json"),
            ("o/r@Main", "o+r+@%4dain.json"),
            ("o/r@15", "o+r+@15.json"),
            ("o/r@a+b", "o+r+@a%2bb.json"),
            ("local:Nightly", "local+%4eightly.json"),
        ] {
            assert_eq!(named(item), name);
        }
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let long = |end: &str| named(&format!("o/r@{}{end}", "Ü/".repeat(80)));
        assert_ne!(long("a"), long("b"));
        assert!(long("a").len() <= LONGEST, "{}", long("a").len());
    }

    proptest! {
        #[test]
        fn two_items_never_share_a_name(
            a in item(), b in item(),
        ) {
            prop_assert_eq!(a == b, file_name(&a).eq_ignore_ascii_case(&file_name(&b)), "{} {}", a, b);
        }

        #[test]
        fn names_are_safe(item in item()) {
            let name = file_name(&item);
            prop_assert!(name.len() <= 250 && !name.contains('/') && !name.starts_with('.'));
            prop_assert_eq!(name.to_lowercase(), name);
        }
    }

    /// Few letters, so that near misses are common.
    fn item() -> impl Strategy<Value = WorkItem> {
        let repo = ("(|g\\.x/|g-x/|g\\.x:1/)", "[aA-]{1,3}", "[aA._-]{1,3}");
        let target = prop_oneof!["#[1-3]{1,2}", "@[aA1+%@#/~_.-]{1,4}", "@[ab/]{1,2}Ü{90,100}[ab]"];
        let github = (repo, target).prop_map(|((h, o, r), t)| format!("github:{h}{o}/{r}{t}"));
        prop_oneof![9 => github, 1 => "local:[aA._-]{1,3}"]
            .prop_filter_map("not a work item", |text| WorkItem::parse(&text).ok())
    }
}
