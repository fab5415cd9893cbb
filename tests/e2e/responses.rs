//! Responses that clients come back to.

use lf_tests::client::{Response, get, post, request, stream};
use lf_tests::project::{Daemon, TestProject, scripted};
use lf_tests::scripted_mcp::Script;
use lf_tests::scripted_model::{Call, Reply, ScriptedModel};
use lf_tests::wait::{Gate, eventually};
use serde_json::{Value, json};

fn ask(daemon: &Daemon, body: Value) -> Response {
    let mut body = body;
    body["model"] = json!("assistant");
    post(&daemon.url("/v1/responses"), &body)
}

fn delete(url: &str) -> Response {
    request("DELETE", url, &[], None)
}

fn text(response: &Value) -> String {
    let items = response["output"].as_array().expect("output items");
    let texts = items.iter().flat_map(|item| item["content"].as_array().into_iter().flatten());
    texts.filter_map(|part| part["text"].as_str()).collect()
}

#[test]
fn a_response_can_be_read_gone_on_from_and_deleted() {
    let model = ScriptedModel::start([
        Reply::call("a", "~look", json!({"at": "x"})),
        Reply::text("I looked."),
        Reply::text("You asked me to look."),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &Script::echoing(&["look"]))]);
    let daemon = project.serve();
    let mut first = ask(&daemon, json!({"input": "look", "instructions": "be brief"})).ok();
    assert_eq!(text(&first), "I looked.");
    assert_eq!(first.as_object_mut().unwrap().remove("lf").unwrap()["events"][0]["tool"], "look");
    let id = first["id"].as_str().unwrap();
    let url = daemon.url(&format!("/v1/responses/{id}"));
    assert_eq!(get(&url).ok(), first);
    let items = get(&format!("{url}/input_items")).ok();
    assert_eq!(items["data"][0]["content"][0]["text"], "look", "{items}");

    let second = ask(&daemon, json!({"input": "what did I ask?", "previous_response_id": id})).ok();
    assert_eq!(text(&second), "You asked me to look.");
    assert_eq!(second["previous_response_id"], id);
    let history = model.request(2);
    let roles: Vec<&str> = history.messages().iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(
        roles,
        ["user", "assistant", "tool", "assistant", "user"],
        "instructions are not carried over"
    );
    assert!(history.result_of("a").is_some_and(|result| result.contains('x')), "the tool's result is there");

    assert_eq!(delete(&url).ok()["deleted"], true);
    assert_eq!(get(&url).status, 404);
    assert_eq!(delete(&url).status, 404);
    let lost = ask(&daemon, json!({"input": "again", "previous_response_id": id}));
    assert_eq!(lost.status, 400, "{lost:?}");
    assert_eq!(lost.json()["error"]["code"], "previous_response_not_found");
    model.finish();
}

#[test]
fn a_response_belongs_to_its_project_and_store_false_keeps_nothing() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("ok")));
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let scoped = daemon.url("/v1/projects/default/demo/responses");
    let here = post(&scoped, &json!({"model": "assistant", "input": "hi"})).ok();
    let id = here["id"].as_str().unwrap();
    assert_eq!(get(&format!("{scoped}/{id}")).status, 200);
    assert_eq!(get(&daemon.url(&format!("/v1/responses/{id}"))).status, 404);
    let unkept = ask(&daemon, json!({"input": "hi", "store": false})).ok();
    assert_eq!(get(&daemon.url(&format!("/v1/responses/{}", unkept["id"].as_str().unwrap()))).status, 404);
}

#[test]
fn calls_of_the_client_s_are_gone_on_from_by_id() {
    let model = ScriptedModel::start([
        Reply::calls([
            Call::new("a", "m__look", json!({"at": "x"})),
            Call::new("b", "mine", json!({"n": 1})),
        ]),
        Reply::text("both done"),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &Script::echoing(&["look"]))]);
    let daemon = project.serve();
    let tools =
        json!([{"type": "function", "name": "mine", "parameters": {"type": "object", "properties": {}}}]);
    let first = ask(&daemon, json!({"input": "go", "tools": tools})).ok();
    let call = first["output"].as_array().unwrap().iter().find(|item| item["type"] == "function_call");
    let call = call.expect("a call for the client");
    let output =
        json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "mine is done"}]);
    let second =
        ask(&daemon, json!({"input": output, "tools": tools, "previous_response_id": first["id"]})).ok();
    assert_eq!(text(&second), "both done");
    let asked = model.request(1);
    assert!(asked.result_of("a").is_some_and(|result| result.contains('x')), "{asked:?}");
    let answered = asked.asked.answered_calls();
    assert_eq!(answered.len(), 2, "{answered:?}");
    model.finish();
}

