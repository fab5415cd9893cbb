//! What a turn decides: whose calls, how many rounds, what is run.

use lf_tests::client::{assemble, chat, post, stream, streamed_chat};
use lf_tests::project::{TestProject, document, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Call, End, Reply, ScriptedModel};
use serde_json::{Value, json};

fn weather() -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    json!({"type": "function", "function": {"name": "get_weather", "parameters": parameters}})
}

#[test]
fn a_round_of_server_and_client_calls_is_put_together_again() {
    let model = ScriptedModel::start([
        Reply::calls([
            Call::new("server-1", "m__echo", json!({"n": 1})),
            Call::new("client-1", "get_weather", json!({"city": "Lima"})),
            Call::new("server-2", "m__echo", json!({"n": 2})),
        ]),
        Reply::text("It is fine in Lima."),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &Script::echoing(&["echo"]))]);
    let daemon = project.serve();
    let url = daemon.url("/v1/chat/completions");
    let mut request = chat("hi");
    request["tools"] = json!([weather()]);
    let answer = post(&url, &request).ok();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 1, "only the client's own call: {answer}");
    assert_eq!(calls[0]["function"]["name"], "get_weather");

    let result = json!({"role": "tool", "tool_call_id": calls[0]["id"], "content": "sunny"});
    request["messages"].as_array_mut().unwrap().extend([choice["message"].clone(), result]);
    assert_eq!(post(&url, &request).ok()["choices"][0]["message"]["content"], "It is fine in Lima.");
    // The model checks that every call has its result; here, that none is lost.
    let last = model.request(1);
    let calls = last.messages().iter().find_map(|message| message["tool_calls"].as_array()).unwrap();
    assert_eq!(calls.len(), 3, "{last:?}");
    let results: Vec<_> =
        calls.iter().map(|call| last.result_of(call["id"].as_str().unwrap()).unwrap()).collect();
    assert_eq!(results, [r#"{"n":1}"#, "sunny", r#"{"n":2}"#]);
    model.finish();
}

#[test]
fn the_last_round_is_an_answer_without_tools() {
    let model = ScriptedModel::start_with(|number, request| {
        Some(match request["tools"] {
            Value::Null => Reply::text("That is as far as I got."),
            _ => Reply::call(&format!("call-{number}"), "~echo", json!({"n": number})),
        })
    });
    let limits = json!({"limits": {"rounds": 3}});
    let server = scripted("m", &Script::echoing(&["echo"]));
    let project = TestProject::of(&document(limits, &model.base_url(), &[server]));
    let answer = project.run(&["chat", "hi"]).ok();
    assert_eq!(answer.stdout.trim(), "That is as far as I got.");
    assert_eq!(model.asked().len(), 4);
}

#[test]
fn the_same_call_over_and_over_is_answered_with_an_error() {
    let model = ScriptedModel::start_with(|number, _| {
        Some(match number {
            0..=3 => Reply::call(&format!("call-{number}"), "~echo", json!({"same": true})),
            _ => Reply::text("I gave up."),
        })
    });
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = Script { log: Some(log.path().to_owned()), ..Script::echoing(&["echo"]) };
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    project.run(&["chat", "hi"]).ok();
    let noted = std::fs::read_to_string(log.path()).unwrap();
    assert!(noted.matches("call echo").count() <= 3, "{noted}");
}

#[test]
fn what_is_wrong_with_a_call_is_told_to_the_model() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let tools = [
        ScriptedTool::new("fails", Act::Fail("no hay left".to_owned())),
        ScriptedTool::new("echo", Act::Echo),
    ];
    let server = Script { log: Some(log.path().to_owned()), ..Script::with(tools) };
    let model = ScriptedModel::start([
        Reply::calls([
            Call::raw("broken", "m__echo", "{\"a\": "),
            Call::raw("list", "m__echo", "[1, 2]"),
            Call::new("unknown", "m__nothing", json!({})),
            Call::new("fails", "m__fails", json!({})),
            Call::raw("empty", "m__echo", ""),
        ]),
        Reply::text("done"),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    project.run(&["chat", "hi"]).ok();
    let last = model.request(1);
    for id in ["broken", "list"] {
        assert!(last.result_of(id).unwrap().contains("arguments"), "{id}: {last:?}");
    }
    assert!(last.result_of("unknown").unwrap().contains("m__nothing"), "{last:?}");
    assert!(last.result_of("fails").unwrap().contains("no hay left"), "{last:?}");
    assert_eq!(last.result_of("empty").as_deref(), Some("{}"));
    let noted = std::fs::read_to_string(log.path()).unwrap();
    assert_eq!(noted.matches("call echo").count(), 1, "{noted}");
    model.finish();
}

#[test]
fn calls_in_the_shapes_of_other_upstreams_are_understood() {
    let chunk = |delta: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    let finish = |reason: &str| json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]});
    let model = ScriptedModel::start([
        // No index, no type, no id, arguments an object, and `stop` at the end.
        Reply::chunks([
            chunk(json!({"tool_calls": [{"function": {"name": "m__echo", "arguments": {"n": 1}}}]})),
            finish("stop"),
        ]),
        // The whole call at once, the name again in every chunk.
        Reply::chunks([
            json!({"choices": []}),
            chunk(
                json!({"tool_calls": [{"index": 0, "id": "x", "function": {"name": "m__echo", "arguments": "{\"n\""}}]}),
            ),
            chunk(
                json!({"tool_calls": [{"index": 0, "id": "x", "function": {"name": "m__echo", "arguments": ": 2}"}}]}),
            ),
            finish("tool_calls"),
        ]),
        Reply::text("done").finish_reason("end_turn"),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &Script::echoing(&["echo"]))]);
    let daemon = project.serve();
    let answer = assemble(&stream(&daemon.url("/v1/chat/completions"), &streamed_chat("hi")).rest());
    assert_eq!(answer.text, "done");
    assert_eq!(answer.finish_reasons, ["stop"]);
    let results: Vec<Value> =
        model.request(2).messages().iter().filter(|message| message["role"] == "tool").cloned().collect();
    assert!(
        results[0]["content"].to_string().contains("1") && results[1]["content"].to_string().contains("2")
    );
    model.finish();
}

