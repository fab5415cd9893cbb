use std::time::Duration;

use lf_core::model::ToolSpec;
use lf_core::{
    Arguments, ChatEvent, Content, FinishReason, Message, ModelError, ModelRequest, Part, ToolCall,
    ToolResult, Usage,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::Dialect;
use crate::upstream::{UpstreamOptions, encode_whole};

mod protocol;

fn decode(body: &Value) -> Result<ModelRequest, RequestError> {
    let (request, view) = decode_request(body.to_string().as_bytes())?;
    Ok(ModelRequest { stream: view.stream, ..request.into() })
}

fn encode(request: &ModelRequest) -> Value {
    encode_whole(Dialect::OpenaiChat, "gpt", request, &UpstreamOptions::default()).unwrap()
}

#[test]
fn what_comes_in_goes_out_unknown_fields_too() {
    let body = json!({
        "model": "gpt",
        "messages": [
            {"role": "developer", "content": "Be brief", "name": "n"},
            {"role": "system", "content": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}]},
            {"role": "user", "content": [
                {"type": "text", "text": "Look"},
                {"type": "image_url", "image_url": {"url": "https://x/i.png", "detail": "low"}},
                {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
            ]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{ \"q\": 1 }"}, "extra_content": {"s": 1}},
            ], "refusal": null},
            {"role": "tool", "tool_call_id": "a", "content": "seen", "name": "look"},
            {"role": "assistant", "content": "Done"},
        ],
        "tools": [{"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object", "properties": {"q": {"type": "integer"}}}, "x": 1}, "cache_control": {"type": "ephemeral"}}],
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "temperature": 0.5,
        "parallel_tool_calls": false,
        "made_up": {"b": 1, "a": [2]},
        "stream": true,
        "stream_options": {"include_obfuscation": false, "include_usage": true},
    });
    let request = decode(&body).unwrap();
    assert_eq!(encode(&request), body);
    assert_eq!(encode(&request)["messages"].to_string(), body["messages"].to_string(), "to the byte");
    assert_eq!(decode(&encode(&request)).unwrap(), request);
}

#[test]
fn reasoning_models_get_their_limit_under_its_newer_name() {
    let request = decode(&json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 5})).unwrap();
    let named = |model: &str| {
        let body = encode_whole(Dialect::OpenaiChat, model, &request, &UpstreamOptions::default()).unwrap();
        (body["max_tokens"].clone(), body["max_completion_tokens"].clone())
    };
    for model in ["o3-mini", "gpt-5.1", "openai/gpt-5"] {
        assert_eq!(named(model), (Value::Null, json!(5)), "{model}");
    }
    for model in ["gpt-4o", "gpt-oss-20b", "olmo", "phi"] {
        assert_eq!(named(model), (json!(5), Value::Null), "{model}");
    }
}

#[test]
fn what_upstreams_reject_without_its_object_is_left_out() {
    let body = json!({"messages": [{"role": "user", "content": "x"}], "tools": [], "tool_choice": "auto", "parallel_tool_calls": true, "stream_options": {"include_usage": true}, "n": 1});
    insta::assert_snapshot!(encode(&decode(&body).unwrap()), @r#"{"model":"gpt","messages":[{"role":"user","content":"x"}],"n":1}"#);
}

fn result(id: &str, content: Content, is_error: bool) -> Message {
    Message::Tool(ToolResult { name: Some("t".to_owned()), is_error, ..ToolResult::new(id, content) })
}

#[test]
fn images_of_results_follow_after_all_results_of_the_round() {
    let image = Part::Image { url: "data:image/png;base64,AA".to_owned(), detail: None };
    let request = ModelRequest {
        messages: vec![
            result("a", Content::Parts(vec![Part::Text("one".to_owned()), image]), false),
            result("b", "broke".into(), true),
            Message::User(lf_core::Prose { content: "go on".into(), rest: Map::new() }),
        ],
        ..ModelRequest::default()
    };
    insta::assert_snapshot!(format!("{:#}", encode(&request)["messages"]), @r#"
    [
      {
        "role": "tool",
        "tool_call_id": "a",
        "content": "one\n[image 1: in the next user message]"
      },
      {
        "role": "tool",
        "tool_call_id": "b",
        "content": "Error: broke"
      },
      {
        "role": "user",
        "content": [
          {
            "type": "text",
            "text": "[image 1 of the result of call a]"
          },
          {
            "type": "image_url",
            "image_url": {
              "url": "data:image/png;base64,AA"
            }
          }
        ]
      },
      {
        "role": "user",
        "content": "go on"
      }
    ]
    "#);
}

fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: "t".to_owned(),
        arguments: Arguments::parse(arguments),
        rest: Map::new(),
    }
}

