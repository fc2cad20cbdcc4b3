//! Workflow runs.

use serde_json::Value;

use super::super::asking::{Got, Stop, list};
use super::super::runs::{self, Question};
use super::super::seen::{Runs, Seen};
use super::{Look, MAX_PAGES, When};
use crate::payload::Polled;

/// How many runs that are too old for their page are asked for one by one.
const MAX_SINGLE: usize = 10;

impl Look<'_> {
    pub(super) async fn runs(&mut self) -> Result<(), Stop> {
        let pulls = self.seen.items.iter().filter(|(_, item)| item.is_pull).map(|(n, item)| (*n, item)).collect();
        let questions = runs::questions(self.need, &self.seen, &pulls);
        let before = self.seen.clone();
        for question in &questions {
            if let Some(now) = self.ask_runs(question, &before).await? {
                self.seen.runs.insert(question.query.clone(), now);
            }
        }
        self.seen.runs.retain(|query, _| questions.iter().any(|question| question.query == *query));
        Ok(())
    }

    /// Asks one question; what is seen of it now, unless it has not changed.
    async fn ask_runs(&mut self, question: &Question, before: &Seen) -> Result<Option<Runs>, Stop> {
        let and = if question.query.is_empty() { "" } else { "&" };
        let path = format!("{}/actions/runs?{}{and}per_page={}", self.base, question.query, runs::PAGE);
        let known = before.runs.get(&question.query);
        let mut page = match self.asking.must_since(&path, known.is_some()).await? {
            Got::Fresh(answer, etag) => {
                let mut found = list(answer.get("workflow_runs").unwrap_or(&Value::Null)).to_vec();
                let mut page = runs::page(&found, question, before);
                let mut number = 1;
                while page.is_open_ended && number < MAX_PAGES / 2 {
                    number += 1;
                    let Got::Fresh(more, _) = self.asking.anew(&format!("{path}&page={number}")).await? else { break };
                    let more = list(more.get("workflow_runs").unwrap_or(&Value::Null));
                    found.extend_from_slice(more);
                    page = runs::page(&found, question, before);
                    page.is_open_ended &= more.len() >= runs::PAGE;
                }
                if page.is_open_ended {
                    self.tell_gap("workflow runs", before.looked_at, self.github_now());
                }
                self.asking.dealt_with(&path, etag);
                page
            }
            _ => runs::same(known.cloned().unwrap_or_default()),
        };
        for id in page.off_page.iter().take(MAX_SINGLE).copied().collect::<Vec<_>>() {
            if let Got::Fresh(run, _) = self.asking.anew(&format!("{}/actions/runs/{id}", self.base)).await? {
                let state = runs::state(&run);
                if !state.is_empty() {
                    page.news.push(run);
                }
                page.runs.0.insert(id, state);
            }
        }
        for run in &page.news {
            self.tell(When::Then, &Polled::Run(run));
        }
        Ok(Some(page.runs))
    }
}
