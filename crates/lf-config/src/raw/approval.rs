//! `approval` of an MCP server, as the file writes it.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

/// One rule for all tools; or one per glob of the server's tool names or per annotation (`destructiveHint`,
/// `readOnlyHint`, `idempotentHint`, `openWorldHint`; with the protocol's defaults for a tool that says nothing). A name
/// goes before a glob, a glob with more letters before one with fewer, an annotation before `*`; of equals the strictest
/// counts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RawApproval {
    All(RawDecision),
    PerTool(IndexMap<String, RawDecision>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawDecision {
    /// Run without asking.
    Auto,
    /// Ask a person first.
    Ask,
    /// Never run; the model does not see the tool.
    Deny,
}
