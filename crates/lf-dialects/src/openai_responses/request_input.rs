//! Writes the messages of a request as input items.

use std::collections::VecDeque;

use lf_core::{
    AssistantMessage, Content, Message, ModelError, ModelRequest, Part, Prose, ToolCall, ToolResult,
};
use serde_json::{Map, Value, json};

use super::request::kept;
use super::{ITEMS, PARAGRAPH};
use crate::openai_chat::CallIds;
use crate::upstream::is_reserved;
use crate::upstream::media::note;

/// The API takes no longer `call_id`.
const CALL_IDS: CallIds = CallIds::AtMost64;

pub(super) fn input(request: &ModelRequest) -> Result<Vec<Value>, ModelError> {
    let stored = request.parameters.get("store") == Some(&Value::Bool(true));
    let mut out = Vec::with_capacity(request.messages.len() + 8);
    for message in &request.messages {
        match message {
            Message::System(prose) => {
                let role = prose.rest.get("role").and_then(Value::as_str).unwrap_or("system");
                self::prose(role, prose, &mut out)?;
            }
            Message::User(prose) => self::prose("user", prose, &mut out)?,
            Message::Assistant(said) => out.extend(assistant(said, stored)?),
            Message::Tool(result) => out.push(output(result)),
        }
    }
    Ok(out)
}

/// Completes the model's earlier messages to the form in which they were told, with ids made of their places.
pub(super) fn give_ids(input: &mut [Value]) {
    for (at, item) in input.iter_mut().enumerate() {
        if item["type"] != "message" || item["role"] != "assistant" {
            continue;
        }
        item["id"] = format!("msg_{at}").into();
        item["status"] = "completed".into();
        for part in item["content"].as_array_mut().into_iter().flatten() {
            if part["type"] == "output_text" && part.get("annotations").is_none() {
                part["annotations"] = json!([]);
            }
        }
    }
}

/// Items that the message itself has no words for.
pub(super) fn own_items(rest: &Map<String, Value>) -> &[Value] {
    kept(rest).and_then(|kept| kept.get(ITEMS)).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn prose(role: &str, prose: &Prose, out: &mut Vec<Value>) -> Result<(), ModelError> {
    let items = own_items(&prose.rest);
    out.extend(items.iter().map(without_nulls));
    if !items.is_empty() && prose.content.is_empty() {
        return Ok(());
    }
    let content = match (own_content(&prose.rest, &prose.content), &prose.content) {
        (Some(own), _) => own.clone(),
        (None, Content::Text(text)) => text.as_str().into(),
        (None, Content::Parts(parts)) => Value::Array(parts.iter().map(part).collect::<Result<_, _>>()?),
    };
    out.push(json!({"type": "message", "role": role, "content": content}));
    Ok(())
}

/// The content as a client of the same dialect wrote it, if it still says the same.
pub(super) fn own_content<'a>(rest: &'a Map<String, Value>, content: &Content) -> Option<&'a Value> {
    let own = kept(rest)?.get("content")?;
    let list = own.as_array()?;
    let same_count = match content {
        Content::Text(_) => list.len() == 1,
        Content::Parts(parts) => parts.len() == list.len(),
    };
    (same_count && part_texts(list) == content.text()).then_some(own)
}

fn part_texts(parts: &[Value]) -> String {
    parts.iter().filter_map(|part| part["text"].as_str().or_else(|| part["refusal"].as_str())).collect()
}

pub(super) fn part(part: &Part) -> Result<Value, ModelError> {
    Ok(match part {
        Part::Text(text) => json!({"type": "input_text", "text": text}),
        Part::Image { url, detail } => image(url, detail.as_deref()),
        Part::Other(value) => match value["type"].as_str().unwrap_or_default() {
            "text" => with_further(json!({"type": "input_text", "text": value["text"]}), value, "text"),
            "image_url" => {
                let shown = &value["image_url"];
                let image = image(shown["url"].as_str().unwrap_or_default(), shown["detail"].as_str());
                with_further(image, value, "image_url")
            }
            "file" => {
                let mut file = json!({"type": "input_file"});
                for (key, value) in value["file"].as_object().into_iter().flatten() {
                    file[key.as_str()] = value.clone();
                }
                with_further(file, value, "file")
            }
            // as clients of the same dialect write them
            "input_text" | "input_image" | "input_file" => value.clone(),
            kind => {
                let message = format!(
                    "a content part of type `{kind}` has no place in the OpenAI Responses API: leave it out, or use a \
                     model with another API"
                );
                return Err(ModelError::Unsupported(message));
            }
        },
    })
}

