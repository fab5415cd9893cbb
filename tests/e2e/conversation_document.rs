//! The conversations that the documents describe: every request and answer with its fields, no more and no fewer, and what
//! they announce for later: streaming, stopping, calls side by side, time limits.

use std::collections::BTreeSet;
use std::time::Duration;

use lf_tests::client::{get, post, request, stream};
use lf_tests::project::{Daemon, TestProject, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Call, Reply, ScriptedModel};
use lf_tests::wait::Gate;
use serde_json::{Value, json};

#[track_caller]
fn has_just(value: &Value, fields: &[&str]) {
    let found: BTreeSet<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(found, fields.iter().copied().collect(), "{value}");
}

fn create(daemon: &Daemon) -> String {
    let created = post(&daemon.url("/conversations"), &json!({}));
    created.json()["conversation"]["id"].as_str().expect("an id").to_owned()
}

fn switch_on(daemon: &Daemon, id: &str, tools: &[&str]) {
    for tool in tools {
        let chosen = json!({"server_id": "m", "tool_name": tool});
        post(&daemon.url(&format!("/conversations/{id}/tools")), &chosen).ok();
    }
}

const CONVERSATION: [&str; 7] =
    ["id", "title", "system_prompt", "model", "project", "created_at", "updated_at"];
const SAID: [&str; 4] = ["id", "role", "content", "timestamp"];

#[test]
fn every_answer_has_its_fields_and_no_others() {
    let model = ScriptedModel::start([
        Reply::calls([Call::new("call_123", "m__list_directory", json!({"path": "/docs"}))]),
        Reply::text("The /docs directory contains: README.md and API.md"),
    ]);
    let project =
        TestProject::with_model(&model.base_url(), &[scripted("m", &Script::echoing(&["list_directory"]))]);
    let daemon = project.serve();
    let created =
        post(&daemon.url("/conversations"), &json!({"title": "Docs", "system_prompt": "Be brief."}));
    assert_eq!(created.status, 201);
    has_just(&created.json(), &["success", "conversation", "message"]);
    has_just(&created.json()["conversation"], &CONVERSATION);
    let id = created.json()["conversation"]["id"].as_str().unwrap().to_owned();
    let at = |rest: &str| daemon.url(&format!("/conversations/{id}{rest}"));

    let listed = get(&daemon.url("/conversations")).ok();
    has_just(&listed, &["success", "count", "conversations"]);
    has_just(&listed["conversations"][0], &CONVERSATION);
    let one = get(&at("")).ok();
    has_just(&one, &["success", "conversation"]);
    has_just(&one["conversation"], &[&CONVERSATION[..], &["running_turns"]].concat());

    let available = get(&at("/tools/available")).ok();
    has_just(&available, &["success", "count", "tools", "down", "held_back"]);
    has_just(
        &available["tools"][0],
        &["server_id", "tool_name", "name", "description", "parameters", "enabled"],
    );
    let tool = json!({"server_id": "m", "tool_name": "list_directory"});
    has_just(&post(&at("/tools"), &tool).ok(), &["success", "message", "server_id", "tool_name"]);
    let enabled = get(&at("/tools")).ok();
    has_just(&enabled, &["success", "count", "enabled_tools"]);
    assert_eq!(enabled["enabled_tools"], json!([tool]));

    let answer = post(&at("/chat"), &json!({"content": "What files are in /docs?"})).ok();
    has_just(&answer, &["success", "user_message", "assistant_message", "message"]);
    has_just(&answer["user_message"], &SAID);
    has_just(&answer["assistant_message"], &SAID);
    assert_eq!(
        (&answer["success"], &answer["message"]),
        (&json!(true), &json!("Chat completed successfully"))
    );

    let messages = get(&at("/messages")).ok();
    has_just(&messages, &["success", "count", "messages"]);
    let messages = messages["messages"].as_array().unwrap();
    has_just(&messages[1], &[&SAID[..], &["tool_calls"]].concat());
    has_just(&messages[1]["tool_calls"][0], &["id", "type", "function"]);
    has_just(&messages[1]["tool_calls"][0]["function"], &["name", "arguments"]);
    has_just(&messages[2], &[&SAID[..], &["tool_call_id", "name"]].concat());
    assert_eq!([&messages[0], &messages[3]], [&answer["user_message"], &answer["assistant_message"]]);
    let time = messages[0]["timestamp"].as_str().unwrap();
    assert!(time.starts_with("20") && time.contains('T') && time.ends_with('Z'), "ISO 8601: {time}");

    let one = at(&format!("/messages/{}", messages[2]["id"].as_str().unwrap()));
    has_just(&get(&one).ok(), &["success", "message"]);
    let added = post(&at("/messages"), &json!({"role": "user", "content": "By the way"}));
    assert_eq!(added.status, 201);
    has_just(&added.json(), &["success", "message"]);
    has_just(&added.json()["message"], &SAID);
    has_just(&request("DELETE", &one, &[], None).ok(), &["success", "message"]);
    let off = at("/tools?server_id=m&tool_name=list_directory");
    has_just(&request("DELETE", &off, &[], None).ok(), &["success", "message"]);
    let renamed = request("PATCH", &at(""), &[], Some(json!({"title": "Files"}).to_string())).ok();
    has_just(&renamed, &["success", "conversation"]);
    has_just(&request("DELETE", &at(""), &[], None).ok(), &["success", "message"]);
    has_just(&get(&at("")).json(), &["error", "message", "details"]);
    model.finish();
}

