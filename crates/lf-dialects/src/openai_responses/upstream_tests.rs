//! Asking Responses upstreams and reading their answers. The events are those of OpenAI's API reference.

use lf_core::model::Dialect;
use lf_core::{ModelDelta, ModelError};
use serde_json::{Map, Value, json};

use crate::answer::tests;

mod answers;
mod requests;

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("no object: {other}"),
    }
}

fn read(reads: &[&[u8]], stops: &[&str]) -> (Vec<ModelDelta>, Option<ModelError>) {
    let (deltas, error, _) = tests::read(Dialect::OpenaiResponses, stops, reads);
    (deltas, error)
}

#[expect(clippy::needless_pass_by_value, reason = "reads better at the many calls")]
fn response(output: Value) -> Value {
    json!({
        "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "error": null,
        "incomplete_details": null, "model": "gpt-5", "output": output,
        "usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 3}, "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 14},
    })
}

fn message(text: &str) -> Value {
    json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn call(id: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": format!("fc_{id}"), "status": "completed", "call_id": id, "name": "look",
        "arguments": arguments})
}

#[expect(clippy::needless_pass_by_value, reason = "reads better at the many calls")]
fn thought(id: &str, sealed: Value, summary: &[&str]) -> Value {
    let summary: Vec<Value> =
        summary.iter().map(|text| json!({"type": "summary_text", "text": text})).collect();
    json!({"type": "reasoning", "id": id, "summary": summary, "encrypted_content": sealed, "status": null})
}

fn rich() -> Value {
    response(json!([
        thought("rs_1", json!("SEAL1"), &["**Plan** 天", "Look twice."]),
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "phase": "commentary",
            "content": [{"type": "output_text", "text": "Let me 😀 see.", "annotations": []}]},
        call("call_a", "{\"q\": \"é\"}"),
        thought("rs_2", json!("SEAL2"), &[]),
        call("call_b", "{}"),
    ]))
}
