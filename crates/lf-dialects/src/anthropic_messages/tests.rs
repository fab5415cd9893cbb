use std::time::Duration;

use lf_core::model::ChatRequest;
use lf_core::{Arguments, ChatEvent, FinishReason, ModelError, ModelRequest, ToolCall, ToolResult, Usage};
use serde_json::{Map, Value, json};

use super::*;
use crate::Dialect;
use crate::openai_chat::{LfEvents, RequestError};
use crate::upstream::{UpstreamOptions, encode_whole};

mod answers;
mod any_turn;
mod requests;
mod round_trip;
mod upstream_answers;
mod upstream_requests;

#[expect(clippy::needless_pass_by_value, reason = "reads better at the many calls")]
fn decode(body: Value) -> Result<ChatRequest, RequestError> {
    decode_request(body.to_string().as_bytes()).map(|(request, _)| request)
}

fn openai(request: ChatRequest) -> Value {
    encode_whole(Dialect::OpenaiChat, "gpt", &request.into(), &UpstreamOptions::default()).unwrap()
}

/// What an OpenAI upstream gets, one message a line, then the other fields.
fn sent(body: Value) -> String {
    let mut sent = openai(decode(body).unwrap());
    let messages = sent["messages"].take();
    let mut lines: Vec<String> = messages.as_array().unwrap().iter().map(Value::to_string).collect();
    let fields = sent.as_object_mut().unwrap();
    for key in ["model", "messages", "max_tokens"] {
        fields.shift_remove(key);
    }
    lines.extend(fields.iter().map(|(key, value)| format!("{key}: {value}")));
    lines.join("\n")
}

#[expect(clippy::needless_pass_by_value, reason = "reads better at the many calls")]
fn ask(messages: Value) -> Value {
    json!({"model": "m", "max_tokens": 9, "messages": messages})
}

#[expect(clippy::needless_pass_by_value, reason = "reads better at the many calls")]
fn ask_with(fields: Value) -> Value {
    let mut body = ask(json!([{"role": "user", "content": "hi"}]));
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

fn refused(body: Value) -> String {
    let error = decode(body).unwrap_err();
    let reply = request_error_reply(&error, "req_1");
    format!("{} {}", reply.status, reply.body["error"]["message"].as_str().unwrap())
}

fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: "f".to_owned(),
        arguments: Arguments::parse(arguments),
        rest: Map::new(),
    }
}

fn finished(reason: FinishReason) -> ChatEvent {
    let usage = Usage { input: 10, output: 3, cached: 4, cache_written: 1, reasoning: 1 };
    ChatEvent::Finished { reason, usage, rounds: 1, stop_sequence: None }
}

fn anthropic(request: ChatRequest) -> Value {
    encode_whole(Dialect::Anthropic, "m", &request.into(), &UpstreamOptions::default()).unwrap()
}

#[test]
fn an_anthropic_upstream_gets_what_the_client_said() {
    let body = json!({
        "model": "m", "max_tokens": 9,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
            {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "see", "cache_control": {"type": "ephemeral"}},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JV"}, "title": "a.pdf", "citations": {"enabled": true}},
                {"type": "document", "title": "t", "source": {"type": "text", "media_type": "text/plain", "data": "N"}},
                {"type": "block_of_tomorrow", "x": 1},
            ]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "S"},
                {"type": "tool_use", "id": "a", "name": "f", "input": {"q": 1}},
                {"type": "text", "text": "after"},
            ]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "no", "is_error": true, "cache_control": {"type": "ephemeral"}}]},
            {"role": "system", "content": [{"type": "text", "text": "mind the budget"}]},
        ],
        "tools": [
            {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}, "defer_loading": true},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
        "temperature": 0.5,
        "stop_sequences": ["a", "b", "c", "d", "e"],
        "metadata": {"user_id": "u"},
        "thinking": {"type": "adaptive"}, "output_config": {"effort": "max"},
        "field_of_tomorrow": {"a": 1},
        "stream": true,
    });
    let sent = anthropic(decode(body.clone()).unwrap());
    assert_eq!(sent, body);
}

