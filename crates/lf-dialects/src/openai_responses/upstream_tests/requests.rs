//! Asking them.

use lf_core::model::ToolSpec;
use lf_core::{
    Arguments, AssistantMessage, Content, Message, ModelRequest, Part, Prose, ToolCall, ToolChoice,
    ToolResult,
};

use super::*;
use crate::upstream::{Encoded, UpstreamOptions, encode, encode_whole, tools};

fn user(text: &str) -> Message {
    Message::User(Prose { content: text.into(), ..Prose::default() })
}

fn asked(id: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: "look".to_owned(),
        arguments: Arguments::parse(arguments),
        rest: Map::new(),
    }
}

fn result(id: &str, content: impl Into<Content>) -> Message {
    Message::Tool(ToolResult { name: Some("look".to_owned()), ..ToolResult::new(id, content) })
}

fn look() -> ToolSpec {
    ToolSpec {
        name: "look".to_owned(),
        description: Some("Looks.".into()),
        schema: json!({"type": "object", "properties": {"q": {"type": "string"}}}).into(),
        rest: Map::new(),
    }
}

fn with_parameters(parameters: Value) -> ModelRequest {
    ModelRequest { messages: vec![user("Hi")], parameters: object(parameters), ..ModelRequest::default() }
}

fn encoded(model: &str, request: &ModelRequest) -> Encoded {
    encode(Dialect::OpenaiResponses, model, request, &UpstreamOptions::default()).unwrap()
}

fn pretty(model: &str, request: &ModelRequest) -> String {
    let body = encode_whole(Dialect::OpenaiResponses, model, request, &UpstreamOptions::default()).unwrap();
    let mut lines = vec![];
    for (key, value) in body.as_object().unwrap() {
        match value {
            Value::Array(list) => {
                lines.push(format!("{key}:"));
                lines.extend(list.iter().map(|value| format!("  {value}")));
            }
            value => lines.push(format!("{key}: {value}")),
        }
    }
    lines.join("\n")
}

