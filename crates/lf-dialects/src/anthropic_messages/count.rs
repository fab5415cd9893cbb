//! Estimates how many tokens a request has.

use lf_core::model::{BYTES_PER_TOKEN, ChatRequest};
use lf_core::{Content, Message, Part};
use serde_json::Value;

/// The most that an image counts after Anthropic has scaled it down.
const IMAGE_TOKENS: u64 = 1_600;
/// A page of a PDF is some 60 KB in base64 and some 2,000 tokens.
const FILE_BYTES_PER_TOKEN: u64 = 30;
/// Role and separators of a message.
const MESSAGE_TOKENS: u64 = 4;

/// About as many tokens as the request's messages and tools are for a model: no tokenizer is asked. Never 0.
pub fn count_tokens(request: &ChatRequest) -> u64 {
    let mut size = Size::default();
    for message in &request.messages {
        size.tokens += MESSAGE_TOKENS;
        match message {
            Message::System(prose) | Message::User(prose) => size.content(&prose.content),
            Message::Assistant(said) => {
                size.content(&said.content);
                for call in &said.calls {
                    size.text(&call.name);
                    size.text(call.arguments.raw());
                }
            }
            Message::Tool(result) => size.content(&result.content),
        }
    }
    for tool in &request.tools {
        size.tokens += MESSAGE_TOKENS;
        size.text(&tool.name);
        size.text(tool.description.as_deref().unwrap_or_default());
        size.bytes += json_bytes(&tool.schema);
    }
    (size.tokens + size.bytes.div_ceil(BYTES_PER_TOKEN as u64)).max(1)
}

#[derive(Default)]
struct Size {
    bytes: u64,
    tokens: u64,
}

impl Size {
    fn text(&mut self, text: &str) {
        self.bytes += length(text);
    }

    fn content(&mut self, content: &Content) {
        let parts = match content {
            Content::Text(text) => return self.text(text),
            Content::Parts(parts) => parts,
        };
        for part in parts {
            match part {
                Part::Text(text) => self.text(text),
                Part::Image { .. } => self.tokens += IMAGE_TOKENS,
                Part::Other(value) => match value["file"]["file_data"].as_str() {
                    Some(data) => self.tokens += length(data).div_ceil(FILE_BYTES_PER_TOKEN),
                    None => self.bytes += json_bytes(value),
                },
            }
        }
    }
}

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

fn json_bytes(value: &Value) -> u64 {
    length(&value.to_string())
}
