//! What a WebSocket connection does beside answering, and what compaction does beside the acceptance cases.

use std::io::Write;
use std::net::TcpStream;

use lf_tests::client::{get, post};
use lf_tests::open_responses::{compaction_problems, envelope_problems, stream_problems};
use lf_tests::project::{TestProject, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{End, Reply, ScriptedModel};
use lf_tests::socket::Socket;
use lf_tests::wait::{Gate, PATIENCE};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn create(input: &str) -> Value {
    json!({"type": "response.create", "model": "assistant", "store": false, "input": input})
}

#[test]
fn a_lost_connection_ends_the_request_to_the_model() {
    let model = ScriptedModel::start([Reply::text("never said").pieces(3).end(End::SilentAfter(2))]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let mut socket = Socket::open(&daemon.url("/v1/responses"));
    socket.send(&create("hi"));
    while socket.next_frame()["type"] != "response.output_text.delta" {}
    drop(socket);
    model.wait_for_abort();
    model.finish();
}

#[test]
fn a_drain_lets_a_response_finish_and_closes_the_connection() {
    let gate = Gate::new();
    let model = ScriptedModel::start([Reply::text("done").hold(&gate)]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let url = daemon.url("/v1/responses");
    let mut idle = Socket::open(&url);
    let mut socket = Socket::open(&url);
    socket.send(&create("first"));
    socket.send(&create("second"));
    model.wait_for_requests(1);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(idle.closed(), Some(1001));
    gate.open();
    let frames = socket.answer();
    assert_eq!(stream_problems(&frames), [""; 0]);
    assert_eq!(frames.last().unwrap()["response"]["status"], "completed");
    assert_eq!(socket.closed(), Some(1001), "the second is not begun");
    assert_eq!(daemon.wait(PATIENCE).status, Some(0));
    model.finish();
}

#[test]
fn a_web_page_of_elsewhere_gets_no_connection() {
    let model = ScriptedModel::start([]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let url = daemon.url("/v1/responses");
    let refused = |headers: &[(&str, &str)]| Socket::open_with(&url, headers).err();
    assert_eq!(refused(&[("origin", "https://evil.example")]), Some(403));
    assert_eq!(refused(&[("host", "evil.example")]), Some(403));
    assert_eq!(refused(&[("sec-websocket-version", "7")]), Some(400));
    assert_eq!(refused(&[("origin", "http://localhost:3000")]), None);
    let plain = get(&url);
    assert_eq!(plain.status, 405);
    assert!(plain.json()["error"]["message"].as_str().unwrap().contains("open a WebSocket"), "{plain:?}");
}

#[test]
fn a_projects_connection_runs_its_tools_and_tells_of_them_unless_asked_not_to() {
    let server = Script::with([ScriptedTool::new("echo", Act::Echo)]);
    let model = ScriptedModel::start_by(|received| {
        Some(match received.asked.rounds_so_far() {
            0 => Reply::call("call_1", "~echo", json!({"n": 1})),
            _ => Reply::text("done"),
        })
    });
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    let daemon = project.serve();
    let url = daemon.url("/v1/projects/default/demo/responses");
    for (headers, told) in [(&[][..], true), (&[("x-lf-events", "none")][..], false)] {
        let mut socket = Socket::open_with(&url, headers).unwrap();
        socket.send(&create("Call it."));
        let frames = socket.answer();
        assert_eq!(stream_problems(&frames), [""; 0]);
        assert_eq!(frames.iter().any(|frame| frame["lf"]["event"] == "tool_result"), told);
    }
    assert_eq!(Socket::open_with(&daemon.url("/v1/projects/no/body/responses"), &[]).err(), Some(404));
}

#[test]
fn trouble_with_the_model_is_an_error_before_an_answer_and_a_failed_response_after() {
    let cut = Reply::text("half of it").pieces(2).end(End::CutAfter(3));
    let model = ScriptedModel::start([Reply::error(400, "too long a prompt"), cut, Reply::text("OK.")]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let mut socket = Socket::open(&daemon.url("/v1/responses"));
    socket.send(&create("hi"));
    let frames = socket.answer();
    assert_eq!((frames.len(), envelope_problems(&frames[0])), (1, Vec::new()));
    assert!(frames[0]["error"]["message"].as_str().unwrap().contains("too long a prompt"), "{}", frames[0]);
    socket.send(&create("hi"));
    let frames = socket.answer();
    assert_eq!(stream_problems(&frames), [""; 0]);
    assert_eq!(frames.last().unwrap()["type"], "response.failed");
    socket.send_text("not json");
    assert_eq!(socket.answer()[0]["status"], 400);
    socket.send(&create("hi"));
    assert_eq!(socket.answer().last().unwrap()["type"], "response.completed", "the connection goes on");
    model.finish();
}

#[test]
fn a_message_that_is_too_large_ends_its_connection_only() {
    let model = ScriptedModel::start([Reply::text("OK.")]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let url = daemon.url("/v1/responses");
    let mut socket = Socket::open(&url);
    socket.send(&create("hi"));
    assert_eq!(socket.answer().last().unwrap()["type"], "response.completed");
    let large = create(&"x".repeat(10 * 1024 * 1024)).to_string();
    let sent = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| socket.send_text(&large)));
    // the daemon may have closed before all of it was sent
    assert!(sent.is_err() || matches!(socket.closed(), Some(1009) | None));
    assert_eq!(get(&daemon.url("/health/liveness")).status, 200);
    model.finish();
}

#[test]
fn a_stored_conversation_is_compacted_without_running_a_tool() {
    let server = Script::with([ScriptedTool::new("echo", Act::Echo)]);
    let model = ScriptedModel::start_by(|received| {
        let asked = &received.asked;
        Some(match asked.last_user_text() {
            text if text.contains("<conversation>") && asked.rounds_so_far() == 0 => {
                // as models do that do not care what they are allowed
                Reply::call("call_2", "~echo", json!({"n": 2}))
                    .with(|answer| answer.text = "It is 1.".to_owned())
            }
            text if text.contains("<conversation>") => Reply::text("It is 1."),
            _ if asked.rounds_so_far() == 0 => Reply::call("call_1", "~echo", json!({"n": 1})),
            _ => Reply::text("One."),
        })
    });
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = Script { log: Some(log.path().to_owned()), ..server };
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    let daemon = project.serve();
    let first =
        post(&daemon.url("/v1/responses"), &json!({"model": "assistant", "input": "Which number?"})).ok();
    let url = daemon.url("/v1/responses/compact");
    let told = post(&url, &json!({"model": "assistant", "previous_response_id": first["id"]})).ok();
    assert_eq!(compaction_problems(&told), [""; 0]);
    assert_eq!(told["output"][0]["content"][0]["text"], "Which number?");
    let material = model.request(2).asked.last_user_text().to_owned();
    assert!(material.contains("[result of call_1]") && material.contains("One."), "{material}");
    let calls = std::fs::read_to_string(log.path()).unwrap().matches("call echo").count();
    assert_eq!(calls, 1, "the call of the summary is not run");

    let missing = post(&url, &json!({"model": "assistant", "previous_response_id": "resp_of_nobody"}));
    assert_eq!(missing.json()["error"]["code"], "previous_response_not_found");
}

#[test]
fn a_compaction_of_another_server_is_refused() {
    let model = ScriptedModel::start([]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let item = json!({"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAABpM0Yj"});
    let body = json!({"model": "assistant", "input": [item, {"role": "user", "content": "hi"}]});
    let refusal = post(&daemon.url("/v1/responses"), &body);
    assert_eq!(refusal.status, 400);
    assert_eq!(refusal.json()["error"]["param"], "input[0].encrypted_content");
}

#[test]
fn a_client_that_leaves_ends_its_compaction() {
    let model = ScriptedModel::start([Reply::text("never said").pieces(3).end(End::SilentAfter(2))]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let body = json!({"model": "assistant", "input": "A long story."}).to_string();
    let mut asking = TcpStream::connect(("127.0.0.1", daemon.port())).unwrap();
    let head = "POST /v1/responses/compact HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
    write!(asking, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    model.wait_for_requests(1);
    drop(asking);
    model.wait_for_abort();
    model.finish();
}

#[test]
fn the_grace_ends_a_response_and_then_its_connection() {
    let model = ScriptedModel::start([Reply::text("never said").pieces(3).end(End::SilentAfter(2))]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve_with(&["--grace", "1s"]);
    let mut socket = Socket::open(&daemon.url("/v1/responses"));
    socket.send(&create("hi"));
    model.wait_for_requests(1);
    daemon.signal(Signal::SIGTERM);
    let frames = socket.answer();
    assert_eq!(stream_problems(&frames), [""; 0]);
    let response = &frames.last().unwrap()["response"];
    assert_eq!((&response["status"], &response["error"]["code"]), (&json!("failed"), &json!("server_error")));
    assert_eq!(socket.closed(), Some(1001));
    assert_eq!(daemon.wait(PATIENCE).status, Some(0));
    model.finish();
}
