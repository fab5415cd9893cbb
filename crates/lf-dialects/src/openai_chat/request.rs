//! Writes requests to upstreams.

use std::borrow::Cow;

use lf_core::model::ToolSpec;
use lf_core::{
    AssistantMessage, Content, Message, ModelError, ModelRequest, Part, Prose, ToolCall, ToolChoice,
    ToolResult,
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::served::OUTER;
use crate::schema;
use crate::upstream::media::note;
use crate::upstream::parameters::kept_for_others;
use crate::upstream::{Encoded, UpstreamOptions, is_for_others, is_reserved};

/// OpenAI takes no more stop sequences.
const MAX_STOPS: usize = 4;

/// What an upstream takes as the id of a call in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallIds {
    /// OpenAI: at most 40 bytes.
    #[default]
    AtMost40,
    /// OpenAI Responses: at most 64 bytes.
    AtMost64,
    /// Mistral: exactly nine of `[A-Za-z0-9]`.
    NineAlphanumeric,
}

impl CallIds {
    /// An id that fits stays; any other becomes one made of it alone, so that equal histories give equal bytes.
    pub(crate) fn fit(self, id: &str) -> Cow<'_, str> {
        let fits = match self {
            Self::AtMost40 => id.len() <= 40,
            Self::AtMost64 => id.len() <= 64,
            Self::NineAlphanumeric => id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        };
        if fits {
            return Cow::Borrowed(id);
        }
        let digest = Sha256::digest(id.as_bytes());
        let hex = digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Cow::Owned(match self {
            Self::AtMost40 | Self::AtMost64 => format!("call_{}", &hex[..32]),
            Self::NineAlphanumeric => hex[..9].to_owned(),
        })
    }
}

/// The body of `POST …/chat/completions`. Equal requests give equal bytes. Every parameter is sent as it was given,
/// except those that an upstream rejects where they have no object: `tool_choice` and `parallel_tool_calls` without
/// tools, `stream_options` without a stream; of `stop` the first four are sent ([`Encoded::stops`] has the others), and
/// `max_tokens` gets its newer name for models that take no other.
///
/// # Errors
/// [`ModelError::Unsupported`] for what only another dialect can say.
pub(crate) fn encode(
    model: &str,
    request: &ModelRequest,
    options: &UpstreamOptions,
) -> Result<Encoded, ModelError> {
    let left_out = kept_for_others(request, "");
    let mut body = Map::new();
    body.insert("model".to_owned(), model.into());
    let sight = Sight::of(model);
    body.insert("messages".to_owned(), Value::Array(messages(&request.messages, options, sight)));
    let has_tools = !request.tools.is_empty();
    if has_tools && let Some(choice) = &request.tool_choice {
        body.insert("tool_choice".to_owned(), tool_choice(choice));
    }
    for (key, value) in &request.parameters {
        let pointless = match key.as_str() {
            "model" | "messages" | "tools" | "tool_choice" | "stream" | "stream_options" => true,
            key if is_reserved(key) => true,
            "parallel_tool_calls" => !has_tools,
            _ => false,
        };
        if pointless {
            continue;
        }
        let (key, value) = match (key.as_str(), value) {
            ("stop", Value::Array(stops)) if stops.len() > MAX_STOPS => {
                ("stop", Value::from(&stops[..MAX_STOPS]))
            }
            ("max_tokens", limit)
                if wants_newer_limit(model) && !request.parameters.contains_key("max_completion_tokens") =>
            {
                ("max_completion_tokens", limit.clone())
            }
            (key, value) => (key, value.clone()),
        };
        body.insert(key.to_owned(), value);
    }
    if request.stream {
        body.insert("stream".to_owned(), true.into());
        let mut stream_options = match request.parameters.get("stream_options") {
            Some(Value::Object(given)) => given.clone(),
            _ => Map::new(),
        };
        stream_options.insert("include_usage".to_owned(), true.into());
        body.insert("stream_options".to_owned(), stream_options.into());
    }
    Ok(Encoded { stops: stops_to_cut(&request.parameters), left_out, ..Encoded::new(body) })
}

