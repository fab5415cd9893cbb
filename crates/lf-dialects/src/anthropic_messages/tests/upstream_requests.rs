//! Requests of other dialects to Anthropic upstreams, and of Anthropic clients to others.

use lf_core::{ModelError, ModelRequest, ToolChoice};
use serde_json::{Map, Value, json};

use super::super::{ANTHROPIC_ONLY, check_foreign};
use super::{anthropic, ask, ask_with, decode, openai};
use crate::Dialect;
use crate::upstream::{Encoded, UpstreamOptions, encode};

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("{other} is no object"),
    }
}

fn encoded(model: &str, parameters: Value) -> Result<Encoded, ModelError> {
    let request = ModelRequest { parameters: object(parameters), ..ModelRequest::default() };
    encode(Dialect::Anthropic, model, &request, &UpstreamOptions::default())
}

/// The fields that come of parameters, and the names of those that do not.
fn written(model: &str, parameters: Value) -> String {
    match encoded(model, parameters) {
        Ok(mut encoded) => {
            for key in ["model", "messages"] {
                encoded.fields.shift_remove(key);
            }
            format!(
                "{} left out {:?} stops {:?}",
                Value::from(encoded.fields),
                encoded.left_out,
                encoded.stops
            )
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn parameters_of_chat_completions_are_said_in_this_apis_words_or_refused_by_name() {
    let cases = [
        json!({"stop": ["a", "\n", "b"], "safety_identifier": "s", "service_tier": "default", "made_up": {"a": 1}}),
        json!({"user": "u", "safety_identifier": "s", "service_tier": "flex", "metadata": {"a": "b"}, "store": true, "prompt_cache_key": "k"}),
        json!({"metadata": {"user_id": "u"}, "service_tier": "auto", "store": false, "top_k": 3, "temperature": 0.5}),
        json!({"n": 1, "seed": null, "logprobs": false, "top_logprobs": 0, "logit_bias": {}, "presence_penalty": 0, "frequency_penalty": 0.0, "modalities": ["text"], "verbosity": "medium"}),
        json!({"seed": 1}),
        json!({"n": 2}),
        json!({"logprobs": true}),
        json!({"logit_bias": {"1": 2}}),
        json!({"presence_penalty": 0.5}),
        json!({"response_format": {"type": "json_object"}}),
    ];
    let lines: Vec<String> = cases.into_iter().map(|case| written("claude-sonnet-4-5", case)).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    {"max_tokens":4096,"stop_sequences":["a","b"],"metadata":{"user_id":"s"},"service_tier":"standard_only","made_up":{"a":1}} left out [] stops ["\n"]
    {"max_tokens":4096,"metadata":{"user_id":"u"}} left out ["safety_identifier", "service_tier", "metadata", "store", "prompt_cache_key"] stops []
    {"max_tokens":4096,"metadata":{"user_id":"u"},"service_tier":"auto","top_k":3,"temperature":0.5} left out [] stops []
    {"max_tokens":4096} left out [] stops []
    `seed` is nothing that the Anthropic Messages API knows, so this model cannot answer as asked; leave it out, or use another model
    `n` is nothing that the Anthropic Messages API knows, so this model cannot answer as asked; leave it out, or use another model
    `logprobs` is nothing that the Anthropic Messages API knows, so this model cannot answer as asked; leave it out, or use another model
    `logit_bias` is nothing that the Anthropic Messages API knows, so this model cannot answer as asked; leave it out, or use another model
    `presence_penalty` is nothing that the Anthropic Messages API knows, so this model cannot answer as asked; leave it out, or use another model
    `response_format` needs a schema with this model: use `json_schema`
    "#);
}

#[test]
fn each_generation_is_told_how_much_to_think_in_its_own_words() {
    let models = [
        "claude-3-5-haiku-latest",
        "anthropic/claude-3.7-sonnet",
        "claude-sonnet-4-20250514",
        "eu.anthropic.claude-opus-4-1-20250805-v1:0",
        "claude-haiku-4-5@20251001",
        "claude-opus-4-5",
        "claude-opus-4-6",
        "claude-sonnet-5",
        "some-name",
    ];
    let lines =
        models.map(|model| format!("{model}: {}", written(model, json!({"reasoning_effort": "xhigh"}))));
    insta::assert_snapshot!(lines.join("\n"), @r#"
    claude-3-5-haiku-latest: `reasoning_effort` asks for reasoning, which this model does not do; leave it out, or use another model
    anthropic/claude-3.7-sonnet: {"max_tokens":28672,"thinking":{"type":"enabled","budget_tokens":24576}} left out [] stops []
    claude-sonnet-4-20250514: {"max_tokens":28672,"thinking":{"type":"enabled","budget_tokens":24576}} left out [] stops []
    eu.anthropic.claude-opus-4-1-20250805-v1:0: {"max_tokens":28672,"thinking":{"type":"enabled","budget_tokens":24576}} left out [] stops []
    claude-haiku-4-5@20251001: {"max_tokens":28672,"thinking":{"type":"enabled","budget_tokens":24576}} left out [] stops []
    claude-opus-4-5: {"max_tokens":4096,"output_config":{"effort":"high"}} left out [] stops []
    claude-opus-4-6: {"max_tokens":4096,"thinking":{"type":"adaptive"},"output_config":{"effort":"max"}} left out [] stops []
    claude-sonnet-5: {"max_tokens":4096,"thinking":{"type":"adaptive"},"output_config":{"effort":"xhigh"}} left out [] stops []
    some-name: {"max_tokens":4096,"output_config":{"effort":"high"}} left out [] stops []
    "#);
    let old = "claude-sonnet-4-5";
    let cases = [
        json!({"reasoning_effort": "none"}),
        json!({"reasoning_effort": "minimal", "max_tokens": null}),
        json!({"reasoning_effort": "high", "max_tokens": 8000}),
        json!({"reasoning_effort": "low", "max_completion_tokens": 1200}),
        json!({"reasoning_effort": "low", "temperature": 1, "top_p": 0.95}),
        json!({"reasoning_effort": "low", "temperature": 0.2}),
        json!({"reasoning_effort": "low", "thinking": {"type": "enabled", "budget_tokens": 1}}),
    ];
    let lines = cases.map(|case| written(old, case));
    insta::assert_snapshot!(lines.join("\n"), @r#"
    {"max_tokens":4096,"thinking":{"type":"disabled"}} left out [] stops []
    {"max_tokens":5120,"thinking":{"type":"enabled","budget_tokens":1024}} left out [] stops []
    {"max_tokens":8000,"thinking":{"type":"enabled","budget_tokens":6000}} left out [] stops []
    {"max_tokens":1200} left out ["reasoning_effort"] stops []
    {"max_tokens":6144,"thinking":{"type":"enabled","budget_tokens":2048},"temperature":1,"top_p":0.95} left out [] stops []
    `temperature` cannot be combined with `reasoning_effort` for this model; leave one of them out
    {"max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":1}} left out ["reasoning_effort"] stops []
    "#);
    assert_eq!(
        written("claude-fable-5", json!({"reasoning_effort": "none"})),
        r#"{"max_tokens":4096,"output_config":{"effort":"low"}} left out ["reasoning_effort"] stops []"#
    );
    let new = [
        json!({"reasoning_effort": "low", "temperature": 0.2}),
        json!({"reasoning_effort": "low", "top_k": 2}),
    ];
    insta::assert_snapshot!(new.map(|case| written("claude-opus-4-7", case)).join("\n"), @r#"
    {"max_tokens":4096,"output_config":{"effort":"low"},"temperature":0.2} left out [] stops []
    {"max_tokens":4096,"output_config":{"effort":"low"},"top_k":2} left out [] stops []
    "#);
}

#[test]
fn thinking_is_not_begun_within_a_round_of_calls_nor_with_a_forced_one() {
    let body = json!({"model": "m", "reasoning_effort": "low", "messages": [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
    ]});
    let (request, _) = crate::openai_chat::decode_request(body.to_string().as_bytes()).unwrap();
    let mut request = ModelRequest::from(request);
    let sent = |request: &ModelRequest| {
        encode(Dialect::Anthropic, "claude-sonnet-4-0", request, &UpstreamOptions::default()).unwrap()
    };
    let told = sent(&request);
    assert!(!told.fields.contains_key("thinking"));
    assert_eq!(told.left_out, ["reasoning_effort"]);
    // the upstream's own thinking begins the round
    let lf_core::Message::Assistant(said) = &mut request.messages[1] else {
        panic!("an assistant's message")
    };
    let content = json!([{"type": "thinking", "thinking": "", "signature": "S"}, {"type": "tool_use", "id": "a", "name": "f", "input": {}}]);
    said.rest.insert(ANTHROPIC_ONLY.to_owned(), json!({"content": content}));
    assert_eq!(sent(&request).fields["thinking"], json!({"type": "enabled", "budget_tokens": 2048}));
    request.tool_choice = Some(ToolChoice::Required);
    assert_eq!(sent(&request).left_out, ["reasoning_effort"]);
}

#[test]
fn headers_of_the_client_go_along_and_stay_out_of_the_body() {
    let kept = json!({"headers": {"anthropic-beta": "a,b", "anthropic-version": "2023-06-01", "x-api-key": "k", "anthropic-odd": 1}, "betas": ["c"]});
    let encoded = encoded("m", json!({"$anthropic": kept, "$responses": {"a": 1}})).unwrap();
    let headers = [("anthropic-beta", "a,b"), ("anthropic-version", "2023-06-01")];
    assert_eq!(encoded.headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let keys: Vec<&str> = encoded.fields.keys().map(String::as_str).collect();
    assert_eq!(keys, ["model", "max_tokens", "messages", "betas"]);
    assert_eq!(encoded.left_out, ["a"]);
}

fn foreign(body: Value) -> String {
    let request = ModelRequest::from(decode(body).unwrap());
    match check_foreign(&request) {
        Ok(left_out) => format!("left out {left_out:?}"),
        Err(error) => {
            let encoded = encode(Dialect::OpenaiChat, "gpt", &request, &UpstreamOptions::default());
            assert_eq!(encoded.unwrap_err(), error);
            error.to_string()
        }
    }
}

#[test]
fn what_only_anthropic_can_get_at_is_refused_when_another_model_is_to_be_asked() {
    let said = |block: Value| ask(json!([{"role": "user", "content": [block]}]));
    let document = |source: Value| json!({"type": "document", "source": source});
    let result = json!([
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [document(json!({"type": "file", "file_id": "f"}))]}]},
    ]);
    let f = json!({"name": "f", "input_schema": {"type": "object"}});
    let search = json!({"type": "web_search_20250305", "name": "web_search"});
    let cases = [
        said(json!({"type": "image", "source": {"type": "file", "file_id": "f"}})),
        said(document(json!({"type": "url", "url": "https://x"}))),
        said(document(json!({"type": "file", "file_id": "f"}))),
        ask(result),
        ask_with(json!({"mcp_servers": [{"url": "https://m"}]})),
        ask_with(json!({"mcp_servers": []})),
        ask_with(json!({"tools": [search]})),
        ask_with(json!({"tools": [f, search], "tool_choice": {"type": "tool", "name": "web_search"}})),
        ask_with(json!({"tools": [{"type": "bash_20250124", "name": "bash"}]})),
        ask_with(json!({"tools": [{"type": "mcp_toolset", "mcp_server_name": "m"}]})),
        ask_with(json!({"tools": [f, search, {"type": "mcp_toolset", "mcp_server_name": "m"}]})),
        ask_with(json!({
            "container": "c", "speed": "fast", "context_management": {}, "cache_control": {}, "betas": ["b"], "metadata": {"user_id": "u"},
            "thinking": {"type": "adaptive"}, "output_config": {"effort": "low", "task_budget": 1}, "service_tier": "standard_only",
            "tools": [{"name": "f", "input_schema": {}, "cache_control": {}, "defer_loading": true, "input_examples": []}],
        })),
    ];
    let lines: Vec<String> = cases.into_iter().map(foreign).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    a source of type `file` is stored at Anthropic and cannot be read from here; send the content itself, as `base64`
    a document behind a URL is not fetched for other models than Anthropic's; send its content, as `base64` or `text`
    a source of type `file` is stored at Anthropic and cannot be read from here; send the content itself, as `base64`
    a source of type `file` is stored at Anthropic and cannot be read from here; send the content itself, as `base64`
    `mcp_servers` would be reached from Anthropic's own servers; list them under `mcp.servers` in the project's llamafarm.yaml
    left out []
    a tool of type `web_search_20250305` runs on Anthropic's own servers and is not offered here; use a tool of an MCP server for it
    a tool of type `web_search_20250305` runs on Anthropic's own servers and is not offered here; use a tool of an MCP server for it
    a tool of type `bash_20250124` is known to Anthropic's models only; declare it with an `input_schema`
    a tool of type `mcp_toolset` runs on Anthropic's own servers and is not offered here; use a tool of an MCP server for it
    left out ["tools.mcp_toolset", "tools.web_search_20250305"]
    left out ["container", "speed", "context_management", "service_tier", "output_config.task_budget", "tools.input_examples"]
    "#);
}

#[test]
fn tools_without_a_schema_are_declared_to_anthropics_models_alone() {
    let tools = json!([
        {"type": "bash_20250124", "name": "bash", "cache_control": {"type": "ephemeral"}},
        {"name": "f", "input_schema": {"type": "object"}},
    ]);
    let body = ask_with(json!({"tools": tools, "tool_choice": {"type": "auto"}}));
    assert_eq!(anthropic(decode(body.clone()).unwrap())["tools"], tools);
    let sent = openai(decode(body.clone()).unwrap());
    assert_eq!(sent["tools"].as_array().unwrap().len(), 1);
    let request = ModelRequest::from(decode(body).unwrap());
    let told = lf_core::prompting::as_text(&request);
    assert!(!format!("{:?}", told.messages).contains("bash"));
}
