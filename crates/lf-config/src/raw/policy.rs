//! `policy`, and the labels of servers' tools, as the file writes them.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

/// Which calls of tools run, wait for a person, or never run. Of all rules that speak of a call the strictest counts,
/// wherever it stands.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "section policy")]
pub struct RawPolicy {
    /// What becomes of calls that no rule speaks of. Default `allow`.
    pub default: Option<RawVerdict>,
    /// What becomes of a call of an `egress` tool in a conversation that has seen results of `private` and of `untrusted`
    /// tools. Default `ask`.
    pub flow: Option<RawVerdict>,
    /// The rules. A rule can make a call stricter than `approval` of its server says, and never milder.
    pub rules: Option<Vec<RawRule>>,
}

/// A rule. It speaks of the calls for which all that it names is so.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "rule")]
pub struct RawRule {
    /// For people, and for the model that is told of it.
    #[schemars(length(min = 1))]
    pub name: Option<String>,
    /// Globs on the names of models. A client's own call is no model's.
    pub models: Option<Vec<String>>,
    /// Globs on the names of keys: who asks. A call without a key has no name.
    pub keys: Option<Vec<String>>,
    /// Globs on the names of servers. The daemon's own tools are of the server `lf`.
    pub servers: Option<Vec<String>>,
    /// Globs on the servers' own tool names.
    pub tools: Option<Vec<String>>,
    /// What the server says of the tool; with the protocol's defaults for what it does not say.
    pub annotations: Option<RawAnnotations>,
    /// Labels that the tool has, all of them.
    #[schemars(extend("uniqueItems" = true))]
    pub labels: Option<Vec<RawLabel>>,
    /// A condition in CEL over `model`, `key`, `server`, `tool`, `labels`, `annotations`, `args` and `earlier`, such as
    /// `args.path.startsWith("/etc/")`.
    #[schemars(length(min = 1))]
    pub when: Option<String>,
    /// What becomes of these calls.
    #[schemars(required)]
    pub verdict: Option<RawVerdict>,
    /// Why, for the model or the person to read.
    pub reason: Option<String>,
}

/// Annotations of a tool that must be so.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(title = "annotations")]
pub struct RawAnnotations {
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// It may destroy something. Default of the protocol: true.
    pub destructive: Option<bool>,
    /// A second run changes nothing more.
    pub idempotent: Option<bool>,
    /// It reaches beyond its own domain. Default of the protocol: true.
    pub open_world: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawVerdict {
    /// It runs, unless something stricter is said elsewhere.
    Allow,
    /// A person says yes before it runs.
    Ask,
    /// It never runs, and the model is told why.
    Deny,
}

/// Labels of all tools, or by glob.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RawLabels {
    All(Vec<RawLabel>),
    PerTool(IndexMap<String, Vec<RawLabel>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawLabel {
    /// Results are not for everybody.
    Private,
    /// Results may be written by anybody.
    Untrusted,
    /// What the tool is given may leave.
    Egress,
}
