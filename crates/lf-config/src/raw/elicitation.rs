//! What a server is answered that asks for a person, where there is none.

use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawElicitation {
    /// The defaults of its form, where every required field has one; otherwise that the person declines.
    Defaults,
    /// That the person declines, also where somebody could be asked.
    Decline,
}
