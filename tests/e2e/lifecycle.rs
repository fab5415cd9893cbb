//! Processes: started once, gone when `lf` is gone.

use std::path::Path;

use lf_tests::client::{chat, get, post, stream, streamed_chat};
use lf_tests::peers;
use lf_tests::processes;
use lf_tests::project::{TestProject, scripted, stdio};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Reply, ScriptedModel, rounds_so_far};
use lf_tests::wait::{PATIENCE, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn lines_starting(log: &Path, start: &str) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
}

fn one_call_then_text(tool: &'static str) -> impl FnMut(usize, &Value) -> Option<Reply> + Send {
    move |_, request| {
        Some(match rounds_so_far(request) {
            0 => Reply::call("a", tool, json!({})),
            _ => Reply::text("done"),
        })
    }
}

#[test]
fn a_hundred_requests_start_each_server_once() {
    let model = ScriptedModel::start_with(one_call_then_text("one__echo"));
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    let servers = [
        scripted("one", &Script { log: Some(one.clone()), ..Script::echoing(&["echo"]) }),
        scripted("two", &Script { log: Some(two.clone()), grandchildren: 2, ..Script::echoing(&["echo"]) }),
    ];
    let project = TestProject::with_model(&model.base_url(), &servers);
    let daemon = project.serve();
    let url = daemon.url("/v1/chat/completions");
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert_eq!(post(&url, &chat("hi")).ok()["choices"][0]["message"]["content"], "done");
                }
            });
        }
    });
    assert_eq!(lines_starting(&one, "start ").len(), 1);
    assert_eq!(lines_starting(&two, "start ").len(), 1);
    assert_eq!(lines_starting(&one, "call ").len(), 100);
    assert_eq!(daemon.stop().status, Some(0));
    project.assert_nothing_left();
}

#[test]
fn sigterm_leaves_nothing_of_servers_that_will_not_go() {
    let model = ScriptedModel::start_with(one_call_then_text("~echo"));
    let stubborn =
        Script { ignore_eof: true, ignore_sigterm: true, grandchildren: 2, ..Script::echoing(&["echo"]) };
    let project = TestProject::with_model(&model.base_url(), &[scripted("stubborn", &stubborn)]);
    let daemon = project.serve();
    post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    assert_eq!(project.children().len(), 3, "{:?}", project.children());
    assert_eq!(daemon.stop().status, Some(0));
    project.assert_nothing_left();
}

#[test]
fn sigterm_leaves_nothing_of_a_server_behind_npx() {
    let everything = peers::node("mcp-server-everything");
    let model = ScriptedModel::start_with(one_call_then_text("everything__get-env"));
    let server = json!({
        "name": "everything",
        "transport": "stdio",
        "command": "npx",
        "args": ["--no-install", "mcp-server-everything"],
        "cwd": everything.ancestors().nth(3).unwrap(),
    });
    let project = TestProject::with_model(&model.base_url(), &[server]);
    let daemon = project.serve();
    post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    assert!(project.children().len() >= 2, "{:?}", project.children());
    assert_eq!(daemon.stop().status, Some(0));
    project.assert_nothing_left();
}

