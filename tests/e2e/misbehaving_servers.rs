//! MCP servers that do what they must not: a chat goes on without them, and never waits for ever.

use lf_tests::client::{chat, post};
use lf_tests::program::scripted_mcp;
use lf_tests::project::{TestProject, document, scripted, stdio};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Call, Received, Reply, ScriptedModel};
use serde_json::{Value, json};

/// One call of `m__go` of this server; what the model is told of it.
fn told(server: Value) -> String {
    let model = ScriptedModel::start([Reply::call("a", "m__go", json!({})), Reply::text("done")]);
    let project = TestProject::with_model(&model.base_url(), &[server]);
    project.run(&["chat", "hi"]).ok();
    let told = model.request(1).result_of("a").unwrap();
    model.finish();
    project.assert_nothing_left();
    told
}

/// A server that never gets as far as to list its tools: the chat goes on without them, and says so.
fn chat_without(server: Value) -> (Received, String) {
    let model = ScriptedModel::start([Reply::text("hello")]);
    let good = scripted("good", &Script::echoing(&["echo"]));
    let project = TestProject::with_model(&model.base_url(), &[server, good]);
    let finished = project.run(&["chat", "hi"]).ok();
    assert_eq!(finished.stdout.trim(), "hello");
    let request = model.request(0);
    assert_eq!(request.tool_names(), ["good__echo"]);
    model.finish();
    project.assert_nothing_left();
    (request, finished.stderr)
}

fn go(act: Act) -> Script {
    Script::with([ScriptedTool::new("go", act)])
}

#[test]
fn a_missing_command_costs_only_its_own_tools() {
    let server = json!({"name": "missing", "transport": "stdio", "command": "no-such-program"});
    let (_, said) = chat_without(server);
    assert!(said.contains("missing") && said.contains("no-such-program"), "{said}");
}

#[test]
fn a_server_that_exits_at_once_costs_only_its_own_tools() {
    let script =
        Script { exit: Some(3), stderr: Some("cannot open the barn".to_owned()), ..Script::default() };
    let (_, said) = chat_without(scripted("broken", &script));
    assert!(said.contains("broken"), "{said}");
}

#[test]
fn a_server_that_says_nothing_is_given_up_in_time() {
    let script = Script { silent: true, ..Script::default() };
    let mut server = scripted("silent", &script);
    server["startup_timeout"] = json!("1s");
    let (_, said) = chat_without(server);
    assert!(said.contains("silent"), "{said}");
}

#[test]
fn a_required_server_that_is_down_fails_the_chat() {
    let model = ScriptedModel::start([]);
    let server = json!({
        "name": "missing", "transport": "stdio", "command": "no-such-program", "required": true,
    });
    let project = TestProject::with_model(&model.base_url(), &[server]);
    let said = project.run(&["chat", "hi"]).failed(1);
    assert!(said.contains("missing"), "{said}");
}

#[test]
fn a_server_that_exits_when_it_is_probed_is_started_again() {
    let script = Script { exit_on_unknown: true, ..go(Act::Text("well".to_owned())) };
    assert_eq!(told(scripted("m", &script)), "well");
}

#[test]
fn a_server_that_dies_in_a_call_is_told_and_started_again() {
    let directory = tempfile::tempdir().unwrap();
    let marker = directory.path().join("marker");
    let log = directory.path().join("log");
    let script = Script { log: Some(log.clone()), ..go(Act::ExitOnce(marker)) };
    let model = ScriptedModel::start([
        Reply::call("a", "m__go", json!({"n": 1})),
        Reply::call("b", "m__go", json!({"n": 2})),
        Reply::text("done"),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &script)]);
    project.run(&["chat", "hi"]).ok();
    let last = model.request(2);
    assert!(last.result_of("a").unwrap().contains("`m`"), "{last:?}");
    assert_eq!(last.result_of("b").as_deref(), Some("second time"));
    let noted = std::fs::read_to_string(log).unwrap();
    assert_eq!(noted.matches("call go").count(), 2, "a lost call is not made again: {noted}");
    model.finish();
}

#[test]
fn every_call_in_flight_fails_once_when_the_server_dies() {
    let tools = [ScriptedTool::new("hang", Act::Hang), ScriptedTool::new("exit", Act::Exit(1))];
    let model = ScriptedModel::start([
        Reply::calls(
            (0..10)
                .map(|number| Call::new(&format!("h{number}"), "m__hang", json!({"n": number})))
                .chain([Call::new("x", "m__exit", json!({}))]),
        ),
        Reply::text("done"),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &Script::with(tools))]);
    project.run(&["chat", "hi"]).ok();
    assert_eq!(model.request(1).messages().iter().filter(|message| message["role"] == "tool").count(), 11);
    model.finish();
}

#[test]
fn a_call_that_hangs_is_given_up_and_cancelled() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let script = Script { log: Some(log.path().to_owned()), ..go(Act::Hang) };
    let mut server = scripted("m", &script);
    server["timeout"] = json!("500ms");
    let said = told(server);
    assert!(said.contains("500ms"), "{said}");
    assert!(std::fs::read_to_string(log.path()).unwrap().contains("cancelled go"));
}

