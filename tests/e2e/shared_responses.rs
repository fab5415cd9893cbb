//! Responses that one of several daemons on one database makes, and another one is asked for.

use lf_tests::client::{Response, get, post, request, stream, watch};
use lf_tests::postgres::Postgres;
use lf_tests::project::{Daemon, TestProject};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::{Gate, eventually};
use serde_json::{Value, json};

fn ask(daemon: &Daemon, mut body: Value) -> Response {
    body["model"] = json!("assistant");
    post(&daemon.url("/v1/responses"), &body)
}

fn url(daemon: &Daemon, response: &Value) -> String {
    daemon.url(&format!("/v1/responses/{}", response["id"].as_str().expect("an id")))
}

fn status(daemon: &Daemon, response: &Value) -> String {
    get(&url(daemon, response)).ok()["status"].as_str().expect("a status").to_owned()
}

/// Two daemons on one new database.
fn daemons(model: &ScriptedModel) -> (TestProject, [Daemon; 2]) {
    let database = Postgres::shared().database();
    let project = TestProject::with_model(&model.base_url(), &[]).variable("LF_STORAGE", &database.url());
    let both = [project.serve(), project.serve()];
    (project, both)
}

#[test]
fn a_response_is_gone_on_from_and_deleted_at_another_daemon() {
    let model = ScriptedModel::start_with(|at, _| Some(Reply::text(&format!("answer {at}"))));
    let (_project, [one, other]) = daemons(&model);
    let first = ask(&one, json!({"input": "one"})).ok();
    let second = ask(&other, json!({"input": "two", "previous_response_id": first["id"]})).ok();
    assert_eq!(model.request(1).messages().len(), 3, "the model is told what was said at the other one");
    assert_eq!(get(&url(&one, &second)).ok()["status"], "completed");
    assert_eq!(request("DELETE", &url(&one, &first), &[], None).ok()["deleted"], true);
    assert_eq!(get(&url(&other, &first)).status, 404);
    ask(&one, json!({"input": "three", "previous_response_id": second["id"]})).ok();
    assert_eq!(model.request(2).messages().len(), 5, "it still knows what it goes on from");
    model.finish();
}

#[test]
fn a_response_in_the_background_is_heard_and_cancelled_at_another_daemon() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |at, _| {
        let reply = Reply::text("one two three four five").pieces(4);
        Some(if at == 0 { reply.hold(&held) } else { Reply::silence() })
    });
    let (_project, [one, other]) = daemons(&model);
    let begun = ask(&one, json!({"input": "count", "background": true})).ok();
    assert!(matches!(status(&other, &begun).as_str(), "queued" | "in_progress"));
    let heard = std::thread::scope(|scope| {
        let heard = scope.spawn(|| watch(&format!("{}?stream=true", url(&other, &begun)), &[]).rest());
        gate.open();
        heard.join().unwrap()
    });
    let last: Value = serde_json::from_str(heard.last().expect("an end")).unwrap();
    assert_eq!(last["type"], "response.completed", "{last}");
    assert_eq!(get(&url(&one, &begun)).ok()["output"], last["response"]["output"]);

    let begun = ask(&one, json!({"input": "again", "background": true})).ok();
    model.wait_for_requests(2);
    let cancelled = post(&format!("{}/cancel", url(&other, &begun)), &json!({})).ok();
    assert_eq!(cancelled["status"], "cancelled");
    model.wait_for_abort();
    assert_eq!(status(&one, &begun), "cancelled");
    model.finish();
}

#[test]
fn a_response_with_its_client_at_one_daemon_is_open_at_the_other_until_it_ends_or_is_cancelled() {
    let gate = Gate::new();
    let held = gate.clone();
    // something of the answer is told, or its stream would not begin
    let model = ScriptedModel::start_with(move |_, _| {
        let held = held.clone();
        Some(Reply::text("one two three four five").pieces(4).with(|answer| answer.hold = Some((3, held))))
    });
    let (_project, [one, other]) = daemons(&model);
    let begin = || {
        let body = json!({"model": "assistant", "input": "count", "stream": true});
        let mut events = stream(&one.url("/v1/responses"), &body);
        let created = events.until("the beginning", |event| event["type"] == "response.created");
        (events, created["response"].clone())
    };
    let (events, response) = begin();
    assert_eq!(status(&other, &response), "in_progress", "its daemon lives and makes it");
    let cancelled = post(&format!("{}/cancel", url(&other, &response)), &json!({})).ok();
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(status(&one, &response), "cancelled");
    eventually("the model to be let go of", || (model.aborted() == 1).then_some(()));
    drop(events);

    let (events, response) = begin();
    drop(events);
    eventually("the other one to know that its client left", || {
        (status(&other, &response) == "cancelled").then_some(())
    });

    let (mut events, response) = begin();
    gate.open();
    events.until("the end", |event| event["type"] == "response.completed");
    assert_eq!(status(&other, &response), "completed");
    model.finish();
}
