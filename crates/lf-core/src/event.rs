//! What a client may see of a turn. Every view (OpenAI chunks, the terminal, …) is made from these alone.

use std::time::Duration;

use crate::message::{ToolCall, ToolResult};
use crate::model::{FinishReason, ModelError, Native, Usage};
use crate::tool::{ToolProgress, ToolRef};
use crate::turn::Ask;

#[derive(Debug, Clone, PartialEq)]
pub enum ChatEvent {
    /// First event of every turn.
    Started {
        turn: String,
        model: String,
    },
    /// From here on another model answers, because the one before could not.
    Answering {
        model: String,
    },
    Text(String),
    Reasoning(String),
    /// Something only clients of one dialect understand, at its place in the answer.
    Native(Native),
    /// The server runs this call; the client has nothing to do. `tool` is `None` for a tool that does not exist.
    CallStarted {
        call: ToolCall,
        tool: Option<ToolRef>,
    },
    /// A person has to approve a call that was started, before anything of its round runs.
    ApprovalNeeded(Box<Ask>),
    ApprovalDecided(Box<Ask>),
    CallProgress {
        call_id: String,
        progress: ToolProgress,
    },
    CallFinished {
        result: ToolResult,
        elapsed: Duration,
    },
    /// Calls that only the client can run; they end the turn.
    ClientCalls(Vec<ToolCall>),
    /// Something the person should know and the model's answer does not say.
    Notice(String),
    /// Last event of a turn that ended as it should.
    Finished {
        reason: FinishReason,
        usage: Usage,
        rounds: u32,
        /// The stop sequence that ended the text, where it is known.
        stop_sequence: Option<String>,
    },
    /// Last event of a turn that did not.
    Failed(ModelError),
}

impl ChatEvent {
    /// Whether the turn is over with it.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Finished { .. } | Self::Failed(_))
    }
}
