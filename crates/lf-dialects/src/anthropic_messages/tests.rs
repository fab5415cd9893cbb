use std::time::Duration;

use lf_core::model::{ChatRequest, Native};
use lf_core::{Arguments, ChatEvent, FinishReason, ModelError, ModelRequest, ToolCall, ToolResult, Usage};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::Dialect;
use crate::openai_chat::{LfEvents, RequestError};
use crate::upstream::{UpstreamOptions, encode_whole};

mod round_trip;
mod upstream_answers;
mod upstream_requests;

#[expect(clippy::needless_pass_by_value, reason = "reads better at the many calls")]
fn decode(body: Value) -> Result<ChatRequest, RequestError> {
    decode_request(body.to_string().as_bytes()).map(|(request, _)| request)
}

fn openai(request: ChatRequest) -> Value {
    encode_whole(Dialect::OpenaiChat, "gpt", &model_request(request), &UpstreamOptions::default()).unwrap()
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

fn model_request(request: ChatRequest) -> ModelRequest {
    ModelRequest {
        messages: request.messages,
        tools: request.tools.into(),
        tool_choice: request.tool_choice,
        parameters: request.parameters,
        stream: request.stream,
    }
}

#[test]
fn a_coding_assistants_request_reaches_an_openai_upstream_without_what_only_anthropic_knows() {
    let body = json!({
        "model": "m", "max_tokens": 9, "stream": true, "temperature": 0,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=77;"},
            {"type": "text", "text": "You write code.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "cwd: /repo"},
        ],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "mend", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "it"},
            ]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "secretly", "signature": "SIG"},
                {"type": "redacted_thinking", "data": "SEALED"},
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "a", "name": "read", "input": {"b": 1, "a": 2}},
            ]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x", "cache_control": {"type": "ephemeral"}}]},
            {"role": "system", "content": "The budget is low."},
        ],
        "tools": [{"name": "read", "type": "custom", "input_schema": {"type": "object", "properties": {}}, "defer_loading": true, "cache_control": {}}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
        "thinking": {"type": "adaptive"}, "output_config": {"effort": "max"},
        "metadata": {"user_id": "u".repeat(65)},
        "context_management": {"edits": []}, "betas": ["b"],
    });
    insta::assert_snapshot!(sent(body), @r#"
    {"role":"system","content":"You write code.\n\ncwd: /repo"}
    {"role":"user","content":[{"type":"text","text":"mend"},{"type":"text","text":"it"}]}
    {"role":"assistant","content":"Looking.","tool_calls":[{"id":"a","type":"function","function":{"name":"read","arguments":"{\"b\":1,\"a\":2}"}}]}
    {"role":"tool","tool_call_id":"a","content":"x"}
    {"role":"system","content":"The budget is low."}
    tool_choice: "required"
    parallel_tool_calls: false
    temperature: 0
    user: "f20e249d15fa4b9f44ba21d154f62e1efa76ddfdce5d25139a33a4787cee5a8b"
    reasoning_effort: "high"
    stream: true
    stream_options: {"include_usage":true}
    tools: [{"type":"function","function":{"name":"read","parameters":{"type":"object","properties":{}}}}]
    "#);
}

