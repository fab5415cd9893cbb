//! Who has to agree before a tool runs.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Whether a tool runs without anybody being asked. From the mildest to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Approval {
    #[default]
    Auto,
    /// A person says yes before it runs.
    Ask,
    /// It never runs, and no model sees it.
    Deny,
}

impl Approval {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(crate) fn is_auto(&self) -> bool {
        *self == Self::Auto
    }

    /// As the file writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// What a server says of a tool's behaviour, with the protocol's defaults for what it does not say (MCP 2025-11-25,
/// `ToolAnnotations`): a tool is destructive and reaches out unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hints {
    pub read_only: bool,
    /// Of a tool that is not read-only.
    pub destructive: bool,
    pub idempotent: bool,
    pub open_world: bool,
}

impl Default for Hints {
    /// Of a tool that says nothing of itself.
    fn default() -> Self {
        Self::of(&Value::Null)
    }
}

impl Hints {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(crate) fn is_silent(&self) -> bool {
        *self == Self::default()
    }

    /// Of a tool as its server lists it.
    pub fn of(tool: &Value) -> Self {
        let says = |hint: &str, default| {
            let said = tool.get("annotations").and_then(|hints| hints.get(hint)).and_then(Value::as_bool);
            said.unwrap_or(default)
        };
        let read_only = says("readOnlyHint", false);
        Self {
            read_only,
            destructive: !read_only && says("destructiveHint", true),
            idempotent: says("idempotentHint", false),
            open_world: says("openWorldHint", true),
        }
    }

    /// Running it a second time changes nothing more.
    pub fn repeatable(self) -> bool {
        self.read_only || self.idempotent
    }
}
