//! Remote MCP servers and model APIs over TLS, as the built program reaches them; and what clients send to our own
//! `/mcp` that contradicts itself.

use lf_tests::client::{Response, request};
use lf_tests::project::{Listener, TestProject, remote, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::tls_front::Authority;
use serde_json::{Value, json};

fn echo() -> Script {
    Script::with([ScriptedTool::new("echo", Act::Echo)])
}

/// Fault row 38: nothing of this can be tried without a certificate of one's own.
#[test]
fn servers_and_models_of_an_own_authority_are_reached_when_ssl_cert_file_names_it() {
    let authority = Authority::new();
    for transport in ["http", "sse"] {
        let model = ScriptedModel::start([
            Reply::call("c1", "m__echo", json!({"over": "tls"})),
            Reply::text("It said so."),
        ]);
        let server = Listener::scripted_mcp(transport, &echo());
        let project = TestProject::with_model(
            &authority.front(&model.base_url()),
            &[remote("m", transport, &authority.front(server.url()))],
        );
        let file = project.write("own.pem", authority.certificate());
        let project = project.variable("SSL_CERT_FILE", file.to_str().unwrap());
        assert_eq!(project.run(&["chat", "hi"]).ok().stdout.trim(), "It said so.");
        let told = model.request(1).result_of("c1").unwrap();
        assert!(told.contains("over") && told.contains("tls"), "{told}");
        model.finish();
    }
}

/// Fault row 38
#[test]
fn an_authority_that_nobody_named_is_refused_with_what_to_set() {
    let authority = Authority::new();
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("hi")));
    let server = Listener::scripted_mcp("http", &echo());
    let project = TestProject::with_model(
        &authority.front(&model.base_url()),
        &[remote("m", "http", &authority.front(server.url()))],
    );
    let listed = project.run(&["mcp", "list"]);
    let said = format!("{}{}", listed.stdout, listed.stderr);
    assert!(said.contains("is signed by nobody who is trusted here"), "{said}");
    let said = project.run(&["chat", "hi"]).failed(1);
    assert!(said.to_lowercase().contains("certificate") || said.contains("UnknownIssuer"), "{said}");
    assert!(model.received().is_empty());
}

/// A file that is not there costs what is encrypted, and says so, but not what is not.
#[test]
fn a_certificate_file_that_is_missing_does_not_stop_what_is_not_encrypted() {
    let model = ScriptedModel::start([Reply::text("hello")]);
    let project =
        TestProject::with_model(&model.base_url(), &[]).variable("SSL_CERT_FILE", "/nonexistent.pem");
    assert_eq!(project.run(&["chat", "hi"]).ok().stdout.trim(), "hello");
    model.finish();
}

/// One request of the newer generation to our own `/mcp`, whose headers say these things of it.
fn modern(url: &str, method: &str, params: &Value, headers: &[(&str, &str)]) -> Response {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let mut all = vec![("accept", "application/json, text/event-stream")];
    all.extend(headers);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    request("POST", url, &all, Some(body.to_string()))
}

/// Fault row 44: a proxy that let a request through by its headers must not have let through another.
#[test]
fn headers_that_say_something_else_than_the_body_are_refused() {
    let version = ("mcp-protocol-version", "2026-07-28");
    let call = json!({"name": "m__echo", "arguments": {}});
    let model = ScriptedModel::start([]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &echo())]);
    let daemon = project.serve();
    for path in ["/mcp/default/demo", "/mcp/default/demo/m", "/mcp"] {
        let url = daemon.url(path);
        let call = match path {
            "/mcp" => json!({"name": "projects_list", "arguments": {}}),
            "/mcp/default/demo/m" => json!({"name": "echo", "arguments": {}}),
            _ => call.clone(),
        };
        let name = call["name"].as_str().unwrap().to_owned();
        let wrong: [&[(&str, &str)]; 5] = [
            &[version, ("mcp-method", "tools/call"), ("mcp-name", "another")],
            &[version, ("mcp-method", "tools/call")],
            &[version, ("mcp-method", "tools/list"), ("mcp-name", &name)],
            &[version, ("mcp-name", &name)],
            &[("mcp-protocol-version", "2025-11-25"), ("mcp-method", "tools/call"), ("mcp-name", &name)],
        ];
        for headers in wrong {
            let refused = modern(&url, "tools/call", &call, headers);
            assert_eq!(refused.status, 400, "{path} {headers:?}: {refused:?}");
            assert_eq!(refused.json()["error"]["code"], -32_020, "{path} {headers:?}: {refused:?}");
        }
        let right =
            modern(&url, "tools/call", &call, &[version, ("mcp-method", "tools/call"), ("mcp-name", &name)]);
        assert_eq!(right.status, 200, "{path}: {right:?}");
    }
    model.finish();
}
