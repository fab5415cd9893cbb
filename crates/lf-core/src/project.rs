//! The validated content of one `llamafarm.yaml`. Valid by construction: every name refers to something that exists.

mod approval;
mod auth;
mod carried;
mod limits;
mod price;
mod provider;
mod retry;
mod sandbox;
mod storage;
mod transport;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use globset::GlobMatcher;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Secret;
use crate::message::Role;
use crate::model::Dialect;
use crate::pins::Pins;
use crate::place::Reach;
use crate::policy::Policy;
use crate::quota::Quota;
use crate::secret::hidden_in_url;
use crate::tool::{Approval, Hints};
pub use approval::{ApprovalOf, ApprovalRule, Hint};
pub use auth::{Auth, ClientMethod, OAuthClient};
pub use carried::{Asked, Carried, Destination, Entry};
pub use limits::Limits;
pub use price::Price;
pub use provider::Provider;
pub use retry::{RetryRule, ToolRetry};
pub use sandbox::{Sandbox, SandboxNetwork, SandboxProfile};
pub use storage::Storage;
pub use transport::{HttpServer, ProcessLimits, StdioServer, Transport};

/// One project.
#[derive(Debug, Clone)]
pub struct Project {
    pub namespace: String,
    pub name: String,
    /// The directory of the file; relative paths start here.
    pub root: PathBuf,
    pub servers: IndexMap<String, Result<Arc<McpServer>, Disabled>>,
    pub models: IndexMap<String, Result<Arc<Model>, Disabled>>,
    /// A key of `models`; `None` only when there are no models.
    pub default_model: Option<String>,
    pub prompts: IndexMap<String, PromptSet>,
    /// What the entries take out of the environment, and where to: whether they may is not the file's to say.
    pub carried: Vec<Carried>,
    /// Of the daemon that is started with this file; without meaning in any other.
    pub storage: Result<Storage, Disabled>,
    /// Which calls of tools run, wait for a person, or never run.
    pub policy: Policy,
    /// What all who use it may use together.
    pub quota: Quota,
    /// What its servers and tools were when somebody looked at them.
    pub pins: Arc<Pins>,
}

/// Why an entry of the file cannot be used although the file is right, such as a missing variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disabled {
    /// A lowercase fragment, such as "variable `API_TOKEN` is not set (llamafarm.yaml:12:24)".
    pub reason: String,
}

/// A configured tool server that we connect to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct McpServer {
    pub name: String,
    pub transport: Transport,
    pub tools: ToolFilter,
    /// One call; progress from the server starts it anew. Default 30 s.
    pub timeout: Duration,
    /// What one call may take however much progress it reports. Default 10 × `timeout`.
    pub max_timeout: Duration,
    /// From the start of the process or connection to the first tool list. Default 60 s.
    pub startup_timeout: Duration,
    /// A chat fails when this server is down.
    pub required: bool,
    pub protocol: Protocol,
    pub elicitation: Elicitation,
    /// Without: a call that failed is not made again.
    pub retry: Option<RetryRule>,
}

impl McpServer {
    pub const TIMEOUT: Duration = Duration::from_secs(30);
    pub const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);
    /// `max_timeout` is so many times `timeout`.
    pub const TOTAL: u32 = 10;

    /// A server of which nothing is said but where it is.
    pub fn new(name: impl Into<String>, transport: Transport) -> Self {
        Self {
            name: name.into(),
            transport,
            tools: ToolFilter::default(),
            timeout: Self::TIMEOUT,
            max_timeout: Self::TIMEOUT * Self::TOTAL,
            startup_timeout: Self::STARTUP_TIMEOUT,
            required: false,
            protocol: Protocol::Auto,
            elicitation: Elicitation::default(),
            retry: None,
        }
    }
}

/// What a server is told that asks a person something in the middle of a call, where nobody can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Elicitation {
    /// The defaults of its form, where every required field has one; otherwise that the person declines.
    #[default]
    Defaults,
    /// That the person declines. Whoever could be asked is not asked, either.
    Decline,
}

impl Elicitation {
    /// As the file writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Defaults => "defaults",
            Self::Decline => "decline",
        }
    }
}

/// In which revisions of the protocol a server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// The modern generation where the server knows it, otherwise the legacy one.
    #[default]
    Auto,
    /// The newest legacy revision that the server knows.
    Legacy,
    /// The newest modern revision that the server knows.
    Modern,
    /// This one of [`Protocol::REVISIONS`], and no other.
    Revision(&'static str),
}

impl Protocol {
    /// Oldest first.
    pub const REVISIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];

    /// The only generation that is spoken; `None` where the server decides.
    pub fn generation(self) -> Option<Generation> {
        match self {
            Self::Auto => None,
            Self::Legacy => Some(Generation::Legacy),
            Self::Modern => Some(Generation::Modern),
            Self::Revision(revision) => Some(Generation::of(revision)),
        }
    }

    /// As the file writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Legacy => "legacy",
            Self::Modern => "modern",
            Self::Revision(revision) => revision,
        }
    }
}

/// The two ways in which the revisions of MCP begin and go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Generation {
    /// Up to 2025-11-25: a handshake with `initialize`, then a session.
    Legacy,
    /// From 2026-07-28 on: `server/discover`, no session, and what is needed with every request.
    Modern,
}

