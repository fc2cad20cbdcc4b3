//! The issues that a pull request closes, by GitHub's closing keywords
//! (<https://docs.github.com/en/issues/tracking-your-work-with-issues/using-issues/linking-a-pull-request-to-an-issue>).

use std::sync::LazyLock;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use regex::{Captures, Regex};

use crate::domain::{RepoName, WorkItem};

/// How many issues one body may name: a pull request that closes more is no pull request.
const MAX_ISSUES: usize = 32;

/// Stands between two pieces of prose that do not belong together.
const BREAK: char = '\u{1}';

static CLOSES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let keyword = "(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)";
    let short = r"(?:(?<owner>[A-Za-z0-9_-]+)/(?<repo>[A-Za-z0-9_.-]+))?\#(?<number>[0-9]+)|GH-(?<gh>[0-9]+)";
    let url = r"https?://(?<host>[A-Za-z0-9.:-]+)/(?<uo>[A-Za-z0-9_-]+)/(?<ur>[A-Za-z0-9_.-]+)/issues/(?<un>[0-9]+)";
    Regex::new(&format!(r"(?i)(?:^|[^\w/#-]){keyword}(?::\s*|\s+)(?:{short}|{url})\b")).ok()
});

/// The issues that `body` says its pull request closes, in the order of the text.
///
/// What stands in code, in a quotation or in an HTML comment says nothing: pull request templates are full of examples.
pub(super) fn closes(body: &str, repo: &RepoName) -> Vec<WorkItem> {
    let Some(pattern) = CLOSES.as_ref() else { return Vec::new() };
    let mut issues: Vec<WorkItem> = Vec::new();
    for found in pattern.captures_iter(&prose(body)) {
        match issue(&found, repo) {
            Some(issue) if issues.len() < MAX_ISSUES && !issues.contains(&issue) => issues.push(issue),
            _ => {}
        }
    }
    issues
}

fn issue(found: &Captures<'_>, repo: &RepoName) -> Option<WorkItem> {
    let part = |name: &str| found.name(name).map(|part| part.as_str());
    let number = part("number").or(part("gh")).or(part("un"))?;
    // Another host's issues are not this host's to close.
    if part("host").is_some_and(|host| !host.eq_ignore_ascii_case(repo.host())) {
        return None;
    }
    let repo = match (part("owner").or(part("uo")), part("repo").or(part("ur"))) {
        (Some(owner), Some(name)) => RepoName::new(repo.host(), owner, name).ok()?,
        _ => repo.clone(),
    };
    WorkItem::parse_in(number, Some(&repo)).ok()
}

/// The prose of a Markdown text: no code, quotations or HTML comments.
fn prose(markdown: &str) -> String {
    let mut prose = String::new();
    let mut html = String::new();
    // How deep in code, quotations or HTML elements of that kind.
    let mut hidden = 0_usize;
    for event in Parser::new_ext(markdown, Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::BlockQuote(_) | Tag::CodeBlock(_)) => hidden += 1,
            Event::End(TagEnd::BlockQuote(_) | TagEnd::CodeBlock) => hidden = hidden.saturating_sub(1),
            Event::Start(Tag::Emphasis | Tag::Strong | Tag::Strikethrough | Tag::Link { .. })
            | Event::End(TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough | TagEnd::Link) => {}
            Event::Text(text) if hidden == 0 => prose.push_str(&text),
            Event::SoftBreak | Event::HardBreak => prose.push(' '),
            Event::InlineHtml(tag) => match hides(&tag) {
                Some(true) => hidden += 1,
                Some(false) => hidden = hidden.saturating_sub(1),
                None => {}
            },
            // A block of HTML comes line by line and may hold prose, as `<details>` does.
            Event::Html(line) if hidden == 0 => html.push_str(&line),
            Event::End(TagEnd::HtmlBlock) => {
                prose.push(BREAK);
                prose.push_str(&html_prose(&html));
                prose.push(BREAK);
                html.clear();
            }
            _ => prose.push(BREAK),
        }
    }
    prose
}

