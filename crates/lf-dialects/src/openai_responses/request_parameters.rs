//! Writes the parameters of a request, which come in the spelling of OpenAI Chat Completions.

use lf_core::{ModelError, ModelRequest, ToolChoice};
use serde_json::{Map, Value, json};

use super::request::kept;
use crate::upstream::parameters::{refusal, stops, with_schema};
use crate::upstream::{Encoded, is_reserved};

const SEALED_REASONING: &str = "reasoning.encrypted_content";

/// Fields of a client's own request that are settled here or written from the core's values.
const SETTLED: [&str; 11] = [
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "stream",
    "stream_options",
    "store",
    "background",
    "conversation",
    "previous_response_id",
];

pub(super) fn write(model: &str, request: &ModelRequest, encoded: &mut Encoded) -> Result<(), ModelError> {
    for (key, value) in request.parameters.iter().filter(|(_, value)| !value.is_null()) {
        write_parameter(key, value, request, encoded)?;
    }
    let own = kept(&request.parameters);
    for (key, value) in own.into_iter().flatten() {
        if !value.is_null() && !SETTLED.contains(&key.as_str()) && !is_reserved(key) {
            merge(&mut encoded.fields, key, value.clone());
        }
    }
    let declared = own.and_then(|own| own.get("tools")).and_then(Value::as_array).into_iter().flatten();
    encoded.further_tools.extend(declared.filter(|tool| tool["type"] != "function").cloned());
    write_tool_choice(request, own, encoded);
    ask_for_seals(model, &mut encoded.fields);
    encoded.fields.entry("store").or_insert(Value::Bool(false));
    if request.stream {
        encoded.fields.insert("stream".to_owned(), true.into());
        write_stream_options(request, own, &mut encoded.fields);
    }
    Ok(())
}

fn write_parameter(
    key: &str,
    value: &Value,
    request: &ModelRequest,
    encoded: &mut Encoded,
) -> Result<(), ModelError> {
    let fields = &mut encoded.fields;
    let has = |key: &str| request.parameters.get(key).is_some_and(|value| !value.is_null());
    match key {
        "model" | "messages" | "tools" | "tool_choice" | "stream" | "stream_options" => {}
        "max_tokens" if has("max_completion_tokens") => {}
        "max_tokens" | "max_completion_tokens" => {
            fields.insert("max_output_tokens".to_owned(), value.clone());
        }
        "reasoning_effort" => merge(fields, "reasoning", json!({"effort": value})),
        "verbosity" => merge(fields, "text", json!({"verbosity": value})),
        "response_format" => merge(fields, "text", json!({"format": format(value)})),
        "stop" => encoded.stops = stops(value),
        "n" if value.as_u64() == Some(1) => {}
        "logprobs" if *value == Value::Bool(false) => {}
        "top_logprobs" if value.as_u64() == Some(0) => {}
        "presence_penalty" | "frequency_penalty" if value.as_f64() == Some(0.0) => {}
        "logit_bias" if value.as_object().is_some_and(Map::is_empty) => {}
        "modalities" if value.as_array().is_some_and(|kinds| kinds.iter().all(|kind| kind == "text")) => {}
        "n" | "seed" | "logprobs" | "presence_penalty" | "frequency_penalty" | "logit_bias"
        | "modalities" | "audio" | "functions" | "function_call" => {
            return Err(refusal(key, "the OpenAI Responses API"));
        }
        // it makes the same answer come sooner
        "prediction" => encoded.left_out.push(key.to_owned()),
        "web_search_options" => encoded.further_tools.push(web_search(value)),
        key if is_reserved(key) => {}
        _ => merge(fields, key, value.clone()),
    }
    Ok(())
}

/// Objects add up, with the later word on each field; lists of `include` too; anything else replaces.
fn merge(fields: &mut Map<String, Value>, key: &str, value: Value) {
    match (fields.get_mut(key), value) {
        (Some(Value::Object(known)), Value::Object(further)) => known.extend(further),
        (Some(Value::Array(known)), Value::Array(further)) if key == "include" => {
            known.extend(further.into_iter().filter(|value| !known.contains(value)).collect::<Vec<_>>());
        }
        (_, value) => {
            fields.insert(key.to_owned(), value);
        }
    }
}

