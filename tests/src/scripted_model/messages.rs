//! Answers of Anthropic Messages.

use serde_json::{Value, json};

use super::memory::seal;
use super::render::{Asking, event, split};
use super::reply::Answer;

fn stop_reason(answer: &Answer) -> &str {
    match answer.finish_reason.as_deref() {
        Some("stop") => "end_turn",
        Some("tool_calls") => "tool_use",
        Some("length") => "max_tokens",
        Some("content_filter") => "refusal",
        Some(other) => other,
        None if answer.calls.is_empty() => "end_turn",
        None => "tool_use",
    }
}

fn usage(input: u64, output: u64) -> Value {
    json!({
        "input_tokens": input,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output,
        "service_tier": "standard",
    })
}

/// The message but for its content and its end.
fn envelope(asking: &Asking<'_>) -> Value {
    json!({
        "id": format!("msg_scripted{}", asking.number),
        "type": "message",
        "role": "assistant",
        "model": asking.asked.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
    })
}

pub(super) fn document(answer: &Answer, asking: &Asking<'_>) -> Value {
    let mut content = Vec::new();
    if !answer.reasoning.is_empty() {
        let signature = seal(&answer.reasoning);
        content.push(json!({"type": "thinking", "thinking": answer.reasoning, "signature": signature}));
    }
    if !answer.text.is_empty() {
        content.push(json!({"type": "text", "text": answer.text}));
    }
    for call in &answer.calls {
        let input = call.object();
        content.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}));
    }
    let (input, output) = answer.usage.unwrap_or_default();
    let mut message = envelope(asking);
    message["content"] = json!(content);
    message["stop_reason"] = json!(stop_reason(answer));
    message["usage"] = usage(input, output);
    message
}

/// The events of a streamed answer: blocks one after the other, with a ping behind the first beginning.
pub(super) fn events(answer: &Answer, asking: &Asking<'_>) -> Vec<String> {
    let (input, output) = answer.usage.unwrap_or_default();
    let mut message = envelope(asking);
    message["usage"] = usage(input, 1);
    let mut values = vec![json!({"type": "message_start", "message": message})];
    let mut index = 0;
    let mut block = |start: Value, deltas: Vec<Value>| {
        values.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        if index == 0 {
            values.push(json!({"type": "ping"}));
        }
        for delta in deltas {
            values.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        values.push(json!({"type": "content_block_stop", "index": index}));
        index += 1;
    };
    if !answer.reasoning.is_empty() {
        let mut deltas: Vec<Value> = split(&answer.reasoning, answer.piece)
            .map(|text| json!({"type": "thinking_delta", "thinking": text}))
            .collect();
        deltas.push(json!({"type": "signature_delta", "signature": seal(&answer.reasoning)}));
        block(json!({"type": "thinking", "thinking": "", "signature": ""}), deltas);
    }
    if !answer.text.is_empty() {
        let deltas =
            split(&answer.text, answer.piece).map(|text| json!({"type": "text_delta", "text": text}));
        block(json!({"type": "text", "text": ""}), deltas.collect());
    }
    for call in &answer.calls {
        // The first piece is an empty one; a call without arguments gets no other.
        let arguments = if call.arguments == "{}" { "" } else { &call.arguments };
        let pieces = std::iter::once("").chain(split(arguments, answer.piece));
        let deltas = pieces.map(|text| json!({"type": "input_json_delta", "partial_json": text}));
        let start = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}});
        block(start, deltas.collect());
    }
    values.push(json!({
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason(answer), "stop_sequence": null},
        "usage": {"output_tokens": output},
    }));
    values.push(json!({"type": "message_stop"}));
    values.iter().map(event).collect()
}

pub(super) fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"})
}
