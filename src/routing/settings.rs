//! The settings that routing and prompts go by: `[routing]`, `[trust]` and `[prompt]`.

use serde::{Deserialize, Serialize};

use crate::domain::{Size, Span};

/// What happens to a session when its own issue or pull request is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnClosed {
    /// The session is closed, without a turn.
    #[default]
    Close,
    /// The session is told, and stays.
    Tell,
    /// The session stays, and is not told.
    Keep,
}

/// `[routing]`: what wakes a session, and how news is gathered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "snake_case")]
pub struct Settings {
    /// `EVENT` or `EVENT.ACTION` each.
    pub wake_on: Vec<String>,
    /// How long to wait for more news of the same session.
    pub debounce: Span,
    /// How long at most.
    pub max_wait: Span,
    /// How many notices one turn tells at most.
    pub max_events_per_turn: usize,
    /// What the closing of a session's own item does.
    pub on_closed: OnClosed,
}

impl Default for Settings {
    fn default() -> Self {
        let wake_on = [
            "issue_comment.created",
            "pull_request_review.submitted",
            "pull_request_review_comment.created",
            "workflow_run.completed",
            "check_suite.completed",
            "status",
            "issues.closed",
            "pull_request.closed",
        ];
        Self {
            wake_on: wake_on.map(String::from).to_vec(),
            debounce: Span::secs(1),
            max_wait: Span::secs(30),
            max_events_per_turn: 50,
            on_closed: OnClosed::Close,
        }
    }
}

impl Settings {
    /// Whether `wake_on` names this event, with this action or with any.
    pub fn wakes(&self, name: &str, action: Option<&str>) -> bool {
        self.wake_on.iter().any(|wanted| match wanted.split_once('.') {
            None => wanted == name,
            Some((wanted, wanted_action)) => wanted == name && Some(wanted_action) == action,
        })
    }
}

/// `[trust]`: whose words may wake an agent. Logins compare without case.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "snake_case")]
pub struct Trust {
    /// GitHub's `author_association` values that are enough for an author's own words.
    pub associations: Vec<String>,
    /// Logins that are trusted whatever their association.
    pub actors: Vec<String>,
    /// Logins of bots that are trusted. No bot is, otherwise.
    pub bots: Vec<String>,
    /// The agent's own logins: their comments and acts wake nobody.
    pub ignore_actors: Vec<String>,
}

impl Default for Trust {
    fn default() -> Self {
        Self {
            associations: ["OWNER", "MEMBER", "COLLABORATOR"].map(String::from).to_vec(),
            actors: Vec::new(),
            bots: Vec::new(),
            ignore_actors: Vec::new(),
        }
    }
}

/// `[prompt]`: how much text from outside one turn may be given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "snake_case")]
pub struct PromptSettings {
    /// The most that one field may take, as it stands in the prompt.
    pub max_field: Size,
    /// The most that a prompt of several notices may take.
    pub max_prompt: Size,
}

impl Default for PromptSettings {
    fn default() -> Self {
        Self { max_field: Size(8 << 10), max_prompt: Size(64 << 10) }
    }
}

/// The rules by which events are routed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// `[routing]`.
    pub routing: Settings,
    /// `[trust]`.
    pub trust: Trust,
}
