//! Writes the messages of a request to Anthropic upstreams.

use std::borrow::Cow;

use lf_core::{AssistantMessage, Content, Message, ModelError, Part, ToolCall, ToolResult};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::blocks::{WHOLE, joined};
use super::encode::{is_inline, kept};

/// The first message must be a user's, and none may be empty.
const NOTHING: &str = "(nothing)";

/// The system prompt of the messages before the conversation; `None` for an empty one.
pub(super) fn system(messages: &[Message]) -> Option<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    for message in messages {
        let Message::System(prose) = message else { continue };
        let text = prose.content.text();
        let own = kept(&prose.rest).and_then(|kept| kept.get("content")).and_then(Value::as_array);
        match own.and_then(|own| around(&text, own).map(|around| (own, around))) {
            // the blocks as the client wrote them, with what the project says around them
            Some((own, (before, after))) => {
                blocks.extend(text_block(before));
                blocks.extend(own.iter().filter(|block| block["text"] != "").cloned());
                blocks.extend(text_block(after));
            }
            None => blocks.extend(text_block(&text)),
        }
    }
    match blocks.as_mut_slice() {
        [] => None,
        [only] if only.as_object().is_some_and(|block| block.len() == 2) => Some(only["text"].take()),
        _ => Some(blocks.into()),
    }
}

/// What stands before and after the client's own blocks in the text that was made of them.
fn around<'a>(text: &'a str, own: &[Value]) -> Option<(&'a str, &'a str)> {
    let joined = joined(own)?;
    let (before, after) = text.split_once(joined.as_str())?;
    Some((before.trim_end(), after.trim_start()))
}

fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

pub(super) fn conversation(messages: &[Message]) -> Result<Vec<Value>, ModelError> {
    let mut out: Vec<Value> = Vec::with_capacity(messages.len() + 1);
    let mut results: Vec<Value> = Vec::new();
    for message in messages {
        if let Message::Tool(result) = message {
            results.push(tool_result(result)?);
            continue;
        }
        flush(&mut results, &mut out);
        let (role, mut content) = match message {
            Message::User(prose) => ("user", blocks(&prose.content, &prose.rest)?),
            Message::System(prose) if is_inline(prose) => {
                let own = kept(&prose.rest).and_then(|kept| kept.get("content")).and_then(Value::as_array);
                match own {
                    Some(own) => ("system", own.clone()),
                    None => ("system", blocks(&prose.content, &Map::new())?),
                }
            }
            // an upstream takes system messages within a conversation only from clients that ask for it
            Message::System(prose) => {
                let text = format!("<system-reminder>\n{}\n</system-reminder>", prose.content.text());
                ("user", text_block(&text).into_iter().collect())
            }
            Message::Assistant(said) => ("assistant", assistant(said)),
            Message::Tool(_) => continue,
        };
        if content.is_empty() {
            content.extend(text_block(NOTHING));
        }
        if out.is_empty() && role == "assistant" {
            out.push(json!({"role": "user", "content": NOTHING}));
        }
        out.push(json!({"role": role, "content": content}));
    }
    flush(&mut results, &mut out);
    if out.is_empty() {
        out.push(json!({"role": "user", "content": NOTHING}));
    }
    Ok(out)
}

/// All results of a round are one message.
fn flush(results: &mut Vec<Value>, out: &mut Vec<Value>) {
    if !results.is_empty() {
        out.push(json!({"role": "user", "content": std::mem::take(results)}));
    }
}

fn assistant(said: &AssistantMessage) -> Vec<Value> {
    let own = kept(&said.rest).and_then(|kept| kept.get("content")).and_then(Value::as_array);
    if let Some(own) = own.filter(|own| same_calls(own, &said.calls)) {
        // signed thinking is only good in its own place
        return own.clone();
    }
    let text = said.content.text();
    // the last message may not end with white space, and no model needs it
    let mut blocks: Vec<Value> = text_block(text.trim_end()).into_iter().collect();
    blocks.extend(said.calls.iter().map(|call| {
        let input = call.arguments.value().cloned().unwrap_or_default();
        json!({"type": "tool_use", "id": fit(&call.id), "name": call.name, "input": input})
    }));
    blocks
}

