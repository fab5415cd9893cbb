//! Reads the event stream of the Vercel AI SDK, and the shorter event names that programs built on it use.
//!
//! A call is begun by its id, grows, ends, and may be told once more as a whole, which then counts. The stream has no
//! end mark in every version: it may end wherever no call is open.

use lf_core::{ModelDelta, ModelError};
use serde_json::{Map, Value};

use crate::answer::Answer;
use crate::assemble::{Fragment, Piece};
use crate::openai_chat::upstream_error;

pub(crate) fn read_event(
    answer: &mut Answer,
    data: &str,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    if data.trim() == "[DONE]" {
        return answer.end_mark(deltas);
    }
    let event: Value = serde_json::from_str(data).map_err(|error| answer.not_json(data, &error))?;
    let text = |keys: &[&str]| keys.iter().find_map(|key| event[*key].as_str()).unwrap_or_default();
    let id = text(&["toolCallId", "id"]);
    let name = text(&["toolName", "name"]);
    match event["type"].as_str().unwrap_or_default() {
        "text-delta" | "text_delta" => answer.text(text(&["text", "textDelta", "delta"]), deltas),
        "reasoning-delta" | "reasoning" => answer.reasoning(text(&["text", "textDelta", "delta"]), deltas),
        "tool-input-start" | "tool-call-streaming-start" | "tool_call_start" => {
            answer.calls.begin_delta();
            answer.open_calls.insert(id.to_owned());
            answer.call(Fragment { id, name, ..Fragment::default() })?;
        }
        "tool-input-delta" | "tool-call-delta" | "tool_call_delta" => {
            let arguments = Piece::Text(text(&["delta", "inputTextDelta", "argsTextDelta"]));
            known(answer, id)?;
            answer.call(Fragment { id, arguments, ..Fragment::default() })?;
        }
        "tool-input-end" | "tool_call_end" => {
            known(answer, id)?;
            answer.open_calls.shift_remove(id);
        }
        "tool-call" | "tool_call" | "tool_call_complete" => {
            if name.is_empty() {
                known(answer, id)?;
            }
            answer.open_calls.shift_remove(id);
            answer.calls.begin_delta();
            answer.call(Fragment { index: None, id, name, arguments: whole(&event), rest: Map::new() })?;
        }
        "finish" | "finish-step" => answer.finish_reason(text(&["finishReason", "finish_reason"]))?,
        "error" => return Err(upstream_error(&answer.url, &event["error"])),
        _ => {}
    }
    answer.complete = answer.open_calls.is_empty();
    Ok(())
}

fn whole(event: &Value) -> Piece<'static> {
    match ["input", "args", "arguments"].iter().map(|key| &event[*key]).find(|value| !value.is_null()) {
        None => Piece::None,
        Some(Value::String(text)) if text.trim().is_empty() => Piece::None,
        Some(Value::String(text)) => Piece::Whole(text.clone()),
        Some(value) => Piece::Whole(value.to_string()),
    }
}

fn known(answer: &Answer, id: &str) -> Result<(), ModelError> {
    if answer.calls.knows(id) {
        return Ok(());
    }
    Err(answer.garbled(format!("an event about a tool call `{id}` that was never begun")))
}
