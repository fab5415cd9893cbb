//! `retry` of an MCP server, as the file writes it.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

/// `safe`, or a rule.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RawRetry {
    Word(RawRetryWord),
    Rule(RawRetryRule),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawRetryWord {
    /// Every tool of this server may run again, whatever it says of itself; the rest as in a rule that says nothing.
    Safe,
}

/// When a call that failed is made again. Every other key is a glob on the server's own tool names, with what holds for
/// these tools instead: a name goes before a glob, a glob with more letters before one with fewer; of equals the one with
/// fewer tries counts. A rule of nothing but globs is about no other tools.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[schemars(title = "retry")]
pub struct RawRetryRule {
    /// All tries of one call, the first included. Default 3.
    #[schemars(range(min = 1, max = 10))]
    pub attempts: Option<u32>,
    /// What is tried again. Default: `unavailable`, `rate_limited`, `timeout` and `lost`.
    #[schemars(extend("uniqueItems" = true))]
    pub on: Option<Vec<RawTrouble>>,
    /// Globs on the server's own tool names: tools that may run again although the server does not say that they only read or
    /// change nothing more (`readOnlyHint`, `idempotentHint`).
    pub safe: Option<Vec<String>>,
    #[serde(flatten)]
    pub tools: IndexMap<String, RawToolRetry>,
}

/// `safe`, `never`, or what differs from the rule of the server.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RawToolRetry {
    Word(RawToolRetryWord),
    Rule(RawToolRetryRule),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawToolRetryWord {
    /// These tools may run again, whatever their server says of them.
    Safe,
    /// Their calls are not made again.
    Never,
}

/// When a call of these tools is made again; what is not said is as in the rule of the server.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "retry of tools")]
pub struct RawToolRetryRule {
    /// All tries of one call, the first included.
    #[schemars(range(min = 1, max = 10))]
    pub attempts: Option<u32>,
    /// What is tried again.
    #[schemars(extend("uniqueItems" = true))]
    pub on: Option<Vec<RawTrouble>>,
    /// These tools may run again, whatever their server says of them. Default false.
    pub safe: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawTrouble {
    /// The server is not there: the call was not run.
    Unavailable,
    /// The server has too many requests: the call was not run.
    RateLimited,
    /// No answer within `timeout`.
    Timeout,
    /// The server, or the way to it, broke during the call.
    Lost,
    /// An error of the protocol.
    Refused,
    /// A result that is an error.
    Error,
}
