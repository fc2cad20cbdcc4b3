//! The adapter that a [`Definition`] drives.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::definition::{Definition, Mark, Output, Place, UsagePlaces};
use super::patterns::Patterns;
use super::run::bears;
use super::words::{answer, check_id, failed, from_ending, json_documents, json_lines, outcome_of, tail};
use super::{EndMark, Ending, Error, Finished, Harness, Invocation};
use crate::domain::{FailureKind, Session, TurnOutcome, TurnState, Usage};

/// A definition, checked.
pub(super) struct Defined {
    name: String,
    command: String,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    resume: Vec<String>,
    output: Output,
    session_id: Vec<String>,
    session_id_pattern: Option<String>,
    session_id_form: Patterns,
    session_env: Option<String>,
    done: Vec<Mark>,
    failed: Vec<Mark>,
    ends_when_done: bool,
    error: Vec<Place>,
    last_words: Vec<Place>,
    usage: UsagePlaces,
    /// In the order in which they are tried: what is said most exactly comes first.
    kinds: Vec<(FailureKind, Patterns)>,
    transcripts: Vec<String>,
}

impl Defined {
    /// Checks a definition, so that nothing of it can fail later. The patterns of a built-in one are known to be good.
    pub(super) fn new(name: &str, given: Definition, built_in: bool) -> Result<Self, Error> {
        let fail = |why: String| Error::Definition { name: name.into(), why };
        let missing = |field: &str, example: &str| {
            fail(format!("`{field}` is missing; a harness that is not built in needs it, such as {field} = {example}"))
        };
        let command = given.command.filter(|command| !command.trim().is_empty());
        let command = command.ok_or_else(|| missing("command", "\"my-agent\""))?;
        let resume = given.resume.ok_or_else(|| missing("resume", "[\"--resume\", \"{session_id}\", \"{args}\"]"))?;
        if !resume.iter().any(|arg| arg.contains("{session_id}")) {
            return Err(fail("`resume` does not say where the {session_id} goes".into()));
        }
        let marks = [given.done.as_deref(), given.failed.as_deref()];
        let marked = [given.error.as_deref(), given.last_words.as_deref()].into_iter().flatten().flatten();
        let usage = given.usage.unwrap_or_default();
        let counts = [&usage.cost, &usage.session_cost, &usage.input_tokens, &usage.output_tokens];
        let mut pointers: Vec<&String> = marks.into_iter().flatten().flatten().flat_map(Mark::keys).collect();
        pointers.extend(given.session_id.iter().flatten());
        pointers.extend(counts.into_iter().flatten());
        for place in marked {
            match place {
                Place::Anywhere(at) => pointers.push(at),
                Place::Marked { at, mark } => pointers.extend([at].into_iter().chain(mark.keys())),
            }
        }
        if let Some(bad) = pointers.into_iter().find(|pointer| !pointer.starts_with('/')) {
            return Err(fail(format!("`{bad}` is not a JSON pointer; write `/{bad}`, and `/` for every level below")));
        }
        let output = given.output.unwrap_or_default();
        if output == Output::Text && (given.done.is_some() || given.failed.is_some() || given.session_id.is_some()) {
            return Err(fail("`done`, `failed` and `session_id` are read from JSON: say output = \"jsonl\"".into()));
        }
        let ends_when_done = given.ends_when_done.unwrap_or(false);
        if ends_when_done && (output != Output::Jsonl || given.done.as_ref().is_none_or(|marks| marks.len() != 1)) {
            return Err(fail("`ends_when_done` needs output = \"jsonl\" and exactly one mark in `done`".into()));
        }
        let patterns = |texts: Option<Vec<String>>| Patterns::new(texts.unwrap_or_default());
        let kinds = vec![
            (FailureKind::ConversationGone, patterns(given.gone)),
            (FailureKind::Busy, patterns(given.busy)),
            (FailureKind::NotSignedIn, patterns(given.signed_out)),
            (FailureKind::RateLimited, patterns(given.rate_limited)),
            (FailureKind::Overloaded, patterns(given.overloaded)),
            (FailureKind::Refused, patterns(given.refused)),
        ];
        // Ids have case, whatever is true of words, and the form is that of the whole id.
        let form = given.session_id_pattern.iter().map(|text| format!("(?-im)^(?:{text})$")).collect();
        let session_id_form = Patterns::new(form);
        if !built_in {
            let mut all = kinds.iter().map(|(_, patterns)| patterns).chain([&session_id_form]);
            all.try_for_each(Patterns::check).map_err(fail)?;
        }
        Ok(Self {
            name: name.into(),
            command,
            args: given.args.unwrap_or_default(),
            env: given.env.unwrap_or_default(),
            resume,
            output,
            session_id: given.session_id.unwrap_or_default(),
            session_id_pattern: given.session_id_pattern,
            session_id_form,
            session_env: given.session_env,
            done: given.done.unwrap_or_default(),
            failed: given.failed.unwrap_or_default(),
            ends_when_done,
            error: given.error.unwrap_or_default(),
            last_words: given.last_words.unwrap_or_default(),
            usage,
            kinds,
            transcripts: given.transcripts.unwrap_or_default(),
        })
    }