#[test]
fn a_call_whose_arguments_were_cut_off_is_not_run() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = Script { log: Some(log.path().to_owned()), ..Script::echoing(&["echo"]) };
    let call = || Reply::call("a", "~echo", json!({"text": "a rather long argument"})).pieces(4);
    // The second is one document, so it is cut by its bytes.
    let model = ScriptedModel::start([call().end(End::CutAfter(4)), call().writes(60).end(End::CutAfter(4))]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    let daemon = project.serve();
    let url = daemon.url("/v1/chat/completions");

    let events = stream(&url, &streamed_chat("hi"));
    if events.status == 200 {
        let answer = assemble(&events.rest());
        assert_eq!(answer.errors.len(), 1, "{answer:?}");
        assert!(!answer.done && answer.finish_reasons.is_empty(), "{answer:?}");
    } else {
        assert_eq!(events.status, 502);
    }
    let refused = post(&url, &chat("hi"));
    assert_eq!(refused.status, 502, "{refused:?}");
    assert!(!refused.json()["error"]["message"].as_str().unwrap().is_empty());
    let noted = std::fs::read_to_string(log.path()).unwrap();
    assert!(!noted.contains("call echo"), "{noted}");
    model.finish();
}

#[test]
fn a_call_cut_by_the_token_limit_is_not_run() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = Script { log: Some(log.path().to_owned()), ..Script::echoing(&["echo"]) };
    let model = ScriptedModel::start_with(|number, _| {
        Some(match number {
            0 => Reply::calls([Call::raw("a", "~echo", "{\"path\": \"/tm")]).finish_reason("length"),
            _ => Reply::text("done"),
        })
    });
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    let daemon = project.serve();
    post(&daemon.url("/v1/chat/completions"), &chat("hi"));
    let noted = std::fs::read_to_string(log.path()).unwrap();
    assert!(!noted.contains("call echo"), "{noted}");
}

#[test]
fn a_long_result_is_shortened_for_the_model() {
    let server = Script::with([ScriptedTool::new("big", Act::Big(2_000_000))]);
    let model = ScriptedModel::start([Reply::call("a", "~big", json!({})), Reply::text("done")]);
    let limits = json!({"limits": {"result_tokens": 1000}});
    let project = TestProject::of(&document(limits, &model.base_url(), &[scripted("m", &server)]));
    project.run(&["chat", "hi"]).ok();
    let size = model.request(1).result_of("a").unwrap().len();
    assert!((1000..6000).contains(&size), "{size}");
    model.finish();
}

#[test]
fn fields_of_the_request_reach_the_upstream() {
    let model = ScriptedModel::start([Reply::text("{}")]);
    let parameters = json!({"model_api_parameters": {"temperature": 0.2, "top_p": 0.5}});
    let project = TestProject::of(&document(parameters, &model.base_url(), &[]));
    let daemon = project.serve();
    let mut request = chat("hi");
    for (name, value) in [
        ("temperature", json!(0.7)),
        ("response_format", json!({"type": "json_object"})),
        ("seed", json!(7)),
        ("stop", json!(["END"])),
        ("something_new", json!({"a": [1]})),
    ] {
        request[name] = value;
    }
    post(&daemon.url("/v1/chat/completions"), &request).ok();
    let sent = model.request(0).body;
    assert_eq!(sent["temperature"], 0.7);
    assert_eq!(sent["top_p"], 0.5);
    for name in ["response_format", "seed", "stop", "something_new"] {
        assert_eq!(sent[name], request[name], "{name}");
    }
    assert_eq!(model.request(0).headers["authorization"], "Bearer sk-scripted");
    model.finish();
}

#[test]
fn prompts_of_the_project_come_first_with_their_variables() {
    let model = ScriptedModel::start([Reply::text("hello")]);
    let mut content = document(json!({"prompts": ["greeting"]}), &model.base_url(), &[]);
    let messages =
        json!([{"role": "system", "content": "You serve {{user | a guest}} in {{place | the barn}}."}]);
    content["prompts"] = json!([{"name": "greeting", "messages": messages}]);
    let project = TestProject::of(&content);
    let daemon = project.serve();
    let mut request = chat("hi");
    request["variables"] = json!({"user": "Dolly"});
    post(&daemon.url("/v1/chat/completions"), &request).ok();
    let asked = model.request(0);
    assert_eq!(asked.messages()[0]["content"], "You serve Dolly in the barn.");
    assert!(asked.body["variables"].is_null());
    model.finish();
}
