//! A request's input as the items that a client can list.

use serde_json::{Map, Value, json};

use super::ids::item_id;

/// The input items of a request that [`super::decode_request`] has read, as the client wrote them. Those without an id
/// get one that belongs to the response.
pub fn input_items(body: &[u8], response_id: &str) -> Vec<Value> {
    let input =
        serde_json::from_slice::<Map<String, Value>>(body).ok().and_then(|mut body| body.remove("input"));
    let list = match input {
        Some(Value::String(text)) => vec![json!({"role": "user", "content": text})],
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    list.into_iter().enumerate().map(|(at, item)| with_id(item, at, response_id)).collect()
}

fn with_id(mut item: Value, at: usize, response_id: &str) -> Value {
    if item["type"].is_null() {
        item["type"] = "message".into();
    }
    if item["type"] == "message" && item["content"].is_string() {
        let kind = if item["role"] == "assistant" { "output_text" } else { "input_text" };
        item["content"] = json!([{"type": kind, "text": item["content"]}]);
    }
    if item["id"].is_null() {
        item["id"] = item_id("in", response_id, at).into();
    }
    item
}
