//! `sandbox` of an MCP server, as the file writes it.

use schemars::JsonSchema;
use serde::Deserialize;

/// A profile, or a profile with what it allows.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RawSandbox {
    Profile(RawSandboxProfile),
    Rules(RawSandboxRules),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawSandboxProfile {
    /// None: it runs as any program that a person starts.
    Off,
    /// It sees its own processes only and ends with `lf`, however that ends. Files and the network are its user's.
    #[default]
    Default,
    /// And it has the files and the network that are named here, and no other.
    Strict,
}

/// How the program and all it starts are confined.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "sandbox")]
pub struct RawSandboxRules {
    /// Default `default`, and `strict` where files or a network are named.
    pub profile: Option<RawSandboxProfile>,
    /// strict: files, and directories with all in them, to read and to run, relative to this file. Besides: the system's
    /// programs, libraries, certificates and time zones, and the file of the program itself.
    #[schemars(inner(length(min = 1)))]
    pub read: Option<Vec<String>>,
    /// strict: the same, to change as well. They must be there.
    #[schemars(inner(length(min = 1)))]
    pub write: Option<Vec<String>>,
    /// strict: `none`, `all`, or the ports of TCP that it may connect to on any machine; names are looked up where 53 is
    /// one of them. Default `none`.
    pub network: Option<RawSandboxNetwork>,
    /// Do not start it where the kernel cannot do all of it. Default: true with `strict`, false otherwise.
    pub require: Option<bool>,
    /// Processes of its own, apart from all others. `false` for programs that need those of the machine, or `sudo`.
    /// Default true.
    pub namespaces: Option<bool>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RawSandboxNetwork {
    Word(RawSandboxWord),
    Ports(Vec<u16>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawSandboxWord {
    /// No connections, also not to this machine.
    None,
    /// Wherever its user may connect to.
    All,
}
