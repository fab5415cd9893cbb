//! What a turn starts from.

use serde::{Deserialize, Serialize};

use crate::model::ModelRequest;
use crate::policy::Labels;
use crate::project::{Limits, ToolCallStrategy};
use crate::text_calls::{self, TextFormat};
use crate::tool::ToolRef;
use crate::tool_set::ToolSet;

use super::Waiting;

/// What a turn starts from. Messages, parameters and tool choice are the client's, already put together with the
/// project's prompts; tool choice names an exposed tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// Unguessable: client-run calls of a turn that has something to resume carry it in their ids.
    pub id: String,
    /// The name clients use for the model.
    pub model: String,
    pub request: ModelRequest,
    pub tools: ToolSet,
    pub strategy: ToolCallStrategy,
    /// The dialects in which the model may write calls as text.
    #[serde(with = "crate::text_calls::by_name")]
    pub text_formats: &'static [TextFormat],
    pub limits: Limits,
    /// The most calls that this program runs in the turn, where the client has set a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_left: Option<u64>,
    /// Tools that ask for approval, and were approved for all of this conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub always: Vec<ToolRef>,
    /// Calls are held against rules before they run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub judged: bool,
    /// What earlier turns of this conversation have seen, besides what the messages say.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub seen: Labels,
    /// Calls to begin with, before the model is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
}

impl Setup {
    /// A turn with everything else as it is where nobody says otherwise: native calls, the default dialects and limits.
    pub fn new(id: &str, model: &str, request: ModelRequest, tools: ToolSet) -> Self {
        Self {
            id: id.to_owned(),
            model: model.to_owned(),
            request,
            tools,
            strategy: ToolCallStrategy::default(),
            text_formats: text_calls::DEFAULT,
            limits: Limits::default(),
            calls_left: None,
            always: Vec::new(),
            judged: false,
            seen: Labels::default(),
            waiting: None,
        }
    }
}
