//! Writes the messages of a request to Anthropic upstreams.

use std::borrow::Cow;

use lf_core::tool_set::fit_name;
use lf_core::{AssistantMessage, Content, Message, ModelError, Part, ToolCall, ToolResult};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::blocks::{WHOLE, joined};
use super::encode::{is_inline, kept};
use super::history::{FIELDS, WITH_RESULTS};
use super::{ANTHROPIC_ONLY, OWN_SIGNATURE};
use crate::upstream::is_for_others;
use crate::upstream::media::note;

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
    for (at, message) in messages.iter().enumerate() {
        if let Message::Tool(result) = message {
            results.push(tool_result(result)?);
            continue;
        }
        if let Message::User(prose) = message
            && kept(&prose.rest).is_some_and(|kept| kept.contains_key(WITH_RESULTS))
        {
            results.extend(blocks(&prose.content, &prose.rest)?);
            flush(&mut results, &mut out);
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
            Message::Assistant(said) => ("assistant", assistant(said, at + 1 == messages.len())),
            Message::Tool(_) => continue,
        };
        if content.is_empty() && is_for_others(message) {
            continue;
        }
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

/// `last`: the model is to go on with this message.
fn assistant(said: &AssistantMessage, last: bool) -> Vec<Value> {
    let own = kept(&said.rest).and_then(|kept| kept.get("content")).and_then(Value::as_array);
    if let Some(blocks) = own.and_then(|own| replay(own, &said.calls)) {
        return blocks;
    }
    let text = said.content.text();
    // the last message may not end with white space
    let text = if last { text.trim_end() } else { &text };
    let mut blocks: Vec<Value> = text_block(text).into_iter().collect();
    blocks.extend(said.calls.iter().map(|call| {
        let mut block =
            json!({"type": "tool_use", "id": fit(&call.id), "name": name(call), "input": input(call)});
        for (key, value) in kept(&call.rest).into_iter().flatten() {
            block[key.as_str()] = value.clone();
        }
        block
    }));
    blocks
}

/// The message's blocks as they came: signed thinking is only good in its own place. `None` where they are not about
/// these calls.
fn replay(own: &[Value], calls: &[ToolCall]) -> Option<Vec<Value>> {
    let uses = own.iter().filter(|block| block["type"] == "tool_use");
    // the turn may have given a call another id, or its tool another name, but not both
    let is_of = |(block, call): (&Value, &ToolCall)| {
        let name = block["name"].as_str().unwrap_or_default();
        block["id"] == call.id.as_str() || name == call.name || fit_name(name) == call.name
    };
    if uses.clone().count() != calls.len() || !uses.zip(calls).all(is_of) {
        return None;
    }
    let mut calls = calls.iter();
    let kept = own.iter().filter(|block| block["signature"] != OWN_SIGNATURE).map(|block| {
        let mut block = block.clone();
        if block["type"] == "tool_use"
            && let Some(call) = calls.next()
        {
            block["id"] = fit(&call.id).into();
            block["name"] = name(call).into();
            block["input"] = input(call).into();
        }
        block
    });
    Some(kept.collect())
}

/// A call without a name was answered with an error; the API does not take it back without one.
fn name(call: &ToolCall) -> &str {
    if call.name.is_empty() { "unknown" } else { &call.name }
}

fn input(call: &ToolCall) -> Map<String, Value> {
    call.arguments.value().cloned().unwrap_or_default()
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
    let own = kept(&result.rest);
    let marked = own.is_some_and(|own| own.contains_key("marks"));
    let content: Value = match &result.content {
        Content::Text(text) if !marked => text.as_str().into(),
        content => blocks(&readable(content), &result.rest)?.into(),
    };
    let mut block = json!({"type": "tool_result", "tool_use_id": fit(&result.call_id), "content": content});
    if result.is_error {
        block["is_error"] = true.into();
    }
    for (key, value) in own.and_then(|own| own.get(FIELDS)).and_then(Value::as_object).into_iter().flatten() {
        block[key.as_str()] = value.clone();
    }
    Ok(block)
}

/// The content with notes for what has no block: nothing that a tool returns may cost the request.
fn readable(content: &Content) -> Cow<'_, Content> {
    match content {
        Content::Parts(parts) if !parts.iter().all(has_block) => {
            let parts = parts.iter().map(|part| match has_block(part) {
                true => part.clone(),
                false => Part::Text(note(part)),
            });
            Cow::Owned(Content::Parts(parts.collect()))
        }
        content => Cow::Borrowed(content),
    }
}

/// Whether [`block`] knows one for it.
fn has_block(part: &Part) -> bool {
    match part {
        Part::Text(_) | Part::Image { .. } => true,
        Part::Other(value) if value.get(ANTHROPIC_ONLY).is_some() => true,
        Part::Other(value) => match value["type"].as_str().unwrap_or_default() {
            "text" | "image_url" => true,
            "file" => value["file"]["file_data"].is_string(),
            _ => false,
        },
    }
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
        match marks.and_then(|marks| marks.get(WHOLE)) {
            // a rendering of what the next marked part has
            Some(Value::Null) => continue,
            Some(whole) => {
                blocks.push(whole.clone());
                continue;
            }
            None => {}
        }
        let Some(mut block) = block(part)? else { continue };
        if let Some(block) = block.as_object_mut() {
            for (key, value) in marks.into_iter().flatten() {
                match value {
                    Value::Null => drop(block.shift_remove(key)),
                    value => drop(block.insert(key.clone(), value.clone())),
                }
            }
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
        Part::Other(value) if value.get(ANTHROPIC_ONLY).is_some() => value.get(ANTHROPIC_ONLY).cloned(),
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