/// What is nested in Chat Completions is flat here.
fn format(wanted: &Value) -> Value {
    let mut format = wanted.clone();
    if let Some(fields) = format.as_object_mut()
        && let Some(Value::Object(nested)) = fields.shift_remove("json_schema")
    {
        fields.extend(nested.into_iter().filter(|(_, value)| !value.is_null()));
    }
    format
}

/// The hosted tool that took the place of the option.
fn web_search(options: &Value) -> Value {
    let mut tool = json!({"type": "web_search"});
    if let Some(size) = options.get("search_context_size").filter(|size| !size.is_null()) {
        tool["search_context_size"] = size.clone();
    }
    if let Some(place) = options["user_location"]["approximate"].as_object() {
        let mut location = place.clone();
        location.insert("type".to_owned(), "approximate".into());
        tool["user_location"] = location.into();
    }
    tool
}

/// A choice among no tools is refused.
fn write_tool_choice(request: &ModelRequest, own: Option<&Map<String, Value>>, encoded: &mut Encoded) {
    if with_schema(&request.tools).next().is_none() && encoded.further_tools.is_empty() {
        encoded.fields.shift_remove("parallel_tool_calls");
        return;
    }
    let choice = match &request.tool_choice {
        Some(ToolChoice::Auto) => Some("auto".into()),
        Some(ToolChoice::None) => Some("none".into()),
        Some(ToolChoice::Required) => Some("required".into()),
        Some(ToolChoice::Tool(name)) => Some(json!({"type": "function", "name": name})),
        // a choice that the core has no word for, such as a hosted tool
        None => own.and_then(|own| own.get("tool_choice")).filter(|choice| !choice.is_null()).cloned(),
    };
    if let Some(choice) = choice {
        encoded.fields.insert("tool_choice".to_owned(), choice);
    }
}

/// Asks for the reasoning in a form that can be sent back. Models that do not reason refuse the request for it, so it is
/// asked for where the name tells, or where the request is about reasoning.
fn ask_for_seals(model: &str, fields: &mut Map<String, Value>) {
    let told = fields.get("reasoning").and_then(|reasoning| reasoning.get("effort")).and_then(Value::as_str);
    if is_reasoning_model(model) || told.is_some_and(|effort| effort != "none") {
        let known = fields.shift_remove("include");
        let mut include = match known {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        };
        if !include.iter().any(|name| name == SEALED_REASONING) {
            include.push(SEALED_REASONING.into());
        }
        fields.insert("include".to_owned(), include.into());
    }
}

/// OpenAI's o-series, GPT-5 and later but for its chat models, the Codex models; Grok 4.
fn is_reasoning_model(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    if name.contains("-chat") || name.contains("non-reasoning") {
        return false;
    }
    let generation = name.strip_prefix("gpt-").and_then(|rest| {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse::<u32>().ok()
    });
    generation.is_some_and(|generation| generation >= 5)
        || matches!(name.as_bytes(), [b'o', b'1'..=b'9', ..])
        || name.starts_with("codex")
        || name.starts_with("grok-4")
}

/// Of the options for Chat Completions only this one exists; the usage always comes.
fn write_stream_options(
    request: &ModelRequest,
    own: Option<&Map<String, Value>>,
    fields: &mut Map<String, Value>,
) {
    const OBFUSCATION: &str = "include_obfuscation";
    let chat = request.parameters.get("stream_options").and_then(|options| options.get(OBFUSCATION));
    let own = own.and_then(|own| own.get("stream_options")).and_then(Value::as_object);
    let mut options = own.cloned().unwrap_or_default();
    if let Some(wanted) = chat.filter(|wanted| !wanted.is_null()) {
        options.entry(OBFUSCATION).or_insert_with(|| wanted.clone());
    }
    if !options.is_empty() {
        fields.insert("stream_options".to_owned(), options.into());
    }
}
