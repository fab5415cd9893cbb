//! What a request says beside input and tools, in the spelling of OpenAI Chat Completions.

use serde_json::{Map, Value, json};

use super::RESPONSES_ONLY;
use crate::openai_chat::RequestError;

/// Fields that only this API knows, for a Responses upstream.
const RESPONSES_FIELDS: [&str; 9] = [
    "access_programs",
    "client_metadata",
    "context_management",
    "image",
    "include",
    "max_tool_calls",
    "moderation",
    "prompt_cache_options",
    "truncation",
];

/// The fields that are left once input, tools and the view are read: those with a counterpart in its spelling, those
/// that only this API knows apart, and any other as it came.
pub(super) fn parameters(mut fields: Map<String, Value>) -> Result<Map<String, Value>, RequestError> {
    refuse_unsupported(&fields)?;
    let mut kept = Map::new();
    let mut parameters = Map::new();
    if let Some(limit) = fields.shift_remove("max_output_tokens") {
        if limit.is_number() && limit.as_u64().is_none_or(|tokens| tokens == 0) {
            let message = format!("`max_output_tokens` is {limit}");
            let hint = "use a whole number of at least 1";
            return Err(RequestError::value("max_output_tokens", message, hint));
        }
        parameters.insert("max_tokens".to_owned(), number("max_output_tokens", limit)?);
    }
    for key in ["temperature", "top_p", "presence_penalty", "frequency_penalty"] {
        if let Some(value) = fields.shift_remove(key) {
            parameters.insert(key.to_owned(), number(key, value)?);
        }
    }
    if let Some(value) = fields.shift_remove("parallel_tool_calls") {
        let Value::Bool(_) = value else {
            return Err(RequestError::expected("parallel_tool_calls", "true or false", &value));
        };
        parameters.insert("parallel_tool_calls".to_owned(), value);
    }
    text(fields.shift_remove("text"), &mut parameters, &mut kept)?;
    reasoning(fields.shift_remove("reasoning"), &mut parameters, &mut kept)?;
    // Told back and kept with the response, which is ours: no upstream stores it. And nothing here pads what it sends.
    for key in ["metadata", "store", "stream_options", "top_logprobs"] {
        fields.shift_remove(key);
    }
    for key in RESPONSES_FIELDS {
        match (key, fields.shift_remove(key)) {
            (_, None) => {}
            // what holds without it as well
            ("truncation", Some(value)) if value == "disabled" => {}
            ("include", Some(Value::Array(list))) if list.is_empty() => {}
            (key, Some(value)) => {
                kept.insert(key.to_owned(), value);
            }
        }
    }
    parameters.extend(fields);
    if !kept.is_empty() {
        parameters.insert(RESPONSES_ONLY.to_owned(), kept.into());
    }
    Ok(parameters)
}

fn refuse_unsupported(fields: &Map<String, Value>) -> Result<(), RequestError> {
    let logprobs = "log probabilities cannot be carried through a tool loop";
    if fields.get("top_logprobs").is_some_and(|value| value.as_u64() != Some(0)) {
        return Err(RequestError::unsupported("top_logprobs", logprobs, "leave `top_logprobs` out"));
    }
    let include = match fields.get("include") {
        None => [].as_slice(),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(RequestError::expected("include", "an array", other)),
    };
    if include.iter().any(|what| what == "message.output_text.logprobs") {
        let hint = "leave `message.output_text.logprobs` out";
        return Err(RequestError::unsupported("include", logprobs, hint));
    }
    if fields.contains_key("prompt") {
        let message = "`prompt` names a template that is stored at OpenAI";
        let hint =
            "send its text as `instructions`, or list it under `prompts` in the project's llamafarm.yaml";
        return Err(RequestError::unsupported("prompt", message, hint));
    }
    Ok(())
}

pub(super) fn number(path: &str, value: Value) -> Result<Value, RequestError> {
    if value.is_number() { Ok(value) } else { Err(RequestError::expected(path, "a number", &value)) }
}

fn object(path: &str, value: Value) -> Result<Map<String, Value>, RequestError> {
    match value {
        Value::Object(mut fields) => {
            fields.retain(|_, value| !value.is_null());
            Ok(fields)
        }
        other => Err(RequestError::expected(path, "an object", &other)),
    }
}

fn text(
    value: Option<Value>,
    parameters: &mut Map<String, Value>,
    kept: &mut Map<String, Value>,
) -> Result<(), RequestError> {
    let Some(value) = value else { return Ok(()) };
    let mut fields = object("text", value)?;
    if let Some(verbosity) = fields.shift_remove("verbosity") {
        parameters.insert("verbosity".to_owned(), verbosity);
    }
    if let Some(format) = fields.shift_remove("format") {
        let format = response_format(object("text.format", format)?)?;
        parameters.extend(format.map(|format| ("response_format".to_owned(), format)));
    }
    if !fields.is_empty() {
        kept.insert("text".to_owned(), fields.into());
    }
    Ok(())
}

/// `None` for plain text, which needs no words.
fn response_format(mut format: Map<String, Value>) -> Result<Option<Value>, RequestError> {
    const PATH: &str = "text.format";
    match format.shift_remove("type") {
        Some(Value::String(kind)) => match kind.as_str() {
            "text" => Ok(None),
            "json_object" => Ok(Some(json!({"type": "json_object"}))),
            "json_schema" => {
                let answer = format.get("schema").unwrap_or(&Value::Null);
                if !answer.is_object() {
                    let path = format!("{PATH}.schema");
                    return Err(RequestError::expected(&path, "a JSON Schema (an object)", answer));
                }
                // the name is required and means nothing
                format.entry("name").or_insert_with(|| "answer".into());
                Ok(Some(json!({"type": "json_schema", "json_schema": format})))
            }
            other => {
                let path = format!("{PATH}.type");
                let message = format!("`{path}` is `{other}`");
                let hint = "use `text`, `json_object` or `json_schema`";
                Err(RequestError::unsupported(&path, &message, hint))
            }
        },
        None => Err(RequestError::missing(&format!("{PATH}.type"), "such as `json_schema`")),
        Some(other) => Err(RequestError::expected(&format!("{PATH}.type"), "a string", &other)),
    }
}

fn reasoning(
    value: Option<Value>,
    parameters: &mut Map<String, Value>,
    kept: &mut Map<String, Value>,
) -> Result<(), RequestError> {
    let Some(value) = value else { return Ok(()) };
    let mut fields = object("reasoning", value)?;
    match fields.shift_remove("effort") {
        None => {}
        Some(effort @ Value::String(_)) => {
            parameters.insert("reasoning_effort".to_owned(), effort);
        }
        Some(other) => return Err(RequestError::expected("reasoning.effort", "a string", &other)),
    }
    if !fields.is_empty() {
        kept.insert("reasoning".to_owned(), fields.into());
    }
    Ok(())
}
