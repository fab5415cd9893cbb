//! Asking a model, whatever its API: a request's body in the pieces that cost differently.

pub(crate) mod media;
pub(crate) mod parameters;

use lf_core::model::{Dialect, ToolSpec};
use lf_core::{Message, ModelError, ModelRequest};
use serde_json::{Map, Value};

use crate::openai_chat::CallIds;
use crate::{anthropic_messages, gemini, ollama, openai_chat, openai_responses};

/// What upstreams of one dialect differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamOptions {
    /// OpenAI Chat: send earlier reasoning back as `reasoning_content`. DeepSeek's thinking models demand it inside a
    /// tool loop; others reject it.
    pub replay_reasoning: bool,
    /// OpenAI Chat: what the upstream takes as the id of a call in the history.
    pub call_ids: CallIds,
    /// OpenAI Responses: give the model's earlier messages ids. Servers that check requests against the types of
    /// OpenAI's SDK (vLLM) refuse messages without; OpenAI looks up what has one.
    pub message_ids: bool,
    /// Anthropic: sent where the request has no limit, because the API demands one. Every model takes 4096.
    pub max_tokens: u64,
}

impl Default for UpstreamOptions {
    fn default() -> Self {
        Self { replay_reasoning: false, call_ids: CallIds::default(), message_ids: false, max_tokens: 4096 }
    }
}

/// A request as its dialect says it, without the declarations of its tools: those stay the same over many requests, and
/// [`tools`] writes them once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Encoded {
    /// The body but for `tools`.
    pub fields: Map<String, Value>,
    /// Elements of `tools` that are not made of [`ModelRequest::tools`].
    pub further_tools: Vec<Value>,
    /// The request forbids calls, and the API can only be told so by not telling of any tool.
    pub omit_tools: bool,
    /// Stop sequences that the body does not carry, for [`crate::AnswerDecoder::cut_at`].
    pub stops: Vec<String>,
    /// Headers that the client sent for an upstream of its own dialect.
    pub headers: Vec<(String, String)>,
    /// Fields of the client's that mean nothing to this upstream and were left out, for the client to be told.
    pub left_out: Vec<String>,
}

impl Encoded {
    pub(crate) fn new(fields: Map<String, Value>) -> Self {
        Self { fields, ..Self::default() }
    }

    /// The body; `tools` is what [`tools`] gave for the request's. Equal requests give equal bytes.
    pub fn body(&self, tools: &str) -> String {
        let mut body = serde_json::to_string(&self.fields).unwrap_or_default();
        let tools = if self.omit_tools { "" } else { tools };
        if tools.is_empty() && self.further_tools.is_empty() {
            return body;
        }
        // the closing brace
        body.pop();
        body.reserve(tools.len() + 16);
        body.push_str(if self.fields.is_empty() { "\"tools\":[" } else { ",\"tools\":[" });
        body.push_str(tools);
        for (at, tool) in self.further_tools.iter().enumerate() {
            if at > 0 || !tools.is_empty() {
                body.push(',');
            }
            body.push_str(&tool.to_string());
        }
        body.push_str("]}");
        body
    }
}

/// The whole body as a value.
///
/// # Errors
/// As [`encode`].
pub fn encode_whole(
    dialect: Dialect,
    model: &str,
    request: &ModelRequest,
    options: &UpstreamOptions,
) -> Result<Value, ModelError> {
    let body = encode(dialect, model, request, options)?.body(&tools(dialect, &request.tools));
    Ok(serde_json::from_str(&body).unwrap_or_default())
}

/// Keys of `rest` maps and of the parameters that belong to one dialect alone begin with this; no other sends them.
pub(crate) fn is_reserved(key: &str) -> bool {
    key.starts_with('$')
}

/// Whether all that a message of the model's holds is for another API: what is left of it would be an empty message.
pub(crate) fn is_for_others(message: &Message) -> bool {
    let Message::Assistant(said) = message else { return false };
    said.content.is_empty()
        && said.calls.is_empty()
        && said.reasoning.is_none()
        && !said.rest.is_empty()
        && said.rest.keys().all(|key| is_reserved(key))
}

/// Whether the request came from a client that speaks another dialect than this one.
pub fn is_translated(dialect: Dialect, request: &ModelRequest) -> bool {
    let said = |key| request.parameters.contains_key(key);
    match dialect {
        Dialect::Anthropic => !said(anthropic_messages::ANTHROPIC_ONLY),
        Dialect::OpenaiResponses => !said(openai_responses::RESPONSES_ONLY),
        _ => said(anthropic_messages::ANTHROPIC_ONLY) || said(openai_responses::RESPONSES_ONLY),
    }
}

/// Writes a request in a dialect. Parameters come in the spelling of OpenAI Chat Completions: each is mapped, or sent as
/// it came where it is not known, or refused.
///
/// # Errors
/// [`ModelError::Unsupported`] for what the dialect has no way to say.
pub fn encode(
    dialect: Dialect,
    model: &str,
    request: &ModelRequest,
    options: &UpstreamOptions,
) -> Result<Encoded, ModelError> {
    let mut foreign = match dialect {
        Dialect::Anthropic => Vec::new(),
        _ => anthropic_messages::check_foreign(request)?,
    };
    if dialect != Dialect::OpenaiResponses {
        foreign.extend(openai_responses::check_foreign(request)?);
    }
    let mut encoded = match dialect {
        Dialect::OpenaiChat => openai_chat::encode(model, request, options),
        Dialect::OpenaiResponses => openai_responses::encode(model, request, options),
        Dialect::Anthropic => anthropic_messages::encode(model, request, options),
        Dialect::Gemini => gemini::encode(model, request, options),
        Dialect::Ollama => ollama::encode(model, request, options),
        Dialect::AiSdk => Err(ModelError::Unsupported("this dialect is only read".to_owned())),
    }?;
    encoded.left_out.extend(foreign);
    Ok(encoded)
}

/// The elements of the body's `tools` for these declarations: JSON values with commas between them.
pub fn tools(dialect: Dialect, specs: &[ToolSpec]) -> String {
    // what only Anthropic can be told has been named as left out, or refused
    let told: Vec<ToolSpec>;
    let specs = if dialect != Dialect::Anthropic && specs.iter().any(anthropic_messages::is_native) {
        told = specs.iter().filter(|spec| !anthropic_messages::is_native(spec)).cloned().collect();
        &told
    } else {
        specs
    };
    let elements = match dialect {
        Dialect::OpenaiChat | Dialect::AiSdk => openai_chat::tools(specs),
        Dialect::OpenaiResponses => openai_responses::tools(specs),
        Dialect::Anthropic => anthropic_messages::tools(specs),
        Dialect::Gemini => gemini::tools(specs),
        Dialect::Ollama => ollama::tools(specs),
    };
    elements.iter().map(Value::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
