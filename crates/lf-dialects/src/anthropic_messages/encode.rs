//! Writes requests to Anthropic upstreams.

use lf_core::model::ToolSpec;
use lf_core::{Message, ModelError, ModelRequest, Prose, ToolChoice};
use serde_json::{Map, Value, json};

use super::ANTHROPIC_ONLY;
use super::encode_messages::{conversation, system};
use crate::schema::object_schema;

/// What one model's upstream needs that requests may leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Sent where the request has no limit, because the API demands one.
    pub max_tokens: u64,
}

impl Default for EncodeOptions {
    /// Every model takes 4096.
    fn default() -> Self {
        Self { max_tokens: 4096 }
    }
}

/// The body of `POST …/v1/messages`. Equal requests give equal bytes. A parameter without a counterpart is sent as it
/// came, so that the upstream refuses it by name.
///
/// # Errors
/// [`ModelError::Unsupported`] for content that the API has no block for, and for an answer in JSON without a schema.
pub fn encode_request(
    model: &str,
    request: &ModelRequest,
    options: EncodeOptions,
) -> Result<Value, ModelError> {
    let kept = kept(&request.parameters);
    let mut body = Map::new();
    body.insert("model".to_owned(), model.into());
    let parameter = |key: &str| request.parameters.get(key).filter(|value| !value.is_null());
    let max_tokens = parameter("max_completion_tokens").or_else(|| parameter("max_tokens"));
    body.insert("max_tokens".to_owned(), max_tokens.cloned().unwrap_or_else(|| options.max_tokens.into()));
    let leading = request.messages.iter().take_while(|message| is_leading(message)).count();
    let (first, rest) = request.messages.split_at(leading);
    if let Some(system) = system(first) {
        body.insert("system".to_owned(), system);
    }
    body.insert("messages".to_owned(), Value::Array(conversation(rest)?));
    write_tools(request, kept, &mut body);
    for (key, value) in &request.parameters {
        write_parameter(key, value, kept, &mut body)?;
    }
    for (key, value) in kept.into_iter().flatten().filter(|(key, _)| *key != "tools") {
        body.insert(key.clone(), value.clone());
    }
    if request.stream {
        body.insert("stream".to_owned(), true.into());
    }
    Ok(body.into())
}

fn is_leading(message: &Message) -> bool {
    matches!(message, Message::System(prose) if !is_inline(prose))
}

/// A system message that a client of the same dialect put into the conversation.
pub(super) fn is_inline(prose: &Prose) -> bool {
    kept(&prose.rest).is_some_and(|kept| kept.contains_key("inline"))
}

/// What a client of the same dialect sent beyond the core's values.
pub(super) fn kept(rest: &Map<String, Value>) -> Option<&Map<String, Value>> {
    rest.get(ANTHROPIC_ONLY)?.as_object()
}

fn write_parameter(
    key: &str,
    value: &Value,
    kept: Option<&Map<String, Value>>,
    body: &mut Map<String, Value>,
) -> Result<(), ModelError> {
    let said = |key: &str| kept.is_some_and(|kept| kept.contains_key(key));
    match key {
        _ if value.is_null() => {}
        "model"
        | "messages"
        | "tools"
        | "tool_choice"
        | "stream"
        | "stream_options"
        | "max_tokens"
        | "max_completion_tokens"
        | "parallel_tool_calls"
        | ANTHROPIC_ONLY => {}
        "stop" => {
            let list = if value.is_string() { json!([value]) } else { value.clone() };
            body.insert("stop_sequences".to_owned(), list);
        }
        "user" if said("metadata") => {}
        "user" => {
            body.insert("metadata".to_owned(), json!({"user_id": value}));
        }
        // what these were made from is sent itself
        "reasoning_effort" if said("thinking") || said("output_config") => {}
        "response_format" if said("output_config") || said("output_format") => {}
        "reasoning_effort" => match value.as_str() {
            Some("none") => {
                body.insert("thinking".to_owned(), json!({"type": "disabled"}));
            }
            effort => {
                let effort = if effort == Some("minimal") { "low".into() } else { value.clone() };
                output_config(body, "effort", effort);
            }
        },
        "response_format" => match value["type"].as_str() {
            Some("text") => {}
            Some("json_schema") => {
                let format = json!({"type": "json_schema", "schema": value["json_schema"]["schema"]});
                output_config(body, "format", format);
            }
            _ => {
                let message = "`response_format` needs a schema with this model: use `json_schema`";
                return Err(ModelError::Unsupported(message.to_owned()));
            }
        },
        _ => {
            body.insert(key.to_owned(), value.clone());
        }
    }
    Ok(())
}

fn output_config(body: &mut Map<String, Value>, key: &str, value: Value) {
    let config = body.entry("output_config").or_insert_with(|| json!({}));
    config[key] = value;
}

fn write_tools(request: &ModelRequest, kept: Option<&Map<String, Value>>, body: &mut Map<String, Value>) {
    let mut tools: Vec<Value> = request.tools.iter().map(tool).collect();
    let servers = kept.and_then(|kept| kept.get("tools")).and_then(Value::as_array);
    tools.extend(servers.into_iter().flatten().cloned());
    let mut choice = match &request.tool_choice {
        None if request.parameters.get("parallel_tool_calls") != Some(&Value::Bool(false)) => None,
        None | Some(ToolChoice::Auto) => Some(json!({"type": "auto"})),
        Some(ToolChoice::None) => Some(json!({"type": "none"})),
        Some(ToolChoice::Required) => Some(json!({"type": "any"})),
        Some(ToolChoice::Tool(name)) => Some(json!({"type": "tool", "name": name})),
    };
    if tools.is_empty() {
        let called =
            |message: &Message| matches!(message, Message::Assistant(said) if !said.calls.is_empty());
        if !request.messages.iter().any(called) {
            return;
        }
        // calls in the history are refused without a declaration of any tool
        tools.push(json!({
            "name": "no_tool", "description": "Nothing can be called.", "input_schema": {"type": "object", "properties": {}},
        }));
        choice = Some(json!({"type": "none"}));
    }
    if let Some(choice) = &mut choice
        && choice["type"] != "none"
        && request.parameters.get("parallel_tool_calls") == Some(&Value::Bool(false))
    {
        choice["disable_parallel_tool_use"] = true.into();
    }
    body.insert("tools".to_owned(), tools.into());
    if let Some(choice) = choice {
        body.insert("tool_choice".to_owned(), choice);
    }
}

fn tool(spec: &ToolSpec) -> Value {
    let mut tool = Map::new();
    tool.insert("name".to_owned(), spec.name.as_str().into());
    if let Some(description) = &spec.description {
        tool.insert("description".to_owned(), description.as_ref().into());
    }
    tool.insert("input_schema".to_owned(), object_schema(&spec.schema));
    if let Some(strict @ Value::Bool(true)) = spec.rest.get("strict") {
        tool.insert("strict".to_owned(), strict.clone());
    }
    tool.extend(kept(&spec.rest).into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
    tool.into()
}
