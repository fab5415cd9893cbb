//! Reads our clients' requests.

use std::sync::Arc;

use lf_core::model::{ChatRequest, ToolSpec};
use lf_core::{Message, ToolChoice};
use serde_json::{Map, Value};

use super::{ANTHROPIC_ONLY, HEADERS, NEEDED, blocks, history, parameters};
use crate::openai_chat::{EXAMPLE, RequestError, body_object, boolean};

/// How the client wants its answer shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessagesView {
    pub stream: bool,
    pub thinking: ThinkingView,
}

/// Whether the model's reasoning is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThinkingView {
    #[default]
    Shown,
    /// The client switched thinking off, or asked not to see it.
    Hidden,
}

/// Reads the body of `POST …/messages`. The values are those of every dialect: parameters in OpenAI's spelling, one
/// result directly after each call. Fields that only Anthropic knows are kept for an Anthropic upstream; what a client
/// relies on and no other upstream can do is refused when one of these is to be asked, by `check_foreign`. The
/// size of the body is the caller's concern.
pub fn decode_request(body: &[u8]) -> Result<(ChatRequest, MessagesView), RequestError> {
    let mut fields = body_object(body, EXAMPLE)?;
    let max_tokens = match fields.shift_remove("max_tokens") {
        None | Some(Value::Null) => {
            return Err(RequestError::missing("max_tokens", "the most tokens the answer may have"));
        }
        Some(value) if value.as_u64().is_some_and(|tokens| tokens > 0) => value,
        Some(value @ Value::Number(_)) => {
            let message = format!("`max_tokens` is {value}");
            return Err(RequestError::value("max_tokens", message, "use a whole number of at least 1"));
        }
        Some(other) => return Err(RequestError::expected("max_tokens", "a whole number", &other)),
    };
    let (mut request, view) = decode(fields)?;
    request.parameters.insert("max_tokens".to_owned(), max_tokens);
    Ok((request, view))
}

/// Reads the body of `POST …/messages/count_tokens`: the same without `max_tokens`.
pub fn decode_count_request(body: &[u8]) -> Result<ChatRequest, RequestError> {
    let mut fields = body_object(body, EXAMPLE)?;
    fields.shift_remove("max_tokens");
    decode(fields).map(|(request, _)| request)
}

/// Conversations that Anthropic's servers keep. Its SDKs' tool runner asks for one first, and sends the whole history as
/// soon as it is told by this code that there are none (anthropic 2.11).
const THREAD: &str = "thread";
pub(super) const THREAD_REFUSED: &str = "thread_unsupported_request";

/// Keeps headers of the HTTP request that are meant for an upstream of this dialect.
pub fn keep_headers(request: &mut ChatRequest, headers: impl Iterator<Item = (String, String)>) {
    let headers: Map<String, Value> = headers.map(|(name, value)| (name, value.into())).collect();
    if headers.is_empty() {
        return;
    }
    let kept = request.parameters.entry(ANTHROPIC_ONLY).or_insert_with(|| Value::Object(Map::new()));
    kept[HEADERS] = headers.into();
}

fn decode(mut fields: Map<String, Value>) -> Result<(ChatRequest, MessagesView), RequestError> {
    // clients spell out what they leave open
    fields.retain(|_, value| !value.is_null());
    let stream = boolean("stream", fields.shift_remove("stream"))?;
    if fields.contains_key(THREAD) {
        let message = "`thread` is kept by Anthropic's own servers only".to_owned();
        let mut error = RequestError::value(THREAD, message, "send the whole conversation in `messages`");
        error.code = Some(THREAD_REFUSED);
        return Err(error);
    }
    let model = match fields.shift_remove("model") {
        None => None,
        Some(Value::String(model)) => Some(model),
        Some(other) => return Err(RequestError::expected("model", "a string", &other)),
    };
    let mut messages: Vec<Message> = system(fields.shift_remove("system"))?.into_iter().collect();
    match fields.shift_remove("messages") {
        None => return Err(RequestError::missing("messages", "the conversation so far")),
        Some(Value::Array(list)) if list.is_empty() => {
            let message = "`messages` is empty".to_owned();
            return Err(RequestError::value("messages", message, "send at least one"));
        }
        Some(Value::Array(list)) => messages.extend(history::messages(list)?),
        Some(other) => return Err(RequestError::expected("messages", "an array", &other)),
    }
    if fields.contains_key(HEADERS) {
        let message = "`headers` is no field of a request";
        return Err(RequestError::unsupported(HEADERS, message, "send them as headers of the HTTP request"));
    }
    let Tools { tools, unnamed } = tools(fields.shift_remove("tools"))?;
    let choice = fields.shift_remove("tool_choice");
    let mut kept = Map::new();
    let mut parameters = Map::new();
    let tool_choice = choice.as_ref().map(|choice| tool_choice(choice, &mut parameters)).transpose()?;
    if let Some(kind) = needed_tool(&tools, &unnamed, tool_choice.as_ref()) {
        kept.insert(NEEDED.to_owned(), kind);
    }
    if !unnamed.is_empty() {
        kept.insert("tools".to_owned(), unnamed.into());
    }
    parameters::read(&mut fields, &mut parameters, &mut kept)?;
    let thinking = match kept.get("thinking") {
        Some(thinking) if thinking["type"] == "disabled" || thinking["display"] == "omitted" => {
            ThinkingView::Hidden
        }
        _ => ThinkingView::Shown,
    };
    // an open list: versions of clients add to it, and none of it is meant for another upstream
    kept.extend(fields);
    if !kept.is_empty() {
        parameters.insert(ANTHROPIC_ONLY.to_owned(), kept.into());
    }
    let request = ChatRequest {
        model,
        messages,
        tools,
        tool_choice,
        parameters,
        variables: Map::new(),
        approvals: Vec::new(),
        stream,
    };
    Ok((request, MessagesView { stream, thinking }))
}

