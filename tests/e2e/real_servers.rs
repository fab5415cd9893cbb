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

/// What one call of a turn is to give: a tool, its arguments, and words of the result.
type Expected<'a> = (&'a str, Value, &'a str);

/// A turn that makes these calls one after the other, and the last of them again from the command line.
fn calls_work(server: Value, protocol: &str, calls: &[Expected]) {
    let name = server["name"].as_str().unwrap().to_owned();
    let id = |number: usize| format!("call_{number}");
    let replies = calls.iter().enumerate().map(|(number, (tool, arguments, _))| {
        Reply::call(&id(number), &format!("{name}__{tool}"), arguments.clone())
    });
    let model = ScriptedModel::start(replies.chain([Reply::text("done")]));
    let project = TestProject::with_model(&model.base_url(), &[server]);
    let finished = project.run(&["chat", "hi"]).ok();
    let last = model.request(calls.len());
    for (number, (tool, _, words)) in calls.iter().enumerate() {
        let result = last.result_of(&id(number)).unwrap();
        assert!(result.contains(words), "{tool}: {result}\n{}", finished.stderr);
    }
    let listed = project.run(&["mcp", "list"]).ok().stdout;
    assert!(listed.contains("ready") && listed.contains(protocol), "{listed}");
    let (tool, arguments, words) = calls.last().unwrap();
    let called = project.run(&["mcp", "call", &name, tool, &arguments.to_string()]);
    assert!(called.stdout.contains(words), "{called:?}");
    model.finish();
    project.assert_nothing_left();
}

/// The same in each generation that the server speaks: the one it prefers, and the legacy one when the file says so.
fn calls_work_in_both_generations(server: Value, calls: &[Expected]) {
    calls_work(server.clone(), "2026-07-28", calls);
    let mut legacy = server;
    legacy["protocol"] = json!("legacy");
    calls_work(legacy, "2025-11-25", calls);
}

#[test]
fn the_filesystem_server_works() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap().display().to_string();
    let hay = format!("{root}/hay.txt");
    let calls = [
        ("write_file", json!({"path": hay, "content": "12 bales"}), "Successfully wrote"),
        ("read_text_file", json!({"path": "/etc/hostname"}), "outside allowed directories"),
        ("list_directory", json!({"path": root}), "[FILE] hay.txt"),
        ("read_text_file", json!({"path": hay}), "12 bales"),
    ];
    calls_work(stdio("fs", &peers::node("mcp-server-filesystem"), &[&root]), "2025-11-25", &calls);
}

#[test]
fn the_memory_server_works() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = stdio("memory", &peers::node("mcp-server-memory"), &[]);
    server["env"] = json!({"MEMORY_FILE_PATH": directory.path().join("memory.jsonl")});
    let cow = json!({"name": "Bella", "entityType": "cow", "observations": ["likes hay"]});
    let more = json!({"entityName": "Nobody", "contents": ["is missing"]});
    let calls = [
        ("create_entities", json!({"entities": [cow]}), "Bella"),
        ("add_observations", json!({"observations": [more]}), "not found"),
        ("search_nodes", json!({"query": "hay"}), "Bella"),
    ];
    calls_work(server, "2025-11-25", &calls);
}

#[test]
fn the_sequential_thinking_server_works() {
    let thought = |number: u32, more: bool| json!({"thought": "Hay?", "thoughtNumber": number, "totalThoughts": 2, "nextThoughtNeeded": more});
    let calls = [
        ("sequentialthinking", thought(1, true), "\"thoughtHistoryLength\": 1"),
        ("sequentialthinking", thought(2, false), "\"nextThoughtNeeded\": false"),
    ];
    let server = stdio("thinking", &peers::node("mcp-server-sequential-thinking"), &[]);
    calls_work(server, "2025-11-25", &calls);
}

#[test]
fn the_time_server_works() {
    let noon =
        |zone: &str| json!({"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": zone});
    let calls = [
        ("convert_time", noon("Asia/Tokyo"), "Asia/Tokyo"),
        ("convert_time", noon("Europe/Nowhere"), "Nowhere"),
        ("get_current_time", json!({"timezone": "Europe/Berlin"}), "Europe/Berlin"),
    ];
    calls_work_in_both_generations(stdio("time", &peers::python("mcp-server-time"), &[]), &calls);
}

#[test]
fn the_git_server_works() {
    let directory = tempfile::tempdir().unwrap();
    let repository = directory.path().canonicalize().unwrap().display().to_string();
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=A Farmer", "-c", "user.email=farmer@example.com"]).args(arguments);
        let status = command.current_dir(&repository).stdout(std::process::Stdio::null()).status().unwrap();
        assert!(status.success(), "git {arguments:?}");
    };
    git(&["init", "--quiet"]);
    git(&["commit", "--quiet", "--allow-empty", "--message", "Build the barn"]);
    std::fs::write(directory.path().join("hay.txt"), "12 bales").unwrap();
    let of = |path: &str| json!({"repo_path": path});
    let calls = [
        ("git_status", of(&repository), "hay.txt"),
        ("git_status", of("/"), "outside the allowed repository"),
        ("git_add", json!({"repo_path": repository, "files": ["hay.txt"]}), "staged"),
        ("git_diff_staged", of(&repository), "12 bales"),
        ("git_log", of(&repository), "Build the barn"),
    ];
    let program = peers::python("mcp-server-git");
    calls_work_in_both_generations(stdio("git", &program, &["--repository", &repository]), &calls);
}

#[test]
fn the_fetch_server_works() {
    // any server of pages will do: this one is there anyway
    let directory = tempfile::tempdir().unwrap();
    let paragraph =
        "<p>Hay is <b>up</b> again, and nobody knows why that is, least of all the cows.</p>".repeat(5);
    let page =
        format!("<html><head><title>Prices</title></head><body><article>{paragraph}</article></body></html>");
    std::fs::write(directory.path().join("prices.html"), page).unwrap();
    let pages = Listener::on_free_port("", |port| {
        let mut command = Command::new(peers::python("python"));
        command.args(["-m", "http.server", "--bind", "127.0.0.1", "--directory"]).arg(directory.path());
        command.arg(port.to_string());
        command
    });
    let of = |name: &str| json!({"url": format!("{}/{name}", pages.url())});
    let calls = [
        ("fetch", of("missing.html"), "404"),
        ("fetch", json!({"url": "http://127.0.0.1:9/"}), "robots.txt"),
        ("fetch", of("prices.html"), "Hay is **up** again"),
    ];
    let program = peers::python("mcp-server-fetch");
    calls_work_in_both_generations(stdio("fetch", &program, &["--allow-private-ips"]), &calls);
}

fn fastmcp_works(server: Value) {
    let calls = [
        ("fail", json!({"reason": "no hay left"}), "no hay left"),
        ("count", json!({"to": 3}), "counted to 3"),
        ("add", json!({"a": 40, "b": 2}), "42"),
    ];
    calls_work_in_both_generations(server, &calls);
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
