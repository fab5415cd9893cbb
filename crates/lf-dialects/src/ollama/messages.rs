//! Writes the messages of a request.

use std::collections::HashMap;

use lf_core::{AssistantMessage, Content, Message, ModelError, ToolCall, ToolResult};
use serde_json::{Value, json};

use crate::upstream::is_for_others;
use crate::upstream::media::{Media, Piece, Source, pieces, shown};

pub(super) fn messages(messages: &[Message]) -> Result<Vec<Value>, ModelError> {
    let mut out = Vec::with_capacity(messages.len() + 1);
    let mut attachments = Attachments::default();
    // of those that share an id the latest
    let mut names: HashMap<&str, &str> = HashMap::new();
    for message in messages {
        if !matches!(message, Message::Tool(_)) {
            out.extend(attachments.take());
        }
        if is_for_others(message) {
            continue;
        }
        out.push(match message {
            Message::System(prose) => said("system", &prose.content)?,
            Message::User(prose) => said("user", &prose.content)?,
            Message::Assistant(message) => {
                names.extend(message.calls.iter().map(|call| (call.id.as_str(), call.name.as_str())));
                assistant(message)?
            }
            Message::Tool(result) => {
                let name = result.name.as_deref().or_else(|| names.get(result.call_id.as_str()).copied());
                tool(result, name, &mut attachments)
            }
        });
    }
    out.extend(attachments.take());
    Ok(out)
}

/// A message is one text and a list of images.
fn said(role: &str, content: &Content) -> Result<Value, ModelError> {
    let mut texts = Vec::new();
    let mut images = Vec::new();
    for piece in pieces(content)? {
        match piece {
            Piece::Text(text) => texts.push(text),
            Piece::Media(media) => images.push(image(&media)?),
        }
    }
    let mut message = json!({"role": role, "content": texts.join("\n")});
    if !images.is_empty() {
        message["images"] = images.into();
    }
    Ok(message)
}

fn assistant(message: &AssistantMessage) -> Result<Value, ModelError> {
    let mut out = said("assistant", &message.content)?;
    if message.calls.is_empty() {
        return Ok(out);
    }
    // models that think while they call tools go on where they were
    if let Some(reasoning) = message.reasoning.as_deref().filter(|reasoning| !reasoning.is_empty()) {
        out["thinking"] = reasoning.into();
    }
    out["tool_calls"] = message.calls.iter().map(call).collect::<Vec<_>>().into();
    Ok(out)
}

fn call(call: &ToolCall) -> Value {
    // a call without a name was answered with an error; it does not go back without one
    let name = if call.name.is_empty() { "unknown" } else { &call.name };
    let arguments = call.arguments.value().cloned().unwrap_or_default();
    let mut out = json!({"function": {"name": name, "arguments": arguments}});
    if !call.id.is_empty() {
        out["id"] = call.id.as_str().into();
    }
    out
}

fn tool(result: &ToolResult, name: Option<&str>, attachments: &mut Attachments) -> Value {
    let mut lines = Vec::new();
    let takes = |media: &Media<'_>| media.noun() == "image" && matches!(media.source, Source::Data(_));
    for part in shown(&result.content, takes) {
        match part {
            Piece::Text(text) => lines.push(text.into_owned()),
            Piece::Media(media) => lines.push(attachments.add(&result.call_id, &media)),
        }
    }
    let mut text = lines.join("\n");
    if result.is_error && !text.starts_with("Error") {
        text.insert_str(0, "Error: ");
    }
    let mut message = json!({"role": "tool", "content": text});
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        message["tool_name"] = name.into();
    }
    if !result.call_id.is_empty() {
        message["tool_call_id"] = result.call_id.as_str().into();
    }
    message
}

/// Images of results. They follow in one user message after all results of the round: templates show a model no images
/// of `tool` messages.
#[derive(Default)]
struct Attachments {
    labels: Vec<String>,
    images: Vec<Value>,
}

impl Attachments {
    /// Keeps an image for later and gives the text that points to it.
    fn add(&mut self, call_id: &str, media: &Media<'_>) -> String {
        if let Source::Data(data) = media.source {
            self.images.push(data.into());
        }
        let (noun, count) = (media.noun(), self.images.len());
        self.labels.push(format!("[{noun} {count} of the result of call {call_id}]"));
        format!("[{noun} {count}: in the next user message]")
    }

    fn take(&mut self) -> Option<Value> {
        let (labels, images) = (std::mem::take(&mut self.labels), std::mem::take(&mut self.images));
        (!images.is_empty()).then(|| json!({"role": "user", "content": labels.join("\n"), "images": images}))
    }
}

/// An element of `images`: bare base64. Recordings go the same way.
fn image(media: &Media<'_>) -> Result<Value, ModelError> {
    match (media.noun(), media.source) {
        ("image" | "audio", Source::Data(data)) => Ok(data.into()),
        ("image" | "audio", Source::Url(_)) => Err(ModelError::Unsupported(
            "Ollama fetches no images from URLs; send the image itself as a `data:` URL".to_owned(),
        )),
        _ => Err(ModelError::Unsupported(format!(
            "Ollama takes text and images, and no content of type `{}`; send its text instead",
            media.kind
        ))),
    }
}
