//! Bounds of a turn.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Rounds of tool calls before one last answer without tools. Default 10.
    pub rounds: u32,
    /// Calls of one round that run at the same time. Default 16.
    pub parallel_calls: usize,
    /// What one result may take of the model's context, estimated at 4 bytes a token. Default 25 000.
    pub result_tokens: usize,
    /// What a model is shown of a kept conversation, estimated at 4 bytes a token. Default 100 000.
    pub context_tokens: usize,
    /// The whole turn. Default 5 min.
    pub turn_timeout: Duration,
    /// The same call (name and arguments) this many times in a turn is answered with an error. Default 3.
    pub repeat_calls: u32,
    /// How long a person is waited for who has to approve a call; the turn's time stands still. Default 5 min.
    #[serde(default = "approval_timeout")]
    pub approval_timeout: Duration,
    /// How long a message waits for others of its conversation. Nothing of a turn that has begun. Default 10 min.
    #[serde(skip)]
    pub queue_timeout: Duration,
}

/// Journals of earlier versions do not have it.
fn approval_timeout() -> Duration {
    Duration::from_secs(300)
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rounds: 10,
            parallel_calls: 16,
            result_tokens: 25_000,
            context_tokens: 100_000,
            turn_timeout: Duration::from_secs(300),
            repeat_calls: 3,
            approval_timeout: approval_timeout(),
            // two turns of the default limit
            queue_timeout: Duration::from_secs(600),
        }
    }
}
