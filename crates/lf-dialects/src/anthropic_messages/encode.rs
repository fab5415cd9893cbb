//! Writes requests to Anthropic upstreams.

use lf_core::model::ToolSpec;
use lf_core::{Message, ModelError, ModelRequest, Prose, ToolChoice};
use serde_json::{Map, Value, json};

use super::encode_messages::{conversation, system};
use super::{ANTHROPIC_ONLY, HEADERS, encode_parameters};
use crate::schema::object_schema;
use crate::upstream::{Encoded, UpstreamOptions, is_reserved};

/// The body of `POST …/v1/messages`. Equal requests give equal bytes. A parameter that nobody documents is sent as it
/// came, so that the upstream refuses it by name.
///
/// # Errors
/// [`ModelError::Unsupported`] for content that the API has no block for, for parameters that it has no counterpart for,
/// and for an answer in JSON without a schema.
pub(crate) fn encode(
    model: &str,
    request: &ModelRequest,
    options: &UpstreamOptions,
) -> Result<Encoded, ModelError> {
    let kept = kept(&request.parameters);
    let mut out = Encoded::default();
    out.fields.insert("model".to_owned(), model.into());
    let limit = encode_parameters::asked_limit(request).cloned().unwrap_or_else(|| options.max_tokens.into());
    out.fields.insert("max_tokens".to_owned(), limit);
    let leading = request.messages.iter().take_while(|message| is_leading(message)).count();
    let (first, rest) = request.messages.split_at(leading);
    if let Some(system) = system(first) {
        out.fields.insert("system".to_owned(), system);
    }
    out.fields.insert("messages".to_owned(), Value::Array(conversation(rest)?));
    out.further_tools = write_choice(request, kept, &mut out.fields);
    encode_parameters::write(model, request, options.max_tokens, &mut out)?;
    for (key, value) in kept.into_iter().flatten() {
        match key.as_str() {
            HEADERS => out.headers = headers(value),
            "tools" => {}
            key if is_reserved(key) => {}
            key => drop(out.fields.insert(key.to_owned(), value.clone())),
        }
    }
    if request.stream {
        out.fields.insert("stream".to_owned(), true.into());
    }
    Ok(out)
}

/// Headers by which clients say what they understand. No other goes out under our key.
fn headers(value: &Value) -> Vec<(String, String)> {
    let headers = value.as_object().into_iter().flatten();
    headers
        .filter(|(name, _)| {
            ["anthropic-beta", "anthropic-version"].contains(&name.to_ascii_lowercase().as_str())
        })
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect()
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

/// Writes the tool choice, and gives the declarations beside those of the request's tools.
fn write_choice(
    request: &ModelRequest,
    kept: Option<&Map<String, Value>>,
    body: &mut Map<String, Value>,
) -> Vec<Value> {
    let servers = kept.and_then(|kept| kept.get("tools")).and_then(Value::as_array);
    let mut further: Vec<Value> = servers.into_iter().flatten().cloned().collect();
    let mut choice = match &request.tool_choice {
        None if request.parameters.get("parallel_tool_calls") != Some(&Value::Bool(false)) => None,
        None | Some(ToolChoice::Auto) => Some(json!({"type": "auto"})),
        Some(ToolChoice::None) => Some(json!({"type": "none"})),
        Some(ToolChoice::Required) => Some(json!({"type": "any"})),
        Some(ToolChoice::Tool(name)) => Some(json!({"type": "tool", "name": name})),
    };
    if request.tools.is_empty() && further.is_empty() {
        let called =
            |message: &Message| matches!(message, Message::Assistant(said) if !said.calls.is_empty());
        if !request.messages.iter().any(called) {
            return further;
        }
        // calls in the history are refused without a declaration of any tool
        further.push(json!({
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
    if let Some(choice) = choice {
        body.insert("tool_choice".to_owned(), choice);
    }
    further
}

/// Declarations that only another dialect can say have no place here.
pub(crate) fn tools(specs: &[ToolSpec]) -> Vec<Value> {
    specs.iter().filter(|spec| !spec.is_native() || is_native(spec)).map(tool).collect()
}

/// A tool that Anthropic's models know by its type; no other can be shown it.
pub(crate) fn is_native(spec: &ToolSpec) -> bool {
    spec.is_native() && kept(&spec.rest).is_some()
}

fn tool(spec: &ToolSpec) -> Value {
    let mut tool = Map::new();
    tool.insert("name".to_owned(), spec.name.as_str().into());
    if let Some(description) = &spec.description {
        tool.insert("description".to_owned(), description.as_ref().into());
    }
    let own = kept(&spec.rest);
    if !spec.is_native() {
        // a client of the same dialect knows what it sends
        let fits = own.is_some() && spec.schema["type"] == "object";
        let schema = if fits { (*spec.schema).clone() } else { object_schema(&spec.schema) };
        tool.insert("input_schema".to_owned(), schema);
    }
    if let Some(strict @ Value::Bool(true)) = spec.rest.get("strict") {
        tool.insert("strict".to_owned(), strict.clone());
    }
    tool.extend(own.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
    tool.into()
}
