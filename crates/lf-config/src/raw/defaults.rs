//! What counts where an entry does not say.

use schemars::JsonSchema;
use serde::Deserialize;

/// What counts where a model does not say.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawDefaults {
    /// What a model without `mcp_servers` may use: `all` servers of the file (default), or `none`.
    pub mcp_access: Option<RawMcpAccess>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawMcpAccess {
    All,
    None,
}
