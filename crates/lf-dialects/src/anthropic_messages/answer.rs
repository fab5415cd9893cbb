//! Reads answers of the Anthropic Messages API, streamed or whole.

use lf_core::model::{Dialect, Native};
use lf_core::{ModelDelta, ModelError, Usage};
use serde_json::{Map, Value, json};

use super::ANTHROPIC_ONLY;
use super::gather::is_plain;
use crate::answer::Answer;
use crate::assemble::{Fragment, Piece};
use crate::openai_chat::upstream_error;

/// All events of one answer's blocks. The longest answers have some 128,000 tokens, and an event for one of them takes
/// some 150 bytes.
const MAX_CONTENT_BYTES: usize = 64 * 1024 * 1024;

/// Reasons to stop that the core's values tell apart.
const TOLD_REASONS: [&str; 5] = ["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"];

pub(crate) fn read_event(
    answer: &mut Answer,
    data: &str,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    let mut event: Value = serde_json::from_str(data).map_err(|error| answer.not_json(data, &error))?;
    let index = event["index"].as_u64();
    let kind = event["type"].as_str().unwrap_or_default().to_owned();
    if kind.starts_with("content_block") && !answer.gathered.makes_room(data.len(), MAX_CONTENT_BYTES) {
        return Err(answer.garbled("more content than any answer has".to_owned()));
    }
    match kind.as_str() {
        "message_start" => read_usage(answer, &event["message"]["usage"]),
        "content_block_start" => begin_block(answer, index, event["content_block"].take(), deltas)?,
        "content_block_delta" => read_delta(answer, index, &event["delta"], deltas)?,
        "content_block_stop" => end_block(answer, index, deltas),
        "message_delta" => {
            read_usage(answer, &event["usage"]);
            read_stop_sequence(answer, &event["delta"]);
            let reason = event["delta"]["stop_reason"].as_str().unwrap_or_default().to_owned();
            tell_ending(answer, &mut event, deltas);
            if !reason.is_empty() {
                end_content(answer, deltas);
            }
            answer.finish_reason(&reason)?;
        }
        "message_stop" => {
            end_content(answer, deltas);
            answer.end_mark(deltas)?;
        }
        "message" => return read_message(answer, event, deltas),
        "error" => return Err(upstream_error(&answer.url, &event["error"])),
        _ if event["error"].is_object() => return Err(upstream_error(&answer.url, &event["error"])),
        // Pings, and events of a later version of the API.
        _ => {}
    }
    Ok(())
}

fn read_message(
    answer: &mut Answer,
    mut message: Value,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    let content = message["content"].as_array_mut().map(std::mem::take).unwrap_or_default();
    for (at, block) in content.into_iter().enumerate() {
        let index = u64::try_from(at).ok();
        begin_block(answer, index, block, deltas)?;
        end_block(answer, index, deltas);
    }
    read_usage(answer, &message["usage"]);
    read_stop_sequence(answer, &message);
    end_content(answer, deltas);
    let reason = message["stop_reason"].as_str().unwrap_or_default().to_owned();
    tell_message_ending(answer, message, deltas);
    answer.finish_reason(&reason)
}

fn read_stop_sequence(answer: &mut Answer, ended: &Value) {
    answer.stop_sequence = ended["stop_sequence"].as_str().map(str::to_owned);
}

fn begin_block(
    answer: &mut Answer,
    index: Option<u64>,
    block: Value,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    if answer.gathered.is_full() {
        return Err(answer.garbled("more blocks than any answer has".to_owned()));
    }
    // some servers do not tell the end of a block, and some tell calls side by side
    for open in answer.gathered.open() {
        if answer.gathered.kind(open) != Some("tool_use") {
            end_block(answer, open, deltas);
        }
    }
    match block["type"].as_str().unwrap_or_default() {
        "text" => {
            if answer.gathered.last_kind() == Some("text") {
                // citations belong to a block, so what is cited must stay apart from what is not
                native(answer, json!({"type": "content_block_stop"}), deltas);
            }
            answer.text(block["text"].as_str().unwrap_or_default(), deltas);
            for citation in block["citations"].as_array().into_iter().flatten() {
                native(answer, json!({"type": "citations_delta", "citation": citation}), deltas);
            }
        }
        "thinking" => answer.reasoning(block["thinking"].as_str().unwrap_or_default(), deltas),
        "tool_use" => begin_call(answer, index, &block)?,
        // What Anthropic's own servers run (`server_tool_use` and the results) is no call for us.
        _ => {}
    }
    answer.gathered.start(index, block);
    Ok(())
}

fn begin_call(answer: &mut Answer, index: Option<u64>, block: &Value) -> Result<(), ModelError> {
    let input = &block["input"];
    // The input of a streamed block is an empty object that the deltas take the place of.
    let arguments = match input.as_object() {
        Some(object) if !object.is_empty() => Piece::Whole(input.to_string()),
        _ => Piece::None,
    };
    let further: Map<String, Value> = block
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| {
            !["type", "id", "name", "input"].contains(&key.as_str()) && !is_nothing(key, value)
        })
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut rest = Map::new();
    if !further.is_empty() {
        rest.insert(ANTHROPIC_ONLY.to_owned(), further.into());
    }
    answer.calls.begin_delta();
    answer.call(Fragment {
        index,
        id: block["id"].as_str().unwrap_or_default(),
        name: block["name"].as_str().unwrap_or_default(),
        arguments,
        rest,
    })
}

