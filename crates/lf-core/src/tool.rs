//! Tools, and the port they are listed and called through.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::Principal;
use crate::pins::{Pins, Print};
use crate::policy::Labels;

mod approval;
mod attendant;
mod form;
pub(crate) mod media;
pub(crate) mod retries;

pub use approval::{Approval, Hints};
pub use attendant::{Attendant, Person, Question, Reply};
pub use form::{Choice, Field, FieldKind, Form};
pub use retries::{Retries, Trouble};

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Which tool of which server: the identity of a tool, whatever a model calls it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ToolRef {
    pub server: Arc<str>,
    /// The server's own name for it.
    pub name: Arc<str>,
}

/// A tool as its source describes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tool {
    pub id: ToolRef,
    /// What stands for [`ToolRef::name`] in exposed names; differs where the file renames the tool.
    pub shown_name: Arc<str>,
    pub description: Option<Arc<str>>,
    /// The JSON Schema of its arguments, as it arrived.
    pub schema: Arc<Value>,
    /// Its source says that it only reads, or that a second run changes nothing more (`readOnlyHint`, `idempotentHint`),
    /// or the file does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeatable: bool,
    /// Never [`Approval::Deny`]: such a tool is not listed.
    #[serde(default, skip_serializing_if = "Approval::is_auto")]
    pub approval: Approval,
    /// What its source says of its behaviour.
    #[serde(default, skip_serializing_if = "Hints::is_silent")]
    pub hints: Hints,
    /// What its results bring in, and where its arguments may go.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// When a call that failed is made again, where it is repeatable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<Retries>,
    /// What it is held against a lock by; `None` of one that was not listed by a server in this process.
    #[serde(skip)]
    pub print: Option<Arc<Print>>,
    #[serde(skip)]
    pub(crate) checker: Arc<OnceLock<Result<jsonschema::Validator, String>>>,
}

impl Tool {
    pub fn new(id: ToolRef, description: Option<Arc<str>>, schema: Arc<Value>) -> Self {
        Self {
            shown_name: id.name.clone(),
            id,
            description,
            schema,
            repeatable: false,
            approval: Approval::Auto,
            hints: Hints::default(),
            labels: Labels::default(),
            retries: None,
            print: None,
            checker: Arc::default(),
        }
    }

    /// The same where its calls are played from a recording: how they ended is known, and nobody has to agree.
    pub fn as_recorded(mut self) -> Self {
        self.retries = None;
        self.approval = Approval::Auto;
        self
    }

    /// What is wrong with these arguments by the tool's schema, each with the place; empty when nothing is.
    /// The schema is compiled once per listed tool. A schema that cannot be compiled checks nothing: the server will.
    pub fn problems(&self, arguments: &Map<String, Value>) -> Vec<String> {
        let Ok(checker) = self.checker() else { return Vec::new() };
        let value = Value::Object(arguments.clone());
        checker
            .iter_errors(&value)
            .filter(|error| !is_undecided(error))
            .take(8)
            .map(|error| match error.instance_path().as_str() {
                "" => shortened(error.to_string()),
                path => shortened(format!("{path}: {error}")),
            })
            .collect()
    }

    /// Why the schema checks nothing; `None` where it can be compiled.
    pub fn schema_error(&self) -> Option<&str> {
        self.checker().as_ref().err().map(String::as_str)
    }

    fn checker(&self) -> &Result<jsonschema::Validator, String> {
        self.checker.get_or_init(|| compiled(&self.schema).map_err(|error| error.to_string()))
    }
}

/// Patterns are strangers' programs: they get so many steps back, and so much memory.
const MAX_BACKTRACKS: usize = 100_000;
const MAX_PATTERN: usize = 1024 * 1024;

fn compiled(schema: &Value) -> Result<jsonschema::Validator, Box<jsonschema::ValidationError<'static>>> {
    let patterns = jsonschema::PatternOptions::fancy_regex()
        .backtrack_limit(MAX_BACKTRACKS)
        .size_limit(MAX_PATTERN)
        .dfa_size_limit(MAX_PATTERN);
    jsonschema::options().with_pattern_options(patterns).build(schema).map_err(Box::new)
}

/// The value itself is in it, however large.
fn shortened(mut problem: String) -> String {
    const LONGEST: usize = 500;
    if problem.len() > LONGEST {
        // the reason stands at the end
        let head = problem.floor_char_boundary(LONGEST / 2);
        let tail = problem.ceil_char_boundary(problem.len() - LONGEST / 2);
        problem.replace_range(head..tail, "…");
    }
    problem
}

/// A pattern that was given up is nobody's fault but the schema's.
fn is_undecided(error: &jsonschema::ValidationError<'_>) -> bool {
    use jsonschema::error::ValidationErrorKind;
    matches!(
        error.kind(),
        ValidationErrorKind::BacktrackLimitExceeded { .. } | ValidationErrorKind::RegexEngineFailure { .. }
    )
}

/// What the tool servers of a model offer right now.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    /// By server in the order asked, then in the server's own order.
    pub tools: Vec<Tool>,
    /// Servers whose tools are missing, with the reason.
    pub down: Vec<ServerDown>,
    /// Tools that are not among `tools`, because they are not what a person looked at.
    pub held: Vec<Held>,
}

