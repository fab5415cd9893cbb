//! MCP servers of the legacy generation, of the modern one and of both: found out, pinned, listened to, cancelled.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use lf_tests::client::{chat, post};
use lf_tests::peers;
use lf_tests::project::{Listener, TestProject, remote, scripted, stdio};
use lf_tests::scripted_mcp::{Act, Generation, Script, ScriptedTool};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::eventually;
use serde_json::{Value, json};

const NOWHERE: &str = "http://127.0.0.1:9/v1";
const TRANSPORTS: [&str; 3] = ["stdio", "http", "sse"];

/// A scripted server over one transport, and what it noted.
struct Peer {
    entry: Value,
    log: tempfile::NamedTempFile,
    _listener: Option<Listener>,
}

impl Peer {
    fn start(transport: &str, script: Script) -> Self {
        let log = tempfile::NamedTempFile::new().unwrap();
        let script = Script { log: Some(log.path().to_owned()), ..script };
        if transport == "stdio" {
            return Self { entry: scripted("m", &script), log, _listener: None };
        }
        let listener = Listener::scripted_mcp(transport, &script);
        Self { entry: remote("m", transport, listener.url()), log, _listener: Some(listener) }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap()
    }

    fn count(&self, line: &str) -> usize {
        self.log().lines().filter(|noted| noted.starts_with(line)).count()
    }
}

fn of(generation: Generation, tools: impl IntoIterator<Item = ScriptedTool>) -> Script {
    Script { generation, ..Script::with(tools) }
}

fn tool(name: &str, act: Act) -> ScriptedTool {
    ScriptedTool::new(name, act)
}

/// What `lf mcp list` knows of the only server.
fn listed(entry: &Value) -> Value {
    let project = TestProject::with_model(NOWHERE, std::slice::from_ref(entry));
    let listed = project.run(&["mcp", "list", "--json"]).ok().json();
    project.assert_nothing_left();
    listed["servers"][0].clone()
}

/// What a call of `go` returns.
fn called(entry: &Value) -> String {
    let project = TestProject::with_model(NOWHERE, std::slice::from_ref(entry));
    project.run(&["mcp", "call", "m", "go", "{}"]).ok().stdout.trim().to_owned()
}

#[test]
fn the_generation_is_found_out_over_every_transport() {
    for transport in TRANSPORTS {
        for (generation, revision, calls) in [
            (Generation::Legacy, "2025-11-25", ("initialize", "discover")),
            (Generation::Modern, "2026-07-28", ("discover", "initialize")),
            (Generation::Dual, "2026-07-28", ("discover", "initialize")),
        ] {
            let peer = Peer::start(transport, of(generation, [tool("go", Act::Echo)]));
            let found = listed(&peer.entry);
            assert_eq!(found["protocol"], revision, "{transport} {generation:?}: {found}\n{}", peer.log());
            assert_eq!((peer.count(calls.0), peer.count(calls.1)), (1, 0), "{}", peer.log());
            assert_eq!(peer.count("start"), 1);
            assert_eq!(called(&peer.entry), "{}");
            assert_eq!(peer.count("header"), 0, "{}", peer.log());
        }
    }
}

#[test]
fn the_file_pins_a_generation_or_a_revision() {
    for transport in TRANSPORTS {
        for (protocol, revision) in [
            ("legacy", "2025-11-25"),
            ("modern", "2026-07-28"),
            ("2025-06-18", "2025-06-18"),
            ("2026-07-28", "2026-07-28"),
        ] {
            let mut peer = Peer::start(transport, of(Generation::Dual, [tool("go", Act::Echo)]));
            peer.entry["protocol"] = json!(protocol);
            assert_eq!(listed(&peer.entry)["protocol"], revision, "{transport}");
        }
        let mut peer = Peer::start(transport, of(Generation::Legacy, [tool("go", Act::Echo)]));
        peer.entry["protocol"] = json!("modern");
        let found = listed(&peer.entry);
        assert_eq!(found["state"], "failed");
        assert!(found["error"].as_str().unwrap().contains("server/discover"), "{found}");
        assert!(found["hint"].as_str().unwrap().contains("`protocol`"), "{found}");
    }
}

#[test]
fn servers_that_do_not_bear_to_be_probed_are_used_all_the_same() {
    let quitting = Script { exit_on_unknown: true, ..of(Generation::Legacy, [tool("go", Act::Echo)]) };
    let mute = Script { mute_on_unknown: true, ..of(Generation::Legacy, [tool("go", Act::Echo)]) };
    // It reads the first message after both were sent, and keeps to it.
    let slow = Script { slow: 3_000, ..of(Generation::Dual, [tool("go", Act::Echo)]) };
    for (script, revision, starts) in
        [(quitting, "2025-11-25", 2), (mute, "2025-11-25", 1), (slow, "2026-07-28", 1)]
    {
        let peer = Peer::start("stdio", script);
        assert_eq!(listed(&peer.entry)["protocol"], revision, "{}", peer.log());
        assert_eq!(peer.count("start"), starts, "{}", peer.log());
    }
}

