//! Our own words, coming back.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// What an agent puts into its own comments so that they do not wake it again.
pub const MARKER: &str = "<!-- the-loop -->";

/// Whether `text` carries our [`MARKER`] as an HTML comment of its own.
///
/// In a quote or in code it is somebody's answer to our comment, or talk about the marker, and does not count.
pub fn carries_marker(text: &str) -> bool {
    if !text.contains("<!--") {
        return false;
    }
    let mut quotes = 0_usize;
    let mut html = String::new();
    for event in Parser::new_ext(text, Options::empty()) {
        match event {
            Event::Start(Tag::BlockQuote(_)) => quotes += 1,
            Event::End(TagEnd::BlockQuote(_)) => quotes = quotes.saturating_sub(1),
            // A block of HTML comes line by line, so the pieces are joined.
            Event::Html(piece) | Event::InlineHtml(piece) if quotes == 0 => html.push_str(&piece),
            _ => html.push('\n'),
        }
    }
    comments(&html).any(|comment| comment.trim() == "the-loop")
}

/// The contents of the HTML comments in `html`.
fn comments(html: &str) -> impl Iterator<Item = &str> {
    html.split("<!--").skip(1).filter_map(|rest| rest.split_once("-->")).map(|(comment, _)| comment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_counts_where_it_is_ours() {
        for text in [
            MARKER,
            "Done.\n\n<!-- the-loop -->",
            "Done. <!--the-loop-->",
            "<!--\nthe-loop\n-->",
            "- a <!-- the-loop -->",
        ] {
            assert!(carries_marker(text), "{text}");
        }
    }

    #[test]
    fn a_quoted_or_mentioned_marker_is_somebody_elses_text() {
        for text in [
            "",
            "the-loop",
            "> Done.\n> <!-- the-loop -->\n\nNo it is not.",
            "`<!-- the-loop -->` is the marker",
            "```\n<!-- the-loop -->\n```",
            "    <!-- the-loop -->",
            "<!-- the-loop is nice -->",
            "&lt;!-- the-loop --&gt;",
            "<!-- the-loop",
        ] {
            assert!(!carries_marker(text), "{text}");
        }
    }
}