/// One message for all blocks.
fn system(value: Option<Value>) -> Result<Option<Message>, RequestError> {
    let Some(value) = value else { return Ok(None) };
    let prose = blocks::system("system", value)?;
    Ok((!prose.content.is_empty()).then_some(Message::System(prose)))
}

#[derive(Default)]
struct Tools {
    tools: Vec<ToolSpec>,
    /// Declarations without a name: sets of tools that Anthropic's servers run.
    unnamed: Vec<Value>,
}

fn tools(value: Option<Value>) -> Result<Tools, RequestError> {
    let list = match value {
        None => return Ok(Tools::default()),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(RequestError::expected("tools", "an array", &other)),
    };
    let mut tools = Tools::default();
    for (at, value) in list.into_iter().enumerate() {
        let path = format!("tools[{at}]");
        let Value::Object(fields) = value else {
            return Err(RequestError::expected(&path, "an object", &value));
        };
        let kind = fields.get("type").and_then(Value::as_str).unwrap_or("custom");
        if kind == "custom" || fields.contains_key("input_schema") {
            tools.tools.push(tool(&path, fields)?);
        } else if fields.get("name").is_some_and(Value::is_string) {
            tools.tools.push(native_tool(&path, fields)?);
        } else {
            tools.unnamed.push(fields.into());
        }
    }
    Ok(tools)
}

/// A tool that Anthropic's models know by its type. Whether the client or Anthropic's servers run it shows in the answer:
/// a call that the client is to run comes as any other.
fn native_tool(path: &str, mut fields: Map<String, Value>) -> Result<ToolSpec, RequestError> {
    let name = blocks::string(&format!("{path}.name"), fields.shift_remove("name"))?;
    let mut rest = Map::new();
    rest.insert(ToolSpec::NATIVE.to_owned(), true.into());
    rest.insert(ANTHROPIC_ONLY.to_owned(), fields.into());
    Ok(ToolSpec { name, description: None, schema: Arc::new(Value::Object(Map::new())), rest })
}

fn tool(path: &str, mut fields: Map<String, Value>) -> Result<ToolSpec, RequestError> {
    let name = blocks::string(&format!("{path}.name"), fields.shift_remove("name"))?;
    let description = match fields.shift_remove("description") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(Arc::from(text)),
        Some(other) => {
            return Err(RequestError::expected(&format!("{path}.description"), "a string", &other));
        }
    };
    let schema_path = format!("{path}.input_schema");
    let schema = match fields.shift_remove("input_schema") {
        Some(schema @ (Value::Object(_) | Value::Bool(true))) => schema,
        // a tool that takes nothing; clients leave it out
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(other) => return Err(RequestError::expected(&schema_path, "a JSON Schema (an object)", &other)),
    };
    let mut rest = Map::new();
    if fields.get("strict") == Some(&Value::Bool(true)) {
        rest.insert("strict".to_owned(), true.into());
        fields.shift_remove("strict");
    }
    // also where it is empty: the schema is in the words of this dialect
    rest.insert(ANTHROPIC_ONLY.to_owned(), fields.into());
    Ok(ToolSpec { name, description, schema: Arc::new(schema), rest })
}

fn tool_choice(choice: &Value, parameters: &mut Map<String, Value>) -> Result<ToolChoice, RequestError> {
    const HINT: &str = "use {\"type\": \"auto\"}, `any`, `none`, or `tool` with `name`";
    let Some(kind) = choice.get("type").and_then(Value::as_str) else {
        return Err(RequestError::value("tool_choice", "`tool_choice` has no `type`".to_owned(), HINT));
    };
    let alone = choice.get("disable_parallel_tool_use").filter(|value| !value.is_null()).cloned();
    if boolean("tool_choice.disable_parallel_tool_use", alone)? {
        parameters.insert("parallel_tool_calls".to_owned(), false.into());
    }
    Ok(match kind {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Tool(blocks::string("tool_choice.name", choice.get("name").cloned())?),
        other => {
            let message = format!("`tool_choice.type` is `{other}`");
            return Err(RequestError::value("tool_choice.type", message, HINT));
        }
    })
}

/// A tool that only Anthropic's models know may be missing beside others, as one that the model never calls; a request
/// that is about it cannot be answered by another model. Gives the type of such a tool.
fn needed_tool(tools: &[ToolSpec], unnamed: &[Value], choice: Option<&ToolChoice>) -> Option<Value> {
    let kind = |tool: &ToolSpec| tool.rest.get(ANTHROPIC_ONLY).map(|fields| fields["type"].clone());
    let mut native = tools.iter().filter(|tool| tool.is_native());
    if let Some(ToolChoice::Tool(name)) = choice
        && let Some(tool) = native.clone().find(|tool| tool.name == *name)
    {
        return kind(tool);
    }
    if tools.iter().any(|tool| !tool.is_native()) {
        return None;
    }
    native.next().and_then(kind).or_else(|| unnamed.first().map(|tool| tool["type"].clone()))
}
