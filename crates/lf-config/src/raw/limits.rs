//! Bounds of a turn, and of a local server.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::RawDuration;

/// Bounds for one turn.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "limits")]
pub struct RawLimits {
    /// Rounds of tool calls before one last answer without tools. Default 10.
    #[schemars(range(min = 1, max = 1000))]
    pub rounds: Option<u32>,
    /// Calls of one round that run at the same time. Default 16.
    #[schemars(range(min = 1, max = 256))]
    pub parallel_calls: Option<u32>,
    /// Longest tool result shown to the model, in tokens of about 4 bytes. Default 25000.
    #[schemars(range(min = 100, max = 10_000_000))]
    pub result_tokens: Option<u32>,
    /// Most of a kept conversation that the model is shown, in tokens of about 4 bytes; the oldest exchanges are left out.
    /// Default 100000.
    #[schemars(range(min = 1000, max = 100_000_000))]
    pub context_tokens: Option<u32>,
    /// Longest time for a whole turn. Default 5m.
    pub turn_timeout: Option<RawDuration>,
    /// Longest wait for a person who has to approve a call; the turn's time stands still. Default 5m.
    pub approval_timeout: Option<RawDuration>,
    /// Longest wait of a message for others that were said before it in its conversation. Default 10m.
    pub queue_timeout: Option<RawDuration>,
    /// The same call this many times in one turn is answered with an error. Default 3.
    #[schemars(range(min = 1, max = 1000))]
    pub repeat_calls: Option<u32>,
    /// Most a turn may cost. Understood but not acted on yet.
    #[schemars(range(min = 0), extend("x-later" = true))]
    pub cost_usd: Option<f64>,
}

/// What a program and all it starts may use.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "process limits")]
pub struct RawProcessLimits {
    /// Memory that each process may write to, such as `512MiB`; 0: no limit. Default 4GiB.
    pub memory: Option<RawSize>,
    /// Processes at the same time, threads counted; 0: no limit. Default 1024.
    #[schemars(range(max = 1_000_000))]
    pub processes: Option<u32>,
}

/// An amount of memory.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct RawSize(pub String);

impl JsonSchema for RawSize {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": "size",
            "type": ["string", "number"],
            "description": "A number and a unit (`512MiB`, `4GiB`, `2GB`), or a number of bytes.",
            "examples": ["512MiB", "4GiB"],
        })
    }
}