impl Catalogue {
    /// Leaves what this principal reaches.
    pub fn narrow(&mut self, who: &Principal) {
        self.tools.retain(|tool| who.reaches_tool(&tool.id));
        self.held.retain(|held| who.reaches_tool(&held.tool.id));
    }

    /// Takes the tools out that are held back.
    pub fn hold_back(&mut self, pins: &Pins) {
        if !pins.is_locked() {
            return;
        }
        let listed = std::mem::take(&mut self.tools);
        for tool in listed {
            match pins.holds_back_listed(&tool) {
                Some(why) => self.held.push(Held { tool, why }),
                None => self.tools.push(tool),
            }
        }
    }
}

/// A tool that nobody is offered.
#[derive(Debug, Clone)]
pub struct Held {
    pub tool: Tool,
    /// With what to do about it.
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerDown {
    pub server: String,
    pub reason: String,
    pub required: bool,
}

/// What a source returned for a call.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolOutput {
    pub content: Vec<ToolContent>,
    pub structured: Option<Value>,
    pub is_error: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolContent {
    Text(String),
    /// Base64.
    Image {
        data: String,
        mime_type: String,
    },
    /// Base64.
    Audio {
        data: String,
        mime_type: String,
    },
    Resource {
        uri: String,
        mime_type: Option<String>,
        text: Option<String>,
        blob: Option<String>,
    },
    ResourceLink {
        uri: String,
        name: String,
        description: Option<String>,
        mime_type: Option<String>,
    },
    /// A content type this program does not know, as it arrived.
    Other(Value),
}

/// Progress a running call reported.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolProgress {
    pub progress: f64,
    pub total: Option<f64>,
    pub message: Option<String>,
}

/// Why a call has no result. `Display` is written for the model to read.
#[derive(Debug, Clone, Error, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolError {
    #[error("MCP server `{server}` is not available: {reason}")]
    Down { server: String, reason: String },
    /// The server has too many requests, and did not run this one.
    #[error("MCP server `{server}` is not available: {reason}")]
    RateLimited {
        server: String,
        reason: String,
        /// The pause that it asks for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<Duration>,
    },
    #[error("MCP server `{server}` has no tool `{tool}`")]
    UnknownTool { server: String, tool: String },
    #[error("tool `{tool}` of MCP server `{server}` did not answer within {limit:?}; its outcome is unknown")]
    Timeout { server: String, tool: String, limit: Duration },
    #[error("MCP server `{server}` went away while `{tool}` was running ({reason}); its outcome is unknown")]
    Lost { server: String, tool: String, reason: String },
    /// The server answered with a protocol error.
    #[error("MCP server `{server}` refused the call: {message} (code {code})")]
    Refused { server: String, message: String, code: i64 },
    /// It was not run: whoever asks may not have it run.
    #[error("tool `{tool}` of MCP server `{server}` may not be run: {reason}")]
    Denied { server: String, tool: String, reason: String },
    #[error("the result of `{tool}` is larger than the limit of {limit} bytes")]
    TooLarge { tool: String, limit: usize },
}

impl ToolError {
    /// In a word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Down { .. } => "down",
            Self::RateLimited { .. } => "rate_limited",
            Self::Denied { .. } => "denied",
            Self::UnknownTool { .. } => "unknown_tool",
            Self::Timeout { .. } => "timeout",
            Self::Lost { .. } => "lost",
            Self::Refused { .. } => "refused",
            Self::TooLarge { .. } => "too_large",
        }
    }
}

/// Lists and runs tools. Dropping a returned future cancels what it was doing.
pub trait ToolSource: Send + Sync {
    /// The tools of these servers. A server that cannot be reached costs only its own tools.
    fn list<'a>(&'a self, servers: &'a [String]) -> BoxFuture<'a, Catalogue>;

    /// Ends when this server can be called, or cannot be: who may call it is asked after that, so that nothing is waited for
    /// between the answer and the call.
    fn ready<'a>(&'a self, _server: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Runs one tool. `attendant` is told of the server's reports, and asked what the server asks.
    fn call<'a>(
        &'a self,
        tool: &'a ToolRef,
        arguments: &'a Map<String, Value>,
        attendant: &'a dyn Attendant,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>>;
}

impl ToolContent {
    /// As MCP writes it (schema 2025-11-25, `ContentBlock`).
    pub fn to_json(&self) -> Value {
        use serde_json::json;
        match self {
            Self::Text(text) => json!({"type": "text", "text": text}),
            Self::Image { data, mime_type } => json!({"type": "image", "data": data, "mimeType": mime_type}),
            Self::Audio { data, mime_type } => json!({"type": "audio", "data": data, "mimeType": mime_type}),
            Self::Resource { uri, mime_type, text, blob } => {
                let mut resource = Map::new();
                resource.insert("uri".to_owned(), json!(uri));
                for (key, value) in [("mimeType", mime_type), ("text", text), ("blob", blob)] {
                    if let Some(value) = value {
                        resource.insert(key.to_owned(), json!(value));
                    }
                }
                json!({"type": "resource", "resource": resource})
            }
            Self::ResourceLink { uri, name, description, mime_type } => {
                let mut link = json!({"type": "resource_link", "uri": uri, "name": name});
                for (key, value) in [("description", description), ("mimeType", mime_type)] {
                    if let Some(value) = value {
                        link[key] = json!(value);
                    }
                }
                link
            }
            Self::Other(value) => value.clone(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
