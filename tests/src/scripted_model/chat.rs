//! Answers of OpenAI Chat Completions.

use serde_json::{Map, Value, json};

use super::render::{Asking, split};
use super::reply::{Answer, Call};

fn finish_reason(answer: &Answer) -> &str {
    match &answer.finish_reason {
        Some(reason) => reason,
        None if answer.calls.is_empty() => "stop",
        None => "tool_calls",
    }
}

fn usage(answer: &Answer) -> Option<Value> {
    let (prompt, completion) = answer.usage?;
    Some(
        json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}),
    )
}

pub(super) fn document(answer: &Answer, asking: &Asking<'_>) -> Value {
    let mut message = Map::new();
    message.insert("role".to_owned(), json!("assistant"));
    let content = if answer.text.is_empty() { Value::Null } else { json!(answer.text) };
    message.insert("content".to_owned(), content);
    if !answer.reasoning.is_empty() {
        message.insert("reasoning_content".to_owned(), json!(answer.reasoning));
    }
    if !answer.calls.is_empty() {
        let calls: Vec<Value> = answer.calls.iter().map(whole_call).collect();
        message.insert("tool_calls".to_owned(), json!(calls));
    }
    let mut document = json!({
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": asking.asked.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(answer)}],
    });
    if let Some(usage) = usage(answer) {
        document["usage"] = usage;
    }
    document
}

fn whole_call(call: &Call) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    })
}

/// The events of a streamed answer.
pub(super) fn events(answer: &Answer, asking: &Asking<'_>) -> Vec<String> {
    let mut deltas = vec![json!({"role": "assistant", "content": ""})];
    deltas.extend(split(&answer.reasoning, answer.piece).map(|text| json!({"reasoning_content": text})));
    deltas.extend(split(&answer.text, answer.piece).map(|text| json!({"content": text})));
    for (index, call) in answer.calls.iter().enumerate() {
        let function = json!({"name": call.name, "arguments": ""});
        deltas.push(json!({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]}));
        deltas.extend(
            split(&call.arguments, answer.piece)
                .map(|text| json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]})),
        );
    }
    let chunk = |choices: Value| {
        json!({
            "id": "chatcmpl-scripted",
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": asking.asked.model,
            "choices": choices,
        })
    };
    let mut chunks: Vec<Value> = deltas
        .into_iter()
        .map(|delta| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}])))
        .collect();
    chunks.push(chunk(json!([{"index": 0, "delta": {}, "finish_reason": finish_reason(answer)}])));
    // As the API does it: usage only for those who ask.
    if asking.body["stream_options"]["include_usage"] == true
        && let Some(usage) = usage(answer)
    {
        let mut last = chunk(json!([]));
        last["usage"] = usage;
        chunks.push(last);
    }
    let mut events: Vec<String> = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    events.push("data: [DONE]\n\n".to_owned());
    events
}

pub(super) fn error(message: &str) -> Value {
    json!({"error": {"message": message, "type": "scripted", "param": null, "code": null}})
}
