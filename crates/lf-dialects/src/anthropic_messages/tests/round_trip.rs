//! From an Anthropic client to an Anthropic upstream.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{anthropic, decode};

/// What is sent in another form than it came, as the module's documentation says.
fn normalised(mut body: Value) -> Value {
    fn plain_text(blocks: &Value) -> Option<Value> {
        match blocks.as_array().map(Vec::as_slice) {
            Some([only])
                if only["type"] == "text" && only.as_object().is_some_and(|fields| fields.len() == 2) =>
            {
                Some(only["text"].clone())
            }
            _ => None,
        }
    }
    if let Some(text) = plain_text(&body["system"]) {
        body["system"] = text;
    }
    for message in body["messages"].as_array_mut().unwrap() {
        if message["content"].is_string() {
            message["content"] = json!([{"type": "text", "text": message["content"]}]);
        }
        for block in message["content"].as_array_mut().unwrap() {
            if block["type"] != "tool_result" {
                continue;
            }
            if block.get("content").is_none() {
                block["content"] = "".into();
            } else if let Some(text) = plain_text(&block["content"]) {
                block["content"] = text;
            }
        }
    }
    body
}

fn assert_unchanged(body: Value) {
    let sent = anthropic(decode(body.clone()).unwrap());
    assert_eq!(sent, normalised(body));
}

#[test]
fn a_request_with_all_that_the_api_has_arrives_as_it_was_sent() {
    let cached = json!({"type": "ephemeral", "ttl": "1h"});
    let tools = json!([
        {"type": "custom", "name": "f", "description": "d", "strict": false, "input_schema": {"type": "object"}, "cache_control": cached, "input_examples": [{"q": 1}]},
        {"type": "bash_20250124", "name": "bash"},
        {"name": "g", "input_schema": {"type": "object", "additionalProperties": false, "not": {}, "properties": {"a": {"type": "array"}}}, "defer_loading": true, "strict": true},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 5, "cache_control": cached},
        {"type": "mcp_toolset", "mcp_server_name": "m"},
    ]);
    let asked = json!([
                {"type": "text", "text": "see", "cache_control": cached},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}, "cache_control": cached},
                {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                {"type": "image", "source": {"type": "url", "url": "https://x/y.png", "more": 1}},
                {"type": "image", "source": {"type": "file", "file_id": "file_1"}, "cache_control": cached},
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JV"}, "title": "a.pdf", "context": "old", "citations": {"enabled": true}},
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JV"}},
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "N"}, "title": "t"},
                {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "inner"}, {"type": "image", "source": {"type": "file", "file_id": "f"}}]}, "cache_control": cached},
                {"type": "document", "source": {"type": "content", "content": []}},
                {"type": "document", "source": {"type": "url", "url": "https://x/d.pdf"}},
                {"type": "document", "source": {"type": "file", "file_id": "file_2"}, "citations": {"enabled": true}},
                {"type": "container_upload", "file_id": "file_3"},
                {"type": "search_result", "title": "T", "source": "https://s", "content": [{"type": "text", "text": "found"}], "citations": {"enabled": true}},
                {"type": "block_of_tomorrow", "x": 1},
    ]);
    let said = json!([
                {"type": "thinking", "thinking": "hm", "signature": "S"},
                {"type": "redacted_thinking", "data": "SEALED"},
                {"type": "text", "text": "Searching. ", "citations": null},
                {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "q"}},
                {"type": "web_search_tool_result", "tool_use_id": "srv", "content": [{"type": "web_search_result", "url": "https://n", "encrypted_content": "XX"}]},
                {"type": "text", "text": "It says so.", "citations": [{"type": "web_search_result_location", "url": "https://n", "encrypted_index": "YY"}]},
                {"type": "tool_use", "id": "a", "name": "f", "input": {"q": 1}, "caller": {"type": "direct"}, "cache_control": cached},
                {"type": "tool_use", "id": "b", "name": "bash", "input": {"command": "ls"}},
    ]);
    let messages = json!([
        {"role": "user", "content": asked},
        {"role": "assistant", "content": said},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "no", "is_error": true, "cache_control": cached},
            {"type": "tool_result", "tool_use_id": "b", "content": [
                {"type": "text", "text": "one", "cache_control": cached},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
                {"type": "tool_reference", "tool_name": "g"},
            ], "field_of_tomorrow": 1},
            {"type": "text", "text": "and now?", "cache_control": cached},
        ]},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "c", "name": "g", "input": {}},
            {"type": "text", "text": "after"},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "x", "cache_control": cached}]}]},
        {"role": "system", "content": [{"type": "text", "text": "mind the budget", "cache_control": cached}]},
        {"role": "assistant", "content": "Well, "},
        {"role": "user", "content": "go on"},
    ]);
    assert_unchanged(json!({
        "model": "m", "max_tokens": 32_000, "stream": true,
        "cache_control": cached, "service_tier": "standard_only", "container": {"id": "c"}, "speed": "fast",
        "inference_geo": "eu", "betas": ["context-1m"], "field_of_tomorrow": {"a": [1, {"b": 2}]},
        "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
        "mcp_servers": [{"type": "url", "url": "https://m", "name": "m"}],
        "thinking": {"type": "enabled", "budget_tokens": 10_000, "display": "omitted"},
        "output_config": {"effort": "xhigh", "task_budget": {"type": "tokens", "total": 9}, "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "metadata": {"user_id": "u".repeat(150), "team": "t"},
        "temperature": 1, "top_p": 0.97, "top_k": 5, "stop_sequences": ["END"],
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
            {"type": "text", "text": "Be brief.", "cache_control": cached},
        ],
        "tools": tools,
        "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
        "messages": messages,
    }));
}

