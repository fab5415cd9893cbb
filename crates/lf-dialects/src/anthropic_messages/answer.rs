//! Reads answers of the Anthropic Messages API, streamed or whole.

use lf_core::{ModelDelta, ModelError, Usage};
use serde_json::{Map, Value};

use crate::answer::Answer;
use crate::assemble::{Fragment, Piece};
use crate::openai_chat::upstream_error;

pub(crate) fn read_event(
    answer: &mut Answer,
    data: &str,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    let event: Value = serde_json::from_str(data).map_err(|error| answer.not_json(data, &error))?;
    let index = event["index"].as_u64();
    match event["type"].as_str().unwrap_or_default() {
        "message_start" => read_usage(answer, &event["message"]["usage"]),
        "content_block_start" => begin_block(answer, index, &event["content_block"], deltas)?,
        "content_block_delta" => read_delta(answer, index, &event["delta"], deltas)?,
        "message_delta" => {
            read_usage(answer, &event["usage"]);
            read_stop_sequence(answer, &event["delta"]);
            answer.finish_reason(event["delta"]["stop_reason"].as_str().unwrap_or_default())?;
        }
        "message_stop" => answer.end_mark(deltas)?,
        "message" => return read_message(answer, &event, deltas),
        "error" => return Err(upstream_error(&answer.url, &event["error"])),
        _ if event["error"].is_object() => return Err(upstream_error(&answer.url, &event["error"])),
        // Pings, block ends, and events of a later version of the API.
        _ => {}
    }
    Ok(())
}

fn read_message(
    answer: &mut Answer,
    message: &Value,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    for (at, block) in message["content"].as_array().into_iter().flatten().enumerate() {
        begin_block(answer, u64::try_from(at).ok(), block, deltas)?;
    }
    read_usage(answer, &message["usage"]);
    read_stop_sequence(answer, message);
    answer.finish_reason(message["stop_reason"].as_str().unwrap_or_default())
}

fn read_stop_sequence(answer: &mut Answer, ended: &Value) {
    answer.stop_sequence = ended["stop_sequence"].as_str().map(str::to_owned);
}

fn begin_block(
    answer: &mut Answer,
    index: Option<u64>,
    block: &Value,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    match block["type"].as_str().unwrap_or_default() {
        "text" => answer.text(block["text"].as_str().unwrap_or_default(), deltas),
        "thinking" => answer.reasoning(block["thinking"].as_str().unwrap_or_default(), deltas),
        "tool_use" => {
            let input = &block["input"];
            // The input of a streamed block is an empty object that the deltas take the place of.
            let arguments = match input.as_object() {
                Some(object) if !object.is_empty() => Piece::Whole(input.to_string()),
                _ => Piece::None,
            };
            answer.calls.begin_delta();
            answer.call(Fragment {
                index,
                id: block["id"].as_str().unwrap_or_default(),
                name: block["name"].as_str().unwrap_or_default(),
                arguments,
                rest: Map::new(),
            })?;
        }
        // What Anthropic's own servers run (`server_tool_use` and the results) is no call for us.
        _ => {}
    }
    Ok(())
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
        _ => {}
    }
    Ok(())
}

/// Counts of later events take the place of earlier ones; input that was cached is counted apart by this API.
fn read_usage(answer: &mut Answer, usage: &Value) {
    let count = |key: &str| usage[key].as_u64();
    let mut known = answer.usage.unwrap_or_default();
    if let Some(input) = count("input_tokens") {
        let (created, read) = (count("cache_creation_input_tokens"), count("cache_read_input_tokens"));
        known.cached = read.unwrap_or(0);
        known.input = input.saturating_add(created.unwrap_or(0)).saturating_add(known.cached);
    }
    known.output = count("output_tokens").unwrap_or(known.output);
    if known != Usage::default() {
        answer.usage = Some(known);
    }
}
