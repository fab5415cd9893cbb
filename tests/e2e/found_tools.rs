//! Tools that a client's search found: declared once, and there in what follows, however the conversation is kept.

use lf_tests::client::{get, post};
use lf_tests::conversation::create;
use lf_tests::project::{Daemon, TestProject};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use serde_json::{Value, json};

/// A client of the Responses API that says `go_on` how a request goes on from the one before.
struct Client<'a> {
    daemon: &'a Daemon,
    declared: Value,
}

impl Client<'_> {
    fn ask(&self, on: (&str, &Value), input: &Value, more: &Value) -> Value {
        let mut body = json!({"tools": self.declared, "input": input});
        if !on.1.is_null() {
            body[on.0] = on.1.clone();
        }
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = post(&self.daemon.url("/v1/responses"), &body);
        assert!(answer.status == 200 || answer.status == 400, "{answer:?}");
        answer.json()
    }

    /// Lets the model search, and gives it what was found; the response after that.
    fn find(&self, on: impl Fn(&Value) -> (&'static str, Value)) -> Value {
        let (key, id) = on(&Value::Null);
        let first = self.ask((key, &id), &json!("What time is it?"), &json!({}));
        let search = &first["output"][0];
        assert_eq!(search["type"], "tool_search_call", "{first}");
        let now = json!({"type": "function", "name": "now", "parameters": {"type": "object"}});
        let found = json!([{"type": "namespace", "name": "clock", "tools": [now]}]);
        let output = json!([{
            "type": "tool_search_output", "call_id": search["call_id"], "execution": "client", "tools": found,
        }]);
        let (key, id) = on(&first);
        self.ask((key, &id), &output, &json!({}))
    }
}

fn search() -> Reply {
    Reply::call("c1", "tool_search", json!({"query": "clock"}))
}

fn declared() -> Value {
    json!([
        {"type": "function", "name": "run", "parameters": {"type": "object"}},
        {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}},
    ])
}

fn allow(tool: &Value) -> Value {
    json!({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [tool]}})
}

fn goes_on_with_found_tools(on: impl Fn(&Daemon) -> Box<dyn Fn(&Value) -> (&'static str, Value)>) {
    let model = ScriptedModel::start([
        search(),
        Reply::text("Found."),
        Reply::call("c2", "clock_now", json!({})),
        Reply::text("Noon."),
        Reply::text("Still noon."),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let client = Client { daemon: &daemon, declared: declared() };
    let on = on(&daemon);
    let found = client.find(&on);
    let known = ["run", "tool_search", "clock_now"];
    assert_eq!(model.request(1).tool_names(), known);

    let (key, id) = on(&found);
    let third = client.ask((key, &id), &json!("And now?"), &json!({}));
    assert_eq!(model.request(2).tool_names(), known, "they are not found a second time");
    let call = &third["output"][0];
    assert_eq!((&call["name"], &call["namespace"]), (&json!("now"), &json!("clock")), "{third}");
    // as it is read again
    let again = get(&daemon.url(&format!("/v1/responses/{}", third["id"].as_str().unwrap()))).ok();
    assert_eq!(again["output"], third["output"]);

    let (key, id) = on(&third);
    let output = json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "12:00"}]);
    let fourth = client.ask((key, &id), &output, &json!({}));
    let (key, id) = on(&fourth);
    let gone = json!({"type": "function", "name": "gone"});
    let refused = client.ask((key, &id), &json!("And now?"), &allow(&gone));
    assert_eq!(refused["error"]["param"], "tool_choice.tools[0].name", "{refused}");
    let now = json!({"type": "function", "name": "now", "namespace": "clock"});
    client.ask((key, &id), &json!("And now?"), &allow(&now));
    assert_eq!(model.request(4).tool_names(), ["clock_now"]);
    model.finish();
}

#[test]
fn in_a_kept_conversation_found_tools_are_there_and_may_be_allowed_alone() {
    goes_on_with_found_tools(|daemon| {
        let id = json!(create(daemon, &json!({})));
        Box::new(move |_| ("conversation", id.clone()))
    });
}

#[test]
fn from_response_to_response_found_tools_are_there_and_may_be_allowed_alone() {
    goes_on_with_found_tools(|_| Box::new(|before| ("previous_response_id", before["id"].clone())));
}

#[test]
fn compaction_forgets_no_found_tool() {
    let model = ScriptedModel::start([
        search(),
        Reply::text("Found."),
        Reply::text("They asked for the time."),
        Reply::call("c2", "clock_now", json!({})),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let client = Client { daemon: &daemon, declared: declared() };
    let found = client.find(|before| ("previous_response_id", before["id"].clone()));
    let body = json!({"model": "assistant", "previous_response_id": found["id"]});
    let short = post(&daemon.url("/v1/responses/compact"), &body).ok();
    let mut items = short["output"].as_array().unwrap().clone();
    items.push(json!({"role": "user", "content": "And now?"}));
    let last = client.ask(("previous_response_id", &Value::Null), &items.into(), &json!({}));
    assert_eq!(model.request(3).tool_names(), ["run", "tool_search", "clock_now"]);
    assert_eq!(last["output"][0]["namespace"], "clock", "{last}");
    assert!(!model.request(2).tool_names().contains(&"clock_now".to_owned()), "a summary calls nothing");
    model.finish();
}
