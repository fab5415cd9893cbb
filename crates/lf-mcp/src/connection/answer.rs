//! The answer to a call, read leniently: one content block of an unknown kind does not cost the others.

use lf_core::tool::{ToolContent, ToolOutput};
use serde_json::{Map, Value};

use super::AskError;
use crate::failure::excerpt;

/// The two ways in which a call may go on.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Complete(Map<String, Value>),
    /// The same request is to be sent again with the answers, and with this state as it came.
    InputRequired {
        questions: Map<String, Value>,
        state: Option<String>,
    },
}

/// Tells a result from a question. Servers of the legacy generation do not say which it is.
pub(super) fn read(value: Value) -> Result<Answer, AskError> {
    let Value::Object(mut fields) = value else { return Err(not_a_result("something else")) };
    match fields.get("resultType").and_then(Value::as_str) {
        None | Some("complete") => Ok(Answer::Complete(fields)),
        Some("input_required") => {
            let questions = match fields.remove("inputRequests") {
                Some(Value::Object(questions)) => questions,
                None | Some(Value::Null) => Map::new(),
                Some(_) => return Err(not_a_result("questions that cannot be read")),
            };
            let state = fields.get("requestState").and_then(Value::as_str).map(str::to_owned);
            Ok(Answer::InputRequired { questions, state })
        }
        Some("task") => Err(not_a_result("a task, which nobody offered to wait for")),
        Some(other) => Err(not_a_result(&format!("a result of type `{}`", excerpt(other, 64)))),
    }
}

pub(super) fn output(value: Value) -> Result<ToolOutput, AskError> {
    let Value::Object(mut fields) = value else { return Err(not_a_result("something else")) };
    let content = match fields.remove("content") {
        Some(Value::Array(blocks)) => blocks.into_iter().map(content).collect(),
        None | Some(Value::Null) => Vec::new(),
        Some(_) => return Err(not_a_result("something else")),
    };
    Ok(ToolOutput {
        content,
        structured: fields.remove("structuredContent"),
        is_error: fields.get("isError").and_then(Value::as_bool).unwrap_or(false),
    })
}

fn not_a_result(what: &str) -> AskError {
    AskError::Refused {
        message: format!("it answered with {what} instead of a tool result"),
        code: -32_603,
        data: None,
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
