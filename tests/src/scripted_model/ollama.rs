//! Answers of Ollama's own chat: a JSON document a line, calls whole and without ids.

use serde_json::{Value, json};

use super::render::{Asking, split};
use super::reply::Answer;

/// `stop` with calls as well.
fn done_reason(answer: &Answer) -> &str {
    match answer.finish_reason.as_deref() {
        None | Some("stop" | "tool_calls") => "stop",
        Some(other) => other,
    }
}

fn line(message: &Value, asking: &Asking<'_>) -> Value {
    json!({
        "model": asking.asked.model,
        "created_at": "2026-01-01T00:00:00.000000Z",
        "message": message,
        "done": false,
    })
}

fn calls(answer: &Answer) -> Vec<Value> {
    let call = |call: &super::Call| json!({"function": {"name": call.name, "arguments": call.object()}});
    answer.calls.iter().map(call).collect()
}

fn close(line: &mut Value, answer: &Answer) {
    line["done"] = json!(true);
    line["done_reason"] = json!(done_reason(answer));
    line["total_duration"] = json!(5_000_000);
    line["load_duration"] = json!(1_000_000);
    if let Some((prompt, completion)) = answer.usage {
        line["prompt_eval_count"] = json!(prompt);
        line["prompt_eval_duration"] = json!(2_000_000);
        line["eval_count"] = json!(completion);
        line["eval_duration"] = json!(2_000_000);
    }
}

pub(super) fn document(answer: &Answer, asking: &Asking<'_>) -> Value {
    let mut message = json!({"role": "assistant", "content": answer.text});
    if !answer.reasoning.is_empty() {
        message["thinking"] = json!(answer.reasoning);
    }
    if !answer.calls.is_empty() {
        message["tool_calls"] = json!(calls(answer));
    }
    let mut document = line(&message, asking);
    close(&mut document, answer);
    document
}

/// The lines of a streamed answer.
pub(super) fn events(answer: &Answer, asking: &Asking<'_>) -> Vec<String> {
    let mut messages: Vec<Value> = split(&answer.reasoning, answer.piece)
        .map(|text| json!({"role": "assistant", "content": "", "thinking": text}))
        .collect();
    messages
        .extend(split(&answer.text, answer.piece).map(|text| json!({"role": "assistant", "content": text})));
    messages.extend(
        calls(answer)
            .into_iter()
            .map(|call| json!({"role": "assistant", "content": "", "tool_calls": [call]})),
    );
    let mut lines: Vec<Value> = messages.iter().map(|message| line(message, asking)).collect();
    let mut last = line(&json!({"role": "assistant", "content": ""}), asking);
    close(&mut last, answer);
    lines.push(last);
    lines.iter().map(|line| format!("{line}\n")).collect()
}

pub(super) fn error(message: &str) -> Value {
    json!({"error": message})
}