fn same_calls(own: &[Value], calls: &[ToolCall]) -> bool {
    let ids = own.iter().filter(|block| block["type"] == "tool_use").map(|block| block["id"].as_str());
    ids.eq(calls.iter().map(|call| Some(call.id.as_str())))
}

/// The API takes ids of `[a-zA-Z0-9_-]`; any other becomes one made of it alone.
fn fit(id: &str) -> Cow<'_, str> {
    if !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)) {
        return Cow::Borrowed(id);
    }
    let digest = Sha256::digest(id.as_bytes());
    Cow::Owned(format!(
        "toolu_{}",
        digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect::<String>()
    ))
}

fn tool_result(result: &ToolResult) -> Result<Value, ModelError> {
    let content: Value = match &result.content {
        Content::Text(text) => text.as_str().into(),
        Content::Parts(_) => blocks(&result.content, &result.rest)?.into(),
    };
    let mut block = json!({"type": "tool_result", "tool_use_id": fit(&result.call_id), "content": content});
    if result.is_error {
        block["is_error"] = true.into();
    }
    if let Some(mark) = kept(&result.rest).and_then(|kept| kept.get("cache_control")) {
        block["cache_control"] = mark.clone();
    }
    Ok(block)
}

/// The content's blocks, with the fields that a client of the same dialect gave them.
fn blocks(content: &Content, rest: &Map<String, Value>) -> Result<Vec<Value>, ModelError> {
    let marks = kept(rest).and_then(|kept| kept.get("marks"));
    let one;
    let parts = match content {
        Content::Text(text) => {
            one = [Part::Text(text.clone())];
            one.as_slice()
        }
        Content::Parts(parts) => parts,
    };
    let mut blocks = Vec::with_capacity(parts.len());
    for (at, part) in parts.iter().enumerate() {
        let marks = marks.and_then(|marks| marks.get(at.to_string())).and_then(Value::as_object);
        if let Some(whole) = marks.and_then(|marks| marks.get(WHOLE)) {
            blocks.push(whole.clone());
            continue;
        }
        let Some(mut block) = block(part)? else { continue };
        for (key, value) in marks.into_iter().flatten() {
            block[key.as_str()] = value.clone();
        }
        blocks.push(block);
    }
    Ok(blocks)
}

/// `None` for a text that is empty, which the API refuses.
fn block(part: &Part) -> Result<Option<Value>, ModelError> {
    Ok(match part {
        Part::Text(text) => text_block(text),
        Part::Image { url, .. } => Some(json!({"type": "image", "source": source(url)})),
        Part::Other(value) => match value["type"].as_str().unwrap_or_default() {
            "text" if value["text"] == "" => None,
            "text" => Some(value.clone()),
            "image_url" => {
                let url = value["image_url"]["url"].as_str().unwrap_or_default();
                Some(json!({"type": "image", "source": source(url)}))
            }
            "file" if value["file"]["file_data"].is_string() => {
                let data = value["file"]["file_data"].as_str().unwrap_or_default();
                let mut document = json!({"type": "document", "source": source(data)});
                if let Some(name) = value["file"]["filename"].as_str() {
                    document["title"] = name.into();
                }
                Some(document)
            }
            kind => {
                let message = format!("a content part of type `{kind}` has no counterpart for this model");
                return Err(ModelError::Unsupported(message));
            }
        },
    })
}

fn source(url: &str) -> Value {
    let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    match data {
        Some((media, data)) => json!({"type": "base64", "media_type": media, "data": data}),
        None => json!({"type": "url", "url": url}),
    }
}
