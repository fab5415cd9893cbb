//! What a tool returned, as the model is told it.

use serde_json::Map;

use crate::message::{Content, Part, ToolCall, ToolResult};
use crate::tool::{ToolContent, ToolOutput};

/// The usual estimate for English and code; only used to turn a token limit into bytes.
const BYTES_PER_TOKEN: usize = 4;

/// A tool's output as the result of a call. Text beyond `limit` tokens is cut, and the result says so.
pub fn result_for_model(call: &ToolCall, output: ToolOutput, limit: usize) -> ToolResult {
    let mut parts: Vec<Part> = Vec::with_capacity(output.content.len());
    for content in output.content {
        match content_as_part(content) {
            Part::Text(text) => match parts.last_mut() {
                Some(Part::Text(before)) => {
                    before.push('\n');
                    before.push_str(&text);
                }
                _ => parts.push(Part::Text(text)),
            },
            part => parts.push(part),
        }
    }
    if let Some(structured) = output.structured.filter(|_| parts.is_empty()) {
        parts.push(Part::Text(structured.to_string()));
    }
    cut(&mut parts, limit.saturating_mul(BYTES_PER_TOKEN));
    let content = match parts.len() {
        0 => Content::default(),
        1 => match parts.pop() {
            Some(Part::Text(text)) => Content::Text(text),
            other => Content::Parts(other.into_iter().collect()),
        },
        _ => Content::Parts(parts),
    };
    ToolResult {
        call_id: call.id.clone(),
        name: Some(call.name.clone()),
        content,
        is_error: output.is_error,
        rest: Map::new(),
    }
}

fn content_as_part(content: ToolContent) -> Part {
    match content {
        ToolContent::Text(text) => Part::Text(text),
        ToolContent::Image { data, mime_type } => image(&mime_type, &data),
        ToolContent::Audio { data, mime_type } => {
            Part::Text(format!("[audio, {mime_type}, {} bytes in base64]", data.len()))
        }
        ToolContent::Resource { uri, text: Some(text), .. } => Part::Text(format!("[{uri}]\n{text}")),
        ToolContent::Resource { mime_type: Some(mime_type), blob: Some(blob), .. }
            if mime_type.starts_with("image/") =>
        {
            image(&mime_type, &blob)
        }
        ToolContent::Resource { uri, mime_type, blob, .. } => Part::Text(format!(
            "[{uri}, {}, {} bytes in base64]",
            mime_type.as_deref().unwrap_or("unknown type"),
            blob.map_or(0, |blob| blob.len())
        )),
        ToolContent::ResourceLink { uri, name, description, .. } => Part::Text(match description {
            Some(description) => format!("[{name}]({uri}): {description}"),
            None => format!("[{name}]({uri})"),
        }),
        ToolContent::Other(value) => Part::Text(value.to_string()),
    }
}

fn image(mime_type: &str, data: &str) -> Part {
    Part::Image { url: format!("data:{mime_type};base64,{data}"), detail: None }
}

/// Keeps the first `limit` bytes of text over all parts; images count for themselves upstream and are left whole.
fn cut(parts: &mut Vec<Part>, limit: usize) {
    let total: usize = parts.iter().map(text_length).sum();
    if total <= limit {
        return;
    }
    let mut left = limit;
    parts.retain_mut(|part| match part {
        Part::Text(text) => {
            let keep = text.floor_char_boundary(left);
            text.truncate(keep);
            left -= keep;
            !text.is_empty()
        }
        _ => true,
    });
    let note = format!("\n[cut: the first {} of {total} bytes; ask for less at a time]", limit - left);
    match parts.iter_mut().rev().find_map(|part| match part {
        Part::Text(text) => Some(text),
        _ => None,
    }) {
        Some(text) => text.push_str(&note),
        None => parts.push(Part::Text(note)),
    }
}

fn text_length(part: &Part) -> usize {
    match part {
        Part::Text(text) => text.len(),
        _ => 0,
    }
}
