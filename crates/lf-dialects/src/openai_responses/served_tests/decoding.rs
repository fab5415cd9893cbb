//! Requests.

use lf_core::{Part, ToolChoice};

use super::*;

#[test]
fn a_whole_request_reaches_a_chat_completions_upstream() {
    let body = json!({
        "model": "m", "stream": true, "instructions": "Be brief.", "temperature": 0.2, "top_p": 1,
        "max_output_tokens": 50, "parallel_tool_calls": false, "tool_choice": "required",
        "reasoning": {"effort": "low", "summary": "auto"}, "user": "u", "prompt_cache_key": "k", "store": false,
        "include": ["reasoning.encrypted_content"], "truncation": "auto", "metadata": {"a": "b"},
        "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "n", "strict": true, "schema": {"type": "object"}}},
        "seed": 7, "stream_options": {"include_obfuscation": true}, "top_logprobs": null,
        "tools": [
            {"type": "function", "name": "f", "description": "d", "strict": false, "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
            {"type": "function", "name": "g", "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": false}},
        ],
        "input": [
            {"role": "developer", "content": "Use f."},
            {"role": "user", "content": [
                {"type": "input_text", "text": "Look:"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"},
                {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,BB=="},
            ]},
            {"type": "reasoning", "id": "rs_lf_1_0", "summary": [{"type": "summary_text", "text": "Hmm."}]},
            {"type": "message", "id": "msg_lf_1_1", "role": "assistant", "status": "completed", "content": [
                {"type": "output_text", "text": "Let me see.", "annotations": []},
            ]},
            {"type": "function_call", "id": "fc_lf_1_2", "call_id": "a", "name": "f", "arguments": "{\"a\": 1}"},
            {"type": "function_call", "call_id": "b", "name": "f", "arguments": ""},
            {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "two"}]},
            {"type": "function_call_output", "call_id": "a", "output": "one"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]},
        ],
    });
    insta::assert_snapshot!(sent(body), @r#"
    {"role":"system","content":"Be brief."}
    {"role":"developer","content":"Use f."}
    {"role":"user","content":[{"type":"text","text":"Look:"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA==","detail":"low"}},{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,BB=="}}]}
    {"role":"assistant","content":"Let me see.","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}},{"id":"b","type":"function","function":{"name":"f","arguments":"{}"}}]}
    {"role":"tool","tool_call_id":"b","content":"two"}
    {"role":"tool","tool_call_id":"a","content":"one"}
    {"role":"user","content":"Go on."}
    tool_choice: "required"
    max_tokens: 50
    temperature: 0.2
    top_p: 1
    parallel_tool_calls: false
    verbosity: "low"
    response_format: {"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"object"}}}
    reasoning_effort: "low"
    user: "u"
    prompt_cache_key: "k"
    seed: 7
    stream: true
    stream_options: {"include_usage":true}
    tools: [{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"string"}}},"strict":false}},{"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{},"required":[],"additionalProperties":false},"strict":true}}]
    "#);
}

#[test]
fn a_text_is_a_users_message() {
    let (request, view) = decoded(json!({"input": "hi"})).unwrap();
    assert_eq!((request.model, request.stream, view.stream, view.store), (None, false, false, true));
    assert_eq!(messages(&decode(ask(json!("hi")))), "user \"hi\"");
}

