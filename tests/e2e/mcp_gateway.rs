//! The daemon as an MCP server: a project's tools at `/mcp/{namespace}/{project}`, its own at `/mcp`, and over stdio.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use lf_tests::client::{ACCEPT, begin, message, modern, request};
use lf_tests::conformance::Fixture;
use lf_tests::peers;
use lf_tests::processes;
use lf_tests::program::lf;
use lf_tests::project::{Daemon, TestProject, document, remote, scripted};
use lf_tests::scripted_mcp::Script;
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::eventually;
use serde_json::{Value, json};

mod own;

const NOWHERE: &str = "http://127.0.0.1:9/v1";
/// As the client's SDK calls the two generations, and the revision that they then speak.
const GENERATIONS: [(&str, &str); 2] = [("legacy", "2025-11-25"), ("auto", "2026-07-28")];

/// What the official client sees.
fn client(arguments: &[&str], steps: &Value) -> Value {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(peers::python("python"));
    command.arg(peers::script("mcp_client.py")).args(arguments);
    peers::take_steps(&command, home.path(), steps)
}

fn route(daemon: &Daemon, rest: &str) -> String {
    daemon.url(&format!("/mcp/default/demo{rest}"))
}

fn everything(arguments: &[&str], protocol: &str, log: &std::path::Path) {
    let seen = client(
        arguments,
        &json!([
            {"list": true},
            {"call": "m__echo", "arguments": {"a": [1, "x"]}},
            {"call": "m__fail"},
            {"call": "m__image"},
            {"call": "m__count"},
            {"call": "m__refuse"},
            {"call": "m__nothing"},
            {"call": "m__hang", "cancel_after": 0.5},
            {"call": "m__echo", "arguments": {"still": "here"}},
        ]),
    );
    assert_eq!(seen["protocol"], protocol);
    let steps = seen["steps"].as_array().unwrap();
    let names: Vec<&str> =
        steps[0]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["m__count", "m__echo", "m__fail", "m__hang", "m__image", "m__refuse"]);
    let outcomes = &steps[0]["_meta"]["io.lf/outcomes"];
    assert_eq!(outcomes["m"], json!({"status": "ok", "tools": 6}), "{seen}");
    assert_eq!(outcomes["gone"]["status"], "down", "{seen}");
    assert_eq!(steps[1]["result"]["content"][0]["text"], r#"{"a":[1,"x"]}"#);
    assert_eq!(steps[2]["result"]["isError"], true);
    assert_eq!(steps[2]["result"]["content"][0]["text"], "no hay");
    let image = &steps[3]["result"]["content"][0];
    assert_eq!((&image["type"], &image["data"]), (&json!("image"), &json!("aGF5")));
    assert_eq!(steps[4]["progress"].as_array().unwrap().len(), 3, "{seen}");
    assert_eq!(steps[5], json!({"error": -32_050, "message": "not today"}));
    assert_eq!(steps[6]["error"], -32_602);
    assert_eq!(steps[7], json!({"cancelled": true}));
    assert_eq!(steps[8]["result"]["content"][0]["text"], r#"{"still":"here"}"#);
    eventually("the server to hear of the cancellation", || {
        let noted = std::fs::read_to_string(log).unwrap();
        noted.lines().any(|line| line.starts_with("cancelled")).then_some(())
    });
}

/// A project with a server that works and one that does not.
fn project() -> (TestProject, tempfile::NamedTempFile) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let script = Script { log: Some(log.path().to_owned()), ..Script::of_every_kind() };
    let servers = [scripted("m", &script), remote("gone", "http", "http://127.0.0.1:9/mcp")];
    (TestProject::with_model(NOWHERE, &servers), log)
}

#[test]
fn a_project_is_one_server_to_clients_of_both_generations() {
    for (mode, protocol) in GENERATIONS {
        let (project, log) = project();
        let daemon = project.serve();
        everything(&[&route(&daemon, ""), mode], protocol, log.path());
        daemon.stop();
        project.assert_nothing_left();
    }
}

