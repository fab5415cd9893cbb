//! Answers of OpenAI Responses.

use serde_json::{Value, json};

use super::memory::seal;
use super::render::{Asking, event, split};
use super::reply::Answer;

/// An item of the output in its three forms: as it begins, the events between, as it is in the end.
struct Item {
    added: Value,
    between: Vec<Value>,
    done: Value,
}

fn items(answer: &Answer, number: usize) -> Vec<Item> {
    let mut items = Vec::new();
    if !answer.reasoning.is_empty() {
        items.push(reasoning(answer, &format!("rs_scripted{number}")));
    }
    if !answer.text.is_empty() {
        items.push(message(answer, &format!("msg_scripted{number}")));
    }
    items.extend((0..answer.calls.len()).map(|place| call(answer, place, number)));
    items
}

/// The summary, and the reasoning itself for nobody to read.
fn reasoning(answer: &Answer, id: &str) -> Item {
    let part = |text: &str| json!({"type": "summary_text", "text": text});
    let tell = |kind: &str| json!({"type": format!("response.reasoning_summary_{kind}"), "item_id": id, "summary_index": 0});
    let text = &answer.reasoning;
    let mut between = vec![with(tell("part.added"), "part", part(""))];
    between.extend(split(text, answer.piece).map(|piece| with(tell("text.delta"), "delta", json!(piece))));
    between.push(with(tell("text.done"), "text", json!(text)));
    between.push(with(tell("part.done"), "part", part(text)));
    let item = |summary: Value, sealed: &str| json!({"id": id, "type": "reasoning", "summary": summary, "encrypted_content": sealed});
    // What is sealed at the beginning is not yet all of it.
    Item { added: item(json!([]), &seal(id)), between, done: item(json!([part(text)]), &seal(text)) }
}

fn message(answer: &Answer, id: &str) -> Item {
    let part = |text: &str| json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text});
    let tell = |kind: &str| json!({"type": format!("response.{kind}"), "item_id": id, "content_index": 0});
    let text = &answer.text;
    let mut between = vec![with(tell("content_part.added"), "part", part(""))];
    between
        .extend(split(text, answer.piece).map(|piece| {
            with(with(tell("output_text.delta"), "delta", json!(piece)), "logprobs", json!([]))
        }));
    between.push(with(with(tell("output_text.done"), "text", json!(text)), "logprobs", json!([])));
    between.push(with(tell("content_part.done"), "part", part(text)));
    let item = |status: &str, content: Value| json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content});
    Item { added: item("in_progress", json!([])), between, done: item("completed", json!([part(text)])) }
}

fn call(answer: &Answer, place: usize, number: usize) -> Item {
    let call = &answer.calls[place];
    let id = format!("fc_scripted{number}_{place}");
    let tell =
        |kind: &str| json!({"type": format!("response.function_call_arguments.{kind}"), "item_id": id});
    let mut between: Vec<Value> = split(&call.arguments, answer.piece)
        .map(|piece| with(tell("delta"), "delta", json!(piece)))
        .collect();
    between.push(with(with(tell("done"), "arguments", json!(call.arguments)), "name", json!(call.name)));
    let item = |status: &str, arguments: &str| {
        json!({
            "id": id,
            "type": "function_call",
            "status": status,
            "call_id": call.id,
            "name": call.name,
            "arguments": arguments,
        })
    };
    Item { added: item("in_progress", ""), between, done: item("completed", &call.arguments) }
}

fn with(mut value: Value, key: &str, member: Value) -> Value {
    value[key] = member;
    value
}

/// The response but for its output and its usage.
fn envelope(status: &str, asking: &Asking<'_>) -> Value {
    let tools = match &asking.body["tools"] {
        Value::Null => json!([]),
        tools => tools.clone(),
    };
    json!({
        "id": format!("resp_scripted{}", asking.number),
        "object": "response",
        "created_at": 1_700_000_000,
        "status": status,
        "background": false,
        "error": null,
        "incomplete_details": null,
        "instructions": asking.body["instructions"],
        "max_output_tokens": null,
        "metadata": {},
        "model": asking.asked.model,
        "output": [],
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "reasoning": {"effort": null, "summary": null},
        "service_tier": "default",
        "store": asking.body["store"] != false,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": tools,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": null,
    })
}

pub(super) fn document(answer: &Answer, asking: &Asking<'_>) -> Value {
    let reason = match answer.finish_reason.as_deref() {
        Some("length") => Some("max_output_tokens"),
        Some("content_filter") => Some("content_filter"),
        _ => None,
    };
    let mut response = envelope(if reason.is_some() { "incomplete" } else { "completed" }, asking);
    if let Some(reason) = reason {
        response["incomplete_details"] = json!({"reason": reason});
    }
    response["output"] = items(answer, asking.number).into_iter().map(|item| item.done).collect();
    if let Some((input, output)) = answer.usage {
        response["usage"] = json!({
            "input_tokens": input,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": input + output,
        });
    }
    response
}

/// The events of a streamed answer, numbered from 0.
pub(super) fn events(answer: &Answer, asking: &Asking<'_>) -> Vec<String> {
    let begun = envelope("in_progress", asking);
    let mut values = vec![
        json!({"type": "response.created", "response": begun}),
        json!({"type": "response.in_progress", "response": begun}),
    ];
    for (index, Item { added, between, done }) in items(answer, asking.number).into_iter().enumerate() {
        let item = |kind: &str, item: Value| json!({"type": format!("response.output_item.{kind}"), "output_index": index, "item": item});
        values.push(item("added", added));
        values.extend(between.into_iter().map(|value| with(value, "output_index", json!(index))));
        values.push(item("done", done));
    }
    let response = document(answer, asking);
    let kind = format!("response.{}", response["status"].as_str().unwrap_or_default());
    values.push(json!({"type": kind, "response": response}));
    let numbered = values.into_iter().enumerate();
    numbered.map(|(number, value)| event(&with(value, "sequence_number", json!(number)))).collect()
}