#[test]
fn an_answer_is_streamed_as_server_sent_events() {
    let model = ScriptedModel::start([
        Reply::call("a", "m__look", json!({"n": 1})),
        Reply::text("seen it, and more").pieces(3),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &Script::echoing(&["look"]))]);
    let daemon = project.serve();
    let id = create(&daemon);
    switch_on(&daemon, &id, &["look"]);
    let url = daemon.url(&format!("/conversations/{id}/chat"));
    let body = json!({"content": "look", "stream": true}).to_string();
    let answer = request("POST", &url, &[], Some(body));
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let field = |name: &str| -> Vec<String> {
        let lines = answer.text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        lines.map(str::to_owned).collect()
    };
    let kinds = field("event");
    assert_eq!(kinds[..3], ["started", "tool_call", "tool_result"]);
    assert!(kinds[3..kinds.len() - 1].iter().all(|kind| kind == "text") && kinds.len() > 6, "{kinds:?}");
    assert_eq!(kinds.last().unwrap(), "finished");
    let numbers: Vec<String> = (1..=kinds.len()).map(|number| number.to_string()).collect();
    assert_eq!(field("id"), numbers, "each is numbered, to come back to");
    model.finish();
}

#[test]
fn an_answer_that_is_stopped_leaves_what_was_said_and_the_conversation_goes_on() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |at, _| {
        Some(match at {
            0 => {
                let reply = Reply::text("first half, second half").pieces(4);
                reply.with(|answer| answer.hold = Some((4, held.clone())))
            }
            _ => Reply::text("Yes."),
        })
    });
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let id = create(&daemon);
    let url = daemon.url(&format!("/conversations/{id}/chat"));
    let mut events = stream(&url, &json!({"content": "speak", "stream": true}));
    let turn = events.until("the start", |event| event["event"] == "started")["turn"].clone();
    events.until("some text", |event| event["event"] == "text");
    let cancel = daemon.url(&format!("/v1/turns/{}/cancel", turn.as_str().unwrap()));
    assert_eq!(post(&cancel, &json!({})).ok()["status"], "cancelled");
    model.wait_for_abort();
    assert!(events.rest().last().unwrap().contains("finished"));
    let messages = get(&daemon.url(&format!("/conversations/{id}/messages"))).ok();
    let said = messages["messages"][1]["content"].as_str().unwrap();
    assert!(!said.is_empty() && "first half, second half".starts_with(said), "{said}");
    let next = post(&url, &json!({"content": "are you there?"})).ok();
    assert_eq!(next["assistant_message"]["content"], "Yes.");
    assert_eq!(model.request(1).messages()[1]["content"], said);
    gate.open();
}

#[test]
fn the_calls_of_one_answer_run_side_by_side() {
    let tools = ["one", "two", "three"].map(|name| ScriptedTool::new(name, Act::Together(3)));
    let model = ScriptedModel::start([
        Reply::calls(["one", "two", "three"].map(|name| Call::new(name, &format!("m__{name}"), json!({})))),
        Reply::text("all three"),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &Script::with(tools))]);
    let daemon = project.serve();
    let id = create(&daemon);
    switch_on(&daemon, &id, &["one", "two", "three"]);
    let answer = post(&daemon.url(&format!("/conversations/{id}/chat")), &json!({"content": "go"})).ok();
    assert_eq!(answer["assistant_message"]["content"], "all three");
    let messages = get(&daemon.url(&format!("/conversations/{id}/messages"))).ok();
    let answered: Vec<&str> = messages["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|message| message["tool_call_id"].as_str())
        .collect();
    assert_eq!(answered, ["one", "two", "three"], "told in the order of the calls");
    model.finish();
}

#[test]
fn the_time_of_a_call_is_limited_where_the_file_says_so() {
    let script = Script::with([ScriptedTool::new("wait", Act::Hang)]);
    let model = ScriptedModel::start([
        Reply::calls([Call::new("a", "m__wait", json!({}))]),
        Reply::text("It took too long."),
    ]);
    let mut server = scripted("m", &script);
    server["timeout"] = json!("300ms");
    let project = TestProject::with_model(&model.base_url(), &[server]);
    let daemon = project.serve();
    let id = create(&daemon);
    switch_on(&daemon, &id, &["wait"]);
    let begun = std::time::Instant::now();
    let answer = post(&daemon.url(&format!("/conversations/{id}/chat")), &json!({"content": "go"})).ok();
    assert_eq!(answer["assistant_message"]["content"], "It took too long.");
    assert!((Duration::from_millis(300)..Duration::from_secs(10)).contains(&begun.elapsed()));
    let messages = get(&daemon.url(&format!("/conversations/{id}/messages"))).ok();
    let told = messages["messages"][2]["content"].as_str().unwrap();
    assert!(told.contains("300ms"), "the model is told why: {told}");
    model.finish();
}