#[test]
fn tools_that_a_search_found_stay_when_the_conversation_goes_on() {
    let model = ScriptedModel::start([
        Reply::call("a", "tool_search", json!({"query": "files"})),
        Reply::call("b", "disk_list", json!({})),
        Reply::call("c", "disk_list", json!({})),
        Reply::text("the same"),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let tools = json!([{"type": "tool_search", "execution": "client"}]);
    let list =
        json!({"type": "function", "name": "list", "parameters": {"type": "object", "properties": {}}});
    let space = json!({"type": "namespace", "name": "disk", "tools": [list]});
    let mut response = ask(&daemon, json!({"input": "which files?", "tools": tools})).ok();
    let outputs = [
        json!({"type": "tool_search_output", "execution": "client", "tools": [space]}),
        json!({"type": "function_call_output", "output": "a.md"}),
        json!({"type": "function_call_output", "output": "a.md"}),
    ];
    for (round, mut output) in outputs.into_iter().enumerate() {
        let call = response["output"].as_array().and_then(|items| items.last()).expect("a call").clone();
        if round > 0 {
            assert_eq!((&call["name"], &call["namespace"]), (&json!("list"), &json!("disk")), "{call}");
        }
        output["call_id"] = call["call_id"].clone();
        response =
            ask(&daemon, json!({"input": [output], "tools": tools, "previous_response_id": response["id"]}))
                .ok();
        assert_eq!(model.request(round + 1).tool_names(), ["tool_search", "disk_list"], "round {round}");
    }
    assert_eq!(text(&response), "the same");
    model.finish();
}

#[test]
fn a_response_in_the_background_goes_on_and_can_be_cancelled() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |_, _| Some(Reply::text("at last").hold(&held)));
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let begun = ask(&daemon, json!({"input": "hi", "background": true})).ok();
    assert!(matches!(begun["status"].as_str(), Some("queued" | "in_progress")), "{begun}");
    let url = |response: &Value| daemon.url(&format!("/v1/responses/{}", response["id"].as_str().unwrap()));
    let doomed = ask(&daemon, json!({"input": "hi", "background": true})).ok();
    model.wait_for_requests(2);
    let cancelled = post(&format!("{}/cancel", url(&doomed)), &json!({})).ok();
    assert_eq!(cancelled["status"], "cancelled");
    eventually("the request to the model to be given up", || (model.aborted() == 1).then_some(()));
    gate.open();
    let done = eventually("the response", || {
        let response = get(&url(&begun)).ok();
        (response["status"] == "completed").then_some(response)
    });
    assert_eq!(text(&done), "at last");
    assert_eq!(get(&url(&doomed)).ok()["status"], "cancelled", "it stays so");
    let late = post(&format!("{}/cancel", url(&begun)), &json!({}));
    assert_eq!(late.status, 400, "{late:?}");
    let unstored = ask(&daemon, json!({"input": "hi", "background": true, "store": false}));
    assert_eq!(unstored.status, 400, "{unstored:?}");
    assert_eq!(unstored.json()["error"]["param"], "background");
}

#[test]
fn a_client_that_goes_away_leaves_a_cancelled_response() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |_, _| Some(Reply::text("never seen").hold(&held)));
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    // the stream begins after ten seconds at the latest, also without a word of the model's
    let body = json!({"model": "assistant", "input": "hi", "stream": true});
    let mut events = stream(&daemon.url("/v1/responses"), &body);
    let created = events.until("the beginning", |event| event["type"] == "response.created");
    let url = daemon.url(&format!("/v1/responses/{}", created["response"]["id"].as_str().unwrap()));
    assert_eq!(get(&url).ok()["status"], "in_progress");
    drop(events);
    eventually("the response to be cancelled", || (get(&url).ok()["status"] == "cancelled").then_some(()));
    gate.open();
}

#[test]
fn the_client_s_limit_of_tool_calls_holds() {
    let model = ScriptedModel::start([
        Reply::calls([
            Call::new("a", "m__look", json!({"n": 1})),
            Call::new("b", "m__look", json!({"n": 2})),
        ]),
        Reply::text("only one"),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &Script::echoing(&["look"]))]);
    let daemon = project.serve();
    let response = ask(&daemon, json!({"input": "go", "max_tool_calls": 1})).ok();
    assert_eq!(text(&response), "only one");
    let asked = model.request(1);
    assert!(asked.result_of("b").is_some_and(|result| result.contains("limit")), "{asked:?}");
    model.finish();
}
