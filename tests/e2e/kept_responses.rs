//! Responses and turns that clients come back to after the daemon was gone.

use lf_tests::client::{Response, chat, get, post, request, stream, watch};
use lf_tests::project::{Daemon, TestProject, scripted};
use lf_tests::scripted_mcp::Script;
use lf_tests::scripted_model::{Call, Reply, ScriptedModel};
use lf_tests::wait::{Gate, PATIENCE, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn ask(daemon: &Daemon, mut body: Value) -> Response {
    body["model"] = json!("assistant");
    post(&daemon.url("/v1/responses"), &body)
}

fn url(daemon: &Daemon, response: &Value) -> String {
    daemon.url(&format!("/v1/responses/{}", response["id"].as_str().expect("an id")))
}

fn text(response: &Value) -> String {
    let items = response["output"].as_array().expect("output items");
    let texts = items.iter().flat_map(|item| item["content"].as_array().into_iter().flatten());
    texts.filter_map(|part| part["text"].as_str()).collect()
}

/// The power goes.
fn kill(daemon: Daemon) {
    daemon.signal(Signal::SIGKILL);
    daemon.wait(PATIENCE);
}

#[test]
fn a_stored_response_outlives_its_daemon_and_leaves_nothing_when_it_is_deleted() {
    let model = ScriptedModel::start([
        Reply::call("a", "~look", json!({"at": "quokka"})),
        Reply::text("A quokka looked back."),
        Reply::text("You asked for it."),
        Reply::text("Another branch."),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &Script::echoing(&["look"]))]);
    let daemon = project.serve();
    let mut first = ask(&daemon, json!({"input": "look for a quokka", "instructions": "be brief"})).ok();
    first.as_object_mut().unwrap().remove("lf");
    kill(daemon);

    let daemon = project.serve();
    assert_eq!(get(&url(&daemon, &first)).ok(), first);
    let items = get(&format!("{}/input_items", url(&daemon, &first))).ok();
    assert_eq!(items["data"][0]["content"][0]["text"], "look for a quokka");
    let id = first["id"].as_str().unwrap();
    let second = ask(&daemon, json!({"input": "why?", "previous_response_id": id})).ok();
    assert_eq!(text(&second), "You asked for it.");
    let asked = model.request(2);
    let roles: Vec<&str> = asked.messages().iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant", "user"]);
    // an item of an answer is found by its id, too
    let item = first["output"].as_array().unwrap().last().unwrap()["id"].clone();
    let input = json!([{"role": "user", "content": "hm"}, {"type": "item_reference", "id": item}]);
    ask(&daemon, json!({"input": input, "store": false})).ok();
    assert!(model.request(3).body.to_string().contains("A quokka looked back."));

    for response in [&first, &second] {
        assert_eq!(request("DELETE", &url(&daemon, response), &[], None).ok()["deleted"], true);
        assert_eq!(get(&url(&daemon, response)).status, 404);
    }
    kill(daemon);
    for file in std::fs::read_dir(project.home().join("data")).unwrap() {
        let path = file.unwrap().path();
        let Ok(bytes) = std::fs::read(&path) else { continue };
        assert!(!bytes.windows(6).any(|at| at == b"quokka"), "it is still in {}", path.display());
    }
    model.finish();
}

#[test]
fn a_response_whose_daemon_died_under_its_client_is_cancelled() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |_, _| Some(Reply::text("never seen").hold(&held)));
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let body = json!({"model": "assistant", "input": "hi", "stream": true});
    let mut events = stream(&daemon.url("/v1/responses"), &body);
    let created = events.until("the beginning", |event| event["type"] == "response.created");
    kill(daemon);
    let daemon = project.serve();
    assert_eq!(get(&url(&daemon, &created["response"])).ok()["status"], "cancelled");
    gate.open();
}

#[test]
fn a_response_in_the_background_goes_on_after_a_crash_and_is_heard_from_any_event() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |at, _| {
        Some(match at {
            0 => Reply::call("a", "~look", json!({"n": 1})),
            1 => Reply::text("never heard").hold(&held),
            _ => Reply::text("at long last").pieces(3),
        })
    });
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &Script::echoing(&["look"]))]);
    let daemon = project.serve();
    let body = json!({"model": "assistant", "input": "look", "background": true, "stream": true});
    let mut events = stream(&daemon.url("/v1/responses"), &body);
    let created = events.until("the beginning", |event| event["type"] == "response.created");
    let seen = events.until("the result", |event| event["lf"]["event"] == "tool_result");
    let seen = seen["sequence_number"].as_u64().unwrap();
    model.wait_for_requests(2);
    kill(daemon);

    let daemon = project.serve();
    let url = url(&daemon, &created["response"]);
    let again = watch(&format!("{url}?stream=true&starting_after={seen}"), &[]);
    assert_eq!(again.status, 200);
    let rest: Vec<Value> = again.rest().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let numbers: Vec<u64> = rest.iter().filter_map(|event| event["sequence_number"].as_u64()).collect();
    let expected: Vec<u64> = (seen + 1..).take(numbers.len()).collect();
    assert_eq!(numbers, expected, "no event is missing and none comes twice");
    let last = rest.last().expect("an end");
    assert_eq!(last["type"], "response.completed", "{last}");
    assert_eq!(text(&last["response"]), "at long last");
    let stored = get(&url).ok();
    assert_eq!((text(&stored).as_str(), &stored["status"]), ("at long last", &json!("completed")));
    let whole = watch(&format!("{url}?stream=true"), &[]).rest();
    let tail: Vec<Value> = whole.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert_eq!(tail.len(), numbers.len() + usize::try_from(seen).unwrap() + 1);
    for (late, live) in tail[tail.len() - rest.len()..].iter().zip(&rest) {
        assert_eq!(
            (&late["type"], &late["delta"]),
            (&live["type"], &live["delta"]),
            "the same from the journal"
        );
    }
    let next = ask(&daemon, json!({"input": "and?", "previous_response_id": created["response"]["id"]})).ok();
    assert_eq!(next["status"], "completed");
    assert!(model.request(3).body.to_string().contains("at long last"));
    gate.open();
}