#[test]
fn the_same_is_served_over_stdio() {
    for (mode, protocol) in GENERATIONS {
        let (project, log) = project();
        let program = lf().display().to_string();
        let path = project.path().display().to_string();
        let arguments = ["stdio", mode, program.as_str(), "--cwd", path.as_str(), "mcp", "serve"];
        everything(&arguments, protocol, log.path());
        processes::assert_none_left(project.home(), Duration::from_secs(10));
    }
}

#[test]
fn one_server_is_passed_through_under_its_own_names() {
    let (project, _log) = project();
    let daemon = project.serve();
    for (mode, protocol) in GENERATIONS {
        let url = route(&daemon, "/m");
        let seen = client(
            &[&url, mode],
            &json!([{"list": true}, {"call": "echo", "arguments": {"a": 1}}, {"call": "no"}]),
        );
        assert_eq!(seen["protocol"], protocol);
        assert_eq!(seen["steps"][0]["tools"].as_array().unwrap().len(), 6);
        assert_eq!(seen["steps"][0]["tools"][0]["name"], "echo");
        assert_eq!(seen["steps"][1]["result"]["content"][0]["text"], r#"{"a":1}"#);
        assert_eq!(seen["steps"][2]["error"], -32_602);
    }
    // a server that is down is said to be, and not shown as one without tools
    let listed = message(&modern(&route(&daemon, "/gone"), "tools/list", &json!({}), &[]));
    assert!(listed["error"]["message"].as_str().unwrap().contains("Connection refused"), "{listed}");
}

#[test]
fn what_does_not_exist_is_not_found() {
    let (project, _log) = project();
    let daemon = project.serve();
    let missing = [daemon.url("/mcp/no/such"), route(&daemon, "/nobody"), route(&daemon, "?model=nobody")];
    for url in missing {
        assert_eq!(modern(&url, "tools/list", &json!({}), &[]).status, 404, "{url}");
    }
}

#[test]
fn pages_of_other_origins_and_sessions_of_other_urls_are_refused() {
    let (project, _log) = project();
    let daemon = project.serve();
    let url = route(&daemon, "");
    for (name, value) in [("origin", "https://evil.example"), ("host", "evil.example")] {
        assert_eq!(modern(&url, "tools/list", &json!({}), &[(name, value)]).status, 403, "{name}");
    }
    let session = begin(&url);
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}).to_string();
    let with_session = [ACCEPT, ("mcp-session-id", session.as_str())];
    assert_eq!(request("POST", &url, &with_session, Some(list.clone())).status, 200);
    let elsewhere = daemon.url("/mcp");
    assert_eq!(request("POST", &elsewhere, &with_session, Some(list)).status, 404);
}