impl Generation {
    /// The generation of a revision; revisions are dates, so their order as text is that in time.
    pub fn of(revision: &str) -> Self {
        if revision < "2026-07-28" { Self::Legacy } else { Self::Modern }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

/// Which of a server's tools exist for us. Globs match the server's own tool names.
#[derive(Debug, Clone, Default)]
pub struct ToolFilter {
    /// `None`: every tool that is not denied.
    pub allow: Option<Vec<GlobMatcher>>,
    pub deny: Vec<GlobMatcher>,
    /// Server's name → the name shown instead.
    pub rename: IndexMap<String, String>,
    /// Which run without asking; those that never run are not there.
    pub approval: Vec<ApprovalRule>,
}

impl ToolFilter {
    /// Whether a tool of this name may be there at all; [`Self::approval`] has the last word.
    pub fn permits(&self, tool: &str) -> bool {
        let allowed = self.allow.as_ref().is_none_or(|globs| globs.iter().any(|glob| glob.is_match(tool)));
        allowed && !self.deny.iter().any(|glob| glob.is_match(tool))
    }

    /// Whether a tool runs without asking: what the most specific rule says that speaks of it.
    pub fn approval(&self, tool: &str, hints: Hints) -> Approval {
        approval::decide(&self.approval, tool, hints)
    }

    fn fingerprint(&self) -> Fingerprint<'_> {
        fn globs(list: &[GlobMatcher]) -> Vec<&str> {
            list.iter().map(|glob| glob.glob().glob()).collect()
        }
        let rename = self.rename.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
        let approval = self.approval.iter().map(ApprovalRule::fingerprint).collect();
        Fingerprint { allow: self.allow.as_deref().map(globs), deny: globs(&self.deny), rename, approval }
    }
}

/// What makes two filters equal: matchers have no equality of their own.
#[derive(PartialEq, Hash)]
struct Fingerprint<'a> {
    allow: Option<Vec<&'a str>>,
    deny: Vec<&'a str>,
    rename: Vec<(&'a str, &'a str)>,
    approval: Vec<(&'a str, Approval)>,
}

impl PartialEq for ToolFilter {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint() == other.fingerprint()
    }
}

impl Eq for ToolFilter {}

impl std::hash::Hash for ToolFilter {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.fingerprint().hash(state);
    }
}

/// An entry of `runtime.models`.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The name clients use.
    pub name: String,
    pub description: Option<String>,
    pub provider: Provider,
    /// How its API speaks.
    pub dialect: Dialect,
    /// The upstream's name for it.
    pub model: String,
    /// The file that answers in its place; only with [`Provider::Replay`].
    pub cassette: Option<PathBuf>,
    /// Without a trailing slash; the provider's default where the file is silent. Empty for `demo`.
    pub base_url: String,
    /// What variables hold of `base_url`: not shown.
    pub in_url: Vec<Secret>,
    /// Which addresses may be behind `base_url`.
    pub reach: Reach,
    pub api_key: Option<Secret>,
    pub strategy: ToolCallStrategy,
    /// The dialect of the calls that it writes as text, one of [`crate::text_calls::names`]. Without: what its name
    /// says.
    pub tool_call_format: Option<String>,
    /// Keys of [`Project::servers`], in the order of the file.
    pub servers: Vec<String>,
    pub tools: Vec<InlineTool>,
    /// Keys of [`Project::prompts`], in the order they are put together.
    pub prompts: Vec<String>,
    /// Defaults for request fields; the request wins.
    pub parameters: Map<String, Value>,
    /// Merged over the request's fields; the file wins.
    pub extra_body: Map<String, Value>,
    pub limits: Limits,
    /// `None`: nobody knows.
    pub price: Option<Price>,
    /// Whether it is shown images; where not, notes that there were some.
    pub images: bool,
    /// Keys of [`Project::models`]: who answers when this one cannot, in order.
    pub fallback: Vec<String>,
}

impl Model {
    /// A model with nothing but what every model has: no key, servers, tools or prompts, and the default limits.
    pub fn new(
        name: impl Into<String>,
        provider: Provider,
        model: impl Into<String>,
        base_url: impl Into<String>,
    ) -> Self {
        let model = model.into();
        Self {
            name: name.into(),
            description: None,
            provider,
            dialect: provider.dialect(),
            price: provider.price(),
            images: provider.shows_images(&model),
            model,
            cassette: None,
            base_url: base_url.into(),
            in_url: Vec::new(),
            reach: Reach::Named,
            api_key: None,
            strategy: ToolCallStrategy::NativeApi,
            tool_call_format: None,
            servers: Vec::new(),
            tools: Vec::new(),
            prompts: Vec::new(),
            parameters: Map::new(),
            extra_body: Map::new(),
            limits: Limits::default(),
            fallback: Vec::new(),
        }
    }
}

impl Model {
    /// What nobody is shown of how it is asked: its key, and what its URL hides. The word that a provider takes in the
    /// place of a key is none.
    pub fn secrets(&self) -> Vec<Secret> {
        let is_key = |key: &&Secret| key.expose() != self.provider.name();
        let key = self.api_key.iter().filter(is_key).cloned();
        key.chain(self.in_url.iter().cloned()).chain(hidden_in_url(&self.base_url)).collect()
    }
}

/// How tools are offered to the model and how its calls are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolCallStrategy {
    /// Through the API's `tools`; tool-call tags in the text are still understood.
    #[default]
    NativeApi,
    /// Through the system prompt; calls are read from the text.
    PromptBased,
    /// Native first; prompt-based from the moment the upstream says that it has no tools.
    Auto,
}

/// A tool of the file's own; a call to it goes back to the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InlineTool {
    /// May contain dots.
    pub name: String,
    pub description: String,
    pub parameters: Arc<Value>,
}

/// Messages put before a conversation. `{{name}}` and `{{name | default}}` are filled in per request.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PromptSet {
    pub messages: Vec<PromptMessage>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PromptMessage {
    pub role: Role,
    pub content: String,
    pub tool_call_id: Option<String>,
}
