//! Many tools, odd names, rich schemas.

use lf_tests::client::{assemble, stream};
use lf_tests::client::{chat, post, streamed_chat};
use lf_tests::project::{TestProject, document, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Call, Reply, ScriptedModel};
use serde_json::{Value, json};

fn upload() -> Value {
    json!({
        "type": "function",
        "name": "cli.dataset_upload",
        "description": "Upload a file to a dataset",
        "parameters": {
            "type": "object",
            "required": ["filepath"],
            "properties": {"filepath": {"type": "string"}},
        },
    })
}

#[test]
fn the_same_tool_of_two_servers_stays_two_tools() {
    let tool = |words: &str| Script::with([ScriptedTool::new("read", Act::Text(words.to_owned()))]);
    let model = ScriptedModel::start([
        Reply::calls([Call::new("a", "left__read", json!({})), Call::new("b", "right__read", json!({}))]),
        Reply::text("done"),
    ]);
    let servers = [scripted("left", &tool("from the left")), scripted("right", &tool("from the right"))];
    let project = TestProject::with_model(&model.base_url(), &servers);
    project.run(&["chat", "hi"]).ok();
    let last = model.request(1);
    assert_eq!(last.result_of("a").as_deref(), Some("from the left"));
    assert_eq!(last.result_of("b").as_deref(), Some("from the right"));
    model.finish();
}