#[test]
fn a_conversation_becomes_items() {
    let developer = Prose { content: "Be brief.".into(), rest: object(json!({"role": "developer"})) };
    let seen = vec![
        Part::Text("See".to_owned()),
        Part::Image { url: "data:image/png;base64,AA==".to_owned(), detail: Some("low".to_owned()) },
        Part::Other(
            json!({"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}}),
        ),
    ];
    let mut failed = ToolResult::error(&asked("b", ""), "gone");
    failed.rest = Map::new();
    let request = ModelRequest {
        messages: vec![
            Message::System(Prose { content: "You look.".into(), ..Prose::default() }),
            Message::System(developer),
            Message::User(Prose { content: Content::Parts(seen), rest: object(json!({"name": "ann"})) }),
            Message::Assistant(AssistantMessage {
                content: "Wait.".into(),
                reasoning: Some("not to be sent".to_owned()),
                calls: vec![asked("a", "{\"q\": 1}"), asked("b", "")],
                rest: Map::new(),
            }),
            result(
                "a",
                Content::Parts(vec![
                    Part::Text("Shown:".to_owned()),
                    Part::Image { url: "https://x/y.png".to_owned(), detail: None },
                    Part::Other(json!({"type": "input_audio", "input_audio": {}})),
                ]),
            ),
            Message::Tool(failed),
            Message::Assistant(AssistantMessage {
                rest: object(json!({"refusal": "No.", "annotations": []})),
                ..AssistantMessage::default()
            }),
        ],
        tools: [look()].into(),
        tool_choice: Some(ToolChoice::Tool("look".to_owned())),
        parameters: object(json!({"parallel_tool_calls": false})),
        stream: true,
    };
    insta::assert_snapshot!(pretty("gpt-4.1", &request), @r#"
    model: "gpt-4.1"
    input:
      {"type":"message","role":"system","content":"You look."}
      {"type":"message","role":"developer","content":"Be brief."}
      {"type":"message","role":"user","content":[{"type":"input_text","text":"See"},{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"low"},{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,AA=="}]}
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Wait."}]}
      {"type":"function_call","call_id":"a","name":"look","arguments":"{\"q\": 1}"}
      {"type":"function_call","call_id":"b","name":"look","arguments":"{}"}
      {"type":"function_call_output","call_id":"a","output":[{"type":"input_text","text":"Shown:"},{"type":"input_image","image_url":"https://x/y.png","detail":"auto"},{"type":"input_text","text":"[content of type `input_audio`, which this model cannot be shown]"}]}
      {"type":"function_call_output","call_id":"b","output":"Error: gone"}
      {"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"No."}]}
    parallel_tool_calls: false
    tool_choice: {"type":"function","name":"look"}
    store: false
    stream: true
    tools:
      {"type":"function","name":"look","description":"Looks.","parameters":{"type":"object","properties":{"q":{"type":"string"}}},"strict":false}
    "#);
    assert_eq!(encoded("gpt-4.1", &request).left_out, ["messages[].name"]);
}

#[test]
fn the_items_of_each_round_go_back_to_their_places() {
    let (deltas, error) = read(&[rich().to_string().as_bytes()], &[]);
    assert_eq!(error, None);
    let mut said = AssistantMessage::default();
    let mut text = String::new();
    for delta in deltas {
        match delta {
            ModelDelta::Text(more) => text.push_str(&more),
            ModelDelta::Call(call) => said.calls.push(call),
            ModelDelta::State(state) => said.rest = state,
            _ => {}
        }
    }
    said.content = text.into();
    let long = "x".repeat(70);
    let bare = AssistantMessage {
        calls: vec![asked(&long, "{}")],
        rest: object(json!({"$responses": {"items": [thought("rs_9", Value::Null, &["never sealed"])]}})),
        ..AssistantMessage::default()
    };
    let cut = AssistantMessage {
        rest: object(json!({"$responses": {"items": [thought("rs_8", json!("SEAL"), &[])]}})),
        ..AssistantMessage::default()
    };
    let request = ModelRequest {
        messages: vec![
            user("Look"),
            Message::Assistant(said),
            result("call_a", "1"),
            result("call_b", "2"),
            Message::Assistant(bare),
            result(&long, "3"),
            Message::Assistant(cut),
        ],
        tools: [look()].into(),
        ..ModelRequest::default()
    };
    insta::assert_snapshot!(pretty("gpt-5", &request), @r#"
    model: "gpt-5"
    input:
      {"type":"message","role":"user","content":"Look"}
      {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"**Plan** 天"},{"type":"summary_text","text":"Look twice."}],"encrypted_content":"SEAL1"}
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me 😀 see."}],"phase":"commentary"}
      {"type":"function_call","call_id":"call_a","name":"look","arguments":"{\"q\": \"é\"}"}
      {"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"SEAL2"}
      {"type":"function_call","call_id":"call_b","name":"look","arguments":"{}"}
      {"type":"function_call_output","call_id":"call_a","output":"1"}
      {"type":"function_call_output","call_id":"call_b","output":"2"}
      {"type":"function_call","call_id":"call_c71bd109227e23434ecf71fd0a344a20","name":"look","arguments":"{}"}
      {"type":"function_call_output","call_id":"call_c71bd109227e23434ecf71fd0a344a20","output":"3"}
    include:
      "reasoning.encrypted_content"
    store: false
    tools:
      {"type":"function","name":"look","description":"Looks.","parameters":{"type":"object","properties":{"q":{"type":"string"}}},"strict":false}
    "#);
}

#[test]
fn several_messages_of_one_answer_stay_several() {
    let two = |first: &str, second: &str| {
        json!([
            {"type": "message", "role": "assistant", "phase": "commentary",
                "content": [{"type": "output_text", "text": first, "annotations": []}]},
            {"type": "message", "role": "assistant", "phase": "final_answer",
                "content": [{"type": "output_text", "text": second, "annotations": []}]},
        ])
    };
    let items_of = |content: &str, items: Value| {
        let said = AssistantMessage {
            content: content.into(),
            rest: object(json!({"$responses": {"items": items}})),
            ..AssistantMessage::default()
        };
        let request = ModelRequest { messages: vec![Message::Assistant(said)], ..ModelRequest::default() };
        Value::from(encoded("gpt-5", &request).fields)["input"].clone()
    };
    let (deltas, _) = read(&[response(two("One.", "Two.")).to_string().as_bytes()], &[]);
    let state = deltas.iter().find_map(|delta| match delta {
        ModelDelta::State(state) => Some(state["$responses"]["items"].clone()),
        _ => None,
    });
    let plain = |text: &str, phase: &str| json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], "phase": phase});
    let told = json!([plain("One.", "commentary"), plain("Two.", "final_answer")]);
    assert_eq!(items_of("One.\n\nTwo.", state.unwrap()), told);
    // as a client sends them back
    assert_eq!(items_of("One.\n\nTwo.", two("One.", "Two.")), two("One.", "Two."));
    // a text that is another one now is said in one message
    assert_eq!(items_of("Else.", two("One.", "Two.")), json!([plain("Else.", "final_answer")]));
}

#[test]
fn servers_that_want_ids_of_messages_get_the_same_ones_each_time() {
    let said = AssistantMessage { content: "Hi".into(), ..AssistantMessage::default() };
    let request =
        ModelRequest { messages: vec![user("Hi"), Message::Assistant(said)], ..ModelRequest::default() };
    let options = UpstreamOptions { message_ids: true, ..UpstreamOptions::default() };
    let body = encode_whole(Dialect::OpenaiResponses, "m", &request, &options).unwrap();
    insta::assert_snapshot!(body["input"][1], @r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hi","annotations":[]}],"id":"msg_1","status":"completed"}"#);
}

#[test]
fn parameters_of_chat_completions_are_said_in_this_apis_words() {
    let request = ModelRequest {
        stream: true,
        ..with_parameters(json!({
            "max_tokens": 100, "reasoning_effort": "low", "verbosity": "high", "temperature": 0.5, "top_p": 1,
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}, "strict": true}},
            "stop": ["END", "ENOUGH", "HALT", "QUIT", "DONE"], "n": 1, "seed": null, "logit_bias": {},
            "presence_penalty": 0, "frequency_penalty": 0.0, "logprobs": false, "parallel_tool_calls": true,
            "user": "u", "metadata": {"k": "v"}, "store": true, "service_tier": "flex", "prompt_cache_key": "p",
            "safety_identifier": "s", "prediction": {"type": "content", "content": "x"}, "top_k": 4,
            "stream_options": {"include_usage": true, "include_obfuscation": false},
            "$anthropic": {"metadata": {"user_id": "x"}, "context_management": {"edits": []}, "thinking": {}},
        }))
    };
    insta::assert_snapshot!(pretty("some-model", &request), @r#"
    model: "some-model"
    input:
      {"type":"message","role":"user","content":"Hi"}
    max_output_tokens: 100
    reasoning: {"effort":"low"}
    text: {"verbosity":"high","format":{"type":"json_schema","name":"a","schema":{"type":"object"},"strict":true}}
    temperature: 0.5
    top_p: 1
    user: "u"
    metadata: {"k":"v"}
    store: true
    service_tier: "flex"
    prompt_cache_key: "p"
    safety_identifier: "s"
    top_k: 4
    include:
      "reasoning.encrypted_content"
    stream: true
    stream_options: {"include_obfuscation":false}
    "#);
    let encoded = encoded("some-model", &request);
    assert_eq!(encoded.stops, ["END", "ENOUGH", "HALT", "QUIT", "DONE"]);
    assert_eq!(encoded.left_out, ["prediction", "context_management"]);
}

#[test]
fn a_parameter_that_cannot_be_said_is_refused_by_name() {
    for (key, value) in [
        ("seed", json!(0)),
        ("n", json!(2)),
        ("logprobs", json!(true)),
        ("logit_bias", json!({"1": 2})),
        ("presence_penalty", json!(0.5)),
        ("frequency_penalty", json!(-1)),
        ("modalities", json!(["text", "audio"])),
        ("audio", json!({"voice": "a"})),
    ] {
        let request = with_parameters(json!({ key: value }));
        match encode(Dialect::OpenaiResponses, "m", &request, &UpstreamOptions::default()) {
            Err(ModelError::Unsupported(message)) => {
                assert!(message.contains(&format!("`{key}`")), "{message}");
            }
            other => panic!("{key}: {other:?}"),
        }
    }
    let audio = Content::Parts(vec![Part::Other(json!({"type": "input_audio", "input_audio": {}}))]);
    let request = ModelRequest {
        messages: vec![Message::User(Prose { content: audio, ..Prose::default() })],
        ..ModelRequest::default()
    };
    let error = encode(Dialect::OpenaiResponses, "m", &request, &UpstreamOptions::default());
    insta::assert_snapshot!(error.unwrap_err(), @"a content part of type `input_audio` has no place in the OpenAI Responses API: leave it out, or use a model with another API");
}

#[test]
fn what_a_client_of_the_same_api_sent_is_sent_on() {
    let request = with_parameters(json!({
        "reasoning_effort": "high",
        "$responses": {
            "reasoning": {"effort": "high", "summary": "auto"}, "include": ["message.output_text.logprobs"],
            "truncation": "auto", "max_tool_calls": 3, "store": true, "previous_response_id": "resp_0",
            "input": "Hi", "instructions": "x", "stream": true, "background": false,
            "tools": [{"type": "web_search"}, {"type": "function", "name": "f"}],
            "tool_choice": {"type": "web_search"},
        },
    }));
    insta::assert_snapshot!(pretty("some-model", &request), @r#"
    model: "some-model"
    input:
      {"type":"message","role":"user","content":"Hi"}
    reasoning: {"effort":"high","summary":"auto"}
    truncation: "auto"
    max_tool_calls: 3
    tool_choice: {"type":"web_search"}
    include:
      "message.output_text.logprobs"
      "reasoning.encrypted_content"
    store: false
    tools:
      {"type":"web_search"}
    "#);
}

#[test]
fn sealed_reasoning_is_asked_only_of_models_that_reason() {
    let asks = |model: &str, parameters: Value| {
        let encoded = encoded(model, &with_parameters(parameters));
        encoded.fields.contains_key("include")
    };
    for model in ["gpt-5", "gpt-5.4-mini", "o3", "o4-mini", "openai/gpt-6", "codex-mini-latest", "grok-4"] {
        assert!(asks(model, json!({})), "{model}");
    }
    for model in ["gpt-4.1", "gpt-4o", "gpt-5-chat-latest", "gpt-oss-120b", "chatgpt-4o-latest", "qwen3"] {
        assert!(!asks(model, json!({})), "{model}");
    }
    assert!(asks("my-deployment", json!({"reasoning_effort": "medium"})));
    assert!(!asks("my-deployment", json!({"reasoning_effort": "none"})));
}

#[test]
fn declarations_say_whether_they_are_strict() {
    let mut strict = look();
    strict.rest = object(json!({"strict": true, "$anthropic": {"defer_loading": true}}));
    let mut own = look();
    own.rest = object(json!({"strict": null, "$responses": {"defer_loading": true}}));
    let told = tools(Dialect::OpenaiResponses, &[look(), strict, own]);
    insta::assert_snapshot!(told.replace("},{\"type\":\"function\"", "},\n{\"type\":\"function\""), @r#"
    {"type":"function","name":"look","description":"Looks.","parameters":{"type":"object","properties":{"q":{"type":"string"}}},"strict":false},
    {"type":"function","name":"look","description":"Looks.","parameters":{"type":"object","properties":{"q":{"type":["string","null"]}},"required":["q"],"additionalProperties":false},"strict":true},
    {"type":"function","name":"look","description":"Looks.","parameters":{"type":"object","properties":{"q":{"type":"string"}}},"strict":false,"defer_loading":true}
    "#);
}