/// Fields that say nothing; newer versions of the API send them with every block.
fn is_nothing(key: &str, value: &Value) -> bool {
    match key {
        "caller" => value["type"] == "direct",
        "citations" => value.as_array().is_some_and(Vec::is_empty) || value.is_null(),
        _ => value.is_null(),
    }
}

fn read_delta(
    answer: &mut Answer,
    index: Option<u64>,
    delta: &Value,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    let text = |key: &str| delta[key].as_str().unwrap_or_default();
    match text("type") {
        "text_delta" => answer.text(text("text"), deltas),
        "thinking_delta" => answer.reasoning(text("thinking"), deltas),
        // Blocks of other kinds have input too; only those begun as `tool_use` have a slot.
        "input_json_delta" if answer.calls.has_index(index) => {
            let arguments = Piece::Text(text("partial_json"));
            answer.call(Fragment { index, arguments, ..Fragment::default() })?;
        }
        "citations_delta" if answer.gathered.kind(index) == Some("text") => {
            native(answer, delta.clone(), deltas);
        }
        _ => {}
    }
    answer.gathered.delta(index, delta);
    Ok(())
}

/// What the core's values do not carry is told at the end of its block.
fn end_block(answer: &mut Answer, index: Option<u64>, deltas: &mut Vec<ModelDelta>) {
    let Some(block) = answer.gathered.stop(index) else { return };
    let item = match block["type"].as_str().unwrap_or_default() {
        "text" | "tool_use" => return,
        "thinking" => match block["signature"].as_str().unwrap_or_default() {
            "" => return,
            signature => json!({"type": "signature_delta", "signature": signature}),
        },
        _ => block.clone(),
    };
    native(answer, item, deltas);
}

/// Keeps the blocks for the next request, where they say more than text and calls.
fn end_content(answer: &mut Answer, deltas: &mut Vec<ModelDelta>) {
    for open in answer.gathered.open() {
        end_block(answer, open, deltas);
    }
    let mut blocks = answer.gathered.take();
    // the API sends texts that it does not take back
    blocks.retain(|block| {
        block["type"] != "text" || block["text"].as_str().is_some_and(|text| !text.trim().is_empty())
    });
    let said =
        |block: &Map<String, Value>| block.iter().filter(|(key, value)| !is_nothing(key, value)).count();
    if !is_plain(&blocks, said) {
        answer.state.insert(ANTHROPIC_ONLY.to_owned(), json!({"content": blocks}));
    }
}

/// Tells what the end of a stream says beyond the core's values: a reason of this API's own, `container`, …
fn tell_ending(answer: &mut Answer, event: &mut Value, deltas: &mut Vec<ModelDelta>) {
    let mut delta = event["delta"].as_object_mut().map(std::mem::take).unwrap_or_default();
    delta.shift_remove("stop_sequence");
    if delta.get("stop_reason").and_then(Value::as_str).is_none_or(|reason| TOLD_REASONS.contains(&reason)) {
        delta.shift_remove("stop_reason");
    }
    delta.retain(|_, value| !value.is_null());
    let mut ending = event.as_object_mut().map(std::mem::take).unwrap_or_default();
    ending.retain(|key, value| !["type", "delta", "usage"].contains(&key.as_str()) && !value.is_null());
    if delta.is_empty() && ending.is_empty() {
        return;
    }
    ending.insert("type".to_owned(), "message_delta".into());
    ending.insert("delta".to_owned(), delta.into());
    native(answer, ending.into(), deltas);
}

/// The same of a whole message.
fn tell_message_ending(answer: &mut Answer, mut message: Value, deltas: &mut Vec<ModelDelta>) {
    const BEGUN: [&str; 6] = ["type", "id", "role", "model", "content", "usage"];
    let Some(fields) = message.as_object_mut() else { return };
    let mut event = Map::new();
    // in a stream it stands beside the delta
    if let Some(management) = fields.shift_remove("context_management") {
        event.insert("context_management".to_owned(), management);
    }
    fields.retain(|key, _| !BEGUN.contains(&key.as_str()));
    event.insert("delta".to_owned(), message);
    tell_ending(answer, &mut event.into(), deltas);
}

fn native(answer: &mut Answer, item: Value, deltas: &mut Vec<ModelDelta>) {
    answer.native(Native { dialect: Dialect::Anthropic, item }, deltas);
}

/// Counts of later events take the place of earlier ones; input that was cached is counted apart by this API.
fn read_usage(answer: &mut Answer, usage: &Value) {
    let count = |key: &str| usage[key].as_u64();
    let mut known = answer.usage.unwrap_or_default();
    if let Some(input) = count("input_tokens") {
        let (created, read) = (count("cache_creation_input_tokens"), count("cache_read_input_tokens"));
        known.cached = read.unwrap_or(0);
        known.cache_written = created.unwrap_or(0);
        known.input = input.saturating_add(known.cache_written).saturating_add(known.cached);
    }
    known.output = count("output_tokens").unwrap_or(known.output);
    if known != Usage::default() {
        answer.usage = Some(known);
    }
}
