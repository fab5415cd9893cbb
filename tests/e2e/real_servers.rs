//! The servers people use, over every transport.

use std::path::Path;
use std::process::Command;

use lf_tests::client::{assemble, stream, streamed_chat};
use lf_tests::peers;
use lf_tests::project::{Listener, TestProject, remote, scripted, stdio};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Call, Received, Reply, ScriptedModel};
use lf_tests::wait::{Gate, eventually};
use serde_json::{Value, json};

/// `mcp-server-everything` over the network.
fn everything_at(transport: &str, path: &str) -> Listener {
    let program = peers::node("mcp-server-everything");
    Listener::on_free_port(path, |port| {
        let mut command = Command::new(program);
        command.arg(transport).env("PORT", port.to_string());
        command
    })
}

fn fastmcp_at(transport: &str, path: &str) -> Listener {
    Listener::on_free_port(path, |port| {
        let mut command = Command::new(peers::python("python"));
        command.arg(peers::script("fastmcp_server.py")).args([transport, &port.to_string()]);
        command
    })
}

/// One turn with an echo, a long call with progress, an image, and a call the server finds wrong.
fn everything_works(server: Value) {
    let model = ScriptedModel::start([
        Reply::calls([
            Call::new("echo", "everything__echo", json!({"message": "hay"})),
            Call::new(
                "long",
                "everything__trigger-long-running-operation",
                json!({"duration": 0.4, "steps": 4}),
            ),
            Call::new("image", "everything__get-tiny-image", json!({})),
            Call::new("wrong", "everything__get-sum", json!({"a": "one", "b": 2})),
        ]),
        Reply::text("done"),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[server]);
    let daemon = project.serve();
    let answer = assemble(&stream(&daemon.url("/v1/chat/completions"), &streamed_chat("hi")).rest());
    assert_eq!(answer.text, "done");
    let progress = answer.progress.iter().filter(|event| event.contains("progress")).count();
    assert!(progress >= 2, "{:?}", answer.progress);
    let last = model.request(1);
    assert!(last.result_of("echo").unwrap().contains("hay"));
    assert!(last.result_of("long").unwrap().contains("completed"), "{last:?}");
    assert!(shows_an_image(&last), "{last:?}");
    assert!(last.result_of("wrong").unwrap().to_lowercase().contains("a"), "{last:?}");
    assert!(model.request(0).tool_names().len() >= 12);
    model.finish();
    daemon.stop();
    project.assert_nothing_left();
}

/// Results carry text only, so an image follows in a message of its own.
fn shows_an_image(request: &Received) -> bool {
    request.messages().iter().any(|message| message["content"].to_string().contains("data:image/png;base64,"))
}

#[test]
fn everything_works_over_stdio() {
    everything_works(stdio("everything", &peers::node("mcp-server-everything"), &["stdio"]));
}

#[test]
fn everything_works_over_streamable_http() {
    let server = everything_at("streamableHttp", "/mcp");
    everything_works(remote("everything", "http", server.url()));
}

#[test]
fn everything_works_over_sse() {
    let server = everything_at("sse", "/sse");
    everything_works(remote("everything", "sse", server.url()));
}

/// The server dies in the middle of a call; the call fails, and the next one is fine.
fn survives_a_death(name: &str, call: Value, server: Value, kill: impl FnOnce(&TestProject)) {
    let tool = format!("{name}__trigger-long-running-operation");
    let gate = Gate::new();
    let model = ScriptedModel::start([
        Reply::call("long", &tool, call),
        Reply::call("echo", &format!("{name}__echo"), json!({"message": "still here"})).hold(&gate),
        Reply::text("done"),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[server]);
    let daemon = project.serve();
    let mut events = stream(&daemon.url("/v1/chat/completions"), &streamed_chat("hi"));
    events.until("progress of the call", |event| {
        event["lf"]["event"].as_str().is_some_and(|event| event.contains("progress"))
    });
    kill(&project);
    gate.open();
    assert_eq!(assemble(&events.rest()).text, "done");
    let last = model.request(2);
    assert!(last.result_of("long").unwrap().contains(name), "{last:?}");
    assert!(last.result_of("echo").unwrap().contains("still here"), "{last:?}");
    model.finish();
}

#[test]
fn a_stdio_server_killed_in_a_call_is_there_for_the_next() {
    let server = stdio("everything", &peers::node("mcp-server-everything"), &["stdio"]);
    survives_a_death("everything", json!({"duration": 20, "steps": 100}), server, |project| {
        for child in project.children() {
            child.signal(nix::sys::signal::Signal::SIGKILL);
        }
    });
}

#[test]
fn an_http_server_restarted_in_a_call_is_there_for_the_next() {
    let program = peers::node("mcp-server-everything");
    let mut first = everything_at("streamableHttp", "/mcp");
    let url = first.url().to_owned();
    let port = url.rsplit(':').next().unwrap().trim_end_matches("/mcp").to_owned();
    let mut second = None;
    survives_a_death(
        "everything",
        json!({"duration": 20, "steps": 100}),
        remote("everything", "http", &url),
        |_| {
            first.kill();
            let mut command = Command::new(&program);
            command.arg("streamableHttp").env("PORT", &port);
            second = Some(Background(
                command
                    .stdout(std::process::Stdio::null())
                    .stderr(std::process::Stdio::null())
                    .spawn()
                    .unwrap(),
            ));
            eventually("the server to listen again", || {
                std::net::TcpStream::connect(("127.0.0.1", port.parse::<u16>().unwrap())).ok()
            });
        },
    );
}

struct Background(std::process::Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An expired session is renewed without the model noticing.
fn renews_its_session(expired_is_400: bool) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut script = Script { log: Some(log.path().to_owned()), ..Script::echoing(&["echo"]) };
    script.session.expires_after = Some(1);
    script.session.expired_is_400 = expired_is_400;
    let server = Listener::scripted_mcp("http", &script);
    let model = ScriptedModel::start([
        Reply::call("a", "~echo", json!({"n": 1})),
        Reply::call("b", "~echo", json!({"n": 2})),
        Reply::text("done"),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[remote("m", "http", server.url())]);
    project.run(&["chat", "hi"]).ok();
    assert_eq!(model.request(2).result_of("b").as_deref(), Some(r#"{"n":2}"#));
    let noted = std::fs::read_to_string(log.path()).unwrap();
    assert_eq!(noted.matches("initialize\n").count(), 2, "{noted}");
    assert_eq!(noted.matches("call echo").count(), 2, "{noted}");
    model.finish();
}

#[test]
fn a_session_that_expired_with_404_is_renewed() {
    renews_its_session(false);
}

#[test]
fn a_session_that_expired_with_400_and_no_id_is_renewed() {
    renews_its_session(true);
}

#[test]
fn the_time_server_works() {
    let server = stdio("time", &peers::python("mcp-server-time"), &[]);
    let call = json!({"timezone": "Europe/Berlin"});
    let model = ScriptedModel::start([Reply::call("a", "time__get_current_time", call), Reply::text("late")]);
    let project = TestProject::with_model(&model.base_url(), &[server]);
    assert_eq!(project.run(&["chat", "What time is it?"]).ok().stdout.trim(), "late");
    let last = model.request(1);
    assert!(last.result_of("a").unwrap().contains("Europe/Berlin"), "{last:?}");
    model.finish();
    project.assert_nothing_left();
}

fn fastmcp_works(server: Value) {
    let model = ScriptedModel::start([
        Reply::calls([
            Call::new("sum", "py__add", json!({"a": 40, "b": 2})),
            Call::new("fails", "py__fail", json!({"reason": "no hay left"})),
            Call::new("counts", "py__count", json!({"to": 3})),
        ]),
        Reply::text("done"),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[server]);
    let finished = project.run(&["chat", "hi"]).ok();
    let last = model.request(1);
    assert!(last.result_of("sum").unwrap().contains("42"), "{last:?}\n{}", finished.stderr);
    assert!(last.result_of("fails").unwrap().contains("no hay left"), "{last:?}");
    assert!(last.result_of("counts").unwrap().contains("counted to 3"), "{last:?}");
    model.finish();
    project.assert_nothing_left();
}

#[test]
fn fastmcp_works_over_stdio() {
    let script = peers::script("fastmcp_server.py").display().to_string();
    fastmcp_works(stdio("py", &peers::python("python"), &[&script]));
}

#[test]
fn fastmcp_works_over_streamable_http() {
    let server = fastmcp_at("http", "/mcp");
    fastmcp_works(remote("py", "http", server.url()));
}

#[test]
fn fastmcp_works_over_sse() {
    let server = fastmcp_at("sse", "/sse");
    fastmcp_works(remote("py", "sse", server.url()));
}

#[test]
fn headers_reach_the_server_and_a_wrong_one_is_said() {
    for transport in ["http", "sse"] {
        let wanted = Some(("authorization".to_owned(), "Bearer hay".to_owned()));
        let script = Script { require_header: wanted, ..Script::echoing(&["echo"]) };
        let server = Listener::scripted_mcp(transport, &script);
        let model = ScriptedModel::start([]);
        let mut entry = remote("locked", transport, server.url());
        entry["headers"] = json!({"Authorization": "Bearer ${env:TOKEN}"});
        let project = TestProject::with_model(&model.base_url(), &[entry]).variable("TOKEN", "hay");
        let called = project.run(&["mcp", "call", "locked", "echo", r#"{"a":1}"#]).ok();
        assert!(called.stdout.contains(r#"{"a":1}"#) || called.stdout.contains(r#""a""#), "{called:?}");

        let project = project.variable("TOKEN", "straw");
        let said = project.run(&["mcp", "call", "locked", "echo", "{}"]).failed(1);
        assert!(said.contains("locked") && said.contains("401"), "{said}");
        assert!(!said.contains("straw"), "a secret is shown: {said}");
    }
}

#[test]
fn progress_keeps_a_long_call_alive() {
    let server = Script::with([ScriptedTool::new("count", Act::Progress(5))]);
    let model = ScriptedModel::start([Reply::call("a", "~count", json!({})), Reply::text("done")]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    let daemon = project.serve();
    let answer = assemble(&stream(&daemon.url("/v1/chat/completions"), &streamed_chat("hi")).rest());
    assert_eq!(answer.progress.iter().filter(|event| event.contains("progress")).count(), 5, "{answer:?}");
    model.finish();
}

#[test]
fn the_filesystem_server_lists_its_tools_on_the_command_line() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().display().to_string();
    let server = stdio("fs", Path::new(&peers::node("mcp-server-filesystem")), &[&root]);
    let project = TestProject::with_model("http://127.0.0.1:9/v1", &[server]);
    let listed = project.run(&["mcp", "tools"]).ok();
    assert!(listed.stdout.contains("read_text_file"), "{listed:?}");
    let listed = project.run(&["mcp", "list"]).ok();
    assert!(listed.stdout.contains("fs"), "{listed:?}");
    project.assert_nothing_left();
}
