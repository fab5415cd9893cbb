//! Reads the content of messages and of calls' outputs.

use lf_core::{Content, Part};
use serde_json::{Map, Value, json};

use super::RESPONSES_ONLY;
use crate::openai_chat::RequestError;

/// A string that is there and not empty.
pub(super) fn string(path: &str, item: &Value, key: &str) -> Result<String, RequestError> {
    let path = format!("{path}.{key}");
    match &item[key] {
        Value::String(text) if text.is_empty() => {
            Err(RequestError::value(&path, format!("`{path}` is empty"), ""))
        }
        Value::String(text) => Ok(text.clone()),
        Value::Null => Err(RequestError::missing(&path, "a string is needed")),
        other => Err(RequestError::expected(&path, "a string", other)),
    }
}

/// What the parts say, and what only a Responses upstream can read of them. One text is a plain string, which every
/// upstream takes.
pub(super) fn content(path: &str, value: &Value) -> Result<(Content, Map<String, Value>), RequestError> {
    let list = match value {
        Value::String(text) => return Ok((text.as_str().into(), Map::new())),
        Value::Array(list) => list,
        Value::Null => return Err(RequestError::missing(path, "a string or an array of parts")),
        other => return Err(RequestError::expected(path, "a string or an array of parts", other)),
    };
    let mut parts = Vec::with_capacity(list.len());
    let mut whole = true;
    for (at, value) in list.iter().enumerate() {
        let (part, told) = part(&format!("{path}[{at}]"), value)?;
        whole &= value
            .as_object()
            .into_iter()
            .flatten()
            .all(|(key, value)| value.is_null() || told.contains(&key.as_str()));
        parts.push(part);
    }
    let mut rest = Map::new();
    if !whole {
        rest.insert(RESPONSES_ONLY.to_owned(), json!({"content": list}));
    }
    let content = match parts.as_mut_slice() {
        [] => Content::default(),
        [Part::Text(text)] => Content::Text(std::mem::take(text)),
        _ => Content::Parts(parts),
    };
    Ok((content, rest))
}

pub(super) fn kind<'a>(path: &str, value: &'a Value, example: &str) -> Result<&'a str, RequestError> {
    let path_of_kind = format!("{path}.type");
    match &value["type"] {
        _ if !value.is_object() => Err(RequestError::expected(path, "an object", value)),
        Value::Null => Err(RequestError::missing(&path_of_kind, &format!("such as `{example}`"))),
        Value::String(kind) => Ok(kind),
        other => Err(RequestError::expected(&path_of_kind, "a string", other)),
    }
}

/// The part, in the spelling of OpenAI Chat Completions where that has one, and the fields it was made of.
fn part(path: &str, value: &Value) -> Result<(Part, &'static [&'static str]), RequestError> {
    match kind(path, value, "input_text")? {
        // what a model said may come back in any role
        "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => {
            Ok((Part::Text(text(path, value, "text")?), &["type", "text", "annotations", "logprobs"]))
        }
        "refusal" => Ok((Part::Text(text(path, value, "refusal")?), &["type", "refusal"])),
        "input_image" => Ok((image(path, value)?, &["type", "image_url", "detail", "file_id"])),
        "input_file" => {
            Ok((file(path, value)?, &["type", "file_data", "filename", "file_id", "file_url", "detail"]))
        }
        // the same in both APIs
        "input_audio" => Ok((Part::Other(value.clone()), &["type", "input_audio"])),
        other => {
            let path = format!("{path}.type");
            let message = format!("`{path}` is `{other}`");
            let hint = "use `input_text`, `input_image`, `input_file` or `output_text`";
            Err(RequestError::value(&path, message, hint))
        }
    }
}

fn text(path: &str, value: &Value, key: &str) -> Result<String, RequestError> {
    match &value[key] {
        Value::String(text) => Ok(text.clone()),
        other => Err(RequestError::expected(&format!("{path}.{key}"), "a string", other)),
    }
}

fn image(path: &str, value: &Value) -> Result<Part, RequestError> {
    match &value["image_url"] {
        Value::String(url) => {
            let detail = value["detail"].as_str().map(str::to_owned);
            Ok(Part::Image { url: url.clone(), detail })
        }
        // stored at the upstream: no other dialect has a word for it
        Value::Null if value["file_id"].is_string() => Ok(Part::Other(value.clone())),
        Value::Null => {
            let path = format!("{path}.image_url");
            Err(RequestError::missing(&path, "a URL, or a `data:` URL with the image itself"))
        }
        other => Err(RequestError::expected(&format!("{path}.image_url"), "a string", other)),
    }
}

fn file(path: &str, value: &Value) -> Result<Part, RequestError> {
    if value["file_data"].is_string() || value["file_id"].is_string() {
        let mut file = Map::new();
        for key in ["filename", "file_data", "file_id"] {
            if let Some(Value::String(text)) = value.get(key) {
                file.insert(key.to_owned(), text.as_str().into());
            }
        }
        return Ok(Part::Other(json!({"type": "file", "file": file})));
    }
    // fetched by the upstream: no other dialect has a word for it
    if value["file_url"].is_string() {
        return Ok(Part::Other(value.clone()));
    }
    let path = format!("{path}.file_data");
    Err(RequestError::missing(&path, "the content of the file, as base64 in a `data:` URL"))
}
