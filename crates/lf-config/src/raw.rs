//! The file as it is written, in its modern form. The JSON Schema is made from these types and the checks follow the
//! schema, so the three cannot disagree.
//!
//! Two extensions of the schema steer the checks: `x-later` marks what is understood but not acted on yet (its value
//! is the setting that changes nothing), `x-unused` a section that is kept and not looked into.

mod approval;
mod auth;
mod defaults;
mod elicitation;
mod limits;
mod policy;
mod prompts;
mod retry;
mod sandbox;

use indexmap::IndexMap;
use lf_core::Secret;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value};

pub use approval::{RawApproval, RawDecision};
pub use auth::{RawAuth, RawAuthKind, RawClientMethod};
pub use defaults::{RawDefaults, RawMcpAccess};
pub use elicitation::RawElicitation;
pub use limits::{RawInput, RawLimits, RawPrice, RawProcessLimits, RawQuota, RawSize};
pub use policy::{RawAnnotations, RawLabel, RawLabels, RawPolicy, RawRule, RawVerdict};
pub use prompts::{RawMessage, RawPromptSet, RawRole};
pub use retry::{RawRetry, RawRetryRule, RawToolRetry, RawToolRetryRule, RawToolRetryWord, RawTrouble};
pub use sandbox::{RawSandbox, RawSandboxNetwork, RawSandboxProfile, RawSandboxRules, RawSandboxWord};

/// Names of projects, namespaces and MCP servers.
pub(crate) const NAME: &str = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$";
/// Names of models: colons too, as in `llama3.1:8b`.
pub(crate) const MODEL_NAME: &str = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$";
/// Names of prompt sets and inline tools.
pub(crate) const LOOSE_NAME: &str = r"^[A-Za-z0-9_.-]{1,128}$";
/// Names of environment variables.
pub(crate) const VARIABLE: &str = r"^[A-Za-z_][A-Za-z0-9_]*$";

