//! Bounds of a local server.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

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