#[test]
fn a_response_can_be_a_turn_of_a_kept_conversation() {
    let model = ScriptedModel::start_with(|at, _| Some(Reply::text(&format!("answer {at}"))));
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let created = post(&daemon.url("/v1/conversations"), &json!({"system_prompt": "Be brief."}));
    let id = created.json()["conversation"]["id"].as_str().unwrap().to_owned();
    let chat = daemon.url(&format!("/v1/conversations/{id}/chat"));
    post(&chat, &json!({"content": "one"})).ok();
    let response = ask(&daemon, json!({"input": "two", "conversation": {"id": id}})).ok();
    assert_eq!((text(&response).as_str(), &response["conversation"]), ("answer 1", &json!({"id": id})));
    post(&chat, &json!({"content": "three"})).ok();
    let said: Vec<String> = model
        .request(2)
        .messages()
        .iter()
        .map(|message| message["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(said, ["Be brief.", "one", "answer 0", "two", "answer 1", "three"]);
    kill(daemon);

    let daemon = project.serve();
    assert_eq!(text(&get(&url(&daemon, &response)).ok()), "answer 1");
    assert_eq!(request("DELETE", &url(&daemon, &response), &[], None).ok()["deleted"], true);
    let messages = get(&daemon.url(&format!("/conversations/{id}/messages"))).ok();
    assert_eq!(messages["count"], 6, "the conversation keeps what was said in it");
    let unknown = ask(&daemon, json!({"input": "x", "conversation": "conv-none"}));
    assert_eq!(unknown.status, 404, "{unknown:?}");
    assert_eq!(unknown.json()["error"]["code"], "conversation_not_found");
    let both = json!({"input": "x", "conversation": id, "previous_response_id": response["id"]});
    assert_eq!(ask(&daemon, both).status, 400);
}

#[test]
fn without_a_store_a_response_is_answered_where_nobody_insists_that_it_is_kept() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("hello")));
    let project = TestProject::with_model(&model.base_url(), &[]);
    let data = project.home().join("data");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("lf.db"), "no database at all, ".repeat(400)).unwrap();
    let daemon = project.serve();
    let answer = ask(&daemon, json!({"input": "hi"})).ok();
    assert_eq!((text(&answer).as_str(), &answer["store"]), ("hello", &json!(false)));
    let notice = answer["lf"]["events"][0]["message"].as_str().unwrap();
    assert!(notice.contains("not stored") && notice.contains("lf.db"), "{notice}");
    assert_eq!(text(&ask(&daemon, json!({"input": "hi", "store": false})).ok()), "hello");
    for insisting in [
        json!({"input": "hi", "store": true}),
        json!({"input": "hi", "background": true}),
        json!({"input": "hi", "conversation": "conv-1"}),
        json!({"input": "hi", "previous_response_id": "resp_1"}),
    ] {
        let refused = ask(&daemon, insisting);
        assert_eq!(refused.status, 503, "{refused:?}");
        let error = &refused.json()["error"];
        assert_eq!(error["code"], "store_unavailable");
        assert!(error["message"].as_str().unwrap().contains("lf.db"), "{error}");
    }
    assert_eq!(get(&url(&daemon, &answer)).status, 503);
}

#[test]
fn a_client_with_results_of_its_own_calls_is_understood_after_a_crash() {
    let model = ScriptedModel::start([
        Reply::calls([
            Call::new("server-1", "m__echo", json!({"n": 1})),
            Call::new("client-1", "get_weather", json!({"city": "Lima"})),
        ]),
        Reply::text("It is fine in Lima."),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &Script::echoing(&["echo"]))]);
    let daemon = project.serve();
    let mut request = chat("hi");
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    request["tools"] =
        json!([{"type": "function", "function": {"name": "get_weather", "parameters": parameters}}]);
    let answer = post(&daemon.url("/v1/chat/completions"), &request).ok();
    let said = answer["choices"][0]["message"].clone();
    kill(daemon);

    let daemon = project.serve();
    let result = json!({"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "sunny"});
    request["messages"].as_array_mut().unwrap().extend([said, result]);
    let answer = post(&daemon.url("/v1/chat/completions"), &request).ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "It is fine in Lima.");
    let last = model.request(1);
    let calls = last.messages().iter().find_map(|message| message["tool_calls"].as_array()).unwrap();
    let results: Vec<_> =
        calls.iter().map(|call| last.result_of(call["id"].as_str().unwrap()).unwrap()).collect();
    assert_eq!(results, [r#"{"n":1}"#, "sunny"]);
    eventually("the daemon to be well", || (get(&daemon.url("/health")).status == 200).then_some(()));
    model.finish();
}