#[test]
fn ids_that_do_not_fit_are_changed_alike_in_calls_and_results() {
    let long = "x".repeat(50);
    let request = ModelRequest {
        messages: vec![
            Message::Assistant(lf_core::AssistantMessage {
                calls: vec![call(&long, ""), call("123456789", "garbage")],
                ..Default::default()
            }),
            result(&long, "r".into(), false),
        ],
        ..ModelRequest::default()
    };
    for (call_ids, limit) in [(CallIds::AtMost40, 40), (CallIds::NineAlphanumeric, 9)] {
        let body = encode_whole(
            Dialect::OpenaiChat,
            "m",
            &request,
            &UpstreamOptions { call_ids, replay_reasoning: true, ..UpstreamOptions::default() },
        )
        .unwrap();
        let id = &body["messages"][0]["tool_calls"][0]["id"];
        assert!(id.as_str().unwrap().len() <= limit);
        assert_eq!(*id, body["messages"][1]["tool_call_id"]);
        assert_eq!(body["messages"][0]["tool_calls"][1]["id"], "123456789");
        assert_eq!(body["messages"][0]["tool_calls"][1]["function"]["arguments"], "{}");
        assert_eq!(body["messages"][0]["reasoning_content"], "");
    }
}

#[test]
fn wrong_requests_are_told_where_and_what_was_expected() {
    let message = |message: Value| json!({"messages": [message]});
    let user = json!([{"role": "user", "content": "x"}]);
    let bodies = [
        json!([]),
        json!({}),
        json!({"messages": []}),
        json!({"messages": "hi"}),
        json!({"messages": user, "model": 7}),
        message(json!({"role": "robot", "content": "x"})),
        message(json!({"content": "x"})),
        message(json!({"role": "user"})),
        message(json!({"role": "user", "content": [{"type": "text"}]})),
        message(json!({"role": "tool", "content": "x"})),
        message(json!({"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": 1}}]})),
        message(json!({"role": "function", "name": "f", "content": "x"})),
        json!({"messages": user, "n": 2}),
        json!({"messages": user, "logprobs": true}),
        json!({"messages": user, "functions": []}),
        json!({"messages": user, "stream": "yes"}),
        json!({"messages": user, "tools": [{"type": "web_search"}]}),
        json!({"messages": user, "tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]}),
        json!({"messages": user, "tool_choice": "sometimes"}),
    ];
    let told = bodies.iter().map(|body| {
        let error = decode(body).unwrap_err();
        let reply = request_error_reply(&error);
        assert_eq!(reply.status, 400);
        format!("{}: {}", error.param.unwrap_or_default(), reply.body["error"]["message"].as_str().unwrap())
    });
    insta::assert_snapshot!(told.collect::<Vec<_>>().join("\n"), @r##"
    : the body must be a JSON object; send {"messages": [...]}
    messages: `messages` is missing: the conversation so far
    messages: `messages` is empty; send at least one
    messages: `messages` must be an array, not a string
    model: `model` must be a string, not a number
    messages[0].role: `messages[0].role` is `robot`; use `system`, `developer`, `user`, `assistant` or `tool`
    messages[0].role: `messages[0].role` is missing: use `system`, `developer`, `user`, `assistant` or `tool`
    messages[0].content: `messages[0].content` is missing: only an assistant's message may do without
    messages[0].content[0].text: `messages[0].content[0].text` must be a string, not null
    messages[0].tool_call_id: `messages[0].tool_call_id` is missing: a string is needed
    messages[0].tool_calls[0].function.name: `messages[0].tool_calls[0].function.name` must be a string, not a number
    messages[0].role: `messages[0].role` is `function`, the form of 2023; use `tool` with `tool_call_id`
    n: `n` must be 1: an answer that may run tools has one choice; send one request for each choice
    logprobs: log probabilities cannot be carried through a tool loop; leave `logprobs` out
    functions: `functions` is the form of 2023 and not supported; send `tools` and `tool_choice`
    stream: `stream` must be true or false, not a string
    tools[0].type: `tools[0].type` is `web_search`: only functions can be passed on; declare it as a function
    tools[0].function.parameters: `tools[0].function.parameters` must be a JSON Schema (an object), not an array
    tool_choice: `tool_choice` is `sometimes`; use "auto", "none", "required" or {"type": "function", "function": {"name": "..."}}
    "##);
    assert!(decode_request(b"{").unwrap_err().message.starts_with("the body is not JSON"));
}

fn events() -> Vec<ChatEvent> {
    let progress = lf_core::tool::ToolProgress { progress: 1.0, total: None, message: None };
    vec![
        ChatEvent::Started { turn: "t".to_owned(), model: "m".to_owned() },
        ChatEvent::Reasoning("hm".to_owned()),
        ChatEvent::CallStarted { call: call("a", "{}"), tool: None },
        ChatEvent::CallProgress { call_id: "a".to_owned(), progress },
        ChatEvent::CallFinished {
            result: ToolResult::error(&call("a", "{}"), "no"),
            elapsed: Duration::from_millis(5),
        },
        ChatEvent::Text("Hi \"you\"".to_owned()),
        ChatEvent::ClientCalls(vec![call("b", "{\"x\":1}"), call("c", "")]),
        ChatEvent::Finished {
            stop_sequence: None,
            reason: FinishReason::ToolCalls,
            usage: Usage { input: 5, output: 2, cached: 1, ..Usage::default() },
            rounds: 2,
        },
    ]
}

fn chunks(view: ViewOptions, lf_events: LfEvents, events: &[ChatEvent]) -> String {
    let mut encoder = ChunkEncoder::new("id1", 7, "m", view, lf_events);
    events.iter().flat_map(|event| encoder.event(event)).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_turn_becomes_one_stream_of_chunks() {
    let view = ViewOptions { stream: true, include_usage: true };
    insta::assert_snapshot!(chunks(view, LfEvents::Told, &events()), @r##"
    {"id":"id1","object":"chat.completion.chunk","created":7,"model":"m","usage":null,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}
    {"id":"id1","object":"chat.completion.chunk","created":7,"model":"m","usage":null,"choices":[{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":null}]}
    {"id":"id1","object":"chat.completion.chunk","created":7,"model":"m","usage":null,"choices":[{"index":0,"delta":{},"finish_reason":null}],"lf":{"event":"tool_call","call_id":"a","name":"t","server":null,"tool":null,"arguments":"{}"}}
    {"id":"id1","object":"chat.completion.chunk","created":7,"model":"m","usage":null,"choices":[{"index":0,"delta":{},"finish_reason":null}],"lf":{"event":"tool_progress","call_id":"a","progress":1.0,"total":null,"message":null}}
    {"id":"id1","object":"chat.completion.chunk","created":7,"model":"m","usage":null,"choices":[{"index":0,"delta":{},"finish_reason":null}],"lf":{"event":"tool_result","call_id":"a","name":"t","is_error":true,"elapsed_ms":5,"text":"no","truncated":false}}
    {"id":"id1","object":"chat.completion.chunk","created":7,"model":"m","usage":null,"choices":[{"index":0,"delta":{"content":"Hi \"you\""},"finish_reason":null}]}
    {"id":"id1","object":"chat.completion.chunk","created":7,"model":"m","usage":null,"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"b","type":"function","function":{"name":"t","arguments":"{\"x\":1}"}},{"index":1,"id":"c","type":"function","function":{"name":"t","arguments":"{}"}}]},"finish_reason":null}]}
    {"id":"id1","object":"chat.completion.chunk","created":7,"model":"m","usage":null,"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}
    {"id":"id1","object":"chat.completion.chunk","created":7,"model":"m","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"reasoning_tokens":0}}}
    "##);
}

#[test]
fn hidden_work_leaves_no_trace() {
    let told = chunks(ViewOptions::default(), LfEvents::Hidden, &events());
    assert!(!told.contains("\"lf\"") && !told.contains("\"usage\"") && !told.contains("\"a\""), "{told}");
}

#[test]
fn a_failed_turn_ends_in_an_error_and_nothing_after_it() {
    let failed = ChatEvent::Failed(ModelError::Failed {
        url: "http://up".to_owned(),
        status: 503,
        message: "overloaded".to_owned(),
        retry_after: None,
    });
    let mut all = vec![ChatEvent::Text("a".to_owned()), failed.clone()];
    all.extend(events());
    insta::assert_snapshot!(chunks(ViewOptions::default(), LfEvents::Told, &all), @r##"
    {"id":"id1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}
    {"id":"id1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}
    {"error":{"message":"overloaded","type":"server_error","param":null,"code":"upstream_error"}}
    "##);
    let mut completion = Completion::new("id", 1, "m", LfEvents::Told);
    completion.push(&failed);
    assert_eq!(completion.finish().unwrap_err().status, 503);
}

#[test]
fn a_turn_becomes_one_completion() {
    let mut completion = Completion::new("id1", 7, "m", LfEvents::Hidden);
    events().iter().for_each(|event| completion.push(event));
    insta::assert_snapshot!(completion.finish().unwrap(), @r##"{"id":"id1","object":"chat.completion","created":7,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi \"you\"","reasoning_content":"hm","tool_calls":[{"id":"b","type":"function","function":{"name":"t","arguments":"{\"x\":1}"}},{"id":"c","type":"function","function":{"name":"t","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"reasoning_tokens":0}}}"##);
    assert_eq!(Completion::new("i", 1, "m", LfEvents::Told).finish().unwrap_err().status, 500);
}

#[test]
fn a_daemon_that_goes_down_is_no_upstream_that_failed() {
    let reply = error_reply(&ModelError::going_down());
    assert_eq!((reply.status, &reply.body["error"]["code"]), (503, &json!("shutting_down")));
    assert_eq!(reply.body["error"]["type"], "server_error");
}

#[test]
fn upstream_failures_keep_their_class_and_their_words() {
    let cases: [(u16, &str); 10] = [
        (
            400,
            r#"{"error":{"message":"context length exceeded","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
        ),
        (401, r#"{"error":{"message":"bad key"}}"#),
        (403, r#"{"message":"no"}"#),
        (404, "<html>\u{1}not here</html>"),
        (422, r#"{"detail":[{"msg":"field required"}]}"#),
        (429, r#"[{"error":{"message":"slow","status":"RESOURCE_EXHAUSTED"}}]"#),
        (500, ""),
        (503, "busy"),
        (529, r#"{"error":"overloaded"}"#),
        (302, "moved"),
    ];
    let told = cases.iter().map(|(status, body)| {
        let error = error_body(*status, body.as_bytes(), "http://up", Some(Duration::from_secs(3)));
        let reply = error_reply(&error);
        let retry = reply.retry_after.map_or(String::new(), |after| format!(" retry {after:?}"));
        format!("{status} -> {}{retry} {}", reply.status, reply.body)
    });
    insta::assert_snapshot!(told.collect::<Vec<_>>().join("\n"), @r##"
    400 -> 400 {"error":{"message":"context length exceeded","type":"invalid_request_error","code":"context_length_exceeded","param":null}}
    401 -> 401 {"error":{"message":"bad key","type":"authentication_error","param":null,"code":"invalid_api_key"}}
    403 -> 403 {"error":{"message":"no","type":"permission_error","param":null,"code":"permission_denied"}}
    404 -> 404 {"error":{"message":"HTML instead of JSON: <html> not here</html>","type":"invalid_request_error","param":null,"code":null}}
    422 -> 422 {"error":{"message":"field required","type":"invalid_request_error","param":null,"code":null}}
    429 -> 429 retry 3s {"error":{"message":"slow","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}
    500 -> 500 retry 3s {"error":{"message":"no reason given","type":"server_error","param":null,"code":"upstream_error"}}
    503 -> 503 retry 3s {"error":{"message":"busy","type":"server_error","param":null,"code":"upstream_error"}}
    529 -> 529 retry 3s {"error":{"message":"overloaded","type":"server_error","param":null,"code":"upstream_error"}}
    302 -> 502 {"error":{"message":"http://up answered with something that is no model answer: HTTP status 302: moved","type":"server_error","param":null,"code":"upstream_invalid_answer"}}
    "##);
}

#[test]
fn an_unknown_model_is_told_with_those_that_exist() {
    let reply = unknown_model_reply("x", ["a", "b"]);
    insta::assert_snapshot!(format!("{} {}", reply.status, reply.body), @r##"404 {"error":{"message":"the model `x` does not exist; the models are `a`, `b`","type":"invalid_request_error","param":"model","code":"model_not_found"}}"##);
    insta::assert_snapshot!(models(["a"], 7, "lf"), @r##"{"object":"list","data":[{"id":"a","object":"model","created":7,"owned_by":"lf"}]}"##);
}

#[test]
fn a_tool_without_parameters_gets_an_empty_object() {
    let spec =
        ToolSpec { name: "t".to_owned(), description: None, schema: Value::Null.into(), rest: Map::new() };
    let request = ModelRequest { tools: [spec].into(), ..ModelRequest::default() };
    assert_eq!(
        encode(&request)["tools"][0]["function"]["parameters"],
        json!({"type": "object", "properties": {}})
    );
}

proptest! {
    #[test]
    fn every_stream_has_one_id_one_role_and_one_end(
        picks in prop::collection::vec(0usize..8, 0..20),
        include_usage in any::<bool>(),
    ) {
        let pool = events();
        let mut script: Vec<ChatEvent> = picks.into_iter().map(|pick| pool[pick].clone()).collect();
        script.push(pool[7].clone());
        let view = ViewOptions { stream: true, include_usage };
        let mut encoder = ChunkEncoder::new("one", 7, "m", view, LfEvents::Told);
        let chunks: Vec<Value> = script
            .iter()
            .flat_map(|event| encoder.event(event))
            .map(|chunk| serde_json::from_str(&chunk).unwrap())
            .collect();
        prop_assert!(chunks.iter().all(|chunk| chunk["id"] == "one" && chunk["object"] == "chat.completion.chunk"));
        let count = |pointer: &str| chunks.iter().filter(|c| !c.pointer(pointer).unwrap_or(&Value::Null).is_null()).count();
        prop_assert_eq!(count("/choices/0/delta/role"), 1);
        prop_assert_eq!(count("/choices/0/finish_reason"), 1);
        prop_assert_eq!(count("/usage"), usize::from(include_usage));
        prop_assert!(chunks[0]["choices"][0]["delta"]["role"] == "assistant");
        let last = &chunks[chunks.len() - 1 - usize::from(include_usage)];
        prop_assert!(!last["choices"][0]["finish_reason"].is_null());
        let indexes: Vec<u64> = chunks
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array())
            .flatten()
            .map(|call| call["index"].as_u64().unwrap())
            .collect();
        prop_assert!(indexes.iter().enumerate().all(|(at, index)| at as u64 == *index));
    }
}