    fn kind_of(&self, words: &str) -> Option<FailureKind> {
        self.kinds.iter().find(|(_, patterns)| patterns.is_match(words)).map(|(kind, _)| *kind)
    }

    fn usage(&self, documents: &[Value]) -> Usage {
        let last = |place: &Option<String>| {
            let pointer = place.as_deref()?;
            documents.iter().rev().find_map(|document| document.pointer(pointer))
        };
        Usage {
            cost_usd: last(&self.usage.cost).and_then(Value::as_f64),
            session_cost_usd: last(&self.usage.session_cost).and_then(Value::as_f64),
            input_tokens: last(&self.usage.input_tokens).and_then(Value::as_u64),
            output_tokens: last(&self.usage.output_tokens).and_then(Value::as_u64),
        }
    }

    /// Why a run that ended by itself did not succeed: what kind, if that is known without reading the words, and the
    /// words, if there are better ones than the harness's own.
    fn fault(
        &self,
        session: &Session,
        documents: &[Value],
        finished: &Finished,
    ) -> Option<(Option<FailureKind>, Option<String>)> {
        let any = |marks: &[Mark]| documents.iter().any(|document| marks.iter().any(|mark| bears(document, mark)));
        let code = finished.exit_code.unwrap_or(0);
        // A sub-agent may speak under an id of its own: only where ours is never named was it another conversation.
        let ids: Vec<&str> = documents
            .iter()
            .flat_map(|document| self.session_id.iter().filter_map(|pointer| document.pointer(pointer)?.as_str()))
            .collect();
        let named = ids.first().filter(|_| !ids.contains(&session.session_id.as_str()));
        if any(&self.failed) || (finished.ending != Ending::AfterAnswer && code != 0) {
            Some((None, None))
        } else if let Some(named) = named {
            let words = format!("{} answered in another conversation, {named}", self.name);
            Some((Some(FailureKind::ConversationGone), Some(words)))
        } else if !self.done.is_empty() && !any(&self.done) {
            Some((None, None))
        } else {
            None
        }
    }
}

impl Harness for Defined {
    fn name(&self) -> &str {
        &self.name
    }

    fn program(&self) -> &str {
        &self.command
    }

    fn check_session_id(&self, id: &str) -> Result<(), String> {
        check_id(id)?;
        match &self.session_id_pattern {
            Some(pattern) if !self.session_id_form.is_match(id) => {
                Err(format!("`{id}` cannot be a session id of {}: it must match {pattern}", self.name))
            }
            _ => Ok(()),
        }
    }

    fn session_env(&self) -> Option<&str> {
        self.session_env.as_deref()
    }

    fn invocation(&self, session: &Session, prompt: &str, _message_id: &str) -> Invocation {
        let cwd = session.cwd.to_string_lossy();
        let args = self.resume.iter().flat_map(|arg| match arg.as_str() {
            "{args}" => self.args.clone(),
            arg => vec![filled(arg, &[("{session_id}", &session.session_id), ("{cwd}", &cwd)])],
        });
        Invocation {
            program: self.command.clone(),
            args: args.collect(),
            cwd: session.cwd.clone(),
            stdin: prompt.into(),
            env: self.env.clone(),
            ends_with: self.done.first().filter(|_| self.ends_when_done).map(|mark| EndMark(mark.clone())),
            streams: self.output == Output::Jsonl,
        }
    }