/// A LlamaFarm project: its tool servers, models and prompts.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[schemars(title = "llamafarm.yaml")]
pub struct RawProject {
    /// Version of the file's format.
    #[schemars(required)]
    pub version: Option<RawVersion>,
    /// Name of the project.
    #[schemars(required, regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"))]
    pub name: Option<String>,
    /// Namespace the project belongs to; `default` where there is only one.
    #[schemars(required, regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"))]
    pub namespace: Option<String>,
    /// Prompt sets: messages put before a conversation. Models name the sets they use.
    pub prompts: Option<Vec<RawPromptSet>>,
    /// Tool servers that speak the Model Context Protocol.
    pub mcp: Option<RawMcp>,
    /// Models and how they are asked.
    pub runtime: Option<RawRuntime>,
    /// What counts where a model does not say.
    pub defaults: Option<RawDefaults>,
    /// Where the daemon that is started with this file keeps conversations: `sqlite` (in its data directory) or
    /// `postgres://user:password@host:port/database`, which several daemons share. `LF_STORAGE` comes before it.
    #[schemars(extend("default" = "sqlite"))]
    pub storage: Option<String>,
    /// Which calls of tools run, wait for a person, or never run.
    pub policy: Option<RawPolicy>,
    /// What all who use the project may use together.
    pub quota: Option<RawQuota>,
    /// Kept; not used by this version.
    #[schemars(extend("x-unused" = true))]
    pub rag: Option<Value>,
    /// Kept; not used by this version.
    #[schemars(extend("x-unused" = true))]
    pub datasets: Option<Value>,
    /// Kept; not used by this version.
    #[schemars(extend("x-unused" = true))]
    pub components: Option<Value>,
    /// Kept; not used by this version.
    #[schemars(extend("x-unused" = true))]
    pub voice: Option<Value>,
    /// Kept; not used by this version.
    #[schemars(extend("x-unused" = true))]
    pub memory: Option<Value>,
    /// Kept; not used by this version.
    #[schemars(extend("x-unused" = true))]
    pub agents: Option<Value>,
    /// Kept; not used by this version.
    #[schemars(extend("x-unused" = true))]
    pub nodes: Option<Value>,
    /// Kept; not used by this version.
    #[schemars(extend("x-unused" = true))]
    pub router: Option<Value>,
    /// Kept; not used by this version.
    #[schemars(extend("x-unused" = true))]
    pub deployment: Option<Value>,
    /// Kept; not used by this version.
    #[schemars(extend("x-unused" = true))]
    pub schema: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawVersion {
    V1,
}

/// Tool servers that speak the Model Context Protocol.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "section mcp")]
pub struct RawMcp {
    /// The servers. Models use all of them, or those they list in `mcp_servers`.
    pub servers: Option<Vec<RawServer>>,
}

/// A tool server: a local process (`stdio`) or a remote one (`http`, `sse`).
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "MCP server")]
pub struct RawServer {
    /// Name that models refer to; its tools are shown as `name__tool`.
    #[schemars(required, regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"))]
    pub name: Option<String>,
    /// How the server is reached.
    #[schemars(required)]
    pub transport: Option<RawTransport>,
    /// stdio: the program to start.
    #[schemars(length(min = 1))]
    pub command: Option<String>,
    /// stdio: its arguments.
    #[serde(default)]
    #[schemars(schema_with = "scalars")]
    pub args: Option<Vec<Secret>>,
    /// stdio: environment variables for the program, added to HOME, LOGNAME, PATH, SHELL, TERM, USER, LANG and TMPDIR.
    #[serde(default)]
    #[schemars(schema_with = "scalar_map")]
    pub env: Option<IndexMap<String, Secret>>,
    /// stdio: directory the program runs in, relative to this file. Default: the directory of this file.
    #[schemars(length(min = 1))]
    pub cwd: Option<String>,
    /// stdio: names of further variables that the program gets from our own environment.
    #[schemars(inner(regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$")), extend("uniqueItems" = true))]
    pub inherit_env: Option<Vec<String>>,
    /// stdio: what the program and all it starts may use.
    pub limits: Option<RawProcessLimits>,
    /// http and sse: the URL of the server, used as it is.
    #[schemars(length(min = 1))]
    pub base_url: Option<String>,
    /// http and sse: headers sent with every request.
    #[serde(default)]
    #[schemars(schema_with = "scalar_map")]
    pub headers: Option<IndexMap<String, Secret>>,
    /// Which of the server's tools are offered, and under which names.
    pub tools: Option<RawToolFilter>,
    /// Whether tools run without a person being asked. Default `auto`.
    pub approval: Option<RawApproval>,
    /// What its tools bring in and can take out: `private` and `untrusted` results, `egress` of what they are given. A list
    /// for all of them, or lists by glob of the server's tool names, of which all that match count.
    pub labels: Option<RawLabels>,
    /// Longest wait for one call; progress reported by the server starts it anew. Default 30s.
    pub timeout: Option<RawDuration>,
    /// Longest time for one call however much progress is reported. Default ten times `timeout`.
    pub max_timeout: Option<RawDuration>,
    /// Longest time from the start of the server to its first list of tools. Default 60s.
    pub startup_timeout: Option<RawDuration>,
    /// Fail a chat when this server is down, instead of going on without its tools. Default false.
    pub required: Option<bool>,
    /// Revision of the protocol to insist on, or its generation. Default `auto`.
    pub protocol: Option<RawProtocol>,
    /// What the server is told when it asks a person something and nobody can be asked. Default `defaults`.
    pub elicitation: Option<RawElicitation>,
    /// When a call that failed is made again: `safe`, or a rule. Without this key: never. Only tools that their server calls
    /// read-only or idempotent, or that are `safe`, run again; these also after a crash of the daemon.
    pub retry: Option<RawRetry>,
    /// http and sse: how to get a token, which is sent as `Authorization: Bearer`. Without this key, and without such a
    /// header, a server that asks for one is told to need `lf mcp login`.
    pub auth: Option<RawAuth>,
    /// stdio: how the program and all it starts are confined. Default `default`.
    pub sandbox: Option<RawSandbox>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawTransport {
    /// A local process, over its standard input and output.
    Stdio,
    /// Streamable HTTP.
    Http,
    /// HTTP with server-sent events, of the protocol's first revision.
    Sse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum RawProtocol {
    /// The newest that the server knows.
    #[serde(rename = "auto")]
    Auto,
    /// The newest that begins with a handshake: up to 2025-11-25.
    #[serde(rename = "legacy")]
    Legacy,
    /// The newest without sessions: from 2026-07-28 on.
    #[serde(rename = "modern")]
    Modern,
    #[serde(rename = "2024-11-05")]
    V20241105,
    #[serde(rename = "2025-03-26")]
    V20250326,
    #[serde(rename = "2025-06-18")]
    V20250618,
    #[serde(rename = "2025-11-25")]
    V20251125,
    #[serde(rename = "2026-07-28")]
    V20260728,
}

/// Globs on the server's own tool names.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tool filter")]
pub struct RawToolFilter {
    /// Offer only tools that match one of these, such as `read_*`. Default: all.
    pub allow: Option<Vec<String>>,
    /// Never offer tools that match one of these; wins over `allow`.
    pub deny: Option<Vec<String>>,
    /// Show a tool under another name: the server's name, then ours.
    pub rename: Option<IndexMap<String, String>>,
}

/// A length of time.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct RawDuration(pub String);

impl JsonSchema for RawDuration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": "duration",
            "type": ["string", "number"],
            "description": "A number and a unit (`500ms`, `30s`, `5m`, `1h`), or a number of seconds.",
            "examples": ["30s", "5m", "500ms"],
        })
    }
}

