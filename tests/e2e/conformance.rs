//! The protocol's own conformance suite: both revisions, as server and as client.
//!
//! The numbers are those of the scenarios that count for a revision: a run that is empty does not pass.

use lf_tests::conformance::{Fixture, of_client, of_server};
use lf_tests::project::{TestProject, remote};
use serde_json::json;

/// A revision, with the scenarios that count for servers and for clients.
struct Revision {
    name: &'static str,
    servers: usize,
    clients: usize,
    /// What fails at `/mcp` itself, which has none of the suite's own tools.
    expected: &'static str,
}

const LEGACY: Revision =
    Revision { name: "2025-11-25", servers: 30, clients: 18, expected: "expected-failures-2025-11-25.yml" };
const MODERN: Revision =
    Revision { name: "2026-07-28", servers: 37, clients: 32, expected: "expected-failures-2026-07-28.yml" };

const NOWHERE: &str = "http://127.0.0.1:9/v1";

/// The suite against the route of one server of a project: all that it finds has gone through the gateway.
fn through_the_gateway(revision: &Revision) {
    let fixture = Fixture::start();
    let project = TestProject::with_model(NOWHERE, &[remote("fixture", "http", &fixture.url())]);
    let daemon = project.serve();
    let url = daemon.url("/mcp/default/demo/fixture");
    of_server(&url, revision.name, None).assert_whole(revision.servers);
}

#[test]
fn a_legacy_server_behind_the_gateway_conforms() {
    through_the_gateway(&LEGACY);
}

#[test]
fn a_modern_server_behind_the_gateway_conforms() {
    through_the_gateway(&MODERN);
}

#[test]
fn the_daemons_own_endpoint_conforms_but_for_tools_that_only_the_suite_has() {
    let project = TestProject::with_model(NOWHERE, &[]);
    let daemon = project.serve();
    for revision in [LEGACY, MODERN] {
        let outcome = of_server(&daemon.url("/mcp"), revision.name, Some(revision.expected));
        outcome.assert_whole(revision.servers);
    }
}

#[test]
fn a_legacy_client_conforms() {
    of_client(LEGACY.name).assert_whole(LEGACY.clients);
}

#[test]
fn a_modern_client_conforms() {
    of_client(MODERN.name).assert_whole(MODERN.clients);
}

#[test]
fn a_probe_tells_what_a_server_has_and_what_it_answers() {
    let fixture = Fixture::start();
    let project = TestProject::new("");
    let probe = |more: &[&str]| {
        let url = fixture.url();
        project.run(&[&["mcp", "probe", &url, "--json"], more].concat())
    };
    let report =
        probe(&["--call", "greet", "--arguments", r#"{"name": "Ann"}"#, "--read", "test://static-text"]);
    let report = report.ok().json();
    assert_eq!(report["ok"], true);
    assert_eq!(report["server"]["protocol"], "2026-07-28");
    assert_eq!(report["calls"][0]["output"]["content"][0]["text"], "Hello, Ann!");
    assert_eq!(report["answers"][0]["result"]["contents"][0]["mimeType"], "text/plain");
    let steps: Vec<&str> =
        report["steps"].as_array().unwrap().iter().filter_map(|it| it["step"].as_str()).collect();
    let all = ["resolve", "connect", "greet", "tools", "prompts", "resources", "templates", "call", "read"];
    assert_eq!(steps, all);
    let legacy = probe(&["--protocol", "legacy"]).ok().json();
    assert_eq!(legacy["server"]["generation"], "legacy");
    assert_eq!(probe(&["--call", "test_error_handling"]).status, Some(1), "a tool that fails is a failure");
}

#[test]
fn a_probe_names_the_step_at_which_it_ended() {
    let fixture = Fixture::start();
    let project = TestProject::with_model(
        NOWHERE,
        &[
            json!({"name": "missing", "transport": "stdio", "command": "no-such-program-at-all"}),
            json!({"name": "dying", "transport": "stdio", "command": "sh", "args": ["-c", "echo out of hay >&2"]}),
        ],
    );
    let elsewhere = fixture.url().replace("/mcp", "/elsewhere");
    let ends = [
        ("http://127.0.0.1:9/mcp", "connect", "Connection refused"),
        (elsewhere.as_str(), "http", "404"),
        ("missing", "program", "Command not found"),
        ("dying", "greet", "out of hay"),
    ];
    for (target, step, reason) in ends {
        let finished = project.run(&["mcp", "probe", target, "--json", "--timeout", "20s"]);
        assert_eq!(finished.status, Some(1), "{target}: {}", finished.stderr);
        let report = finished.json();
        let last = report["steps"].as_array().unwrap().last().unwrap();
        assert_eq!((&last["step"], &last["ok"]), (&json!(step), &json!(false)), "{target}: {report:#}");
        assert!(last["error"].as_str().unwrap().contains(reason), "{target}: {last}");
    }
    let wrong = project.run(&["mcp", "probe", "nobody"]).failed(2);
    assert!(wrong.contains("not in `mcp.servers`"), "{wrong}");
    let wrong = project.run(&["mcp", "probe", "missing", "--arguments", "{}"]).failed(2);
    assert!(wrong.contains("`--arguments`"), "{wrong}");
}
