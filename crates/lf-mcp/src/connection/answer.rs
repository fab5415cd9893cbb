//! The answer to a call, read leniently: one content block of an unknown kind does not cost the others.

use lf_core::tool::{ToolContent, ToolOutput};
use serde_json::Value;

use super::AskError;

pub(super) fn output(value: Value) -> Result<ToolOutput, AskError> {
    let is_complete = value.get("resultType").and_then(Value::as_str).is_none_or(|kind| kind == "complete");
    let Value::Object(mut fields) = value else { return Err(not_a_result()) };
    if !is_complete {
        return Err(not_a_result());
    }
    let content = match fields.remove("content") {
        Some(Value::Array(blocks)) => blocks.into_iter().map(content).collect(),
        None | Some(Value::Null) => Vec::new(),
        Some(_) => return Err(not_a_result()),
    };
    Ok(ToolOutput {
        content,
        structured: fields.remove("structuredContent"),
        is_error: fields.get("isError").and_then(Value::as_bool).unwrap_or(false),
    })
}

fn not_a_result() -> AskError {
    AskError::Refused {
        message: "it answered with something that is not a tool result".into(),
        code: -32_603,
    }
}

fn content(block: Value) -> ToolContent {
    known_content(&block).unwrap_or(ToolContent::Other(block))
}

fn known_content(block: &Value) -> Option<ToolContent> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(match block.get("type")?.as_str()? {
        "text" => ToolContent::Text(text(block, "text")?),
        "image" => ToolContent::Image { data: text(block, "data")?, mime_type: text(block, "mimeType")? },
        "audio" => ToolContent::Audio { data: text(block, "data")?, mime_type: text(block, "mimeType")? },
        "resource" => {
            let resource = block.get("resource")?;
            ToolContent::Resource {
                uri: text(resource, "uri")?,
                mime_type: text(resource, "mimeType"),
                text: text(resource, "text"),
                blob: text(resource, "blob"),
            }
        }
        "resource_link" => ToolContent::ResourceLink {
            uri: text(block, "uri")?,
            name: text(block, "name").unwrap_or_default(),
            description: text(block, "description"),
            mime_type: text(block, "mimeType"),
        },
        _ => return None,
    })
}