#[test]
fn a_session_that_waits_for_news_does_not_hold_up_a_drain() {
    let (project, _log) = project();
    let daemon = project.serve();
    let session = begin(&route(&daemon, ""));
    let mut stream = TcpStream::connect(("127.0.0.1", daemon.port())).unwrap();
    let head = "GET /mcp/default/demo HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream";
    // the session is of whoever began it
    let key = lf_tests::keys::of(&daemon.url("/")).unwrap();
    write!(stream, "{head}\r\nMcp-Session-Id: {session}\r\nX-Api-Key: {key}\r\n\r\n").unwrap();
    let mut begun = [0; 12];
    stream.read_exact(&mut begun).unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200");
    let started = Instant::now();
    daemon.stop();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

/// The reference server in each generation, as `old` and `new`, with a project that passes it on.
fn in_each_generation() -> (Fixture, TestProject) {
    let fixture = Fixture::start();
    let servers = [("old", "legacy"), ("new", "modern")].map(|(name, protocol)| {
        let mut server = remote(name, "http", &fixture.url());
        server["protocol"] = json!(protocol);
        server
    });
    let project = TestProject::with_model(NOWHERE, &servers);
    (fixture, project)
}

#[test]
fn everything_of_a_server_is_passed_on_between_all_generations() {
    let (_fixture, project) = in_each_generation();
    let daemon = project.serve();
    let watched = "test://watched-resource";
    let steps = json!([
        {"answers": true},
        {"watch": watched},
        {"prompts": true},
        {"prompt": "test_prompt_with_arguments", "arguments": {"arg1": "a", "arg2": "b"}},
        {"resources": true},
        {"templates": true},
        {"read": "test://static-binary"},
        {"complete": {
            "ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
            "argument": {"name": "arg1", "value": "p"},
        }},
        {"call": "test_tool_with_logging"},
        {"call": "test_tool_with_progress"},
        {"call": "test_sampling", "arguments": {"prompt": "hay?"}},
        {"call": "test_elicitation", "arguments": {"message": "who?"}},
        {"call": "test_input_required_result_list_roots"},
        {"call": "test_trigger_resource_update", "arguments": {"uri": watched}},
        {"until": watched},
        {"call": "test_trigger_prompt_change"},
        {"until": "rompts"},
        {"read": "test://nothing"},
    ]);
    for server in ["old", "new"] {
        for (mode, protocol) in GENERATIONS {
            let seen = client(&[&route(&daemon, &format!("/{server}")), mode], &steps);
            let of = format!("{mode} client of {server}: {seen:#}");
            assert_eq!(seen["protocol"], protocol, "{of}");
            assert_eq!(seen["server"]["name"], "lf-conformance-fixture", "{of}");
            let step = |number: usize| &seen["steps"][number];
            assert!(step(2)["prompts"].as_array().unwrap().len() >= 5, "{of}");
            assert!(step(3).to_string().contains("arg1 is 'a', arg2 is 'b'"), "{of}");
            assert_eq!(step(4)["resources"].as_array().unwrap().len(), 3, "{of}");
            assert_eq!(step(5)["resourceTemplates"][0]["uriTemplate"], "test://template/{id}/data", "{of}");
            assert!(step(6)["contents"][0]["blob"].is_string(), "{of}");
            assert!(step(7)["completion"]["values"].is_array(), "{of}");
            assert_eq!(step(9)["progress"].as_array().unwrap().len(), 3, "{of}");
            for (number, answer) in [(10, "sampled hay"), (11, "username"), (12, "file:///hay")] {
                assert!(step(number)["result"].to_string().contains(answer), "{of}");
            }
            assert!(step(17)["error"].is_i64(), "{of}");
            let heard = seen["heard"].to_string();
            for heard_of in ["info: the tool goes on", "sampling/", "elicitation/", "roots/list", watched] {
                assert!(heard.contains(heard_of), "{heard_of} by the {of}");
            }
        }
    }
    daemon.stop();
}

#[test]
fn a_project_merges_prompts_and_resources_and_tells_whose_they_are() {
    let (_fixture, project) = in_each_generation();
    let daemon = project.serve();
    for (mode, _) in GENERATIONS {
        let seen = client(
            &[&route(&daemon, ""), mode],
            &json!([
                {"prompts": true},
                {"prompt": "new__test_simple_prompt"},
                {"resources": true},
                {"read": "test://template/7/data"},
                {"complete": {
                    "ref": {"type": "ref/prompt", "name": "old__test_prompt_with_arguments"},
                    "argument": {"name": "arg1", "value": "p"},
                }},
                {"prompt": "old__nothing"},
                {"read": "test://nothing"},
            ]),
        );
        let step = |number: usize| &seen["steps"][number];
        assert_eq!(step(0)["prompts"].as_array().unwrap().len(), 10, "{seen}");
        assert_eq!(step(0)["_meta"]["io.lf/outcomes"]["old"], json!({"status": "ok", "prompts": 5}));
        assert!(step(1)["messages"][0].is_object(), "{seen}");
        // the same resources twice: the first server's count
        assert_eq!(step(2)["resources"].as_array().unwrap().len(), 3, "{seen}");
        let shadowed = &step(2)["_meta"]["io.lf/outcomes"]["new"]["shadowed"];
        assert_eq!(shadowed[0]["server"], "old", "{seen}");
        assert!(step(3)["contents"][0]["text"].as_str().unwrap().contains("\"7\""), "{seen}");
        assert!(step(4)["completion"]["values"].is_array(), "{seen}");
        assert_eq!(step(5)["error"], -32_602, "{seen}");
        assert!(step(6)["error"].is_i64(), "{seen}");
    }
    daemon.stop();
}

#[test]
fn what_the_file_withholds_or_renames_is_so_on_every_route() {
    let script = Script::echoing(&["echo", "hidden", "own"]);
    let mut server = scripted("m", &script);
    server["tools"] = json!({"deny": ["hid*"], "rename": {"own": "shown"}});
    let project = TestProject::with_model(NOWHERE, &[server]);
    let daemon = project.serve();
    let called = |url: &str, name: &str| {
        message(&modern(url, "tools/call", &json!({"name": name, "arguments": {"n": 1}}), &[]))
    };
    for (rest, prefix) in [("", "m__"), ("/m", "")] {
        let url = route(&daemon, rest);
        let listed = message(&modern(&url, "tools/list", &json!({}), &[]));
        let mut names: Vec<&str> = listed["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|tool| tool["name"].as_str())
            .collect();
        names.sort_unstable();
        assert_eq!(names, [format!("{prefix}echo"), format!("{prefix}shown")], "{listed}");
        let shown = called(&url, &format!("{prefix}shown"));
        assert_eq!(shown["result"]["content"][0]["text"], r#"{"n":1}"#, "{shown}");
        for withheld in ["hidden", "own"] {
            let refused = called(&url, &format!("{prefix}{withheld}"));
            assert_eq!(refused["error"]["code"], -32_602, "{refused}");
        }
    }
    daemon.stop();
}

#[test]
fn a_client_is_answered_its_own_questions_and_no_state_is_taken_twice() {
    let (_fixture, project) = in_each_generation();
    let daemon = project.serve();
    let url = route(&daemon, "/old");
    let ask = |more: Value| {
        let mut params = json!({"name": "test_elicitation", "arguments": {"message": "who?"}});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        });
        let headers = [
            ACCEPT,
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "test_elicitation"),
        ];
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        message(&request("POST", &url, &headers, Some(body.to_string())))
    };
    let (first, second) = (ask(json!({})), ask(json!({})));
    let state = |asked: &Value| asked["result"]["requestState"].clone();
    assert_eq!(first["result"]["inputRequests"]["question"]["method"], "elicitation/create", "{first}");
    assert_ne!(state(&first), state(&second));
    let answer = |name: &str| {
        let content = json!({"username": name, "email": "m"});
        json!({"question": {"action": "accept", "content": content}})
    };
    // the later one first: each goes on with its own answer
    for (asked, name) in [(&second, "two"), (&first, "one")] {
        let told = ask(json!({"requestState": state(asked), "inputResponses": answer(name)}));
        assert!(told["result"]["content"][0]["text"].as_str().unwrap().contains(name), "{told}");
    }
    let again = ask(json!({"requestState": state(&first), "inputResponses": answer("three")}));
    assert_eq!(again["error"]["code"], -32_602, "{again}");
    // an answer that is missing is asked for again
    let third = ask(json!({}));
    let missing = ask(json!({"requestState": state(&third)}));
    assert_eq!(missing["result"]["resultType"], "input_required", "{missing}");
    let told = ask(json!({"requestState": state(&missing), "inputResponses": answer("late")}));
    assert!(told["result"]["content"][0]["text"].as_str().unwrap().contains("late"), "{told}");
    daemon.stop();
}