#[test]
fn an_inline_tool_goes_back_to_the_client_under_its_real_name() {
    let call = || Reply::call("a", "cli_dataset_upload", json!({"filepath": "x.csv"}));
    let model = ScriptedModel::start([call(), call(), Reply::text("uploaded")]);
    let project = TestProject::of(&document(json!({"tools": [upload()]}), &model.base_url(), &[]));
    let daemon = project.serve();
    let url = daemon.url("/v1/chat/completions");

    let answer = assemble(&stream(&url, &streamed_chat("hi")).rest());
    assert_eq!(answer.finish_reasons, ["tool_calls"]);
    assert_eq!(answer.calls[0]["function"]["name"], "cli.dataset_upload");

    let answer = post(&url, &chat("hi")).ok();
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["tool_calls"][0]["function"]["name"], "cli.dataset_upload");
    let arguments = message["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(arguments).unwrap(), json!({"filepath": "x.csv"}));

    // The client has run it, and comes back.
    let mut request = chat("hi");
    let result = json!({"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "ok"});
    request["messages"].as_array_mut().unwrap().extend([message.clone(), result]);
    assert_eq!(post(&url, &request).ok()["choices"][0]["message"]["content"], "uploaded");
    model.finish();
}

#[test]
fn a_server_s_tool_may_have_dots_and_slashes_in_its_name() {
    let server = Script::echoing(&["files.read/all", "files_read_all"]);
    let model = ScriptedModel::start_with(|number, request| {
        let names: Vec<&str> = request["tools"]
            .as_array()?
            .iter()
            .filter_map(|tool| tool["function"]["name"].as_str())
            .collect();
        Some(match number {
            0 => Reply::calls(names.iter().map(|name| Call::new(name, name, json!({"for": name})))),
            _ => Reply::text("done"),
        })
    });
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    project.run(&["chat", "hi"]).ok();
    let last = model.request(1);
    assert_eq!(last.tool_names().len(), 2);
    for name in last.tool_names() {
        assert_eq!(last.result_of(&name), Some(json!({"for": name}).to_string()));
    }
}

#[test]
fn three_hundred_tools_are_all_offered_and_each_can_be_called() {
    let server = Script { count: 300, page_size: 100, ..Script::default() };
    let model =
        ScriptedModel::start([Reply::call("a", "many__tool_299", json!({"n": 1})), Reply::text("done")]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("many", &server)]);
    project.run(&["chat", "hi"]).ok();
    assert_eq!(model.request(0).tool_names().len(), 300);
    assert_eq!(model.request(1).result_of("a").as_deref(), Some(r#"{"n":1}"#));
    model.finish();
}

#[test]
fn a_rich_schema_arrives_whole_at_the_model() {
    let schema = json!({
        "type": "object",
        "properties": {
            "target": {"$ref": "#/$defs/target"},
            "mode": {"oneOf": [{"const": "fast"}, {"type": "object", "properties": {"level": {"type": "integer"}}}]},
        },
        "required": ["target"],
        "additionalProperties": false,
        "$defs": {"target": {"type": "string", "minLength": 2, "description": "where to"}},
    });
    let tools = [ScriptedTool::new("go", Act::Echo).schema(schema.clone())];
    let model = ScriptedModel::start([
        Reply::call("a", "~go", json!({"target": "x"})),
        Reply::call("b", "~go", json!({"target": "barn", "mode": {"level": 3}})),
        Reply::text("done"),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &Script::with(tools))]);
    project.run(&["chat", "hi"]).ok();
    assert_eq!(model.request(0).body["tools"][0]["function"]["parameters"], schema);
    let last = model.request(2);
    assert!(last.result_of("a").unwrap().contains("target"), "wrong arguments are told: {last:?}");
    assert_eq!(last.result_of("b").as_deref(), Some(r#"{"target":"barn","mode":{"level":3}}"#));
    model.finish();
}

#[test]
fn a_model_sees_only_its_own_servers() {
    let servers =
        [scripted("mine", &Script::echoing(&["echo"])), scripted("other", &Script::echoing(&["echo"]))];
    let model = ScriptedModel::start([
        Reply::calls([Call::new("a", "other__echo", json!({})), Call::new("b", "mine__echo", json!({}))]),
        Reply::text("done"),
        Reply::text("no tools"),
    ]);
    let mut content = document(json!({"mcp_servers": ["mine"]}), &model.base_url(), &servers);
    let mut second = content["runtime"]["models"][0].clone();
    second["name"] = json!("plain");
    second["mcp_servers"] = json!([]);
    content["runtime"]["models"].as_array_mut().unwrap().push(second);
    let project = TestProject::of(&content);
    project.run(&["chat", "hi"]).ok();
    assert_eq!(model.request(0).tool_names(), ["mine__echo"]);
    let last = model.request(1);
    assert!(last.result_of("a").unwrap().contains("other__echo"), "{last:?}");
    assert_eq!(last.result_of("b").as_deref(), Some("{}"));
    project.run(&["chat", "--model", "plain", "hi"]).ok();
    assert!(model.request(2).body["tools"].is_null());
    model.finish();
}

#[test]
fn tools_are_allowed_denied_and_renamed_by_the_file() {
    let mut server = scripted("m", &Script::echoing(&["read_file", "read_all", "write_file"]));
    server["tools"] = json!({"allow": ["read_*"], "deny": ["*_all"], "rename": {"read_file": "read"}});
    let model = ScriptedModel::start([Reply::call("a", "m__read", json!({"n": 1})), Reply::text("done")]);
    let project = TestProject::with_model(&model.base_url(), &[server]);
    project.run(&["chat", "hi"]).ok();
    assert_eq!(model.request(0).tool_names(), ["m__read"]);
    assert_eq!(model.request(1).result_of("a").as_deref(), Some(r#"{"n":1}"#));
    model.finish();
}

#[test]
fn a_changed_list_is_seen_by_the_next_request() {
    let server = Script::with([ScriptedTool::new("change", Act::Change)]);
    let model = ScriptedModel::start_with(|number, _| {
        Some(if number == 0 { Reply::call("a", "~change", json!({})) } else { Reply::text("done") })
    });
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    let daemon = project.serve();
    let url = daemon.url("/v1/chat/completions");
    post(&url, &chat("hi")).ok();
    lf_tests::wait::eventually("the new tool", || {
        post(&url, &chat("again")).ok();
        model.asked().last()?.tool_names().contains(&"m__late".to_owned()).then_some(())
    });
}