#[test]
fn what_only_this_api_knows_is_kept_for_an_upstream_that_does() {
    let body = ask_with(json!({
        "include": ["reasoning.encrypted_content"], "truncation": "auto", "max_tool_calls": 3, "store": true,
        "reasoning": {"effort": "high", "summary": "auto"}, "metadata": {"a": "b"}, "service_tier": "flex",
        "text": {"format": {"type": "json_object"}}, "presence_penalty": 0, "unheard_of": 1,
    }));
    insta::assert_snapshot!(Value::from(decode(body.clone()).parameters), @r#"{"presence_penalty":0,"response_format":{"type":"json_object"},"reasoning_effort":"high","service_tier":"flex","unheard_of":1,"$responses":{"reasoning":{"summary":"auto"},"include":["reasoning.encrypted_content"],"max_tool_calls":3,"truncation":"auto"}}"#);
    insta::assert_snapshot!(to_upstream(Dialect::OpenaiResponses, decode(body)), @r#"{"model":"gpt","input":[{"type":"message","role":"user","content":"hi"}],"text":{"format":{"type":"json_object"}},"reasoning":{"effort":"high","summary":"auto"},"service_tier":"flex","unheard_of":1,"max_tool_calls":3,"truncation":"auto","include":["reasoning.encrypted_content"],"store":false}"#);
}

#[test]
fn a_turns_items_become_one_message_and_go_back_to_their_own_upstream_in_place() {
    let input = json!([
        {"role": "user", "content": "go"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "SEALED"},
        {"type": "message", "id": "msg_1", "role": "assistant", "phase": "commentary", "content": [
            {"type": "output_text", "text": "One moment.", "annotations": []},
        ]},
        {"type": "reasoning", "id": "rs_lf_2_4", "summary": [{"type": "summary_text", "text": "Shown."}]},
        {"type": "message", "id": "msg_lf_2_5", "role": "assistant", "phase": "commentary", "content": []},
        {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f", "arguments": "{}", "namespace": "n"},
        {"type": "function_call_output", "call_id": "a", "output": "done"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"role": "assistant", "content": "Found."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No more."}]},
    ]);
    insta::assert_snapshot!(messages(&decode(ask(input.clone()))), @r#"
    user "go"
    assistant "One moment." Some("Shown.") ["a"] {"items":[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"SEALED"},{"type":"message","id":"msg_1","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"One moment.","annotations":[]}]},{"type":"function_call"}]}
    tool a Some("n.f") "done"
    assistant "Found.\n\nNo more." None [] {"items":[{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}},{"role":"assistant","content":"Found.","type":"message"},{"role":"assistant","content":[{"type":"refusal","refusal":"No more."}],"type":"message"}]}
    "#);
    insta::assert_snapshot!(to_upstream(Dialect::OpenaiResponses, decode(ask(input)))["input"], @r#"[{"type":"message","role":"user","content":"go"},{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"SEALED"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"One moment.","annotations":[]}],"phase":"commentary"},{"type":"function_call","call_id":"a","name":"n.f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"done"},{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Found."}]},{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"No more."}]}]"#);
}

#[test]
fn results_go_directly_after_their_calls() {
    let input = json!([
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"},
        {"role": "user", "content": "still there?"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call", "call_id": "c", "name": "h", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
        {"type": "function_call_output", "call_id": "c", "output": "3"},
    ]);
    insta::assert_snapshot!(messages(&decode(ask(input))), @r#"
    assistant "" None ["a", "b"] 
    tool a Some("f") "1"
    tool b Some("g") "2"
    user "still there?"
    assistant "" None ["c"] 
    tool c Some("h") "3"
    "#);
}

#[test]
fn a_stored_conversation_stands_between_the_instructions_and_the_input() {
    let body = json!({
        "previous_response_id": "resp_1", "instructions": "Be brief.",
        "input": [{"role": "user", "content": "and?"}, {"type": "function_call_output", "call_id": "a", "output": "1"}],
    });
    let (mut request, view) = decoded(body).unwrap();
    let earlier = decode(ask(json!([
        {"role": "user", "content": "go"}, {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
    ])));
    view.continue_from(&mut request, earlier.messages);
    insta::assert_snapshot!(messages(&request), @r#"
    system "Be brief."
    user "go"
    assistant "" None ["a"] 
    tool a None "1"
    user "and?"
    "#);
    assert_eq!(view.previous_response_id.as_deref(), Some("resp_1"));
    assert_eq!(decoded(json!({"previous_response_id": "resp_1"})).unwrap().0.messages, []);
}

#[test]
fn a_reference_is_read_where_the_item_is_known() {
    let body = ask(json!([
        {"role": "user", "content": "go"}, {"type": "item_reference", "id": "msg_lf_abc_0"}, {"id": "msg_lf_abc_0"},
    ]));
    let known = |id: &str| {
        assert_eq!(response_of_item(id).as_deref(), Some("resp_abc"));
        Some(json!({"type": "message", "role": "assistant", "content": "Said."}))
    };
    let (request, _) = decode_request_with(body.to_string().as_bytes(), &known).unwrap();
    insta::assert_snapshot!(messages(&request), @r#"
    user "go"
    assistant "Said.\n\nSaid." None []
    "#);
    let looped = |_: &str| Some(json!({"type": "item_reference", "id": "x"}));
    decode_request_with(body.to_string().as_bytes(), &looped).unwrap_err();
    insta::assert_snapshot!(refused(body), @r#"400 "input[1].id" `input[1]` refers to the item `msg_lf_abc_0`, which is not stored here; send the item itself"#);
    assert_eq!(response_of_item("msg_68af"), None);
}

#[test]
fn parts_that_no_other_api_has_a_word_for_stay_as_they_came() {
    let content = json!([
        {"type": "input_image", "file_id": "file-1", "detail": "auto"},
        {"type": "input_file", "file_url": "https://a/b.pdf"},
        {"type": "input_file", "file_id": "file-2"},
        {"type": "input_text", "text": "so", "prompt_cache_breakpoint": {"mode": "explicit"}},
    ]);
    let request = decode(ask(json!([{"role": "user", "content": content}])));
    let Message::User(prose) = &request.messages[0] else { panic!("{request:?}") };
    let lf_core::Content::Parts(parts) = &prose.content else { panic!("{prose:?}") };
    let others: Vec<String> = parts
        .iter()
        .map(|part| if let Part::Other(value) = part { value.to_string() } else { format!("{part:?}") })
        .collect();
    insta::assert_snapshot!(others.join("\n"), @r#"
    {"type":"input_image","file_id":"file-1","detail":"auto"}
    {"type":"input_file","file_url":"https://a/b.pdf"}
    {"type":"file","file":{"file_id":"file-2"}}
    Text("so")
    "#);
    let sent = to_upstream(Dialect::OpenaiResponses, request);
    assert_eq!(sent["input"][0]["content"], content);
}

#[test]
fn a_function_whose_strictness_is_left_open_stays_so_for_its_own_api() {
    let closed = json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false});
    let body = ask_with(json!({"tools": [
        {"type": "function", "name": "open", "parameters": {"type": "object"}, "defer_loading": true},
        {"type": "function", "name": "closed", "parameters": closed},
        {"type": "function", "name": "bare", "strict": false},
    ]}));
    let lines =
        |tools: &Value| tools.as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(lines(&to_upstream(Dialect::OpenaiResponses, decode(body.clone()))["tools"]), @r#"
    {"type":"function","name":"open","parameters":{"type":"object","properties":{}},"strict":null,"defer_loading":true}
    {"type":"function","name":"closed","parameters":{"type":"object","properties":{},"required":[],"additionalProperties":false},"strict":true}
    {"type":"function","name":"bare","parameters":{"type":"object","properties":{}},"strict":false}
    "#);
    insta::assert_snapshot!(lines(&to_upstream(Dialect::OpenaiChat, decode(body.clone()))["tools"]), @r#"
    {"type":"function","function":{"name":"open","parameters":{"type":"object","properties":{}}}}
    {"type":"function","function":{"name":"closed","parameters":{"type":"object","properties":{},"required":[],"additionalProperties":false},"strict":true}}
    {"type":"function","function":{"name":"bare","parameters":{"type":"object","properties":{}},"strict":false}}
    "#);
    insta::assert_snapshot!(lines(&view(body).echo["tools"]), @r#"
    {"type":"function","name":"open","description":null,"parameters":{"type":"object"},"defer_loading":true,"strict":false}
    {"type":"function","name":"closed","description":null,"parameters":{"type":"object","properties":{},"required":[],"additionalProperties":false},"strict":true}
    {"type":"function","name":"bare","description":null,"parameters":null,"strict":false}
    "#);
}

#[test]
fn every_tool_choice_is_read() {
    let function = |name: &str| json!({"type": "function", "name": name});
    let custom = json!({"type": "custom", "name": "c"});
    let space = json!({"type": "namespace", "name": "n", "tools": [function("d"), function("e")]});
    let chosen = |choice: Value| {
        let tools = json!([function("a"), function("b"), custom, space, {"type": "web_search"}]);
        let request = decode(ask_with(json!({"tool_choice": choice, "tools": tools})));
        let names: Vec<String> = request.tools.into_iter().map(|tool| tool.name).collect();
        (request.tool_choice, names.join(" "))
    };
    let allowed = |mode: &str, names: &[&str]| {
        let tools: Vec<Value> = names.iter().map(|name| function(name)).collect();
        chosen(json!({"type": "allowed_tools", "mode": mode, "tools": tools}))
    };
    assert_eq!(chosen(json!(null)), (None, "a b c n.d n.e".to_owned()));
    assert_eq!(chosen(json!("auto")), (Some(ToolChoice::Auto), "a b c n.d n.e".to_owned()));
    assert_eq!(chosen(json!("none")), (Some(ToolChoice::None), "a b c n.d n.e".to_owned()));
    assert_eq!(chosen(json!("required")), (Some(ToolChoice::Required), "a b c n.d n.e".to_owned()));
    assert_eq!(chosen(function("b")), (Some(ToolChoice::Tool("b".to_owned())), "a b c n.d n.e".to_owned()));
    assert_eq!(allowed("auto", &["b"]), (Some(ToolChoice::Auto), "b".to_owned()));
    assert_eq!(allowed("required", &["b"]), (Some(ToolChoice::Tool("b".to_owned())), "b".to_owned()));
    assert_eq!(allowed("required", &["b", "a"]), (Some(ToolChoice::Required), "a b".to_owned()));
    assert_eq!(allowed("required", &["e"]), (Some(ToolChoice::Tool("n.e".to_owned())), "n.e".to_owned()));
    let mixed = json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "namespace", "name": "n"}, {"type": "web_search"}]});
    assert_eq!(chosen(mixed), (Some(ToolChoice::Required), "n.d n.e".to_owned()));
    let text = json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "c"}]});
    assert_eq!(chosen(text), (Some(ToolChoice::Auto), "c".to_owned()));
    assert_eq!(chosen(json!({"type": "web_search"})), (None, "a b c n.d n.e".to_owned()));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let item = |item: Value| ask(json!([item]));
    let tool = |tool: Value| ask_with(json!({"tools": [tool]}));
    let choice = |choice: Value| ask_with(json!({"tool_choice": choice}));
    let lines = [
        refused(json!({"model": "m"})),
        refused(ask(json!([]))),
        refused(ask(json!(7))),
        refused(json!({"model": 7, "input": "hi"})),
        refused(item(json!("hi"))),
        refused(item(json!({"content": "hi"}))),
        refused(item(json!({"role": "tool", "content": "hi"}))),
        refused(item(json!({"role": "user"}))),
        refused(item(json!({"role": "user", "content": [{"type": "image_url"}]}))),
        refused(item(json!({"role": "user", "content": [{"type": "input_text"}]}))),
        refused(item(json!({"role": "user", "content": [{"type": "input_image"}]}))),
        refused(item(json!({"type": "unheard_of", "id": "c"}))),
        refused(item(json!({"type": "function_call", "name": "f", "arguments": "{}"}))),
        refused(item(json!({"type": "function_call", "call_id": "a", "name": "f", "arguments": 7}))),
        refused(item(json!({"type": "function_call_output", "call_id": "a", "output": "1"}))),
        refused(item(json!({"type": "function_call_output", "call_id": "a"}))),
        refused(tool(json!({"type": "custom"}))),
        refused(tool(json!({"type": "namespace", "name": "n"}))),
        refused(tool(json!({"type": "namespace", "name": "n", "tools": [{"type": "function"}]}))),
        refused(tool(json!({"name": "f"}))),
        refused(item(json!({"type": "custom_tool_call", "call_id": "a", "name": "c"}))),
        refused(item(json!({"type": "custom_tool_call_output", "call_id": "a", "output": "1"}))),
        refused(tool(json!({"type": "function", "function": {"name": "f"}}))),
        refused(tool(json!({"type": "function"}))),
        refused(choice(json!("any"))),
        refused(choice(
            json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "x"}]}),
        )),
        refused(ask_with(json!({"max_output_tokens": 0}))),
        refused(ask_with(json!({"temperature": "hot"}))),
        refused(ask_with(json!({"top_logprobs": 2}))),
        refused(ask_with(json!({"include": ["message.output_text.logprobs"]}))),
        refused(ask_with(json!({"prompt": {"id": "pmpt_1"}}))),
        refused(ask_with(json!({"text": {"format": {"type": "grammar"}}}))),
        refused(ask_with(json!({"text": {"format": {"type": "json_schema"}}}))),
        refused(ask_with(json!({"truncation": "some"}))),
        refused(ask_with(json!({"instructions": ["a"]}))),
        refused(ask_with(json!({"previous_response_id": "r", "conversation": "c"}))),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r#"
    400 "input" `input` is missing: a text, or the items of the conversation so far
    400 "input" `input` is empty; send at least one item
    400 "input" `input` must be a string or an array of items, not a number
    400 "model" `model` must be a string, not a number
    400 "input[0]" `input[0]` must be an object, not a string
    400 "input[0].type" `input[0].type` is missing: such as `message`
    400 "input[0].role" `input[0].role` is `tool`; use `user`, `assistant`, `system` or `developer`
    400 "input[0].content" `input[0].content` is missing: a string or an array of parts
    400 "input[0].content[0].type" `input[0].content[0].type` is `image_url`; use `input_text`, `input_image`, `input_file` or `output_text`
    400 "input[0].content[0].text" `input[0].content[0].text` must be a string, not null
    400 "input[0].content[0].image_url" `input[0].content[0].image_url` is missing: a URL, or a `data:` URL with the image itself
    400 "input[0].type" `input[0].type` is `unheard_of`: such an item cannot be passed on to a model here; send `message`, `reasoning`, `function_call` and `function_call_output` items
    400 "input[0].call_id" `input[0].call_id` is missing: a string is needed
    400 "input[0].arguments" `input[0].arguments` must be a string that holds a JSON object, not a number
    400 "input[0].call_id" `input[0]` is the output of call `a`, and no `function_call` before it has this `call_id`; send the call as well, or `previous_response_id`
    400 "input[0].output" `input[0].output` is missing: a string or an array of parts
    400 "tools[0].name" `tools[0].name` is missing: a string is needed
    400 "tools[0].tools" `tools[0].tools` must be an array, not null
    400 "tools[0].tools[0].name" `tools[0].tools[0].name` is missing: a string is needed
    400 "tools[0].type" `tools[0].type` is missing: a string is needed
    400 "input[0].input" `input[0].input` must be a string, not null
    400 "input[0].call_id" `input[0]` is the output of call `a`, and no `function_call` before it has this `call_id`; send the call as well, or `previous_response_id`
    400 "tools[0].function" `tools[0]` is declared as in Chat Completions; write `name`, `description` and `parameters` beside `type`, without `function`
    400 "tools[0].name" `tools[0].name` is missing: a string is needed
    400 "tool_choice" `tool_choice` is `any`; use "auto", "none", "required", {"type": "function", "name": "..."} or `allowed_tools`
    400 "tool_choice.tools[0].name" `tool_choice.tools[0].name` is `x`, which neither `tools` declares nor a search found
    400 "max_output_tokens" `max_output_tokens` is 0; use a whole number of at least 1
    400 "temperature" `temperature` must be a number, not a string
    400 "top_logprobs" log probabilities cannot be carried through a tool loop; leave `top_logprobs` out
    400 "include" log probabilities cannot be carried through a tool loop; leave `message.output_text.logprobs` out
    400 "prompt" `prompt` names a template that is stored at OpenAI; send its text as `instructions`, or list it under `prompts` in the project's llamafarm.yaml
    400 "text.format.type" `text.format.type` is `grammar`; use `text`, `json_object` or `json_schema`
    400 "text.format.schema" `text.format.schema` must be a JSON Schema (an object), not null
    400 "truncation" `truncation` is "some"; use "auto" or "disabled"
    400 "instructions" `instructions` must be a string, not an array
    400 "previous_response_id" `previous_response_id` and `conversation` both say what came before; send only one of them
    "#);
}
