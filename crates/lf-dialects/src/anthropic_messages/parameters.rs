//! What a request says beside messages and tools, in the spelling of OpenAI Chat Completions.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::blocks;
use crate::openai_chat::RequestError;
use crate::schema;

/// OpenAI takes no longer `user`.
const USER_BYTES: usize = 64;

/// Moves what has a counterpart from `fields` to `parameters`. Objects that say more than their counterpart are also
/// `kept` for an Anthropic upstream.
pub(super) fn read(
    fields: &mut Map<String, Value>,
    parameters: &mut Map<String, Value>,
    kept: &mut Map<String, Value>,
) -> Result<(), RequestError> {
    for key in ["temperature", "top_p", "top_k"] {
        match fields.shift_remove(key) {
            None => {}
            Some(value @ Value::Number(_)) => {
                parameters.insert(key.to_owned(), value);
            }
            Some(other) => return Err(RequestError::expected(key, "a number", &other)),
        }
    }
    stop_sequences(fields.shift_remove("stop_sequences"), parameters)?;
    if let Some(metadata) = fields.shift_remove("metadata") {
        if let Some(user) = metadata["user_id"].as_str() {
            parameters.insert("user".to_owned(), short_user(user).into());
        }
        kept.insert("metadata".to_owned(), metadata);
    }
    output_format(fields, parameters)?;
    effort(fields, parameters)?;
    for key in ["thinking", "output_config", "output_format"] {
        if let Some(value) = fields.shift_remove(key) {
            kept.insert(key.to_owned(), value);
        }
    }
    Ok(())
}

fn stop_sequences(value: Option<Value>, parameters: &mut Map<String, Value>) -> Result<(), RequestError> {
    let list = match value {
        None => return Ok(()),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(RequestError::expected("stop_sequences", "an array", &other)),
    };
    for (at, value) in list.iter().enumerate() {
        blocks::string(&format!("stop_sequences[{at}]"), Some(value.clone()))?;
    }
    if !list.is_empty() {
        parameters.insert("stop".to_owned(), list.into());
    }
    Ok(())
}

/// Coding assistants send about 150 characters; the same user stays the same one.
fn short_user(user: &str) -> String {
    if user.len() <= USER_BYTES {
        return user.to_owned();
    }
    Sha256::digest(user.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `output_config.format`, and `output_format` as it was named before.
fn output_format(
    fields: &Map<String, Value>,
    parameters: &mut Map<String, Value>,
) -> Result<(), RequestError> {
    let now = fields.get("output_config").and_then(|config| config.get("format"));
    let (path, format) = match (now, fields.get("output_format")) {
        (Some(format), _) => ("output_config.format", format),
        (None, Some(format)) => ("output_format", format),
        (None, None) => return Ok(()),
    };
    if format.is_null() {
        return Ok(());
    }
    if format["type"] != "json_schema" {
        let message = format!("`{path}.type` is {}", format["type"]);
        return Err(RequestError::value(&format!("{path}.type"), message, "use `json_schema`"));
    }
    let answer = &format["schema"];
    if !answer.is_object() {
        return Err(RequestError::expected(&format!("{path}.schema"), "a JSON Schema (an object)", answer));
    }
    // the name is required and means nothing
    let mut wanted = json!({"name": "answer", "schema": answer});
    if schema::is_strict(answer) {
        wanted["strict"] = true.into();
    }
    parameters.insert("response_format".to_owned(), json!({"type": "json_schema", "json_schema": wanted}));
    Ok(())
}

/// An effort that is named counts; a budget of tokens is the older way to say it.
fn effort(fields: &Map<String, Value>, parameters: &mut Map<String, Value>) -> Result<(), RequestError> {
    let thinking = fields.get("thinking");
    if thinking.is_some_and(|thinking| !thinking.is_object()) {
        return Err(RequestError::expected("thinking", "an object", thinking.unwrap_or(&Value::Null)));
    }
    let kind = thinking.and_then(|thinking| thinking["type"].as_str()).unwrap_or_default();
    let named = fields.get("output_config").and_then(|config| config.get("effort"));
    let effort = match named {
        Some(Value::String(effort)) => match effort.as_str() {
            "low" | "medium" | "high" => effort.as_str(),
            // more than most upstreams know
            "xhigh" | "max" => "high",
            other => {
                let message = format!("`output_config.effort` is `{other}`");
                let hint = "use `low`, `medium`, `high`, `xhigh` or `max`";
                return Err(RequestError::value("output_config.effort", message, hint));
            }
        },
        Some(other) if !other.is_null() => {
            return Err(RequestError::expected("output_config.effort", "a string", other));
        }
        _ if kind == "enabled" => match thinking.and_then(|thinking| thinking["budget_tokens"].as_u64()) {
            Some(0..4096) => "low",
            Some(4096..16384) => "medium",
            Some(_) => "high",
            None => {
                let path = "thinking.budget_tokens";
                return Err(RequestError::missing(path, "`enabled` thinking needs a budget"));
            }
        },
        _ => return Ok(()),
    };
    if kind != "disabled" {
        parameters.insert("reasoning_effort".to_owned(), effort.into());
    }
    Ok(())
}