#[test]
fn a_call_that_runs_is_let_finish_when_the_daemon_stops() {
    let directory = tempfile::tempdir().unwrap();
    let (gate, log) = (directory.path().join("gate"), directory.path().join("log"));
    let tools = [ScriptedTool::new("wait", Act::Gate(gate.clone()))];
    let server = Script { log: Some(log.clone()), ..Script::with(tools) };
    let model = ScriptedModel::start([Reply::call("a", "~wait", json!({})), Reply::text("done")]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    let daemon = project.serve();
    let url = daemon.url("/v1/chat/completions");
    let port = daemon.port();
    let request = std::thread::spawn(move || post(&url, &chat("hi")));
    eventually("the call to run", || (!lines_starting(&log, "call ").is_empty()).then_some(()));
    daemon.signal(Signal::SIGTERM);
    eventually("the daemon to stop listening", || std::net::TcpStream::connect(("127.0.0.1", port)).err());
    std::fs::write(&gate, "").unwrap();
    assert_eq!(request.join().unwrap().ok()["choices"][0]["message"]["content"], "done");
    assert_eq!(daemon.wait(PATIENCE).status, Some(0));
    project.assert_nothing_left();
    model.finish();
}

#[test]
fn the_grace_ends_streams_with_an_error() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let server =
        Script { log: Some(log.path().to_owned()), ..Script::with([ScriptedTool::new("hang", Act::Hang)]) };
    let model = ScriptedModel::start([Reply::call("a", "~hang", json!({}))]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    let daemon = project.serve_with(&["--grace", "1s"]);
    let mut events = stream(&daemon.url("/v1/chat/completions"), &streamed_chat("hi"));
    eventually("the call to run", || (!lines_starting(log.path(), "call ").is_empty()).then_some(()));
    daemon.signal(Signal::SIGTERM);
    let mut last = Value::Null;
    while let Some(event) = events.next_event() {
        last = serde_json::from_str(&event).unwrap_or(Value::Null);
    }
    assert_eq!(last["error"]["type"], "server_error", "the stream ended with {last}");
    assert_eq!(last["error"]["code"], "shutting_down", "{last}");
    assert_eq!(daemon.wait(PATIENCE).status, Some(0));
    project.assert_nothing_left();
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = Script {
        log: Some(log.path().to_owned()),
        ignore_sigterm: true,
        ignore_eof: true,
        ..Script::with([ScriptedTool::new("hang", Act::Hang)])
    };
    // A turn that learns of its server's end may still get to ask once more.
    let model = ScriptedModel::start_with(one_call_then_text("~hang"));
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    let daemon = project.serve();
    let events = stream(&daemon.url("/v1/chat/completions"), &streamed_chat("hi"));
    eventually("the call to run", || (!lines_starting(log.path(), "call ").is_empty()).then_some(()));
    daemon.signal(Signal::SIGTERM);
    let port = daemon.port();
    eventually("the daemon to stop listening", || std::net::TcpStream::connect(("127.0.0.1", port)).err());
    daemon.signal(Signal::SIGTERM);
    daemon.wait(PATIENCE);
    drop(events);
    project.assert_nothing_left();
}

#[test]
fn ctrl_c_in_a_chat_leaves_nothing() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = Script {
        log: Some(log.path().to_owned()),
        grandchildren: 1,
        ..Script::with([ScriptedTool::new("hang", Act::Hang)])
    };
    let model = ScriptedModel::start([Reply::call("a", "~hang", json!({}))]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    let running = project.start(&["chat", "hi"]);
    eventually("the call to run", || (!lines_starting(log.path(), "call ").is_empty()).then_some(()));
    running.signal(Signal::SIGINT);
    let finished = running.wait(PATIENCE);
    assert_ne!(finished.status, Some(0), "a stopped chat is no success: {finished:?}");
    project.assert_nothing_left();
    eventually("the call to be cancelled", || {
        let all = std::fs::read_to_string(log.path()).unwrap();
        (all.contains("cancelled hang") || all.contains("eof") || all.contains("sigterm")).then_some(())
    });
}

#[test]
fn a_chat_ends_its_servers() {
    let model = ScriptedModel::start([Reply::text("hello")]);
    let server = Script { grandchildren: 1, ..Script::echoing(&["echo"]) };
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    project.run(&["chat", "hi"]).ok();
    project.assert_nothing_left();
    model.finish();
}

#[test]
fn children_see_no_variable_they_were_not_given() {
    let server = Script::with([ScriptedTool::new("environment", Act::Environment)]);
    let model = ScriptedModel::start([Reply::call("a", "~environment", json!({})), Reply::text("done")]);
    let mut entry = scripted("m", &server);
    entry["env"] = json!({"GIVEN": "${env:FROM_OUTSIDE}"});
    let project = TestProject::with_model(&model.base_url(), &[entry])
        .variable("OPENAI_API_KEY", "sk-secret")
        .variable("FROM_OUTSIDE", "passed on");
    project.run(&["chat", "hi"]).ok();
    let seen: Value = serde_json::from_str(&model.request(1).result_of("a").unwrap()).unwrap();
    assert_eq!(seen["GIVEN"], "passed on");
    assert_eq!(seen["HOME"], json!(project.home()));
    assert!(seen["OPENAI_API_KEY"].is_null() && seen["FROM_OUTSIDE"].is_null(), "{seen}");
    model.finish();
}

#[test]
fn a_killed_server_is_started_again_for_the_next_call() {
    let model = ScriptedModel::start_with(one_call_then_text("everything__get-env"));
    let server = stdio("everything", &peers::node("mcp-server-everything"), &["stdio"]);
    let project = TestProject::with_model(&model.base_url(), &[server]);
    let daemon = project.serve();
    let url = daemon.url("/v1/chat/completions");
    post(&url, &chat("hi")).ok();
    let before = project.children();
    for child in &before {
        child.signal(Signal::SIGKILL);
    }
    eventually("the server to be gone", || {
        let now = processes::with_home(project.home());
        (!now.iter().any(|process| before.contains(process))).then_some(())
    });
    // a call that comes before the daemon has noticed fails with the process
    eventually("the daemon to notice", || {
        let server = get(&daemon.url("/v1/mcp/servers/everything")).ok();
        (server["state"] != "ready").then_some(())
    });
    post(&url, &chat("again")).ok();
    let result = model.asked().last().unwrap().result_of("a").unwrap();
    assert!(result.contains("HOME"), "{result}");
}

#[test]
fn processes_that_took_a_session_of_their_own_are_ended_too() {
    let model = ScriptedModel::start_with(one_call_then_text("~echo"));
    let server = Script { grandchildren: 2, grandchild_setsid: true, ..Script::echoing(&["echo"]) };
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    let daemon = project.serve();
    post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    assert_eq!(project.children().len(), 3, "{:?}", project.children());
    assert_eq!(daemon.stop().status, Some(0));
    project.assert_nothing_left();
    project.run(&["chat", "hi"]).ok();
    project.assert_nothing_left();
}
