//! What of a request in this dialect no model of another can be told.

use lf_core::{Content, Message, ModelError, ModelRequest, Part};
use serde_json::{Map, Value};

use super::encode::kept;
use super::{ANTHROPIC_ONLY, HEADERS, NEEDED};
use crate::upstream::is_reserved;

/// Fields that have been said in the core's values, and those that only make an answer cheaper or switch on others.
const SAID: [&str; 9] = [
    HEADERS,
    "betas",
    "cache_control",
    "mcp_servers",
    "metadata",
    "output_config",
    "output_format",
    "thinking",
    "tools",
];

/// To be asked before a request is written in any dialect but Anthropic's. Gives the names of fields that mean
/// something and are left out; caching is none of them, as it changes no answer.
///
/// # Errors
/// [`ModelError::Unsupported`] for what the answer would be about, and which only Anthropic can get at.
pub(crate) fn check_foreign(request: &ModelRequest) -> Result<Vec<String>, ModelError> {
    for part in request.messages.iter().flat_map(parts) {
        if let Part::Other(value) = part
            && let Some(block) = value.get(ANTHROPIC_ONLY)
        {
            return Err(ModelError::Unsupported(unreadable(block)));
        }
    }
    let mut left_out = Vec::new();
    if let Some(kept) = kept(&request.parameters) {
        refuse_needed(kept)?;
        left_out
            .extend(kept.keys().filter(|key| !SAID.contains(&key.as_str()) && !is_reserved(key)).cloned());
        let config = kept.get("output_config").and_then(Value::as_object);
        let further =
            config.into_iter().flat_map(Map::keys).filter(|key| *key != "effort" && *key != "format");
        left_out.extend(further.map(|key| format!("output_config.{key}")));
        let unnamed = kept.get("tools").and_then(Value::as_array);
        left_out.extend(unnamed.into_iter().flatten().map(tool_type));
    }
    for tool in request.tools.iter() {
        let Some(fields) = kept(&tool.rest) else { continue };
        if tool.is_native() {
            left_out.push(tool_type(&Value::Object(fields.clone())));
            continue;
        }
        for key in ["allowed_callers", "input_examples"] {
            let name = format!("tools.{key}");
            if fields.get(key).is_some_and(|value| !value.is_null()) && !left_out.contains(&name) {
                left_out.push(name);
            }
        }
    }
    Ok(left_out)
}

fn parts(message: &Message) -> &[Part] {
    let content = match message {
        Message::System(prose) | Message::User(prose) => &prose.content,
        Message::Assistant(said) => &said.content,
        Message::Tool(result) => &result.content,
    };
    match content {
        Content::Text(_) => &[],
        Content::Parts(parts) => parts,
    }
}

fn tool_type(tool: &Value) -> String {
    format!("tools.{}", tool["type"].as_str().unwrap_or("type"))
}

fn unreadable(block: &Value) -> String {
    match (block["type"].as_str(), block["source"]["type"].as_str().unwrap_or_default()) {
        (Some("document"), "url") => {
            "a document behind a URL is not fetched for other models than Anthropic's; send \
                                      its content, as `base64` or `text`"
                .to_owned()
        }
        (_, kind) => format!(
            "a source of type `{kind}` is stored at Anthropic and cannot be read from here; send the content itself, \
             as `base64`"
        ),
    }
}

fn refuse_needed(kept: &Map<String, Value>) -> Result<(), ModelError> {
    let servers = kept.get("mcp_servers");
    if servers.is_some_and(|servers| servers.as_array().is_none_or(|servers| !servers.is_empty())) {
        let message = "`mcp_servers` would be reached from Anthropic's own servers; list them under `mcp.servers` in \
                       the project's llamafarm.yaml";
        return Err(ModelError::Unsupported(message.to_owned()));
    }
    let Some(kind) = kept.get(NEEDED).and_then(Value::as_str) else { return Ok(()) };
    // tools of these types are run by the client, without a schema that could be shown to another model
    let client = ["bash_", "computer_", "memory_", "text_editor_"].iter().any(|own| kind.starts_with(own));
    let message = if client {
        format!(
            "a tool of type `{kind}` is known to Anthropic's models only; declare it with an `input_schema`"
        )
    } else {
        format!(
            "a tool of type `{kind}` runs on Anthropic's own servers and is not offered here; use a tool of an MCP \
             server for it"
        )
    };
    Err(ModelError::Unsupported(message))
}
