//! Answers of Gemini: calls whole and without ids, the first of each answer sealed.

use serde_json::{Value, json};

use super::memory::call_seal;
use super::render::{Asking, split};
use super::reply::Answer;

/// `STOP` with calls as well.
fn finish_reason(answer: &Answer) -> &str {
    match answer.finish_reason.as_deref() {
        None | Some("stop" | "tool_calls") => "STOP",
        Some("length") => "MAX_TOKENS",
        Some("content_filter") => "SAFETY",
        Some(other) => other,
    }
}

fn parts(answer: &Answer, piece: usize) -> Vec<Value> {
    let mut parts: Vec<Value> =
        split(&answer.reasoning, piece).map(|text| json!({"text": text, "thought": true})).collect();
    parts.extend(split(&answer.text, piece).map(|text| json!({"text": text})));
    for (place, call) in answer.calls.iter().enumerate() {
        let mut part = json!({"functionCall": {"name": call.name, "args": call.object()}});
        if place == 0 {
            part["thoughtSignature"] = json!(call_seal(&call.name, &call.arguments));
        }
        parts.push(part);
    }
    parts
}

fn chunk(parts: &[Value], asking: &Asking<'_>) -> Value {
    json!({
        "candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}],
        "modelVersion": asking.asked.model,
        "responseId": format!("scripted{}", asking.number),
    })
}

fn close(chunk: &mut Value, answer: &Answer) {
    chunk["candidates"][0]["finishReason"] = json!(finish_reason(answer));
    if let Some((prompt, candidates)) = answer.usage {
        chunk["usageMetadata"] = json!({
            "promptTokenCount": prompt,
            "candidatesTokenCount": candidates,
            "totalTokenCount": prompt + candidates,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
        });
    }
}

pub(super) fn document(answer: &Answer, asking: &Asking<'_>) -> Value {
    let mut document = chunk(&parts(answer, 0), asking);
    close(&mut document, answer);
    document
}

/// The events of a streamed answer: a part each, the end with the last.
pub(super) fn events(answer: &Answer, asking: &Asking<'_>) -> Vec<String> {
    let mut chunks: Vec<Value> =
        parts(answer, answer.piece).into_iter().map(|part| chunk(&[part], asking)).collect();
    if chunks.is_empty() {
        chunks.push(chunk(&[json!({"text": ""})], asking));
    }
    if let Some(last) = chunks.last_mut() {
        close(last, answer);
    }
    chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect()
}

pub(super) fn error(status: u16, message: &str) -> Value {
    let name = match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        _ => "INTERNAL",
    };
    json!({"error": {"code": status, "message": message, "status": name}})
}