fn image(url: &str, detail: Option<&str>) -> Value {
    json!({"type": "input_image", "image_url": url, "detail": detail.unwrap_or("auto")})
}

/// The part with the fields that stood beside `told`.
fn with_further(mut part: Value, from: &Value, told: &str) -> Value {
    for (key, value) in from.as_object().into_iter().flatten() {
        if key != "type" && key != told && !is_reserved(key) {
            part[key.as_str()] = value.clone();
        }
    }
    part
}

/// An answer of the model: items that were kept go back to their places, the text and the calls to theirs; where no
/// place is known, kept items come first, then the text, then the calls.
fn assistant(said: &AssistantMessage, stored: bool) -> Result<Vec<Value>, ModelError> {
    let items = own_items(&said.rest);
    let placed = items.iter().any(|item| item["type"] == "message");
    let mut texts = texts(said, items)?;
    let mut calls = said.calls.iter().map(call);
    let mut out = Vec::with_capacity(items.len() + said.calls.len() + 1);
    for item in items {
        match item["type"].as_str().unwrap_or_default() {
            "message" => out.extend(texts.pop_front()),
            "function_call" => {
                if !placed {
                    out.extend(texts.drain(..));
                }
                out.extend(calls.next());
            }
            "reasoning" => out.extend(reasoning(item, stored)),
            _ => out.push(without_nulls(item)),
        }
    }
    out.extend(texts);
    out.extend(calls);
    // reasoning that led to nothing, as in an answer that was cut, is refused
    while out.last().is_some_and(|item| item["type"] == "reasoning") {
        out.pop();
    }
    Ok(out)
}

/// The message items: one, or as many as the answer had where the text can still be told apart.
fn texts(said: &AssistantMessage, items: &[Value]) -> Result<VecDeque<Value>, ModelError> {
    let marks: Vec<&Value> = items.iter().filter(|item| item["type"] == "message").collect();
    if let Content::Text(text) = &said.content
        && let Some(messages) = split(text, &marks)
    {
        return Ok(messages.into());
    }
    let mut content = match &said.content {
        Content::Text(text) if text.is_empty() => Vec::new(),
        Content::Text(text) => vec![output_text(text)],
        Content::Parts(parts) => parts.iter().map(said_part).collect::<Result<_, _>>()?,
    };
    if let Some(refusal) = said.rest.get("refusal").and_then(Value::as_str).filter(|text| !text.is_empty()) {
        content.push(json!({"type": "refusal", "refusal": refusal}));
    }
    let none = Value::Null;
    let mark = marks.last().copied().unwrap_or(&none);
    Ok(if content.is_empty() { VecDeque::new() } else { VecDeque::from([message(&content, mark)]) })
}

/// The messages at these marks, if what they say is still what the text says. A mark has the count of the bytes it was
/// told in, or is the item itself.
fn split(text: &str, marks: &[&Value]) -> Option<Vec<Value>> {
    let mut rest = text;
    let mut messages = Vec::with_capacity(marks.len());
    for mark in marks {
        let said = rest.strip_prefix(PARAGRAPH).filter(|_| !messages.is_empty()).unwrap_or(rest);
        let content = match (mark["bytes"].as_u64(), mark["content"].as_array()) {
            (Some(bytes), _) => {
                let (piece, after) = rest.split_at_checked(usize::try_from(bytes).ok()?)?;
                rest = after;
                let piece = piece.strip_prefix(PARAGRAPH).filter(|_| !messages.is_empty()).unwrap_or(piece);
                vec![output_text(piece)]
            }
            (None, Some(own)) => {
                rest = said.strip_prefix(part_texts(own).as_str())?;
                own.clone()
            }
            (None, None) => {
                let own = mark["content"].as_str()?;
                rest = said.strip_prefix(own)?;
                vec![output_text(own)]
            }
        };
        messages.push(message(&content, mark));
    }
    (rest.is_empty() && !messages.is_empty()).then_some(messages)
}

