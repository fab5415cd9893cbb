//! Asking a model: the request, the pieces of its answer, and the port.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::message::{Message, ToolCall};
use crate::turn::Decision;

/// One ask. Tools carry exposed names.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ModelRequest {
    pub messages: Vec<Message>,
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub tools: Arc<[ToolSpec]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// All other request fields, in the spelling of OpenAI Chat Completions; unknown ones too.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// Whether the upstream is asked to stream.
    pub stream: bool,
}

/// What a client asks for, decoded from its dialect.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ChatRequest {
    /// As the client wrote it; `None` means the project's default.
    pub model: Option<String>,
    pub messages: Vec<Message>,
    /// Tools the client declared and runs itself.
    pub tools: Vec<ToolSpec>,
    /// Names as the client wrote them.
    pub tool_choice: Option<ToolChoice>,
    /// All other fields, in the spelling of OpenAI Chat Completions; unknown ones too.
    pub parameters: Map<String, Value>,
    /// Values for `{{name}}` in prompts and inline tools.
    pub variables: Map<String, Value>,
    /// What the client decided about calls that wait for it, by the id of the approval.
    pub approvals: Vec<(String, Decision)>,
    pub stream: bool,
}

/// As the client said it, with its tools under their own names; which model is asked, and what fills in templates, is
/// for whoever asks.
impl From<ChatRequest> for ModelRequest {
    fn from(request: ChatRequest) -> Self {
        Self {
            messages: request.messages,
            tools: request.tools.into(),
            tool_choice: request.tool_choice,
            parameters: request.parameters,
            stream: request.stream,
        }
    }
}

/// A tool as a model is shown it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Arc<str>>,
    pub schema: Arc<Value>,
    /// Further fields of the declaration (`strict`, …), kept for the upstream.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub rest: Map<String, Value>,
}

impl ToolSpec {
    /// Key of `rest` in declarations that only one dialect can say: a kind of tool that its models know without a
    /// schema.
    pub const NATIVE: &'static str = "$native";

    /// Whether only the client's own dialect can say this declaration, so that other models cannot be shown the tool.
    pub fn is_native(&self) -> bool {
        self.rest.contains_key(Self::NATIVE)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    Auto,
    None,
    Required,
    /// An exposed name.
    Tool(String),
}

/// A piece of the model's answer, already decoded from the upstream's dialect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelDelta {
    Text(String),
    Reasoning(String),
    /// A whole call: fragments are assembled by the dialect, and a call is only told once nothing can change it.
    /// `id` is empty where the upstream sent none.
    Call(ToolCall),
    Usage(Usage),
    /// For the person who asks, not of the model's: what of the request could not be sent to it.
    Notice(String),
    /// Something that only the model's own dialect has, at its place in the answer.
    Native(Native),
    /// Fields that must come back with this message ([`crate::AssistantMessage::rest`]): sealed reasoning, item ids, …
    /// Told at most once, before the finish.
    State(Map<String, Value>),
    /// The last delta of an answer that ended as the dialect says it must.
    Finish {
        reason: FinishReason,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw: Option<String>,
        /// The stop sequence that ended the text, where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_sequence: Option<String>,
    },
}

/// A piece of an answer that only one dialect has, as it came: for clients that speak the same one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Native {
    pub dialect: Dialect,
    pub item: Value,
}

/// One model API's wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// OpenAI Chat Completions and everything that follows it.
    OpenaiChat,
    /// OpenAI Responses.
    OpenaiResponses,
    /// Anthropic Messages.
    Anthropic,
    /// Gemini `generateContent` and `streamGenerateContent`.
    Gemini,
    /// Ollama's own `/api/chat`.
    Ollama,
    /// The event stream of the Vercel AI SDK: read, never asked.
    AiSdk,
}

impl Dialect {
    /// Those that models are asked in.
    pub const ASKED: [Self; 5] =
        [Self::OpenaiChat, Self::OpenaiResponses, Self::Anthropic, Self::Gemini, Self::Ollama];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    Stop,
    Length,
    ToolCalls,
    ContentFilter,
}

impl FinishReason {
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::ContentFilter => "content_filter",
        }
    }
}

/// Tokens, as the upstream counted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    /// Part of `input` that came from the upstream's cache.
    pub cached: u64,
    /// Part of `input` that was written to the upstream's cache, where it counts that.
    pub cache_written: u64,
    /// Part of `output` that was reasoning.
    pub reasoning: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cached = self.cached.saturating_add(other.cached);
        self.cache_written = self.cache_written.saturating_add(other.cache_written);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
    }
}

/// The usual estimate, where nobody counts: of English and code.
pub const BYTES_PER_TOKEN: usize = 4;

/// Why a model gave no (whole) answer: one variant per thing a caller can do about it.
#[derive(Debug, Clone, Error, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelError {
    #[error("cannot reach {url}: {reason}")]
    Unreachable { url: String, reason: String },
    /// 401 or 403.
    #[error("{url} refused the credentials ({status}): {message}")]
    Unauthorized { url: String, status: u16, message: String },
    #[error("{url} is limiting requests (429): {message}")]
    RateLimited { url: String, message: String, retry_after: Option<Duration> },
    /// Any other 4xx: the request is at fault. `body` is the upstream's `error` object, where it sent one.
    #[error("{url} rejected the request ({status}): {message}")]
    Rejected { url: String, status: u16, message: String, body: Option<Box<Value>> },
    /// 5xx, or an error told inside the answer.
    #[error("{url} failed ({status}): {message}")]
    Failed { url: String, status: u16, message: String, retry_after: Option<Duration> },
    #[error("{url} did not {what} within {limit:?}")]
    Timeout { url: String, what: Cow<'static, str>, limit: Duration },
    /// Not the protocol: HTML instead of JSON, a stream cut before its end, …
    #[error("{url} answered with something that is no {expected}: {found}")]
    Garbled { url: String, expected: Cow<'static, str>, found: String },
    /// This program has no way to ask.
    #[error("{0}")]
    Unsupported(String),
}

impl ModelError {
    /// In the place of an upstream's URL: not an upstream failed, but this program stops.
    const OURSELVES: &str = "this daemon";

    /// Ends a turn that is still running when the program goes down.
    pub fn going_down() -> Self {
        let message = "it is shutting down".to_owned();
        Self::Failed { url: Self::OURSELVES.to_owned(), status: 503, message, retry_after: None }
    }

    /// Nobody refused the request: it was given up, and may have been worked on.
    pub fn is_given_up(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::Garbled { .. })
    }

    pub fn is_going_down(&self) -> bool {
        matches!(self, Self::Failed { url, .. } if url == Self::OURSELVES)
    }
}

pub type DeltaStream = Pin<Box<dyn Stream<Item = Result<ModelDelta, ModelError>> + Send>>;

/// Makes a model answer.
pub trait ModelProvider: Send + Sync {
    /// Encodes the request at once and sends nothing until the stream is polled; dropping the stream cancels the
    /// request. The stream ends after [`ModelDelta::Finish`] or after the first error.
    fn stream(&self, request: &ModelRequest) -> DeltaStream;
}
