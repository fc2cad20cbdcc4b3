//! The only door to stdout and stderr.
//!
//! Answers go to stdout, everything else to stderr. Colours appear on a terminal only, and not with `NO_COLOR`.
//! Text may come from the world, so control characters are shown, never obeyed.

use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use comfy_table::{ColumnConstraint, ContentArrangement, Table};
use jiff::Timestamp;
use serde::Serialize;

use super::failure::Failure;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();
const HEADER: Style = Style::new().bold();
/// A terminal narrower than this is not worth fitting into.
const NARROWEST: u16 = 60;

/// Writes to the person or program that called us.
#[derive(Clone, Copy, Debug)]
pub struct Printer {
    quiet: bool,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub enum Column {
    /// Something to copy, such as an id: never wrapped.
    Whole(&'static str),
    /// Something to read: wrapped where the terminal is narrow.
    Prose(&'static str),
}

/// A column, and what stands in it.
pub type Filled<'a, T> = (Column, &'a dyn Fn(&T) -> String);

impl Printer {
    /// A printer that says nothing but answers, warnings and errors where it is `quiet`.
    pub fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// A line of the answer.
    pub fn line(self, text: &str) -> Result<(), Failure> {
        writeln!(anstream::stdout(), "{}", visible(text)).or_else(reader_gone)
    }

    /// Text that is passed on as it is, line ends included: the output of an agent, a payload.
    pub fn raw(self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush()).or_else(reader_gone)
    }

    /// The answer as JSON.
    pub fn json(self, value: &impl Serialize) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, value)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out).and_then(|()| out.flush()))
            .or_else(reader_gone)
    }

    /// A list: as JSON, or as a table with these columns, or `none` where there is nothing in it.
    pub fn list<T: Serialize>(
        self,
        rows: &[T],
        json: bool,
        none: &str,
        columns: &[Filled<'_, T>],
    ) -> Result<(), Failure> {
        if json {
            return self.json(&rows);
        }
        if rows.is_empty() {
            self.note(none);
            return Ok(());
        }
        let cells = |row: &T| columns.iter().map(|(_, cell)| cell(row)).collect();
        let columns: Vec<Column> = columns.iter().map(|(column, _)| *column).collect();
        self.table(&columns, rows.iter().map(cells).collect())
    }

    /// The answer as a table, fitted to the terminal where there is one.
    pub fn table(self, columns: &[Column], rows: Vec<Vec<String>>) -> Result<(), Failure> {
        let text = table(columns, rows, terminal_width());
        let (header, body) = text.split_once('\n').unwrap_or((&text, ""));
        let mut out = anstream::stdout().lock();
        writeln!(out, "{HEADER}{header}{HEADER:#}")
            .and_then(|()| if body.is_empty() { Ok(()) } else { writeln!(out, "{body}") })
            .or_else(reader_gone)
    }

    /// A remark, which `-q` silences.
    pub fn note(self, text: &str) {
        if !self.quiet {
            to_stderr(format_args!("{}", visible(text)));
        }
    }

    /// Something that a person should look at though the command goes on.
    pub fn warning(self, text: &str) {
        to_stderr(format_args!("{WARNING}warning{WARNING:#}: {}", visible(text)));
    }

    /// Why the command failed, and what to do.
    pub fn failure(self, failure: &Failure) {
        if failure.message.is_empty() {
            return;
        }
        to_stderr(format_args!("{ERROR}error{ERROR:#}: {}", visible(&failure.message)));
        for cause in &failure.causes {
            to_stderr(format_args!("caused by: {}", visible(cause)));
        }
        if let Some(hint) = &failure.hint {
            to_stderr(format_args!("\n{HINT}hint{HINT:#}: {}", visible(hint)));
        }
    }

    /// What the command line's parser says: help to stdout, usage errors to stderr.
    pub(super) fn clap(self, error: &clap::Error) {
        let text = error.render();
        let written = match error.use_stderr() {
            true => write!(anstream::stderr(), "{}", text.ansi()),
            false => write!(anstream::stdout(), "{}", text.ansi()),
        };
        // Help for a reader that has gone, or words for a stderr that has: nobody is left to tell.
        drop(written);
    }
}

/// Where stderr is gone, nobody is left to tell.
fn to_stderr(text: std::fmt::Arguments<'_>) {
    drop(writeln!(anstream::stderr(), "{text}"));
}

fn reader_gone(error: io::Error) -> Result<(), Failure> {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Err(Failure::reader_gone()),
        _ => Err(Failure {
            causes: vec![error.to_string()],
            ..Failure::new(super::failure::Exit::Failed, "failed to write the answer")
        }),
    }
}

/// The text with control characters written out, so that no payload or file name can move the cursor.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Besides the controls: what reorders or hides text on a screen.
        let hides =
            matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if (c.is_control() && c != '\n') || hides { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}

fn terminal_width() -> Option<u16> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    rustix::termios::tcgetwinsize(stdout).ok().map(|size| size.ws_col).filter(|width| *width >= NARROWEST)
}

fn table(columns: &[Column], rows: Vec<Vec<String>>, width: Option<u16>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(columns.iter().map(|column| match column {
        Column::Whole(name) | Column::Prose(name) => *name,
    }));
    for row in rows {
        table.add_row(row.iter().map(|cell| visible(cell).replace('\n', " ")).collect::<Vec<_>>());
    }
    table.set_content_arrangement(ContentArrangement::Disabled);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    for (place, column) in columns.iter().enumerate() {
        if let Some(settings) = table.column_mut(place) {
            settings.set_padding((0, 2));
            if matches!(column, Column::Whole(_)) {
                settings.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// A time as people say it: `3 min ago`, `in 5 s`. The largest whole unit alone is told.
pub fn relative(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs();
    let distance = seconds.unsigned_abs();
    let (count, unit) = match distance {
        0 => return "now".into(),
        1..60 => (distance, "s"),
        60..3600 => (distance / 60, "min"),
        3600..86_400 => (distance / 3600, "h"),
        86_400.. => (distance / 86_400, if distance < 2 * 86_400 { "day" } else { "days" }),
    };
    if seconds > 0 { format!("{count} {unit} ago") } else { format!("in {count} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_people_say_them() {
        let now = Timestamp::from_second(1_800_000_000).expect("now");
        for (seconds, text) in [
            (0, "now"),
            (1, "1 s ago"),
            (59, "59 s ago"),
            (-5, "in 5 s"),
            (60, "1 min ago"),
            (3599, "59 min ago"),
            (3600, "1 h ago"),
            (-7200, "in 2 h"),
            (86_400, "1 day ago"),
            (10 * 86_400, "10 days ago"),
            (-3 * 86_400, "in 3 days"),
        ] {
            let then = Timestamp::from_second(1_800_000_000 - seconds).expect("then");
            assert_eq!(relative(then, now), text);
        }
    }

    #[test]
    fn control_characters_are_shown() {
        assert_eq!(visible("a\u{1b}[31mb\r\u{202e}c\n"), "a\\u{1b}[31mb\\u{d}\\u{202e}c\n");
    }

    #[test]
    fn ids_are_whole_however_narrow_the_terminal() {
        let id = "github:octo-org/a-repository-with-a-long-name#12345";
        let row = vec![id.to_owned(), "some words that are long enough to wrap at sixty columns".to_owned()];
        let text = table(&[Column::Whole("WORK ITEM"), Column::Prose("WHY")], vec![row], Some(60));
        assert!(text.contains(id) && text.lines().count() > 2, "{text}");
        assert!(text.lines().next().is_some_and(|header| header.starts_with("WORK ITEM  ")), "{text}");
    }
}
