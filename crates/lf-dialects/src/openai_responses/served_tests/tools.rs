//! Tools that are no plain functions: in namespaces, with a text as their input, or OpenAI's own.

use lf_core::{Arguments, ChatEvent, FinishReason, ModelError, ToolCall, ToolChoice};
use serde_json::Map;

use super::telling::{finished, started};
use super::*;
use crate::openai_chat::LfEvents;
use crate::upstream::encode;

fn function(name: &str) -> Value {
    json!({"type": "function", "name": name, "description": format!("Does {name}."), "strict": false, "parameters": {"type": "object"}})
}

fn patch() -> Value {
    json!({
        "type": "custom", "name": "edit", "description": "Edits files. Do not wrap it in JSON.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: line+\nline: /.+/ \"\\n\"\n"},
    })
}

fn every_kind() -> Value {
    json!([
        function("run"),
        {"type": "namespace", "name": "crew", "description": "Other agents.", "tools": [
            function("hire"), function("fire"), {"type": "custom", "name": "tell"},
        ]},
        patch(),
        {"type": "custom", "name": "word", "format": {"type": "grammar", "syntax": "regex", "definition": "[a-z]+"}},
        {"type": "web_search", "external_web_access": true},
        {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}},
        {"type": "unheard_of"},
    ])
}

fn lines(list: &Value) -> String {
    list.as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
}

fn asked(body: Value) -> ModelRequest {
    decode(body).into()
}

const FOREIGN: [Dialect; 4] = [Dialect::OpenaiChat, Dialect::Anthropic, Dialect::Gemini, Dialect::Ollama];

fn left_out(dialect: Dialect, body: Value) -> Result<Vec<String>, ModelError> {
    encode(dialect, "gpt", &asked(body), &UpstreamOptions::default()).map(|encoded| encoded.left_out)
}