#[test]
fn every_call_gets_one_result_directly_after_it() {
    let tool_use = |id: &str| json!({"type": "tool_use", "id": id, "name": "f", "input": {}});
    let result = |id: &str, text: &str| json!({"type": "tool_result", "tool_use_id": id, "content": text});
    let messages = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [tool_use("a"), tool_use("b"), tool_use("c"), tool_use("c")]},
        {"role": "system", "content": "between"},
        {"role": "user", "content": [
            {"type": "text", "text": "and then"},
            result("b", "B"), result("b", "again"), result("c", "C1"), result("lost", "L"), result("c", "C2"),
        ]},
        {"role": "assistant", "content": [tool_use("d")]},
    ]);
    insta::assert_snapshot!(sent(ask(messages)), @r#"
    {"role":"user","content":"go"}
    {"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c_2","type":"function","function":{"name":"f","arguments":"{}"}}]}
    {"role":"tool","tool_call_id":"a","content":"Error: this call was interrupted and has no result"}
    {"role":"tool","tool_call_id":"b","content":"B"}
    {"role":"tool","tool_call_id":"c","content":"C1"}
    {"role":"tool","tool_call_id":"c_2","content":"C2"}
    {"role":"system","content":"between"}
    {"role":"user","content":[{"type":"text","text":"[result of the call lost, which is not in this conversation]\nL"},{"type":"text","text":"and then"}]}
    {"role":"assistant","content":null,"tool_calls":[{"id":"d","type":"function","function":{"name":"f","arguments":"{}"}}]}
    {"role":"tool","tool_call_id":"d","content":"Error: this call was interrupted and has no result"}
    "#);
}

#[test]
fn results_keep_their_images_and_say_that_they_failed() {
    let messages = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "a", "name": "f", "input": null},
            {"type": "tool_use", "id": "b", "name": "f", "input": {}},
            {"type": "tool_use", "id": "c", "name": "f", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "is_error": true, "content": [{"type": "text", "text": "no file"}]},
            {"type": "tool_result", "tool_use_id": "b", "content": [
                {"type": "text", "text": "seen"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "search_result", "title": "T", "source": "https://t", "content": [{"type": "text", "text": "found"}]},
                {"type": "tool_reference", "tool_name": "g"},
            ]},
            {"type": "tool_result", "tool_use_id": "c"},
            {"type": "text", "text": "go on"},
        ]},
    ]);
    insta::assert_snapshot!(sent(ask(messages)), @r#"
    {"role":"user","content":"go"}
    {"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}
    {"role":"tool","tool_call_id":"a","content":"Error: no file"}
    {"role":"tool","tool_call_id":"b","content":"seen\n[image 1: in the next user message]\n[T](https://t)\nfound\n[{\"type\":\"tool_reference\",\"tool_name\":\"g\"}]"}
    {"role":"tool","tool_call_id":"c","content":""}
    {"role":"user","content":[{"type":"text","text":"[image 1 of the result of call b]"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}
    {"role":"user","content":"go on"}
    "#);
}

#[test]
fn documents_become_text_or_a_file() {
    let messages = json!([{"role": "user", "content": [
        {"type": "document", "title": "notes", "context": "old", "source": {"type": "text", "media_type": "text/plain", "data": "N"}},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "inner"}]}},
        {"type": "document", "title": "a.pdf", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}},
        {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
    ]}]);
    insta::assert_snapshot!(sent(ask(messages)), @r#"{"role":"user","content":[{"type":"text","text":"[document: notes]\nold\nN"},{"type":"text","text":"inner"},{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBE"}},{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}"#);
}

#[test]
fn what_anthropics_servers_did_is_told_in_words() {
    let messages = json!([
        {"role": "user", "content": "news?"},
        {"role": "assistant", "content": [
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "news"}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result", "url": "https://n", "encrypted_content": "XXXX"}]},
            {"type": "text", "text": "None."},
        ]},
        {"role": "user", "content": [{"type": "block_of_tomorrow", "x": 1}]},
    ]);
    insta::assert_snapshot!(sent(ask(messages)), @r#"
    {"role":"user","content":"news?"}
    {"role":"assistant","content":"[{\"type\":\"server_tool_use\",\"id\":\"s\",\"name\":\"web_search\",\"input\":{\"query\":\"news\"}}]\n\n[{\"type\":\"web_search_tool_result\",\"tool_use_id\":\"s\",\"content\":[{\"type\":\"web_search_result\",\"url\":\"https://n\"}]}]\n\nNone."}
    {"role":"user","content":"[{\"type\":\"block_of_tomorrow\",\"x\":1}]"}
    "#);
}