/// Models and how they are asked.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "section runtime")]
pub struct RawRuntime {
    /// The model used when a request names none. Default: the first one.
    pub default_model: Option<String>,
    /// The models.
    pub models: Option<Vec<RawModel>>,
}

/// A model.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "model")]
pub struct RawModel {
    /// Name that clients use.
    #[schemars(required, regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$"))]
    pub name: Option<String>,
    /// For people; shown in lists.
    pub description: Option<String>,
    /// The kind of API behind it.
    #[schemars(required)]
    pub provider: Option<RawProvider>,
    /// How its API speaks, where the provider has more than one way. Default: the provider's own; `chat_completions` for
    /// `openai`, `ollama`, `universal` and `lemonade`.
    pub api: Option<RawApi>,
    /// The provider's name for the model. Only `demo` needs none. For `replay` the cassette, relative to this file.
    #[schemars(length(min = 1))]
    pub model: Option<String>,
    /// URL of the API. Default: the provider's own.
    #[schemars(length(min = 1))]
    pub base_url: Option<String>,
    /// Key for the API. Default: the provider's usual variable, such as OPENAI_API_KEY.
    #[schemars(with = "Option<String>")]
    pub api_key: Option<Secret>,
    /// The same as naming this model in `default_model`.
    pub default: Option<bool>,
    /// How tools are offered to the model. Default `native_api`.
    pub tool_call_strategy: Option<RawStrategy>,
    /// How the model writes calls as text, where its API lets them through. Default: by the model's name.
    #[schemars(extend("enum" = lf_core::text_calls::names().collect::<Vec<_>>()))]
    pub tool_call_format: Option<String>,
    /// MCP servers the model may use. Without this key: all. `[]`: none.
    #[schemars(extend("uniqueItems" = true))]
    pub mcp_servers: Option<Vec<String>>,
    /// Tools that the client runs itself; a call to one of them ends the turn.
    pub tools: Option<Vec<RawTool>>,
    /// Prompt sets put before a conversation. Without this key: all. `[]`: none.
    #[schemars(extend("uniqueItems" = true))]
    pub prompts: Option<Vec<String>>,
    /// Default values for fields of the request, such as `temperature`; a request's own values win.
    pub model_api_parameters: Option<Map<String, Value>>,
    /// Fields merged over those of the request.
    pub extra_body: Option<Map<String, Value>>,
    /// Bounds for one turn.
    pub limits: Option<RawLimits>,
    /// What the model costs; for `limits: {cost_usd}` and for what is counted.
    pub price: Option<RawPrice>,
    /// What the model takes: `[text, image]`, or `[text]`, where images become a note that there were some. Default: by
    /// provider and name.
    #[schemars(extend("uniqueItems" = true))]
    pub input: Option<Vec<RawInput>>,
    /// Models to ask, in this order, when this one cannot be reached, is limiting requests, or fails before its answer
    /// begins. Their own `fallback` is not followed.
    #[schemars(extend("uniqueItems" = true))]
    pub fallback: Option<Vec<String>>,
    /// Understood but not acted on yet.
    #[schemars(extend("x-later" = true))]
    pub instructor_mode: Option<String>,
    /// Understood but not acted on yet.
    #[schemars(extend("x-later" = true))]
    pub prompt_format: Option<String>,
    /// Understood but not acted on yet.
    #[schemars(extend("x-later" = true))]
    pub encoder_config: Option<Map<String, Value>>,
    /// Understood but not acted on yet.
    #[schemars(extend("x-later" = true))]
    pub lemonade: Option<Map<String, Value>>,
    /// Understood but not acted on yet.
    #[schemars(extend("x-later" = true))]
    pub transformers: Option<Map<String, Value>>,
    /// Understood but not acted on yet.
    #[schemars(extend("x-later" = true))]
    pub diffusion: Option<Map<String, Value>>,
    /// Understood but not acted on yet.
    #[schemars(extend("x-later" = true))]
    pub tools_mode: Option<String>,
    /// Understood but not acted on yet.
    #[schemars(extend("x-later" = true))]
    pub prompts_mode: Option<String>,
    /// Understood but not acted on yet.
    #[schemars(extend("x-later" = true))]
    pub builtin_tools: Option<Map<String, Value>>,
    /// Understood but not acted on yet.
    #[schemars(extend("x-later" = false))]
    pub keep_loaded: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawProvider {
    /// OpenAI, or anything that speaks its API.
    Openai,
    /// Anthropic.
    Anthropic,
    /// A local Ollama.
    Ollama,
    /// Google Gemini.
    Gemini,
    /// LlamaFarm's Universal Runtime.
    Universal,
    /// A local Lemonade server.
    Lemonade,
    /// Built in: needs no key and no network, and uses tools in a simple, predictable way.
    Demo,
    /// A recorded turn, with the results of its tools: needs no network and starts nothing.
    Replay,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawApi {
    /// OpenAI Chat Completions and everything that follows it.
    ChatCompletions,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Messages,
    /// Gemini.
    GenerateContent,
    /// Ollama's own `/api/chat`.
    Ollama,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawStrategy {
    /// Through the API's own `tools`.
    NativeApi,
    /// Through the system prompt, for models without tools.
    PromptBased,
    /// `native_api`, and `prompt_based` from the moment the API says that it has no tools.
    Auto,
}

/// A tool of the model's own. The client runs it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tool")]
pub struct RawTool {
    /// Always `function`.
    #[serde(rename = "type")]
    #[schemars(required)]
    pub kind: Option<RawToolKind>,
    /// Name of the tool; may contain dots.
    #[schemars(required, regex(pattern = r"^[A-Za-z0-9_.-]{1,128}$"))]
    pub name: Option<String>,
    /// What the tool does, for the model to read.
    #[schemars(required)]
    pub description: Option<String>,
    /// JSON Schema of the tool's arguments.
    #[schemars(required)]
    pub parameters: Option<Map<String, Value>>,
    /// How to run the tool here. Understood but not acted on yet: the call goes back to the client.
    #[schemars(extend("x-later" = true))]
    pub run: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawToolKind {
    Function,
}

/// Where text is wanted but people write `8080` or `true`: taken as it is written.
fn scalars(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": ["string", "number", "boolean"] } })
}

fn scalar_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": { "type": ["string", "number", "boolean"] } })
}
