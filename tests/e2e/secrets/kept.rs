//! Ways by which a secret would leave other than the plain ones: messages, prompts, issuers, databases.

use std::net::TcpListener;

use lf_tests::client::{get, post, request};
use lf_tests::project::{TestProject, document, document_of, remote};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use serde_json::{Value, json};

const CANARY: &str = "canary-5f0c9e71d2";

fn here(operator: &str) -> TestProject {
    let config = document_of(&[free()], &[]);
    TestProject::of(&config).operator(operator).variable("CANARY", CANARY)
}

fn free() -> Value {
    json!({"name": "free", "provider": "demo", "model": "demo"})
}

#[test]
fn what_a_variable_holds_stands_in_no_message_about_it() {
    let project = here("secrets: {CANARY: []}");
    let daemon = project.serve();
    let mut slow = remote("slow", "http", "https://example.com/mcp");
    slow["timeout"] = json!("${env:CANARY}");
    let mut timed = free();
    timed["name"] = json!("timed");
    timed["limits"] = json!({"turn_timeout": "${env:CANARY}"});
    let schema = json!({"type": "object", "properties": {"a": {"type": "${env:CANARY:-string}"}}});
    let mut tooled = free();
    tooled["name"] = json!("tooled");
    tooled["tools"] = json!([{"type": "function", "name": "t", "description": "d", "parameters": schema}]);
    let config = document_of(&[free(), timed, tooled], &[slow]);
    post(&daemon.url("/v1/projects/team"), &json!({"name": "p", "config": config})).ok();
    let base = daemon.url("/v1/projects/team/p");
    let body = json!({"model": "tooled", "messages": [{"role": "user", "content": "hi"}]});
    let told = [
        get(&format!("{base}/mcp/servers")),
        get(&format!("{base}/models")),
        post(&format!("{base}/chat/completions"), &body),
    ];
    for told in &told {
        assert!(!format!("{told:?}").contains(CANARY), "{told:?}");
    }
    assert!(told[0].text.contains("is no length of time"), "the control: {told:?}");
    let finished = daemon.stop();
    assert!(!finished.stderr.contains(CANARY), "{}", finished.stderr);
}

#[test]
fn a_prompt_that_may_not_hold_a_variable_is_not_served() {
    let mut config = document_of(&[free()], &[]);
    config["prompts"] = json!([
        {"name": "held", "messages": [{"role": "system", "content": "say ${env:CANARY}"}]},
        {"name": "plain", "messages": [{"role": "system", "content": "say hello"}]}
    ]);
    config["runtime"]["models"][0]["prompts"] = json!([]);
    let project = TestProject::of(&config).operator("secrets: {CANARY: []}").variable("CANARY", CANARY);
    let daemon = project.serve();
    let asked = |name: &str| {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": {"name": name, "_meta": meta}});
        let headers = [
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "prompts/get"),
            ("mcp-name", name),
        ];
        request("POST", &daemon.url("/mcp"), &headers, Some(body.to_string()))
    };
    let held = asked("held");
    assert!(!format!("{held:?}").contains(CANARY) && held.text.contains("there is no prompt"), "{held:?}");
    let plain = asked("plain");
    assert!(plain.text.contains("say hello"), "the control: {plain:?}");
}

#[test]
fn an_approved_path_of_one_host_is_not_sent_to_another() {
    let model = || ScriptedModel::start_with(|_, _| Some(Reply::text("done"))).taking_all();
    let (sink, evil) = (model(), model());
    let project = here("egress: [127.0.0.1]");
    let daemon = project.serve();
    let keyed = |one: &ScriptedModel| document(json!({}), &format!("{}/${{env:CANARY}}", one.url("")), &[]);
    post(&daemon.url("/v1/projects/team"), &json!({"name": "p", "config": keyed(&sink)})).ok();
    project.run(&["config", "approve", "team/p"]).ok();
    let ask = || {
        let body = json!({"model": "assistant", "messages": [{"role": "user", "content": "hi"}]});
        post(&daemon.url("/v1/projects/team/p/chat/completions"), &body)
    };
    ask().ok();
    assert!(sink.received().iter().any(|one| one.path.contains(CANARY)), "the control: approved, it arrives");
    let listed = get(&daemon.url("/v1/projects/team/p/models"));
    assert!(!listed.text.contains(CANARY), "{listed:?}");
    let changed = json!({"config": keyed(&evil)}).to_string();
    request("PUT", &daemon.url("/v1/projects/team/p"), &[], Some(changed)).ok();
    let refused = ask();
    assert!(refused.status >= 400 && !refused.text.contains(CANARY), "{refused:?}");
    assert_eq!(evil.received().len(), 0);
}

#[test]
fn a_database_gets_a_password_that_may_go_there() {
    let database = TcpListener::bind("127.0.0.1:0").unwrap();
    database.set_nonblocking(true).unwrap();
    let port = database.local_addr().unwrap().port();
    let mut config = document_of(&[free()], &[]);
    config["storage"] = json!(format!("postgres://me:${{env:CANARY}}@127.0.0.1:{port}/x?sslmode=disable"));
    let start = |operator: &str| {
        let project = TestProject::of(&config).operator(operator).variable("CANARY", CANARY);
        project.serve().stop().stderr
    };
    let forbidden = start("secrets: {CANARY: [api.example.com]}");
    assert!(forbidden.contains("conversations are not kept: variable `CANARY` may not go"), "{forbidden}");
    assert!(database.accept().is_err(), "nobody came");
    // written through the API, and then started in: no more trusted for that
    let project = here("");
    let daemon = project.serve();
    post(&daemon.url("/v1/projects/team"), &json!({"name": "p", "config": config})).ok();
    drop(daemon);
    let stored = project.home().join("data/projects/team/p");
    let daemon = project.serve_with(&["--cwd", stored.to_str().expect("a path of ASCII")]);
    let held = daemon.stop().stderr;
    assert!(held.contains("conversations are not kept:"), "{held}");
    assert!(held.contains("lf config approve team/p") && database.accept().is_err(), "{held}");
}
