//! What clients ask, and what an OpenAI upstream is asked for them.

use super::*;

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
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result", "url": "https://n", "encrypted_content": "c2VhbGVk"}]},
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