fn message(content: &[Value], mark: &Value) -> Value {
    let mut message = json!({"type": "message", "role": "assistant", "content": content});
    // newer models want to be told again which of their messages were the final ones
    if let Some(phase) = mark["phase"].as_str() {
        message["phase"] = phase.into();
    }
    message
}

fn output_text(text: &str) -> Value {
    json!({"type": "output_text", "text": text})
}

fn said_part(part: &Part) -> Result<Value, ModelError> {
    match part {
        Part::Text(text) => Ok(output_text(text)),
        Part::Other(value) if value["type"] == "text" => {
            Ok(output_text(value["text"].as_str().unwrap_or_default()))
        }
        Part::Other(value) if value["type"] == "refusal" => {
            Ok(json!({"type": "refusal", "refusal": value["refusal"]}))
        }
        Part::Other(value) if value["type"] == "output_text" => Ok(value.clone()),
        Part::Image { .. } | Part::Other(_) => {
            let message = "an assistant's message can be of text only for this model (OpenAI Responses API): send other \
                 content in a user's message";
            Err(ModelError::Unsupported(message.to_owned()))
        }
    }
}

fn call(call: &ToolCall) -> Value {
    // A call without a name was answered with an error; the API does not take it back without one.
    let name = if call.name.is_empty() { "unknown" } else { &call.name };
    let mut item = json!({
        "type": "function_call", "call_id": CALL_IDS.fit(&call.id), "name": name,
        "arguments": call.arguments.for_replay(),
    });
    for (key, value) in kept(&call.rest).into_iter().flatten() {
        item[key.as_str()] = value.clone();
    }
    item
}

/// A reasoning item that the upstream can read: sealed, or open, or stored there. A bare id of anything else is refused
/// as unknown.
fn reasoning(item: &Value, stored: bool) -> Option<Value> {
    let sealed = is_sealed(item);
    if !sealed && !is_open(item) && !stored {
        return None;
    }
    let mut item = without_nulls(item);
    let fields = item.as_object_mut()?;
    if sealed {
        // refused beside the seal
        fields.shift_remove("content");
    }
    fields.entry("summary").or_insert_with(|| json!([]));
    Some(item)
}

pub(super) fn is_sealed(item: &Value) -> bool {
    item["encrypted_content"].as_str().is_some_and(|sealed| !sealed.is_empty())
}

/// As open models are served: the reasoning itself can be read and sent back.
pub(super) fn is_open(item: &Value) -> bool {
    item["content"].as_array().is_some_and(|content| !content.is_empty())
}

/// Answers spell out what they leave open; requests must not.
fn without_nulls(item: &Value) -> Value {
    let mut item = item.clone();
    if let Some(fields) = item.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    item
}

fn output(result: &ToolResult) -> Value {
    if let Some(own) = own_content(&result.rest, &result.content).filter(|_| !result.is_error) {
        return json!({
            "type": "function_call_output", "call_id": CALL_IDS.fit(&result.call_id), "output": own,
        });
    }
    let output: Value = match &result.content {
        Content::Text(text) => marked(text.clone(), result.is_error).into(),
        Content::Parts(parts) => match parts.iter().map(plain_text).collect::<Option<Vec<_>>>() {
            Some(texts) => marked(texts.join("\n"), result.is_error).into(),
            None => result_parts(parts, result.is_error).into(),
        },
    };
    json!({"type": "function_call_output", "call_id": CALL_IDS.fit(&result.call_id), "output": output})
}

fn marked(mut text: String, is_error: bool) -> String {
    if is_error && !text.starts_with("Error") {
        text.insert_str(0, "Error: ");
    }
    text
}

fn plain_text(part: &Part) -> Option<&str> {
    match part {
        Part::Text(text) => Some(text),
        Part::Other(value) if value["type"] == "text" => value["text"].as_str(),
        Part::Image { .. } | Part::Other(_) => None,
    }
}

fn result_parts(parts: &[Part], is_error: bool) -> Vec<Value> {
    let mut out = Vec::with_capacity(parts.len() + 1);
    if is_error && !parts.iter().find_map(plain_text).is_some_and(|text| text.starts_with("Error")) {
        out.push(json!({"type": "input_text", "text": "Error:"}));
    }
    for part in parts {
        // what a tool gave must not fail the chat
        let written = self::part(part).unwrap_or_else(|_| json!({"type": "input_text", "text": note(part)}));
        out.push(written);
    }
    out
}