/// The stop sequences beyond the first ones.
fn stops_to_cut(parameters: &Map<String, Value>) -> Vec<String> {
    let stops = parameters.get("stop").and_then(Value::as_array).into_iter().flatten();
    stops.skip(MAX_STOPS).filter_map(Value::as_str).map(str::to_owned).collect()
}

/// OpenAI's reasoning models reject `max_tokens`.
fn wants_newer_limit(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model).as_bytes();
    name.starts_with(b"gpt-5") || matches!(name, [b'o', b'1'..=b'9', ..])
}

pub(crate) fn tools(specs: &[ToolSpec]) -> Vec<Value> {
    specs.iter().map(tool).collect()
}

fn tool(spec: &ToolSpec) -> Value {
    let mut function = Map::new();
    function.insert("name".to_owned(), spec.name.as_str().into());
    if let Some(description) = &spec.description {
        function.insert("description".to_owned(), description.as_ref().into());
    }
    function.insert("parameters".to_owned(), schema::openai_parameters(spec));
    let mut tool = json!({"type": "function", "function": function});
    for (key, value) in &spec.rest {
        match (key.as_str(), value) {
            (OUTER, Value::Object(outer)) => {
                for (key, value) in outer {
                    tool[key.as_str()] = value.clone();
                }
            }
            (key, _) if is_reserved(key) => {}
            _ => tool["function"][key.as_str()] = value.clone(),
        }
    }
    tool
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => "auto".into(),
        ToolChoice::None => "none".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
    }
}

fn messages(messages: &[Message], options: &UpstreamOptions, sight: Sight) -> Vec<Value> {
    let mut out = Vec::with_capacity(messages.len() + 1);
    let mut attachments = Attachments::default();
    for message in messages {
        if !matches!(message, Message::Tool(_)) {
            out.extend(attachments.take());
        }
        if is_for_others(message) {
            continue;
        }
        out.push(match message {
            Message::System(prose) => self::prose("system", prose),
            Message::User(prose) => self::prose("user", prose),
            Message::Assistant(message) => assistant(message, options),
            Message::Tool(result) => tool_message(result, options, sight, &mut attachments),
        });
    }
    out.extend(attachments.take());
    out
}

/// Further fields as the client gave them, except what only Anthropic takes.
fn rest(fields: &Map<String, Value>) -> impl Iterator<Item = (String, Value)> {
    fields.iter().filter(|(key, _)| !is_reserved(key)).map(|(key, value)| (key.clone(), value.clone()))
}

fn prose(role: &str, prose: &Prose) -> Value {
    let mut message = Map::new();
    message.insert("role".to_owned(), role.into());
    message.insert("content".to_owned(), content(&prose.content));
    // `developer` is a system message whose role is kept in `rest`.
    message.extend(rest(&prose.rest));
    message.into()
}

fn assistant(message: &AssistantMessage, options: &UpstreamOptions) -> Value {
    let mut out = Map::new();
    out.insert("role".to_owned(), "assistant".into());
    let only_calls = message.content.is_empty() && !message.calls.is_empty();
    out.insert("content".to_owned(), if only_calls { Value::Null } else { content(&message.content) });
    if options.replay_reasoning && (message.reasoning.is_some() || !message.calls.is_empty()) {
        let reasoning = message.reasoning.as_deref().unwrap_or_default();
        out.insert("reasoning_content".to_owned(), reasoning.into());
    }
    if !message.calls.is_empty() {
        let calls = message
            .calls
            .iter()
            .map(|call| write_call(call, &options.call_ids.fit(&call.id), &call.arguments.for_replay()));
        out.insert("tool_calls".to_owned(), Value::Array(calls.collect()));
    }
    out.extend(rest(&message.rest));
    out.into()
}

/// A call in a message; also what our clients are told, with the arguments as the model wrote them.
pub(super) fn write_call(call: &ToolCall, id: &str, arguments: &str) -> Value {
    // A call without a name was answered with an error; upstreams do not take it back without one.
    let name = if call.name.is_empty() { "unknown" } else { &call.name };
    let mut out = json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    for (key, value) in &call.rest {
        match (key.as_str(), value) {
            ("function", Value::Object(function)) => {
                for (key, value) in function {
                    out["function"][key.as_str()] = value.clone();
                }
            }
            (key, _) if is_reserved(key) => {}
            _ => out[key.as_str()] = value.clone(),
        }
    }
    out
}

