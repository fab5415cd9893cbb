//! A client that goes away takes everything with it.

use lf_tests::client::{Open, chat, stream, streamed_chat};
use lf_tests::project::{Daemon, TestProject, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{End, Reply, ScriptedModel};
use lf_tests::wait::eventually;
use serde_json::{Value, json};

/// A request whose answer nobody reads yet.
fn open_request(daemon: &Daemon, body: &Value) -> Open {
    Open::post(daemon.port(), "/v1/chat/completions", body)
}

#[test]
fn a_lost_client_ends_the_request_to_the_model() {
    let silent = || Reply::text("never said").pieces(3).end(End::SilentAfter(2));
    // The second is one document, so it is held up by its bytes.
    let model = ScriptedModel::start([silent(), silent().writes(60)]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();

    let mut events = stream(&daemon.url("/v1/chat/completions"), &streamed_chat("hi"));
    events.until("the first words", |event| event["choices"][0]["delta"]["content"].is_string());
    drop(events);
    eventually("the first request to be given up", || (model.aborted() == 1).then_some(()));

    let connection = open_request(&daemon, &chat("hi"));
    model.wait_for_requests(2);
    drop(connection);
    eventually("the second request to be given up", || (model.aborted() == 2).then_some(()));
    model.finish();
}

#[test]
fn a_lost_client_cancels_the_running_tool() {
    for body in [streamed_chat("hi"), chat("hi")] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let tools = [ScriptedTool::new("hang", Act::Hang)];
        let server = Script { log: Some(log.path().to_owned()), ..Script::with(tools) };
        let model = ScriptedModel::start([Reply::call("a", "~hang", json!({}))]);
        let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
        let daemon = project.serve();
        let connection = open_request(&daemon, &body);
        let noted = |line: &str| std::fs::read_to_string(log.path()).unwrap().contains(line).then_some(());
        eventually("the call to run", || noted("call hang"));
        drop(connection);
        eventually("the call to be cancelled", || noted("cancelled hang"));
        model.finish();
    }
}

#[test]
fn a_call_over_http_is_cancelled_too() {
    for transport in ["http", "sse"] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let tools = [ScriptedTool::new("hang", Act::Hang)];
        let script = Script { log: Some(log.path().to_owned()), ..Script::with(tools) };
        let server = lf_tests::project::Listener::scripted_mcp(transport, &script);
        let model = ScriptedModel::start([Reply::call("a", "~hang", json!({}))]);
        let entry = lf_tests::project::remote("m", transport, server.url());
        let project = TestProject::with_model(&model.base_url(), &[entry]);
        let daemon = project.serve();
        let connection = open_request(&daemon, &streamed_chat("hi"));
        let noted = |line: &str| std::fs::read_to_string(log.path()).unwrap().contains(line).then_some(());
        eventually("the call to run", || noted("call hang"));
        drop(connection);
        eventually(&format!("the call over {transport} to be cancelled"), || noted("cancelled hang"));
        model.finish();
    }
}

#[test]
fn other_clients_do_not_notice_a_hanging_call() {
    let server = Script::with([ScriptedTool::new("hang", Act::Hang), ScriptedTool::new("echo", Act::Echo)]);
    let model = ScriptedModel::start_with(|number, _| {
        Some(match number {
            0 => Reply::call("a", "~hang", json!({})),
            1 => Reply::call("a", "~echo", json!({"n": 1})),
            _ => Reply::text("done"),
        })
    });
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    let daemon = project.serve();
    let hanging = open_request(&daemon, &chat("hi"));
    model.wait_for_requests(1);
    let answer = lf_tests::client::post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "done");
    drop(hanging);
}
