//! `prompts`, as the file writes them.

use schemars::JsonSchema;
use serde::Deserialize;

/// A named list of messages.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "prompt set")]
pub struct RawPromptSet {
    /// Name that models refer to.
    #[schemars(required, regex(pattern = r"^[A-Za-z0-9_.-]{1,128}$"))]
    pub name: Option<String>,
    /// Messages, in order. `{{name}}` and `{{name | default}}` are filled in from a request's variables.
    pub messages: Option<Vec<RawMessage>>,
}

/// One message.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "message")]
pub struct RawMessage {
    /// Who says it.
    #[schemars(required)]
    pub role: Option<RawRole>,
    /// What is said.
    #[schemars(required)]
    pub content: Option<String>,
    /// For role `tool`: the call this message answers.
    pub tool_call_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawRole {
    System,
    /// The same as `system`.
    Developer,
    User,
    Assistant,
    Tool,
}