#[test]
fn every_kind_of_tool_is_declared_as_a_function_or_left_to_its_own_api() {
    let body = ask_with(json!({"tools": every_kind()}));
    insta::assert_snapshot!(lines(&to_upstream(Dialect::OpenaiChat, decode(body.clone()))["tools"]), @r#"
    {"type":"function","function":{"name":"run","description":"Does run.","parameters":{"type":"object","properties":{}},"strict":false}}
    {"type":"function","function":{"name":"crew.hire","description":"[crew: Other agents.]\nDoes hire.","parameters":{"type":"object","properties":{}},"strict":false}}
    {"type":"function","function":{"name":"crew.fire","description":"Does fire.","parameters":{"type":"object","properties":{}},"strict":false}}
    {"type":"function","function":{"name":"crew.tell","description":"The input is one plain text: give all of it as the string `input`.","parameters":{"type":"object","properties":{"input":{"type":"string","description":"The whole input of the tool."}},"required":["input"],"additionalProperties":false}}}
    {"type":"function","function":{"name":"edit","description":"Edits files. Do not wrap it in JSON.\n\nThe input is one plain text: give all of it as the string `input`. Whatever is said above of the input, or of not putting it in JSON, is about what this string holds. It must follow this lark grammar:\n\nstart: line+\nline: /.+/ \"\\n\"","parameters":{"type":"object","properties":{"input":{"type":"string","description":"The whole input of the tool."}},"required":["input"],"additionalProperties":false}}}
    {"type":"function","function":{"name":"word","description":"The input is one plain text: give all of it as the string `input`. It must match this regular expression:\n\n[a-z]+","parameters":{"type":"object","properties":{"input":{"type":"string","description":"The whole input of the tool."}},"required":["input"],"additionalProperties":false}}}
    {"type":"function","function":{"name":"tool_search","description":"Finds tools.","parameters":{"type":"object","properties":{"query":{"type":"string"}}}}}
    "#);
    insta::assert_snapshot!(lines(&to_upstream(Dialect::OpenaiResponses, decode(body.clone()))["tools"]), @r#"
    {"type":"function","name":"run","description":"Does run.","parameters":{"type":"object","properties":{}},"strict":false}
    {"type":"function","name":"crew.hire","description":"[crew: Other agents.]\nDoes hire.","parameters":{"type":"object","properties":{}},"strict":false}
    {"type":"function","name":"crew.fire","description":"Does fire.","parameters":{"type":"object","properties":{}},"strict":false}
    {"type":"function","name":"crew.tell","description":"The input is one plain text: give all of it as the string `input`.","parameters":{"type":"object","properties":{"input":{"type":"string","description":"The whole input of the tool."}},"required":["input"],"additionalProperties":false},"strict":false}
    {"type":"function","name":"edit","description":"Edits files. Do not wrap it in JSON.\n\nThe input is one plain text: give all of it as the string `input`. Whatever is said above of the input, or of not putting it in JSON, is about what this string holds. It must follow this lark grammar:\n\nstart: line+\nline: /.+/ \"\\n\"","parameters":{"type":"object","properties":{"input":{"type":"string","description":"The whole input of the tool."}},"required":["input"],"additionalProperties":false},"strict":false}
    {"type":"function","name":"word","description":"The input is one plain text: give all of it as the string `input`. It must match this regular expression:\n\n[a-z]+","parameters":{"type":"object","properties":{"input":{"type":"string","description":"The whole input of the tool."}},"required":["input"],"additionalProperties":false},"strict":false}
    {"type":"function","name":"tool_search","description":"Finds tools.","parameters":{"type":"object","properties":{"query":{"type":"string"}}},"strict":false}
    {"type":"web_search","external_web_access":true}
    {"type":"unheard_of"}
    "#);
    for dialect in FOREIGN {
        assert_eq!(left_out(dialect, body.clone()).unwrap(), ["tools: web_search", "tools: unheard_of"]);
    }
    assert_eq!(left_out(Dialect::OpenaiResponses, body.clone()).unwrap(), [""; 0]);
    // told back as they came
    let told = view(body).echo["tools"].clone();
    assert_eq!(told, every_kind());
}

#[test]
fn a_request_about_a_tool_of_openais_own_is_for_its_own_api_only() {
    let refused = |fields: Value| match left_out(Dialect::OpenaiChat, ask_with(fields)) {
        Err(ModelError::Unsupported(message)) => message,
        other => panic!("{other:?}"),
    };
    let search = json!({"type": "web_search"});
    let allowed = json!({"type": "allowed_tools", "mode": "required", "tools": [search]});
    let told = [
        refused(json!({"tools": [search]})),
        refused(json!({"tools": [{"type": "mcp", "server_label": "s", "server_url": "https://a"}]})),
        refused(json!({"tools": [search, function("f")], "tool_choice": {"type": "web_search"}})),
        refused(json!({"tools": [search, function("f")], "tool_choice": allowed})),
    ];
    insta::assert_snapshot!(told.join("\n"), @r#"
    a tool of type `web_search` is part of OpenAI's own API and not offered here; use a tool of an MCP server for it, or declare a function
    a tool of type `mcp` would be reached from OpenAI's own servers; list the server under `mcp.servers` in the project's llamafarm.yaml
    a tool of type `web_search` is part of OpenAI's own API and not offered here; use a tool of an MCP server for it, or declare a function
    a tool of type `web_search` is part of OpenAI's own API and not offered here; use a tool of an MCP server for it, or declare a function
    "#);
    // nothing is to be called
    assert_eq!(
        left_out(Dialect::Gemini, ask_with(json!({"tools": [search], "tool_choice": "none"}))).unwrap(),
        ["tools: web_search"],
    );
    let chosen = ask_with(json!({"tools": [search, function("f")], "tool_choice": {"type": "web_search"}}));
    let sent = to_upstream(Dialect::OpenaiResponses, decode(chosen));
    insta::assert_snapshot!(sent, @r#"{"model":"gpt","input":[{"type":"message","role":"user","content":"hi"}],"tool_choice":{"type":"web_search"},"store":false,"tools":[{"type":"function","name":"f","description":"Does f.","parameters":{"type":"object","properties":{}},"strict":false},{"type":"web_search"}]}"#);
    let sent = to_upstream(
        Dialect::OpenaiResponses,
        decode(ask_with(json!({"tools": [search, function("f")], "tool_choice": allowed}))),
    );
    insta::assert_snapshot!(sent, @r#"{"model":"gpt","input":[{"type":"message","role":"user","content":"hi"}],"tool_choice":"required","store":false,"tools":[{"type":"web_search"}]}"#);
}

#[test]
fn tools_that_come_with_the_input_are_tools_as_the_others() {
    let input = json!([
        {"type": "additional_tools", "role": "developer", "tools": [function("late"), patch()]},
        {"role": "user", "content": "hi"},
    ]);
    let request = decode(json!({"model": "m", "input": input, "tools": [function("run")]}));
    let names: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["run", "late", "edit"]);
    // an agent sends them with each of its turns
    let again = json!({"type": "additional_tools", "role": "developer", "tools": [function("late"), function("run"), patch()]});
    let hosted = json!({"type": "additional_tools", "role": "developer", "tools": [{"type": "web_search"}]});
    let mut repeated = input;
    repeated.as_array_mut().unwrap().extend([again, hosted.clone(), hosted]);
    let repeated = decode(json!({"model": "m", "input": repeated, "tools": [function("run")]}));
    assert_eq!(repeated.tools, request.tools);
    assert_eq!(repeated.parameters[RESPONSES_ONLY]["tools"], json!([{"type": "web_search"}]));
    assert_eq!(messages(&request), "user \"hi\"");
    let wrong = json!([{"type": "additional_tools", "role": "developer", "tools": [{"type": "function"}]}]);
    insta::assert_snapshot!(refused(ask(wrong)), @r#"400 "input[0].tools[0].name" `input[0].tools[0].name` is missing: a string is needed"#);
}

#[test]
fn a_choice_may_leave_the_namespace_out() {
    let chosen = |choice: Value| {
        decode(ask_with(json!({"tools": every_kind(), "tool_choice": choice}))).tool_choice.unwrap()
    };
    let tool = |name: &str| ToolChoice::Tool(name.to_owned());
    assert_eq!(chosen(json!({"type": "function", "name": "hire"})), tool("crew.hire"));
    assert_eq!(chosen(json!({"type": "function", "name": "hire", "namespace": "crew"})), tool("crew.hire"));
    assert_eq!(chosen(json!({"type": "custom", "name": "edit"})), tool("edit"));
    assert_eq!(chosen(json!({"type": "function", "name": "other"})), tool("other"));
}

fn calls() -> [ToolCall; 6] {
    let call = |id: &str, name: &str, arguments: &str| ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: Arguments::parse(arguments),
        rest: Map::new(),
    };
    [
        call("a", "crew.hire", r#"{"who": "Ann"}"#),
        call("b", "edit", r#"{"input": "*** Begin\n+\"x\"\n"}"#),
        call("c", "crew.tell", r#"{"text": "hello"}"#),
        call("d", "word", r#"{"input": 7}"#),
        call("e", "run", "{}"),
        call("f", "tool_search", r#"{"query": "files"}"#),
    ]
}

#[test]
fn a_call_is_told_in_the_form_in_which_its_tool_was_declared() {
    let view = view(ask_with(json!({"tools": every_kind()})));
    let mut encoder = EventEncoder::new("resp_1", 7, "m", view, LfEvents::Hidden);
    let events = [started(), ChatEvent::ClientCalls(calls().to_vec()), finished(FinishReason::ToolCalls)];
    let told: Vec<_> = events.iter().flat_map(|event| encoder.event(event)).collect();
    let items = told.iter().filter(|(name, _)| {
        !["response.created", "response.in_progress", "response.completed"].contains(name)
    });
    let lines: Vec<&str> = items.map(|(_, data)| data.as_str()).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    {"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"id":"fc_lf_1_0","type":"function_call","status":"in_progress","call_id":"a","name":"hire","arguments":"","namespace":"crew"}}
    {"type":"response.function_call_arguments.delta","sequence_number":3,"item_id":"fc_lf_1_0","output_index":0,"delta":"{\"who\": \"Ann\"}"}
    {"type":"response.function_call_arguments.done","sequence_number":4,"item_id":"fc_lf_1_0","output_index":0,"name":"hire","arguments":"{\"who\": \"Ann\"}"}
    {"type":"response.output_item.done","sequence_number":5,"output_index":0,"item":{"id":"fc_lf_1_0","type":"function_call","status":"completed","call_id":"a","name":"hire","arguments":"{\"who\": \"Ann\"}","namespace":"crew"}}
    {"type":"response.output_item.added","sequence_number":6,"output_index":1,"item":{"id":"ctc_lf_1_1","type":"custom_tool_call","status":"in_progress","call_id":"b","name":"edit","input":""}}
    {"type":"response.custom_tool_call_input.delta","sequence_number":7,"item_id":"ctc_lf_1_1","output_index":1,"delta":"*** Begin\n+\"x\"\n"}
    {"type":"response.custom_tool_call_input.done","sequence_number":8,"item_id":"ctc_lf_1_1","output_index":1,"input":"*** Begin\n+\"x\"\n"}
    {"type":"response.output_item.done","sequence_number":9,"output_index":1,"item":{"id":"ctc_lf_1_1","type":"custom_tool_call","status":"completed","call_id":"b","name":"edit","input":"*** Begin\n+\"x\"\n"}}
    {"type":"response.output_item.added","sequence_number":10,"output_index":2,"item":{"id":"ctc_lf_1_2","type":"custom_tool_call","status":"in_progress","call_id":"c","name":"tell","input":"","namespace":"crew"}}
    {"type":"response.custom_tool_call_input.delta","sequence_number":11,"item_id":"ctc_lf_1_2","output_index":2,"delta":"hello"}
    {"type":"response.custom_tool_call_input.done","sequence_number":12,"item_id":"ctc_lf_1_2","output_index":2,"input":"hello"}
    {"type":"response.output_item.done","sequence_number":13,"output_index":2,"item":{"id":"ctc_lf_1_2","type":"custom_tool_call","status":"completed","call_id":"c","name":"tell","input":"hello","namespace":"crew"}}
    {"type":"response.output_item.added","sequence_number":14,"output_index":3,"item":{"id":"ctc_lf_1_3","type":"custom_tool_call","status":"in_progress","call_id":"d","name":"word","input":""}}
    {"type":"response.custom_tool_call_input.delta","sequence_number":15,"item_id":"ctc_lf_1_3","output_index":3,"delta":"7"}
    {"type":"response.custom_tool_call_input.done","sequence_number":16,"item_id":"ctc_lf_1_3","output_index":3,"input":"7"}
    {"type":"response.output_item.done","sequence_number":17,"output_index":3,"item":{"id":"ctc_lf_1_3","type":"custom_tool_call","status":"completed","call_id":"d","name":"word","input":"7"}}
    {"type":"response.output_item.added","sequence_number":18,"output_index":4,"item":{"id":"fc_lf_1_4","type":"function_call","status":"in_progress","call_id":"e","name":"run","arguments":""}}
    {"type":"response.function_call_arguments.delta","sequence_number":19,"item_id":"fc_lf_1_4","output_index":4,"delta":"{}"}
    {"type":"response.function_call_arguments.done","sequence_number":20,"item_id":"fc_lf_1_4","output_index":4,"name":"run","arguments":"{}"}
    {"type":"response.output_item.done","sequence_number":21,"output_index":4,"item":{"id":"fc_lf_1_4","type":"function_call","status":"completed","call_id":"e","name":"run","arguments":"{}"}}
    {"type":"response.output_item.added","sequence_number":22,"output_index":5,"item":{"id":"tsc_lf_1_5","type":"tool_search_call","status":"completed","call_id":"f","execution":"client","arguments":{"query":"files"}}}
    {"type":"response.output_item.done","sequence_number":23,"output_index":5,"item":{"id":"tsc_lf_1_5","type":"tool_search_call","status":"completed","call_id":"f","execution":"client","arguments":{"query":"files"}}}
    "#);
}

#[test]
fn calls_of_every_form_come_back_under_the_names_that_models_know() {
    let mut completion =
        Completion::new("resp_1", 7, "m", view(ask_with(json!({"tools": every_kind()}))), LfEvents::Hidden);
    completion.push(&ChatEvent::ClientCalls(calls().to_vec()));
    completion.push(&finished(FinishReason::ToolCalls));
    let mut input = completion.finish().unwrap()["output"].take();
    let outputs = [
        json!({"type": "function_call_output", "call_id": "a", "output": "hired"}),
        json!({"type": "custom_tool_call_output", "call_id": "b", "output": "edited"}),
        json!({"type": "custom_tool_call_output", "call_id": "c", "name": "tell", "output": [{"type": "input_text", "text": "told"}]}),
        json!({"type": "custom_tool_call_output", "call_id": "d", "output": ""}),
        json!({"type": "function_call_output", "call_id": "e", "output": "ran"}),
        json!({"type": "tool_search_output", "call_id": "f", "execution": "client", "status": "completed", "tools": []}),
        json!({"role": "user", "content": "and now?"}),
    ];
    input.as_array_mut().unwrap().extend(outputs);
    insta::assert_snapshot!(sent(ask(input.clone())), @r#"
    {"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"crew.hire","arguments":"{\"who\": \"Ann\"}"}},{"id":"b","type":"function","function":{"name":"edit","arguments":"{\"input\":\"*** Begin\\n+\\\"x\\\"\\n\"}"}},{"id":"c","type":"function","function":{"name":"crew.tell","arguments":"{\"input\":\"hello\"}"}},{"id":"d","type":"function","function":{"name":"word","arguments":"{\"input\":\"7\"}"}},{"id":"e","type":"function","function":{"name":"run","arguments":"{}"}},{"id":"f","type":"function","function":{"name":"tool_search","arguments":"{\"query\":\"files\"}"}}]}
    {"role":"tool","tool_call_id":"a","content":"hired"}
    {"role":"tool","tool_call_id":"b","content":"edited"}
    {"role":"tool","tool_call_id":"c","content":"told"}
    {"role":"tool","tool_call_id":"d","content":""}
    {"role":"tool","tool_call_id":"e","content":"ran"}
    {"role":"tool","tool_call_id":"f","content":"No tool was found."}
    {"role":"user","content":"and now?"}
    "#);
    insta::assert_snapshot!(lines(&to_upstream(Dialect::OpenaiResponses, decode(ask(input)))["input"]), @r#"
    {"type":"function_call","call_id":"a","name":"crew.hire","arguments":"{\"who\": \"Ann\"}"}
    {"type":"function_call","call_id":"b","name":"edit","arguments":"{\"input\":\"*** Begin\\n+\\\"x\\\"\\n\"}"}
    {"type":"function_call","call_id":"c","name":"crew.tell","arguments":"{\"input\":\"hello\"}"}
    {"type":"function_call","call_id":"d","name":"word","arguments":"{\"input\":\"7\"}"}
    {"type":"function_call","call_id":"e","name":"run","arguments":"{}"}
    {"type":"function_call","call_id":"f","name":"tool_search","arguments":"{\"query\":\"files\"}"}
    {"type":"function_call_output","call_id":"a","output":"hired"}
    {"type":"function_call_output","call_id":"b","output":"edited"}
    {"type":"function_call_output","call_id":"c","output":"told"}
    {"type":"function_call_output","call_id":"d","output":""}
    {"type":"function_call_output","call_id":"e","output":"ran"}
    {"type":"function_call_output","call_id":"f","output":"No tool was found."}
    {"type":"message","role":"user","content":"and now?"}
    "#);
}

#[test]
fn what_a_client_did_for_a_tool_of_openais_own_goes_back_to_its_api_and_is_named_to_others() {
    let input = json!([
        {"role": "user", "content": "go"},
        {"type": "computer_call", "id": "cu_1", "call_id": "a", "status": "completed", "action": {"type": "screenshot"}},
        {"type": "computer_call_output", "call_id": "a", "output": {"type": "computer_screenshot", "image_url": "data:,"}},
        {"role": "user", "content": "on"},
    ]);
    insta::assert_snapshot!(lines(&to_upstream(Dialect::OpenaiResponses, decode(ask(input.clone())))["input"]), @r#"
    {"type":"message","role":"user","content":"go"}
    {"type":"computer_call","id":"cu_1","call_id":"a","status":"completed","action":{"type":"screenshot"}}
    {"type":"computer_call_output","call_id":"a","output":{"type":"computer_screenshot","image_url":"data:,"}}
    {"type":"message","role":"user","content":"on"}
    "#);
    for dialect in FOREIGN {
        assert_eq!(
            left_out(dialect, ask(input.clone())).unwrap(),
            ["input: computer_call", "input: computer_call_output"],
        );
        // nor is a model told of a turn in which the assistant said nothing
        let sent = to_upstream(dialect, decode(ask(input.clone()))).to_string();
        assert!(!sent.contains("assistant") && !sent.contains(r#""model","parts""#), "{sent}");
    }
}

#[test]
fn a_search_that_cannot_be_read_is_told_as_it_was_written() {
    let search = json!({"type": "tool_search", "execution": "client"});
    let view = view(ask_with(json!({"tools": [search]})));
    let mut completion = Completion::new("resp_1", 7, "m", view, LfEvents::Hidden);
    let written = r#"{"query": "fi"#;
    completion.push(&ChatEvent::ClientCalls(vec![ToolCall {
        id: "f".to_owned(),
        name: "tool_search".to_owned(),
        arguments: Arguments::parse(written),
        rest: Map::new(),
    }]));
    completion.push(&finished(FinishReason::ToolCalls));
    assert_eq!(completion.finish().unwrap()["output"][0]["arguments"], written);
}

#[test]
fn what_a_clients_search_found_can_be_called() {
    let mut found = function("list");
    found["defer_loading"] = true.into();
    let space = json!({"type": "namespace", "name": "mcp__disk", "description": "Files.", "tools": [found]});
    let search = json!({"type": "tool_search", "execution": "client"});
    let call = json!({"type": "tool_search_call", "call_id": "a", "execution": "client", "arguments": {"query": "files"}});
    let output = json!({"type": "tool_search_output", "call_id": "a", "execution": "client", "tools": [space, function("run")]});
    let input = json!([{"role": "user", "content": "hi"}, call, output]);
    let body = json!({"model": "m", "input": input, "tools": [function("run"), search]});
    insta::assert_snapshot!(sent(body.clone()), @r#"
    {"role":"user","content":"hi"}
    {"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"tool_search","arguments":"{\"query\":\"files\"}"}}]}
    {"role":"tool","tool_call_id":"a","content":"These tools can be called from now on: `mcp__disk_list`, `run`."}
    tools: [{"type":"function","function":{"name":"run","description":"Does run.","parameters":{"type":"object","properties":{}},"strict":false}},{"type":"function","function":{"name":"tool_search","description":"Finds further tools, which can be called from then on.","parameters":{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}}},{"type":"function","function":{"name":"mcp__disk.list","description":"[mcp__disk: Files.]\nDoes list.","parameters":{"type":"object","properties":{}},"strict":false}}]
    "#);
    let (request, view) = decoded(body).unwrap();
    insta::assert_snapshot!(lines(&to_upstream(Dialect::OpenaiResponses, request)["tools"]), @r#"
    {"type":"function","name":"run","description":"Does run.","parameters":{"type":"object","properties":{}},"strict":false}
    {"type":"function","name":"tool_search","description":"Finds further tools, which can be called from then on.","parameters":{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]},"strict":false}
    {"type":"function","name":"mcp__disk.list","description":"[mcp__disk: Files.]\nDoes list.","parameters":{"type":"object","properties":{}},"strict":false}
    "#);
    assert_eq!(view.forms["mcp__disk.list"].namespace.as_deref(), Some("mcp__disk"));
    // searched by the model's own API, which has the tools
    let call = json!({"type": "tool_search_call", "id": "tsc_1", "execution": "server", "arguments": {}});
    let output =
        json!({"type": "tool_search_output", "id": "tso_1", "execution": "server", "tools": [space]});
    let request = decode(ask(json!([{"role": "user", "content": "hi"}, call, output])));
    assert_eq!(request.tools, []);
    assert_eq!(to_upstream(Dialect::OpenaiResponses, request)["input"][2], output);
}

#[test]
fn tools_that_came_with_earlier_input_are_there_when_the_conversation_goes_on() {
    let space = json!({"type": "namespace", "name": "disk", "tools": [function("list")]});
    let declared = json!([function("run"), {"type": "tool_search", "execution": "client"}]);
    let first = decode(json!({"model": "m", "tools": declared, "input": [
        {"type": "additional_tools", "role": "developer", "tools": [function("late"), {"type": "web_search"}]},
        {"role": "user", "content": "hi"},
        {"type": "tool_search_call", "call_id": "a", "execution": "client", "arguments": {"query": "files"}},
        {"type": "tool_search_output", "call_id": "a", "execution": "client", "tools": [space]},
    ]}));
    let names = |request: &ChatRequest| -> Vec<String> {
        request.tools.iter().map(|tool| tool.name.clone()).collect()
    };
    assert_eq!(names(&first), ["run", "tool_search", "late", "disk.list"]);
    for dialect in FOREIGN.into_iter().chain([Dialect::OpenaiResponses]) {
        let sent = to_upstream(dialect, first.clone()).to_string();
        assert!(!sent.contains("$tools") && sent.matches("Does late.").count() == 1, "{sent}");
    }

    let output = json!({"type": "function_call_output", "call_id": "b", "output": "a.md"});
    let new = json!({"type": "additional_tools", "role": "developer", "tools": [function("new"), function("late")]});
    let go_on = |fields: Value| {
        let mut body = json!({"model": "m", "previous_response_id": "resp_1", "tools": declared, "input": [output, new]});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let (mut request, mut view) = decoded(body).unwrap();
        let recalled = view.recall_tools(&mut request, &first.messages);
        recalled.map(|()| (request, view))
    };
    let (request, view) = go_on(json!({})).unwrap();
    assert_eq!(names(&request), ["run", "tool_search", "disk.list", "new", "late"]);
    assert_eq!(view.forms["disk.list"].namespace.as_deref(), Some("disk"));
    assert_eq!(request.parameters[RESPONSES_ONLY]["tools"], json!([{"type": "web_search"}]));
    let one =
        json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "run"}]});
    assert_eq!(names(&go_on(json!({"tool_choice": one})).unwrap().0), ["run"]);
    // of those that were found before, too, and of their namespaces
    let allow = |tool: Value| {
        go_on(json!({"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [tool]}}))
    };
    let (request, _) = allow(json!({"type": "function", "name": "list", "namespace": "disk"})).unwrap();
    assert_eq!(
        (names(&request), request.tool_choice),
        (vec!["disk.list".to_owned()], Some(ToolChoice::Tool("disk.list".to_owned())))
    );
    assert_eq!(names(&allow(json!({"type": "namespace", "name": "disk"})).unwrap().0), ["disk.list"]);
    let (request, _) = allow(json!({"type": "web_search"})).unwrap();
    assert_eq!(
        (names(&request), &request.parameters[RESPONSES_ONLY]["tools"]),
        (vec![], &json!([{"type": "web_search"}]))
    );
    let (request, _) = go_on(json!({"tool_choice": {"type": "function", "name": "list"}})).unwrap();
    assert_eq!(request.tool_choice, Some(ToolChoice::Tool("disk.list".to_owned())));
    let error = allow(json!({"type": "function", "name": "gone"})).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("tool_choice.tools[0].name"));
    assert!(error.message.contains("nor a search found"), "{}", error.message);
}

#[test]
fn what_agents_write_to_each_other_is_read_as_a_persons_words() {
    let sealed = json!({
        "type": "object", "properties": {"message": {"type": "string", "encrypted": true}, "encrypted": {"type": "string"}},
    });
    let mut send = function("send");
    send["parameters"] = sealed;
    let content = json!([{"type": "input_text", "text": "From: lead\n"}, {"type": "encrypted_content", "encrypted_content": "Go on."}]);
    let input =
        json!([{"type": "agent_message", "author": "lead", "recipient": "lead/a", "content": content}]);
    insta::assert_snapshot!(sent(json!({"model": "m", "input": input, "tools": [send]})), @r#"
    {"role":"user","content":[{"type":"text","text":"From: lead\n"},{"type":"text","text":"Go on."}]}
    tools: [{"type":"function","function":{"name":"send","description":"Does send.","parameters":{"type":"object","properties":{"message":{"type":"string"},"encrypted":{"type":"string"}}},"strict":false}}]
    "#);
}