fn cached(block: Value) -> impl Strategy<Value = Value> {
    let mark = prop_oneof![
        Just(None),
        Just(Some(("cache_control", json!({"type": "ephemeral"})))),
        Just(Some(("field_of_tomorrow", json!([1, null])))),
    ];
    mark.prop_map(move |mark| {
        let mut block = block.clone();
        if let Some((key, value)) = mark {
            block[key] = value;
        }
        block
    })
}

fn user_block() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!({"type": "text", "text": "t"}),
        json!({"type": "text", "text": " spaced\n"}),
        json!({"type": "image", "source": {"type": "file", "file_id": "f"}}),
        json!({"type": "image", "source": {"type": "url", "url": "https://x"}}),
        json!({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "A"}, "context": "c"}),
        json!({"type": "document", "source": {"type": "content", "content": "inner"}, "title": "t"}),
        json!({"type": "document", "source": {"type": "url", "url": "https://x"}}),
        json!({"type": "search_result", "title": "T", "source": "s", "content": []}),
    ])
    .prop_flat_map(cached)
}

fn said_block() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!({"type": "text", "text": "t"}),
        json!({"type": "text", "text": "t \n"}),
        json!({"type": "text", "text": "t", "citations": []}),
        json!({"type": "thinking", "thinking": "", "signature": "S"}),
        json!({"type": "redacted_thinking", "data": "D"}),
        json!({"type": "server_tool_use", "id": "s", "name": "web_fetch", "input": {"url": "u"}}),
        json!({"type": "web_fetch_tool_result", "tool_use_id": "s", "content": {"type": "web_fetch_result"}}),
        json!({"type": "tool_use", "name": "f", "input": {"a": {"b": [1.5, "x"]}}}),
        json!({"type": "tool_use", "name": "g", "input": {}}),
    ])
    .prop_flat_map(cached)
}

/// A question, then what the assistant says with the answers to its calls.
fn conversation() -> impl Strategy<Value = Vec<Value>> {
    let round = (prop::collection::vec(said_block(), 1..5), prop::collection::vec(user_block(), 0..3));
    let rounds = prop::collection::vec(round, 0..4);
    (prop::collection::vec(user_block(), 1..4), rounds).prop_map(|(asked, rounds)| {
        let mut messages = vec![json!({"role": "user", "content": asked})];
        let mut calls = 0;
        for (mut said, more) in rounds {
            let mut answers = Vec::new();
            for block in said.iter_mut().filter(|block| block["type"] == "tool_use") {
                calls += 1;
                let id = format!("toolu_{calls}");
                block["id"] = id.clone().into();
                answers.push(json!({"type": "tool_result", "tool_use_id": id, "content": "r"}));
            }
            answers.extend(more);
            if answers.is_empty() {
                answers.push(json!({"type": "text", "text": "go on"}));
            }
            messages.push(json!({"role": "assistant", "content": said}));
            messages.push(json!({"role": "user", "content": answers}));
        }
        messages
    })
}

proptest! {
    #[test]
    fn any_conversation_arrives_as_it_was_sent(messages in conversation()) {
        let tools = json!([{"name": "f", "input_schema": {"type": "object"}}]);
        let body = json!({"model": "m", "max_tokens": 9, "messages": messages, "tools": tools});
        assert_unchanged(body);
    }
}