#[test]
fn arguments_are_sent_as_headers_and_a_tool_that_names_a_wrong_one_is_left_out() {
    let schema = |header: &str| json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": header}}});
    let tools = [
        tool("go", Act::Echo).schema(schema("Region")),
        tool("odd", Act::Echo).schema(schema("not a token")),
    ];
    let peer = Peer::start("http", of(Generation::Modern, tools));
    let project = TestProject::with_model(NOWHERE, std::slice::from_ref(&peer.entry));
    let called = project.run(&["mcp", "call", "m", "go", r#"{"region":"north"}"#]).ok();
    assert!(called.stdout.contains("north"), "{called:?}");
    assert_eq!(peer.count("header"), 0, "{}", peer.log());
    let tools = project.run(&["--log", "warn", "mcp", "tools"]).ok();
    assert!(tools.stdout.contains("go") && !tools.stdout.contains("odd"), "{tools:?}");
    assert!(tools.stderr.contains("odd") && tools.stderr.contains("x-mcp-header"), "{tools:?}");
}

#[test]
fn a_call_that_is_given_up_is_cancelled_in_both_generations_over_every_transport() {
    for transport in TRANSPORTS {
        for generation in [Generation::Legacy, Generation::Modern] {
            let mut peer = Peer::start(transport, of(generation, [tool("go", Act::Hang)]));
            peer.entry["timeout"] = json!("500ms");
            let project = TestProject::with_model(NOWHERE, std::slice::from_ref(&peer.entry));
            let said = project.run(&["mcp", "call", "m", "go", "{}"]).failed(1);
            assert!(said.contains("500ms"), "{said}");
            eventually(&format!("the call over {transport} of {generation:?} to be cancelled"), || {
                (peer.count("cancelled go") == 1).then_some(())
            });
            if transport == "http" {
                let by_message = usize::from(generation == Generation::Legacy);
                eventually("the message that takes the call back, in the legacy generation", || {
                    (peer.count("cancellation of go") >= by_message).then_some(())
                });
                assert_eq!(peer.count("cancellation of go"), by_message, "{}", peer.log());
                // after a call without an answer it is asked whether the server still lives; that is taken back at the
                // end, when it may not even have been sent
                let probes =
                    peer.count("cancellation of tools/list") + peer.count("cancellation of what never came");
                assert!(probes <= by_message, "{}", peer.log());
                assert_eq!(peer.count("cancellation"), by_message + probes, "{}", peer.log());
            }
        }
    }
}

#[test]
fn a_question_to_a_person_is_answered_by_the_defaults_of_its_form() {
    let form = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "default": "hay"}, "count": {"type": "integer", "default": 2}},
        "required": ["name"],
    });
    let blank = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    for transport in TRANSPORTS {
        for generation in [Generation::Legacy, Generation::Modern] {
            let peer = Peer::start(transport, of(generation, [tool("go", Act::Ask(form.clone()))]));
            let answer: Value = serde_json::from_str(&called(&peer.entry)).unwrap();
            let expected = json!({"action": "accept", "content": {"name": "hay", "count": 2}});
            assert_eq!(answer, expected, "{transport} {generation:?}");
            let peer = Peer::start(transport, of(generation, [tool("go", Act::Ask(blank.clone()))]));
            assert_eq!(called(&peer.entry), r#"{"action":"decline"}"#, "{transport} {generation:?}");
        }
    }
}

#[test]
fn a_storm_of_changes_is_listed_a_few_times_and_seen_by_the_next_turn() {
    for transport in TRANSPORTS {
        for generation in [Generation::Legacy, Generation::Modern] {
            let peer = Peer::start(transport, of(generation, [tool("go", Act::ChangeOften(3_000))]));
            let model = ScriptedModel::start([
                Reply::text("hello"),
                Reply::call("a", "m__go", json!({})),
                Reply::text("done"),
                Reply::text("again"),
            ]);
            let project = TestProject::with_model(&model.base_url(), std::slice::from_ref(&peer.entry));
            let daemon = project.serve();
            let ask = || post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
            ask();
            if generation == Generation::Modern {
                eventually("it is listened to", || (peer.count("listen") == 1).then_some(()));
            }
            ask();
            ask();
            assert!(
                model.request(3).tool_names().contains(&"m__late".to_owned()),
                "{transport} {generation:?}"
            );
            let lists = peer.count("list") - peer.count("listen");
            assert!((2..=5).contains(&lists), "{transport} {generation:?}: {lists}");
            model.finish();
        }
    }
}