#[test]
fn parameters_take_the_spelling_of_openai() {
    let body = ask_with(json!({
        "stop_sequences": ["a", "b", "c", "d", "e"], "top_p": 0.5, "top_k": 3, "tool_choice": {"type": "auto"},
        "thinking": {"type": "enabled", "budget_tokens": 5000},
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}}},
        "tools": null, "system": null, "mcp_servers": [],
    }));
    let parameters = decode(body.clone()).unwrap().parameters;
    let request = ModelRequest { parameters, ..ModelRequest::default() };
    let encoded = crate::upstream::encode(Dialect::OpenaiChat, "gpt", &request, &UpstreamOptions::default());
    assert_eq!(encoded.unwrap().stops, ["e"]);
    insta::assert_snapshot!(sent(body), @r#"
    {"role":"user","content":"hi"}
    top_p: 0.5
    top_k: 3
    stop: ["a","b","c","d"]
    response_format: {"type":"json_schema","json_schema":{"name":"answer","schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false},"strict":true}}
    reasoning_effort: "medium"
    "#);
}

#[test]
fn what_cannot_be_carried_is_refused_with_a_way_out() {
    let cases = [
        ask(json!([])),
        ask(json!([{"role": "tool", "content": "x"}])),
        ask(json!([{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}])),
        json!({"model": "m", "messages": [{"role": "user", "content": "x"}]}),
        ask_with(json!({"max_tokens": 0})),
        ask_with(json!({"tool_choice": {"type": "tool"}})),
        ask_with(json!({"tool_choice": {"type": "some"}})),
        ask_with(json!({"headers": {"x-api-key": "k"}})),
        ask_with(json!({"output_config": {"effort": "extreme"}})),
        ask_with(json!({"output_config": {"format": {"type": "xml"}}})),
        ask_with(json!({"thinking": {"type": "enabled"}})),
        ask_with(json!({"stop_sequences": [""]})),
        json!([]),
    ];
    let told: Vec<String> = cases.into_iter().map(refused).collect();
    insta::assert_snapshot!(told.join("\n"), @r#"
    400 `messages` is empty; send at least one
    400 `messages[0].role` is `tool`; use `user`, `assistant` or `system`
    400 `messages[0].content[0].tool_use_id` is missing: a string is needed
    400 `max_tokens` is missing: the most tokens the answer may have
    400 `max_tokens` is 0; use a whole number of at least 1
    400 `tool_choice.name` is missing: a string is needed
    400 `tool_choice.type` is `some`; use {"type": "auto"}, `any`, `none`, or `tool` with `name`
    400 `headers` is no field of a request; send them as headers of the HTTP request
    400 `output_config.effort` is `extreme`; use `low`, `medium`, `high`, `xhigh` or `max`
    400 `output_config.format.type` is "xml"; use `json_schema`
    400 `thinking.budget_tokens` is missing: `enabled` thinking needs a budget
    400 `stop_sequences[0]` is empty
    400 the body must be a JSON object; send {"messages": [...]}
    "#);
}

#[test]
fn what_only_anthropic_takes_is_kept_for_it() {
    let mut body = ask_with(json!({
        "context_management": {"edits": []}, "metadata": {"user_id": "u", "team": "t"},
        "tools": [
            {"name": "f", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 2},
        ],
    }));
    let assistant = json!({"role": "assistant", "content": [
        {"type": "thinking", "thinking": "ours", "signature": OWN_SIGNATURE},
        {"type": "thinking", "thinking": "theirs", "signature": "S"},
        {"type": "text", "text": "t"},
    ]});
    body["messages"].as_array_mut().unwrap().push(assistant);
    let request = decode(body).unwrap();
    assert_eq!(request.parameters[ANTHROPIC_ONLY]["context_management"], json!({"edits": []}));
    assert_eq!(request.parameters[ANTHROPIC_ONLY]["metadata"]["team"], "t");
    assert_eq!(request.tools[1].rest[ANTHROPIC_ONLY]["max_uses"], 2);
    assert_eq!(request.tools[0].rest[ANTHROPIC_ONLY]["cache_control"]["type"], "ephemeral");
    let lf_core::Message::Assistant(said) = &request.messages[1] else { panic!("an assistant's message") };
    assert_eq!(said.reasoning.as_deref(), Some("ourstheirs"));
    assert_eq!(said.rest[ANTHROPIC_ONLY]["content"].as_array().unwrap().len(), 2, "our own block stays here");
    assert!(!openai(request).to_string().contains('$'));
}

#[test]
fn tokens_are_counted_without_the_bytes_of_images() {
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A".repeat(400_000)}});
    let mut body =
        ask(json!([{"role": "user", "content": [image, {"type": "text", "text": "word ".repeat(80)}]}]));
    body.as_object_mut().unwrap().shift_remove("max_tokens");
    let request = decode_count_request(body.to_string().as_bytes()).unwrap();
    assert_eq!(count_tokens(&request), 4 + 1600 + 100);
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

fn streamed(events: &[ChatEvent], view: MessagesView, lf_events: LfEvents) -> String {
    let mut encoder = EventEncoder::new("msg_1", "m", view, lf_events);
    let told = events.iter().flat_map(|event| encoder.event(event));
    told.map(|(name, data)| format!("{name} {data}")).collect::<Vec<_>>().join("\n")
}

fn a_turn() -> Vec<ChatEvent> {
    vec![
        ChatEvent::Started { turn: "t".to_owned(), model: "m".to_owned() },
        ChatEvent::Reasoning("Hm".to_owned()),
        ChatEvent::Reasoning("m.".to_owned()),
        ChatEvent::Text("\n".to_owned()),
        ChatEvent::Text("Let me".to_owned()),
        ChatEvent::Text(" see.".to_owned()),
        ChatEvent::CallStarted { call: call("s1", "{}"), tool: None },
        ChatEvent::CallFinished {
            result: ToolResult::error(&call("s1", "{}"), "there is no tool `f`"),
            elapsed: Duration::from_millis(7),
        },
        ChatEvent::Text(" ".to_owned()),
        ChatEvent::ClientCalls(vec![call("a", r#"{"q": 1}"#), call("b", "")]),
        finished(FinishReason::ToolCalls),
        ChatEvent::Text("too late".to_owned()),
    ]
}

#[test]
fn a_turn_becomes_blocks_one_after_the_other() {
    insta::assert_snapshot!(streamed(&a_turn(), MessagesView::default(), LfEvents::Told), @r#"
    message_start {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}}
    content_block_start {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}
    content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm"}}
    content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m."}}
    content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"lf-unsigned"}}
    content_block_stop {"type":"content_block_stop","index":0}
    content_block_start {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}
    content_block_delta {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"\nLet me"}}
    content_block_delta {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":" see."}}
    ping {"type":"ping","lf":{"event":"tool_call","call_id":"s1","name":"f","server":null,"tool":null,"arguments":"{}"}}
    ping {"type":"ping","lf":{"event":"tool_result","call_id":"s1","name":"f","is_error":true,"elapsed_ms":7,"text":"there is no tool `f`","truncated":false}}
    content_block_delta {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":" "}}
    content_block_stop {"type":"content_block_stop","index":1}
    content_block_start {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}
    content_block_delta {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"q\": 1}"}}
    content_block_stop {"type":"content_block_stop","index":2}
    content_block_start {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"b","name":"f","input":{}}}
    content_block_delta {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{}"}}
    content_block_stop {"type":"content_block_stop","index":3}
    message_delta {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":5,"cache_creation_input_tokens":1,"cache_read_input_tokens":4,"output_tokens":3}}
    message_stop {"type":"message_stop"}
    "#);
}

#[test]
fn thinking_that_was_switched_off_is_not_shown() {
    let body = ask_with(json!({"thinking": {"type": "disabled"}, "stream": true}));
    let (_, view) = decode_request(body.to_string().as_bytes()).unwrap();
    assert_eq!(view, MessagesView { stream: true, thinking: ThinkingView::Hidden });
    let told = streamed(&a_turn(), view, LfEvents::Hidden);
    assert!(!told.contains("thinking") && !told.contains("ping"), "{told}");
}

#[test]
fn an_error_ends_the_stream_and_nothing_says_that_all_is_well() {
    let error = ModelError::Failed {
        url: "http://up".to_owned(),
        status: 529,
        message: "busy".to_owned(),
        retry_after: None,
    };
    let events = [
        ChatEvent::Started { turn: "t".to_owned(), model: "m".to_owned() },
        ChatEvent::Text("Half".to_owned()),
        ChatEvent::Failed(error),
        finished(FinishReason::Stop),
    ];
    insta::assert_snapshot!(streamed(&events[1..], MessagesView::default(), LfEvents::Told), @r#"
    message_start {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}}
    content_block_start {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}
    content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Half"}}
    error {"type":"error","error":{"type":"overloaded_error","message":"busy"}}
    "#);
    let mut completion = Completion::new("msg_1", "m", MessagesView::default(), LfEvents::Told);
    events.iter().for_each(|event| completion.push(event));
    let reply = completion.finish("req_1").unwrap_err();
    insta::assert_snapshot!(format!("{} {}", reply.status, reply.body), @r#"529 {"type":"error","error":{"type":"overloaded_error","message":"busy"},"request_id":"req_1"}"#);
}

#[test]
fn a_whole_message_says_what_the_stream_says() {
    let mut completion = Completion::new("msg_1", "m", MessagesView::default(), LfEvents::Hidden);
    a_turn().iter().for_each(|event| completion.push(event));
    insta::assert_snapshot!(completion.finish("req_1").unwrap(), @r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"thinking","thinking":"Hmm.","signature":"lf-unsigned"},{"type":"text","text":"\nLet me see. "},{"type":"tool_use","id":"a","name":"f","input":{"q":1}},{"type":"tool_use","id":"b","name":"f","input":{}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":5,"cache_creation_input_tokens":1,"cache_read_input_tokens":4,"output_tokens":3}}"#);
}

#[test]
fn every_ending_has_its_stop_reason() {
    let ended = |reason, stop: Option<&str>| {
        let mut completion = Completion::new("msg_1", "m", MessagesView::default(), LfEvents::Hidden);
        completion.push(&ChatEvent::Finished {
            reason,
            usage: Usage::default(),
            rounds: 1,
            stop_sequence: stop.map(str::to_owned),
        });
        let message = completion.finish("r").unwrap();
        format!("{} {}", message["stop_reason"], message["stop_sequence"])
    };
    let told = [
        ended(FinishReason::Stop, None),
        ended(FinishReason::Stop, Some("END")),
        ended(FinishReason::Length, None),
        ended(FinishReason::ContentFilter, None),
        ended(FinishReason::ToolCalls, None),
    ];
    insta::assert_snapshot!(told.join(", "), @r#""end_turn" null, "stop_sequence" "END", "max_tokens" null, "refusal" null, "end_turn" null"#);
}

#[test]
fn a_daemon_that_goes_down_is_no_upstream_that_failed() {
    let reply = error_reply(&ModelError::going_down(), "req_1");
    assert_eq!(reply.status, 503);
    assert_eq!(
        reply.body["error"],
        json!({"type": "overloaded_error", "message": "the daemon is shutting down"})
    );
}

#[test]
fn errors_keep_the_upstreams_status_and_wording() {
    let told = |status: u16, body: &str| {
        let error = crate::openai_chat::error_body(status, body.as_bytes(), "http://up", None);
        let reply = error_reply(&error, "req_1");
        format!("{} {}", reply.status, reply.body)
    };
    let long = r#"{"error": {"message": "maximum context length is 8192 tokens", "code": "context_length_exceeded"}}"#;
    let lines = [
        told(400, long),
        told(401, r#"{"error": {"message": "who?"}}"#),
        told(402, r#"{"error": {"message": "pay"}}"#),
        told(403, "no"),
        told(404, "no"),
        told(413, "no"),
        told(422, "no"),
        told(429, "no"),
        told(500, "no"),
        told(503, "<html>busy</html>"),
        told(504, "no"),
        told(302, "no"),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r#"
    400 {"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: maximum context length is 8192 tokens"},"request_id":"req_1"}
    401 {"type":"error","error":{"type":"authentication_error","message":"who?"},"request_id":"req_1"}
    402 {"type":"error","error":{"type":"billing_error","message":"pay"},"request_id":"req_1"}
    403 {"type":"error","error":{"type":"permission_error","message":"no"},"request_id":"req_1"}
    404 {"type":"error","error":{"type":"not_found_error","message":"no"},"request_id":"req_1"}
    413 {"type":"error","error":{"type":"request_too_large","message":"no"},"request_id":"req_1"}
    422 {"type":"error","error":{"type":"invalid_request_error","message":"no"},"request_id":"req_1"}
    429 {"type":"error","error":{"type":"rate_limit_error","message":"no"},"request_id":"req_1"}
    500 {"type":"error","error":{"type":"api_error","message":"no"},"request_id":"req_1"}
    503 {"type":"error","error":{"type":"overloaded_error","message":"HTML instead of JSON: <html>busy</html>"},"request_id":"req_1"}
    504 {"type":"error","error":{"type":"timeout_error","message":"no"},"request_id":"req_1"}
    502 {"type":"error","error":{"type":"api_error","message":"http://up answered with something that is no model answer: HTTP status 302: no"},"request_id":"req_1"}
    "#);
}

fn anthropic(request: ChatRequest) -> Value {
    encode_whole(Dialect::Anthropic, "m", &model_request(request), &UpstreamOptions::default()).unwrap()
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

/// A user's or an assistant's message with calls and results under any of three ids, in any order.
fn any_message() -> impl Strategy<Value = Value> {
    let id = prop::sample::select(vec!["a", "b", "c"]);
    let result = id.clone().prop_map(|id| json!({"type": "tool_result", "tool_use_id": id, "content": "r"}));
    let tool_use = id.prop_map(|id| json!({"type": "tool_use", "id": id, "name": "f", "input": {}}));
    let text = Just(json!({"type": "text", "text": "t"}));
    prop_oneof![
        prop::collection::vec(prop_oneof![result, text.clone()], 1..5)
            .prop_map(|content| json!({"role": "user", "content": content})),
        prop::collection::vec(prop_oneof![tool_use, text], 1..4)
            .prop_map(|content| json!({"role": "assistant", "content": content})),
        Just(json!({"role": "system", "content": [{"type": "text", "text": "s"}]})),
    ]
}

fn event() -> impl Strategy<Value = ChatEvent> {
    prop_oneof![
        prop_oneof!["[ab \n]{1,4}", Just(" ".to_owned())].prop_map(ChatEvent::Text),
        "[ab]{1,3}".prop_map(ChatEvent::Reasoning),
        Just(ChatEvent::CallStarted { call: call("s", "{}"), tool: None }),
        Just(ChatEvent::CallFinished {
            result: ToolResult::error(&call("s", "{}"), "no"),
            elapsed: Duration::ZERO
        }),
        Just(ChatEvent::Notice("n".to_owned())),
        prop::collection::vec(Just(call("c", r#"{"q":1}"#)), 0..3).prop_map(ChatEvent::ClientCalls),
        native().prop_map(ChatEvent::Native),
        Just(ChatEvent::Answering { model: "m".to_owned() }),
    ]
}

fn native() -> impl Strategy<Value = Native> {
    let items = vec![
        json!({"type": "signature_delta", "signature": "S"}),
        json!({"type": "citations_delta", "citation": {"type": "char_location", "cited_text": "a"}}),
        json!({"type": "content_block_stop"}),
        json!({"type": "message_delta", "delta": {"stop_reason": "pause_turn", "container": {"id": "c"}}, "context_management": {"applied_edits": []}}),
        json!({"type": "redacted_thinking", "data": "SEALED"}),
        json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "a"}}),
        json!({"type": "server_tool_use", "id": "s", "name": "tool_search", "input": {}}),
        json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "https://a"}]}),
        json!({"type": "block_of_tomorrow", "input": {"a": 1}}),
        json!("nothing"),
    ];
    let dialect = prop::sample::select(vec![Dialect::Anthropic, Dialect::OpenaiResponses]);
    (prop::sample::select(items), dialect).prop_map(|(item, dialect)| Native { dialect, item })
}

fn ending() -> impl Strategy<Value = ChatEvent> {
    prop_oneof![
        Just(finished(FinishReason::Stop)),
        Just(finished(FinishReason::Length)),
        Just(ChatEvent::Failed(ModelError::Unsupported("no".to_owned()))),
    ]
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

proptest! {
    #[test]
    fn any_history_has_one_result_for_each_call_directly_after_it(
        messages in prop::collection::vec(any_message(), 1..8),
    ) {
        let all: Vec<Value> = [json!({"role": "user", "content": "go"})].into_iter().chain(messages).collect();
        let request = decode(ask(all.into())).unwrap();
        prop_assert_eq!(&decode(anthropic(request.clone())).unwrap().messages, &request.messages);
        let sent = openai(request);
        let mut open: Vec<&str> = Vec::new();
        for message in sent["messages"].as_array().unwrap() {
            if message["role"] == "tool" {
                prop_assert!(!open.is_empty(), "a result of no call");
                prop_assert_eq!(open.remove(0), message["tool_call_id"].as_str().unwrap());
                continue;
            }
            prop_assert!(open.is_empty(), "a call without a result");
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            open = calls.map(|call| call["id"].as_str().unwrap()).collect();
            let mut ids = open.clone();
            ids.dedup();
            prop_assert_eq!(ids.len(), open.len());
        }
        prop_assert!(open.is_empty());
    }

    #[test]
    fn any_turn_keeps_the_protocol_and_says_the_same_streamed_and_whole(
        events in prop::collection::vec(event(), 0..12),
        ending in prop::option::of(ending()),
        after in prop::collection::vec(event(), 0..3),
        hidden in any::<bool>(),
    ) {
        let thinking = if hidden { ThinkingView::Hidden } else { ThinkingView::Shown };
        let view = MessagesView { stream: true, thinking };
        let mut encoder = EventEncoder::new("msg_1", "m", view, LfEvents::Told);
        let mut completion = Completion::new("msg_1", "m", view, LfEvents::Told);
        let mut told = Vec::new();
        // without an end the turn was cut, and nothing follows
        let after = if ending.is_some() { after } else { Vec::new() };
        for event in events.iter().chain(&ending).chain(&after) {
            told.extend(encoder.event(event));
            told.extend(encoder.ping());
            completion.push(event);
        }
        let (blocks, mut ended, end) = protocol(&told);
        match completion.finish("req_1") {
            Ok(mut message) => {
                prop_assert_eq!(&end, "message_stop");
                prop_assert_eq!(&message["content"], &Value::from(blocks));
                // the rest of the message is what the end of the stream says
                let mut folded = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m"});
                let fields = folded.as_object_mut().unwrap();
                fields.extend(ended["delta"].take().as_object().unwrap().clone());
                let beside = ended.as_object().unwrap().clone().into_iter();
                fields.extend(beside.filter(|(key, _)| key != "type" && key != "delta"));
                let message = message.as_object_mut().unwrap();
                message.shift_remove("content");
                message.shift_remove("lf");
                prop_assert_eq!(&Value::from(message.clone()), &folded);
            }
            Err(_) if ending.is_none() => prop_assert_eq!(&end, ""),
            Err(_) => prop_assert_eq!(&end, "error"),
        }
    }
}