#[test]
fn noise_on_stdout_is_ignored() {
    let script = Script { garbage: 5, ..go(Act::Garbage(5)) };
    assert_eq!(told(scripted("m", &script)), "after garbage");
}

#[test]
fn a_flood_on_stderr_is_drained() {
    let script = Script { stderr_flood: 8 << 20, ..go(Act::Text("well".to_owned())) };
    assert_eq!(told(scripted("m", &script)), "well");
}

#[test]
fn a_line_without_end_is_bounded() {
    let mut server = scripted("m", &go(Act::HugeLine(40 << 20)));
    server["timeout"] = json!("10s");
    let said = told(server);
    assert!(said == "after a huge line" || said.contains("limit") || said.contains("`m`"), "{said}");
}

#[test]
fn endless_pages_end() {
    for same_cursor in [false, true] {
        let script =
            Script { endless_pages: true, same_cursor, page_size: 1, ..go(Act::Text("well".to_owned())) };
        let model = ScriptedModel::start([Reply::text("hello")]);
        let project = TestProject::with_model(&model.base_url(), &[scripted("m", &script)]);
        project.run(&["chat", "hi"]).ok();
        model.finish();
    }
}

#[test]
fn a_refusal_of_the_protocol_is_told_to_the_model() {
    let said = told(scripted("m", &go(Act::Refuse(-32602, "no such barn".to_owned()))));
    assert!(said.contains("no such barn"), "{said}");
}

#[test]
fn a_call_that_fails_is_one_warning_in_the_log() {
    let model = ScriptedModel::start([Reply::call("a", "m__go", json!({})), Reply::text("done")]);
    let refusing = scripted("m", &go(Act::Refuse(-32000, "no such barn".to_owned())));
    let project = TestProject::with_model(&model.base_url(), &[refusing]);
    let log = project.run(&["--log", "info", "chat", "hi"]).ok().stderr;
    let about: Vec<&str> = log.lines().filter(|line| line.contains(" WARN ")).collect();
    assert!(matches!(about[..], [one] if one.contains("no such barn")), "{log}");
    model.finish();
}

#[test]
fn a_hung_server_does_not_hold_up_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let slow = Script { list_gate: Some(directory.path().join("never")), ..go(Act::Echo) };
    let model = ScriptedModel::start([Reply::text("hello")]);
    let mut server = scripted("slow", &slow);
    server["startup_timeout"] = json!("1s");
    let good = scripted("good", &Script::echoing(&["echo"]));
    let project = TestProject::of(&document(json!({}), &model.base_url(), &[server, good]));
    let daemon = project.serve();
    post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    assert_eq!(model.request(0).tool_names(), ["good__echo"]);
    model.finish();
}

#[test]
fn a_result_beyond_every_limit_is_bounded() {
    let said = told(scripted("m", &go(Act::Big(30 << 20))));
    assert!(said.len() < 200_000, "{} bytes", said.len());
}

#[test]
fn a_storm_of_progress_does_not_lose_the_answer() {
    assert_eq!(told(scripted("m", &go(Act::Progress(20_000)))), "after 20000 reports");
}

#[test]
fn ten_thousand_items_and_nonsense_among_them_are_bounded() {
    let mut items = vec![json!({"type": "text", "text": "all work and no play"}); 10_000];
    items.push(json!({"type": "image", "mimeType": "text/nonsense", "data": "/// no base64 ///"}));
    // more than fits on a command line
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), go(Act::Content(items)).to_argument()).unwrap();
    let file = format!("@{}", script.path().display());
    let said = told(stdio("m", &scripted_mcp(), &["stdio", &file]));
    assert!(said.len() < 200_000 && said.starts_with("all work and no play"), "{} bytes", said.len());
}

#[test]
fn a_server_that_takes_too_much_memory_ends_alone() {
    let script = "import json, sys\n\
        for line in sys.stdin:\n\
        \x20   asked = json.loads(line)\n\
        \x20   if asked.get('method') == 'tools/call': hog = [bytearray(1 << 24) for _ in range(1000)]\n\
        \x20   result = {'initialize': {'protocolVersion': '2025-11-25', 'capabilities': {'tools': {}}, 'serverInfo': \
        {'name': 'hog', 'version': '1'}}, 'tools/list': {'tools': [{'name': 'go', 'inputSchema': {'type': 'object'}}]}}\n\
        \x20   if asked.get('method') in result:\n\
        \x20       answer = {'jsonrpc': '2.0', 'id': asked['id'], 'result': result[asked['method']]}\n\
        \x20       print(json.dumps(answer), flush=True)\n";
    let server = json!({
        "name": "m", "transport": "stdio", "command": "python3", "args": ["-S", "-c", script], "protocol": "legacy",
        "limits": {"memory": "256MiB"},
    });
    let said = told(server);
    assert!(said.contains("out of memory: exited with status 1"), "{said}");
}