    fn outcome(&self, session: &Session, finished: &Finished) -> TurnOutcome {
        let documents = match self.output {
            Output::Text => Vec::new(),
            Output::Json => json_documents(&finished.stdout),
            Output::Jsonl => json_lines(&finished.stdout),
        };
        let usage = self.usage(&documents);
        let said = match self.output {
            Output::Text => answer(&finished.stdout),
            _ => last(&self.last_words, &documents).as_deref().and_then(answer),
        };
        if let Some(ending) = from_ending(&self.name, finished) {
            return outcome_of(ending, usage, said);
        }
        let Some((kind, words)) = self.fault(session, &documents, finished) else {
            return TurnOutcome {
                state: TurnState::Succeeded,
                failure: None,
                new_session_id: None,
                usage,
                last_words: said,
                remarks: Vec::new(),
            };
        };
        let code = finished.exit_code.unwrap_or(0);
        // Some print the JSON of an error on stderr.
        let on_stderr = || last(&self.error, &json_documents(&finished.stderr));
        let spoken = words.or_else(|| last(&self.error, &documents)).or_else(on_stderr);
        let words = spoken.clone().or_else(|| tail(&finished.stderr)).or_else(|| match self.output {
            Output::Text => tail(&finished.stdout),
            _ => tail(&finished.stdout.lines().filter(|line| !is_json(line)).collect::<Vec<_>>().join("\n")),
        });
        let seen = format!(
            "{}\n{}\nexit code {code}",
            words.as_deref().unwrap_or_default(),
            if spoken.is_some() { "" } else { end_of(&finished.stderr) }
        );
        let kind = kind.or_else(|| self.kind_of(&seen)).unwrap_or(FailureKind::Crashed);
        let words = words.unwrap_or_else(|| match code {
            0 => format!("{} ended without saying that its turn is done", self.name),
            code => format!("{} exited with code {code} and without a word", self.name),
        });
        outcome_of(failed(kind, &words, finished), usage, said)
    }

    fn transcript_hint(&self, home: &Path, session_id: &str) -> Vec<PathBuf> {
        let home = home.to_string_lossy();
        let fill = |pattern: &String| filled(pattern, &[("{home}", &home), ("{session_id}", session_id)]).into();
        self.transcripts.iter().map(fill).collect()
    }
}

/// Fills places in one pass, so that a value that looks like a place stays a value.
fn filled(template: &str, values: &[(&str, &str)]) -> String {
    let mut rest = template;
    let mut out = String::new();
    while let Some((at, place, value)) =
        values.iter().filter_map(|(place, value)| rest.find(place).map(|at| (at, *place, *value))).min()
    {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        out.push_str(value);
        rest = after.strip_prefix(place).unwrap_or_default();
    }
    out + rest
}

/// The last text found at one of the places; the places that come first are asked first.
fn last(places: &[Place], documents: &[Value]) -> Option<String> {
    places.iter().find_map(|place| {
        documents.iter().rev().find_map(|document| {
            let found = match place {
                Place::Anywhere(at) => document.pointer(at),
                Place::Marked { at, mark } => bears(document, mark).then(|| document.pointer(at)).flatten(),
            }?;
            match found {
                Value::String(text) => (!text.trim().is_empty()).then(|| text.clone()),
                Value::Null | Value::Bool(_) => None,
                other => Some(other.to_string()),
            }
        })
    })
}

/// As much of the end of a text as patterns are tried on.
fn end_of(text: &str) -> &str {
    const ENOUGH: usize = 4000;
    let from = (text.len().saturating_sub(ENOUGH)..=text.len()).find(|at| text.is_char_boundary(*at));
    text.get(from.unwrap_or(0)..).unwrap_or_default()
}

fn is_json(line: &str) -> bool {
    line.trim_start().starts_with(['{', '}', '[', ']', '"'])
}

#[cfg(test)]
mod tests;
