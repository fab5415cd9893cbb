//! The daemon's routes, as a client without an SDK sees them.

use std::io::{Read, Write};
use std::net::TcpStream;

use lf_tests::client::{assemble, chat, get, post, request, streamed_chat};
use lf_tests::project::{TestProject, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn project(model: &ScriptedModel) -> TestProject {
    let tools =
        [ScriptedTool::new("echo", Act::Echo), ScriptedTool::new("fails", Act::Fail("no hay".to_owned()))];
    TestProject::with_model(&model.base_url(), &[scripted("m", &Script::with(tools))])
}

#[test]
fn what_is_there_can_be_listed() {
    let model = ScriptedModel::start([]);
    let daemon = project(&model).serve_there();
    let models = get(&daemon.url("/v1/models")).ok();
    assert_eq!(models["object"], "list");
    assert_eq!(models["data"][0]["id"], "assistant");
    let models = get(&daemon.url("/v1/projects/default/demo/models")).ok();
    assert_eq!(models["total"], 1);
    assert_eq!(models["models"][0]["name"], "assistant");
    let tools = get(&daemon.url("/v1/projects/default/demo/tools?model=assistant")).ok();
    assert_eq!(tools["tools"][0]["name"], "m__echo");
    let servers = get(&daemon.url("/v1/projects/default/demo/mcp/servers")).ok();
    assert_eq!(servers["servers"][0]["name"], "m");
    for path in ["/health", "/health/liveness", "/health/readiness", "/info"] {
        get(&daemon.url(path)).ok();
    }
}

/// A daemon together with the project it serves.
struct Served(
    lf_tests::project::Daemon,
    #[expect(dead_code, reason = "lives as long as the daemon")] TestProject,
);

impl Served {
    fn url(&self, path: &str) -> String {
        self.0.url(path)
    }
}

trait ServeThere {
    fn serve_there(self) -> Served;
}

impl ServeThere for TestProject {
    fn serve_there(self) -> Served {
        Served(self.serve(), self)
    }
}

#[test]
fn a_tool_can_be_run_by_itself() {
    let model = ScriptedModel::start([]);
    let daemon = project(&model).serve_there();
    let url = daemon.url("/api/mcp/execute");
    let run = |body: Value| post(&url, &body);
    let answer = run(json!({"server": "m", "tool": "echo", "arguments": {"n": 1}})).ok();
    assert_eq!(answer["is_error"], false, "{answer}");
    assert_eq!(answer["content"][0]["text"], r#"{"n":1}"#, "{answer}");
    let answer = run(json!({"server": "m", "tool": "fails"})).ok();
    assert_eq!(answer["is_error"], true, "{answer}");
    let refused = run(json!({"server": "nobody", "tool": "echo"}));
    assert_eq!(refused.status, 404);
    assert!(refused.text.contains("nobody"), "{refused:?}");
    let refused = run(json!({"server": "m", "tool": "nothing"}));
    assert_eq!(refused.status, 404);
    assert!(refused.text.contains("nothing"), "{refused:?}");
    assert_eq!(run(json!({"tool": "echo"})).status, 400);
}

#[test]
fn a_model_that_does_not_exist_is_404_with_those_that_do() {
    let model = ScriptedModel::start([]);
    let daemon = project(&model).serve_there();
    for path in ["/v1/chat/completions", "/v1/projects/default/demo/chat/completions"] {
        for mut body in [chat("hi"), streamed_chat("hi")] {
            body["model"] = json!("nobody");
            let refused = post(&daemon.url(path), &body);
            assert_eq!(refused.status, 404, "{refused:?}");
            let error = &refused.json()["error"];
            assert_eq!(error["code"], "model_not_found", "{error}");
            assert!(error["message"].as_str().unwrap().contains("assistant"), "{error}");
        }
    }
    let refused = post(&daemon.url("/v1/projects/default/nobody/chat/completions"), &chat("hi"));
    assert_eq!(refused.status, 404, "{refused:?}");
}

#[test]
fn a_model_may_be_named_by_its_project_and_left_out() {
    let model = ScriptedModel::start([Reply::text("one"), Reply::text("two"), Reply::text("three")]);
    let daemon = project(&model).serve_there();
    let url = daemon.url("/v1/chat/completions");
    let said = |body: &Value| {
        let answer = post(&url, body).ok();
        (answer["choices"][0]["message"]["content"].clone(), answer["model"].clone())
    };
    let mut body = chat("hi");
    body["model"] = json!("default/demo/assistant");
    assert_eq!(said(&body), (json!("one"), json!("default/demo/assistant")), "called as the client calls it");
    body.as_object_mut().unwrap().remove("model");
    assert_eq!(said(&body), (json!("two"), json!("assistant")));
    let answer = post(&daemon.url("/v1/projects/default/demo/chat/completions"), &body).ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "three");
    model.finish();
}

#[test]
fn pages_of_other_origins_and_hosts_are_refused() {
    let model = ScriptedModel::start([Reply::text("hello")]);
    let daemon = project(&model).serve_there();
    let url = daemon.url("/v1/chat/completions");
    let with = |headers: &[(&str, &str)]| request("POST", &url, headers, Some(chat("hi").to_string())).status;
    assert_eq!(with(&[("origin", "https://evil.example")]), 403);
    assert_eq!(with(&[("origin", "null")]), 403);
    assert_eq!(with(&[("host", "evil.example")]), 403);
    assert_eq!(with(&[("host", "evil.example:14345")]), 403);
    assert_eq!(with(&[("origin", "http://localhost:3000")]), 200);
    // A form or an image can be sent from anywhere without asking.
    assert_eq!(post_as_text(&url, &chat("hi").to_string()), 415);
    model.finish();
}

/// A POST as a page can send it without asking: `text/plain`.
fn post_as_text(url: &str, body: &str) -> u16 {
    let address = url.strip_prefix("http://").unwrap();
    let (address, path) = address.split_once('/').unwrap();
    let mut connection = TcpStream::connect(address).unwrap();
    let head =
        format!("POST /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: text/plain");
    write!(connection, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn requests_that_are_wrong_are_400_with_a_reason() {
    let model = ScriptedModel::start([]);
    let daemon = project(&model).serve_there();
    let url = daemon.url("/v1/chat/completions");
    let refused = request("POST", &url, &[], Some("{\"messages\": [".to_owned()));
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(!refused.json()["error"]["message"].as_str().unwrap().is_empty());
    for body in [
        json!({"model": "assistant"}),
        json!({"model": "assistant", "messages": "hi"}),
        json!({"model": "assistant", "messages": [{"role": "nobody", "content": "hi"}]}),
    ] {
        let refused = post(&url, &body);
        assert_eq!(refused.status, 400, "{body}: {refused:?}");
        assert_eq!(refused.json()["error"]["type"], "invalid_request_error", "{refused:?}");
    }
    assert_eq!(get(&daemon.url("/nothing/here")).status, 404);
    assert_eq!(request("GET", &url, &[], None).status, 405);
}

#[test]
fn progress_can_be_switched_off() {
    let daemon = TestProject::playing_ours("three_rounds.jsonl").serve_there();
    let url = daemon.url("/v1/chat/completions");
    let progress = |headers: &[(&str, &str)]| {
        let text = request("POST", &url, headers, Some(streamed_chat("hi").to_string())).text;
        let events: Vec<String> =
            text.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect();
        assemble(&events).progress
    };
    assert!(progress(&[]).contains(&"tool_call".to_owned()));
    assert!(progress(&[("x-lf-events", "none")]).is_empty());
}

#[test]
fn a_port_that_is_taken_is_said() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let model = ScriptedModel::start([]);
    let said = project(&model).run(&["serve", "--port", &port]).failed(1);
    assert!(said.contains(&port), "{said}");
}

#[test]
fn sigint_stops_the_daemon_as_well() {
    let model = ScriptedModel::start([]);
    let project = project(&model);
    let daemon = project.serve();
    daemon.signal(Signal::SIGINT);
    assert_eq!(daemon.wait(std::time::Duration::from_secs(10)).status, Some(0));
    project.assert_nothing_left();
}

#[test]
fn a_chat_can_be_had_with_a_running_daemon() {
    let project = TestProject::playing_ours("three_rounds.jsonl");
    let daemon = project.serve();
    let finished = project.run(&["chat", "--server", &daemon.url(""), "hi"]).ok();
    assert_eq!(finished.stdout.trim(), "All three came back.");
}

#[test]
fn the_command_line_shows_models_servers_and_tools() {
    let model = ScriptedModel::start([]);
    let project = project(&model);
    let models = project.run(&["models", "list", "--json"]).ok().json();
    assert!(models.to_string().contains("assistant"), "{models}");
    let tools = project.run(&["mcp", "tools", "--json"]).ok().json();
    assert!(tools.to_string().contains("echo"), "{tools}");
    project.run(&["mcp", "health"]).ok();
    let failed = project.run(&["mcp", "call", "m", "fails", "{}"]);
    assert_eq!(failed.status, Some(1), "{failed:?}");
    let failed = project.run(&["mcp", "call", "m", "echo", "not json"]);
    assert_eq!(failed.status, Some(2), "{failed:?}");
    project.assert_nothing_left();
}