#[test]
fn an_openai_request_reaches_an_anthropic_upstream_in_its_own_words() {
    let body = json!({
        "model": "m", "max_completion_tokens": 7, "stop": "END", "user": "u", "reasoning_effort": "minimal", "seed": null,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
        "messages": [
            {"role": "system", "content": "S"},
            {"role": "assistant", "content": "Hello "},
            {"role": "system", "content": "late"},
            {"role": "user", "content": ""},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}},
                {"id": "b", "type": "function", "function": {"name": "f", "arguments": ""}},
            ]},
            {"role": "tool", "tool_call_id": "functions.f:0", "content": "1"},
            {"role": "tool", "tool_call_id": "b", "content": "2"},
        ],
    });
    let (request, _) = crate::openai_chat::decode_request(body.to_string().as_bytes()).unwrap();
    let mut sent = anthropic(request);
    let messages = sent["messages"].take();
    let mut lines: Vec<String> = messages.as_array().unwrap().iter().map(Value::to_string).collect();
    lines.push(sent.to_string());
    insta::assert_snapshot!(lines.join("\n"), @r#"
    {"role":"user","content":"(nothing)"}
    {"role":"assistant","content":[{"type":"text","text":"Hello "}]}
    {"role":"user","content":[{"type":"text","text":"<system-reminder>\nlate\n</system-reminder>"}]}
    {"role":"user","content":[{"type":"text","text":"(nothing)"}]}
    {"role":"assistant","content":[{"type":"tool_use","id":"toolu_d6bdd4de328a22edd610f954","name":"f","input":{"a":1}},{"type":"tool_use","id":"b","name":"f","input":{}}]}
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_d6bdd4de328a22edd610f954","content":"1"},{"type":"tool_result","tool_use_id":"b","content":"2"}]}
    {"model":"m","max_tokens":7,"system":"S","messages":null,"tool_choice":{"type":"none"},"stop_sequences":["END"],"metadata":{"user_id":"u"},"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}},"tools":[{"name":"no_tool","description":"Nothing can be called.","input_schema":{"type":"object","properties":{}}}]}
    "#);
}

/// Checks the protocol and gives the blocks, as a whole message has them.
fn protocol(told: &[(&'static str, String)]) -> (Vec<Value>, Value, String) {
    let mut blocks: Vec<Value> = Vec::new();
    let mut open = false;
    let mut ended = json!({});
    let mut end = String::new();
    for (at, (name, data)) in told.iter().enumerate() {
        let event: Value = serde_json::from_str(data).unwrap();
        assert_eq!(event["type"], *name);
        assert!(end.is_empty() || end == "message_delta", "`{name}` after `{end}`");
        assert_eq!(at == 0 && *name != "error", *name == "message_start", "starts once, first");
        match *name {
            "message_start" | "ping" => assert!(end.is_empty()),
            "content_block_start" => {
                assert!(!open, "a block in a block");
                assert_eq!(event["index"], blocks.len());
                blocks.push(event["content_block"].clone());
                open = true;
            }
            "content_block_delta" => {
                assert!(open);
                assert_eq!(event["index"], blocks.len() - 1);
                add(blocks.last_mut().unwrap(), &event["delta"]);
            }
            "content_block_stop" => {
                assert!(open);
                assert_eq!(event["index"], blocks.len() - 1);
                open = false;
            }
            "message_delta" => {
                assert!(!open);
                ended = event;
                end = "message_delta".to_owned();
            }
            "message_stop" | "error" => {
                assert_eq!(*name == "message_stop", end == "message_delta");
                end = (*name).to_owned();
            }
            other => panic!("unknown event `{other}`"),
        }
    }
    (blocks, ended, end)
}

fn add(block: &mut Value, delta: &Value) {
    match delta["type"].as_str().unwrap() {
        "input_json_delta" => {
            assert_eq!(block["input"], json!({}), "input comes in deltas alone");
            block["input"] = serde_json::from_str(delta["partial_json"].as_str().unwrap()).unwrap();
        }
        "citations_delta" => {
            let fields = block.as_object_mut().unwrap();
            let list = fields.entry("citations").or_insert_with(|| json!([]));
            list.as_array_mut().unwrap().push(delta["citation"].clone());
        }
        kind => {
            let key = kind.trim_end_matches("_delta");
            let text = format!("{}{}", block[key].as_str().unwrap(), delta[key].as_str().unwrap());
            block[key] = text.into();
        }
    }
}