/// Whether an HTML tag begins (`true`) or ends (`false`) text that says nothing.
fn hides(tag: &str) -> Option<bool> {
    let tag = tag.trim_start_matches('<');
    let (name, begins) = tag.strip_prefix('/').map_or((tag, true), |name| (name, false));
    let name = name.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    ["code", "pre", "blockquote"].iter().any(|hiding| name.eq_ignore_ascii_case(hiding)).then_some(begins)
}

/// The prose between the tags of a block of HTML.
fn html_prose(html: &str) -> String {
    let mut prose = String::new();
    let mut hidden = 0_usize;
    let mut rest = html;
    while let Some((text, tag)) = rest.split_once('<') {
        if hidden == 0 {
            prose.push_str(text);
        }
        let end = if tag.starts_with("!--") { "-->" } else { ">" };
        // Without an end it is a comment, or a tag, to the end of the block.
        let Some((inside, after)) = tag.split_once(end) else { return prose };
        match hides(inside) {
            Some(true) => hidden += 1,
            Some(false) => hidden = hidden.saturating_sub(1),
            None => {}
        }
        prose.push(BREAK);
        rest = after;
    }
    if hidden == 0 {
        prose.push_str(rest);
    }
    prose
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(body: &str) -> Vec<String> {
        let repo = RepoName::new("github.com", "octo-org", "demo").expect("repo");
        closes(body, &repo).iter().map(WorkItem::key).collect()
    }

    #[test]
    fn every_keyword_and_form_counts() {
        for word in ["close", "closes", "closed", "fix", "fixes", "fixed", "resolve", "resolves", "resolved"] {
            for spelled in [word.to_string(), word.to_uppercase(), format!("{word}:")] {
                assert_eq!(found(&format!("It {spelled} #15.")), ["github:octo-org/demo#15"], "{spelled}");
            }
        }
        for (body, wanted) in [
            ("Closes octo-org/other.repo#7", "github:octo-org/other.repo#7"),
            ("Closes GH-15", "github:octo-org/demo#15"),
            ("closes https://github.com/octo-org/demo/issues/15", "github:octo-org/demo#15"),
            ("closes <https://github.com/octo-org/demo/issues/15>", "github:octo-org/demo#15"),
            ("**Closes** #15", "github:octo-org/demo#15"),
            ("Closes\n#15", "github:octo-org/demo#15"),
            ("- Closes #15", "github:octo-org/demo#15"),
            ("(closes #15)", "github:octo-org/demo#15"),
            ("<details>\nCloses #15\n</details>", "github:octo-org/demo#15"),
            ("> as asked\n\nCloses #15", "github:octo-org/demo#15"),
            ("<!-- say Closes #1 -->\nCloses #15", "github:octo-org/demo#15"),
        ] {
            assert_eq!(found(body), [wanted], "{body}");
        }
    }

    #[test]
    fn several_in_one_body_count_once_each() {
        let wanted = ["github:octo-org/demo#1", "github:octo-org/demo#2", "github:a/b#3"];
        assert_eq!(found("Fixes #1, fixes #2 and resolves a/b#3. Fixes #1"), wanted);
        assert_eq!(found("Fixes #1, #2"), ["github:octo-org/demo#1"], "a keyword stands before each");
    }

    #[test]
    fn what_is_not_said_is_not_found() {
        for body in [
            "",
            "#15",
            "See #15",
            "encloses #15",
            "prefix #15",
            "Closes#15",
            "Closes the #15",
            "Closes #15x",
            "Closes #0",
            "`Closes #15`",
            "```\nCloses #15\n```",
            "    Closes #15",
            "> Closes #15",
            "<!-- Closes #15 -->",
            "<!--\nCloses #15\n-->",
            "<!-- Closes #15",
            "<code>Closes #15</code>",
            "<pre>\nCloses #15\n</pre>",
            "<blockquote>\nCloses #15\n</blockquote>",
            "Closes `x` #15",
            "Closes\n\n#15",
            "Closes https://example.com/octo-org/demo/issues/15",
            "Closes https://github.com/octo-org/demo/pull/15",
            "Closes -bad/repo#15x",
        ] {
            assert!(found(body).is_empty(), "{body}: {:?}", found(body));
        }
    }
}
