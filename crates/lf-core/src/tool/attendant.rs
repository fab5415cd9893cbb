//! The other side of a running call: whoever made it, told of its progress and asked what the server wants to know.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{BoxFuture, ToolProgress};
use crate::turn::Ask;

/// Who attends a call. Any `Fn(ToolProgress)` does, and answers no questions.
pub trait Attendant: Send + Sync {
    /// Told of each report of the server, in order.
    fn progress(&self, progress: ToolProgress);

    /// Asked when the server wants something before it goes on; the call's time limits stand still meanwhile. The future
    /// is dropped when the question is of no use any more: the call ended, the server withdrew it, or ten minutes passed.
    fn ask(&self, _question: Question) -> BoxFuture<'_, Reply> {
        Box::pin(std::future::ready(Reply::Nobody))
    }

    /// Told what a person should know of the call, such as what the server asked and what it was answered. Without
    /// secrets and what could drive a terminal.
    fn note(&self, _note: String) {}

    /// Whether it makes the call again itself when that fails, as the file says: then nothing on the way to the server sends
    /// it a second time, so that the tries are those of the file and no more.
    fn tries_again(&self) -> bool {
        false
    }

    /// What tells this very program on whose behalf a call asks it, where a tool is its own. Goes with the call, and
    /// therefore to nobody else.
    fn on_behalf(&self) -> Option<&str> {
        None
    }

    /// Asked right before the call is sent, however often that is: what waited for a connection, for its turn or for a pause
    /// may not be permitted any more.
    ///
    /// # Errors
    /// Why it may not be sent, for the model to read.
    fn may_send(&self) -> Result<(), String> {
        Ok(())
    }

    /// Calls of one party can be asked for one another: over stdio a server does not say for which call it asks.
    fn party(&self) -> Option<u64> {
        None
    }
}

impl<F: Fn(ToolProgress) + Send + Sync + ?Sized> Attendant for F {
    fn progress(&self, progress: ToolProgress) {
        self(progress);
    }
}

/// Somebody who can be asked while a turn runs.
pub trait Person: Send + Sync {
    /// Asks, and waits for the answer. [`Reply::Nobody`] for what this person is not asked. The future is dropped when the
    /// answer is of no use any more.
    fn ask(&self, question: Question) -> BoxFuture<'_, Reply>;
}

/// What a server asks in the middle of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    pub server: Arc<str>,
    /// The server's name for the tool; `None` while something else is asked of the server.
    pub tool: Option<Arc<str>>,
    /// As MCP names it: `elicitation/create`, `sampling/createMessage`, `roots/list`; or [`Self::APPROVAL`].
    pub method: String,
    /// As the server sent them.
    pub params: Value,
}

impl Question {
    /// A form or a URL for a person.
    pub const ELICITATION: &'static str = "elicitation/create";
    /// This program's own question, whether a call may run: `params` has its `arguments` as a text, and the result is
    /// `{"decision": "approve" | "always" | "deny"}`.
    pub const APPROVAL: &'static str = "lf/approval";

    /// Whether this call may run.
    pub fn approval(ask: &Ask) -> Self {
        Self {
            server: ask.tool.server.clone(),
            tool: Some(ask.tool.name.clone()),
            method: Self::APPROVAL.to_owned(),
            params: json!({"approval": ask.id, "arguments": ask.call.arguments.raw(), "why": ask.why}),
        }
    }
}

/// What a question is answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The result that MCP has for the method.
    Result(Value),
    /// A protocol error.
    Refused { code: i64, message: String },
    /// Nobody is here who could say: what the file says for this counts.
    Nobody,
}
