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
    /// What one result may take of the model's context, estimated at 4 bytes of ASCII a token. Default 25 000.
    pub result_tokens: usize,
    /// The same in bytes. Default 100 000.
    pub result_bytes: usize,
    /// What a model is shown of a kept conversation, estimated at 4 bytes a token. Default 100 000.
    pub context_tokens: usize,
    /// The whole turn, until it is asked for its last answer. Default 5 min.
    pub turn_timeout: Duration,
    /// That answer, once a limit is reached. Default 1 min.
    pub final_timeout: Duration,
    /// Tokens of all requests and answers of a turn. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// What a turn may cost, in US dollars. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
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
            result_bytes: 100_000,
            context_tokens: 100_000,
            turn_timeout: Duration::from_secs(300),
            final_timeout: Duration::from_secs(60),
            tokens: None,
            cost_usd: None,
            repeat_calls: 3,
            approval_timeout: approval_timeout(),
            // two turns of the default limit
            queue_timeout: Duration::from_secs(600),
        }
    }
}