fn content(content: &Content) -> Value {
    match content {
        Content::Text(text) => text.as_str().into(),
        Content::Parts(parts) => Value::Array(parts.iter().map(part).collect()),
    }
}

fn part(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::Image { url, detail: None } => json!({"type": "image_url", "image_url": {"url": url}}),
        Part::Image { url, detail: Some(detail) } => {
            json!({"type": "image_url", "image_url": {"url": url, "detail": detail}})
        }
        Part::Other(value) => value.clone(),
    }
}

/// What `tool` messages cannot carry. It follows in one user message after all results of the round: nothing may
/// stand between an assistant's calls and their results.
#[derive(Default)]
struct Attachments {
    parts: Vec<Value>,
    count: usize,
}

impl Attachments {
    /// Keeps a part for later and gives the text that points to it.
    fn add(&mut self, call_id: &str, attached: &Part) -> String {
        self.count += 1;
        let what = match attached {
            Part::Image { .. } => "image",
            Part::Other(value) if value["type"] == "input_audio" => "recording",
            Part::Other(value) if value["type"] == "file" => "file",
            Part::Text(_) | Part::Other(_) => "attachment",
        };
        let count = self.count;
        let label = format!("[{what} {count} of the result of call {call_id}]");
        self.parts.push(json!({"type": "text", "text": label}));
        self.parts.push(part(attached));
        format!("[{what} {count}: in the next user message]")
    }

    fn take(&mut self) -> Option<Value> {
        self.count = 0;
        let parts = std::mem::take(&mut self.parts);
        (!parts.is_empty()).then(|| json!({"role": "user", "content": parts}))
    }
}

/// What of a tool's result a model can be shown beside text and images. The API has a place for all of it, and most models
/// behind it refuse the request. It is judged by the model's name, for results of the client's own tools too: under any
/// other name a model is told what there was. Only what stands in a message of a person's goes as it came.
#[derive(Debug, Clone, Copy)]
struct Sight {
    recordings: bool,
    files: bool,
}

impl Sight {
    fn of(model: &str) -> Self {
        let name = model.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        let name = name.rsplit('/').next().unwrap_or_default();
        let is_reasoning = matches!(name.as_bytes(), [b'o', b'1'..=b'9', ..]);
        Self {
            recordings: has(&["audio", "omni", "gemini", "voxtral", "gemma-3n", "gemma3n"]),
            files: is_reasoning
                || ["gpt-4o", "gpt-4.1", "gpt-5", "chatgpt", "gemini"]
                    .iter()
                    .any(|own| name.starts_with(own)),
        }
    }

    fn takes(self, part: &Part) -> bool {
        match part {
            Part::Text(_) | Part::Image { .. } => true,
            Part::Other(value) => match value["type"].as_str().unwrap_or_default() {
                "input_audio" => {
                    let format = value["input_audio"]["format"].as_str().unwrap_or_default();
                    self.recordings && matches!(format, "wav" | "mp3")
                }
                "file" => self.files,
                "image_url" | "video_url" => true,
                _ => false,
            },
        }
    }
}

fn tool_message(
    result: &ToolResult,
    options: &UpstreamOptions,
    sight: Sight,
    attachments: &mut Attachments,
) -> Value {
    let id = options.call_ids.fit(&result.call_id);
    let mut text = match &result.content {
        Content::Text(text) => text.clone(),
        Content::Parts(parts) => {
            let lines = parts.iter().map(|part| match part {
                Part::Text(text) => text.clone(),
                // A text part with further fields; `tool` messages take plain text only.
                Part::Other(value) if value["type"] == "text" => {
                    value["text"].as_str().unwrap_or_default().to_owned()
                }
                part if !sight.takes(part) => note(part),
                Part::Image { .. } | Part::Other(_) => attachments.add(&id, part),
            });
            lines.collect::<Vec<_>>().join("\n")
        }
    };
    if result.is_error && !text.starts_with("Error") {
        text.insert_str(0, "Error: ");
    }
    let mut message = Map::new();
    message.insert("role".to_owned(), "tool".into());
    message.insert("tool_call_id".to_owned(), id.as_ref().into());
    message.insert("content".to_owned(), text.into());
    message.extend(rest(&result.rest));
    message.into()
}