#[test]
fn every_type_of_content_reaches_the_model() {
    let items = vec![
        json!({"type": "text", "text": "a text"}),
        json!({"type": "image", "data": "pixel", "mimeType": "image/png"}),
        json!({"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}),
        json!({"type": "resource", "resource": {"uri": "farm://barn", "mimeType": "text/plain", "text": "full of hay"}}),
        json!({"type": "resource", "resource": {"uri": "farm://pixel", "mimeType": "image/png", "blob": "iVBORw0KGgo="}}),
        json!({"type": "resource_link", "uri": "farm://field", "name": "field", "description": "the big one"}),
        json!({"type": "hologram", "of": "a cow"}),
    ];
    for generation in [Generation::Legacy, Generation::Modern] {
        let peer = Peer::start("stdio", of(generation, [tool("go", Act::Content(items.clone()))]));
        let model = ScriptedModel::start([Reply::call("a", "m__go", json!({})), Reply::text("done")]);
        let project = TestProject::with_model(&model.base_url(), &[peer.entry]);
        project.run(&["chat", "hi"]).ok();
        let seen = Value::from(model.request(1).messages().to_vec()).to_string();
        for part in [
            "a text",
            "data:image/png;base64,iVBOR",
            "audio/wav",
            "full of hay",
            "data:image/png;base64,iVBORw0KGgo=",
            "farm://field",
            "the big one",
            "a cow",
        ] {
            assert!(seen.contains(part), "{generation:?}: no {part} in {seen}");
        }
        model.finish();
    }
}

fn fastmcp_at(transport: &str, path: &str) -> Listener {
    Listener::on_free_port(path, |port| {
        let mut command = Command::new(peers::python("python"));
        command.arg(peers::script("fastmcp_server.py")).args([transport, &port.to_string()]);
        command
    })
}

/// A server people use, in each generation that the file asks for; `auto` is to find the last.
#[expect(clippy::print_stdout, reason = "how long each start takes is worth knowing: `--nocapture` shows it")]
fn real(name: &str, entry: &Value, tool: (&str, &str, &str), expected: &[(&str, &str)]) {
    for (protocol, revision) in expected {
        let mut entry = entry.clone();
        entry["protocol"] = json!(protocol);
        let started = Instant::now();
        let found = listed(&entry);
        println!("{name} with `protocol: {protocol}`: {:.2} s", started.elapsed().as_secs_f64());
        assert_eq!(found["protocol"], *revision, "{name} {protocol}: {found}");
        let project = TestProject::with_model(NOWHERE, &[entry]);
        let called = project.run(&["mcp", "call", name, tool.0, tool.1]).ok();
        assert!(called.stdout.contains(tool.2), "{name} {protocol}: {called:?}");
        project.assert_nothing_left();
    }
}

const BOTH: [(&str, &str); 3] = [("legacy", "2025-11-25"), ("modern", "2026-07-28"), ("auto", "2026-07-28")];
const OLDER: [(&str, &str); 2] = [("legacy", "2025-11-25"), ("auto", "2025-11-25")];

#[test]
fn the_time_server_speaks_both_generations() {
    let entry = stdio("time", &peers::python("mcp-server-time"), &[]);
    let tool = ("get_current_time", r#"{"timezone":"Europe/Berlin"}"#, "Europe/Berlin");
    real("time", &entry, tool, &BOTH);
}

#[test]
fn fastmcp_speaks_both_generations_over_every_transport() {
    let tool = ("add", r#"{"a":40,"b":2}"#, "42");
    let script = peers::script("fastmcp_server.py").display().to_string();
    real("py", &stdio("py", &peers::python("python"), &[&script]), tool, &BOTH);
    for (transport, path) in [("http", "/mcp"), ("sse", "/sse")] {
        let server = fastmcp_at(transport, path);
        real("py", &remote("py", transport, server.url()), tool, &BOTH);
    }
}

#[test]
fn the_servers_of_the_typescript_sdk_speak_the_older_generation() {
    let everything: PathBuf = peers::node("mcp-server-everything");
    let tool = ("echo", r#"{"message":"hay"}"#, "hay");
    real("every", &stdio("every", &everything, &["stdio"]), tool, &OLDER);
    for (transport, argument, path) in [("http", "streamableHttp", "/mcp"), ("sse", "sse", "/sse")] {
        let server = Listener::on_free_port(path, |port| {
            let mut command = Command::new(&everything);
            command.arg(argument).env("PORT", port.to_string());
            command
        });
        real("every", &remote("every", transport, server.url()), tool, &OLDER);
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("hay.txt"), "a needle").unwrap();
    let root = directory.path().display().to_string();
    let entry = stdio("fs", &peers::node("mcp-server-filesystem"), &[&root]);
    let arguments = json!({"path": format!("{root}/hay.txt")}).to_string();
    real("fs", &entry, ("read_text_file", &arguments, "a needle"), &OLDER);
}

#[test]
fn a_person_is_asked_by_the_everything_server_too() {
    let entry = stdio("every", &peers::node("mcp-server-everything"), &["stdio"]);
    let project = TestProject::with_model(NOWHERE, &[entry]);
    let called = project.run(&["mcp", "call", "every", "trigger-elicitation-request", "{}"]).ok();
    assert!(called.stdout.to_lowercase().contains("declin"), "{called:?}");
    project.assert_nothing_left();
}
