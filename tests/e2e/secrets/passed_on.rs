//! What a client sends goes where its operator says: no credential of it goes on, and no field of it names a place.

use lf_tests::client::request;
use lf_tests::project::{TestProject, document, remote};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use serde_json::{Value, json};

const DIALECTS: [&str; 3] = ["/v1/chat/completions", "/v1/responses", "/v1/messages"];

/// Fields that other gateways take a destination, or credentials for one, from.
const FIELDS: [&str; 60] = [
    "api_base",
    "apiBase",
    "base_url",
    "baseUrl",
    "baseURL",
    "api_url",
    "apiUrl",
    "url",
    "uri",
    "endpoint",
    "endpoint_url",
    "azure_endpoint",
    "api_endpoint",
    "host",
    "hostname",
    "api_host",
    "server",
    "server_url",
    "upstream",
    "upstream_url",
    "target",
    "target_url",
    "destination",
    "proxy",
    "proxies",
    "proxy_url",
    "http_proxy",
    "https_proxy",
    "httpProxy",
    "all_proxy",
    "forward_to",
    "redirect",
    "redirect_url",
    "callback",
    "callback_url",
    "webhook",
    "webhook_url",
    "extra_headers",
    "extraHeaders",
    "headers",
    "default_headers",
    "extra_query",
    "extra_body",
    "api_key",
    "apiKey",
    "organization",
    "client",
    "client_options",
    "litellm_params",
    "model_list",
    "fallbacks",
    "mock_response",
    "aws_bedrock_runtime_endpoint",
    "vertex_location",
    "custom_llm_provider",
    "api_version",
    "transport",
    "router",
    "gateway",
    "provider_options",
];

fn body_of(path: &str) -> Value {
    match path {
        "/v1/responses" => json!({"model": "assistant", "input": "hi"}),
        "/v1/messages" => {
            json!({"model": "assistant", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]})
        }
        _ => json!({"model": "assistant", "messages": [{"role": "user", "content": "hi"}]}),
    }
}

#[test]
fn no_field_of_a_request_says_where_it_goes() {
    let (upstream, sink) = (
        ScriptedModel::start_with(|_, _| Some(Reply::text("done"))),
        ScriptedModel::start_with(|_, _| Some(Reply::text("got you"))),
    );
    let project = TestProject::with_model(&upstream.base_url(), &[]);
    let daemon = project.serve();
    let place = sink.base_url();
    let mut asked = 0;
    for path in DIALECTS {
        for field in FIELDS {
            for value in [
                json!(place),
                json!({"url": place, "http": place, "base_url": place, "x-forward": place}),
                json!([place]),
            ] {
                let mut body = body_of(path);
                body[field] = value;
                let answered = request("POST", &daemon.url(path), &[], Some(body.to_string()));
                assert!(!answered.text.contains("got you"), "{path} {field}: {answered:?}");
                asked += 1;
            }
        }
    }
    assert_eq!((asked, sink.received().len()), (540, 0));
    assert!(!upstream.received().is_empty(), "the control: others were asked");
    let authorized: Vec<_> =
        upstream.received().iter().filter_map(|one| one.headers.get("authorization").cloned()).collect();
    assert!(authorized.iter().all(|value| value == "Bearer sk-scripted"), "{authorized:?}");
}

#[test]
fn what_a_client_authenticates_with_goes_to_nobody() {
    const INBOUND: &str = "inbound-canary-7d1f";
    let upstream = ScriptedModel::start_with(|_, _| Some(Reply::text("done"))).taking_all();
    let servers = [remote("far", "http", &upstream.url("/mcp")), remote("old", "sse", &upstream.url("/sse"))];
    for api in ["chat_completions", "responses", "messages", "generate_content", "ollama"] {
        let project = TestProject::of(&document(json!({"api": api}), &upstream.base_url(), &servers));
        let daemon = project.serve();
        let cookie = format!("session={INBOUND}");
        let bearer = format!("Bearer {INBOUND}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("x-api-key", INBOUND),
            ("api-key", INBOUND),
            ("x-goog-api-key", INBOUND),
            ("proxy-authorization", bearer.as_str()),
            ("cookie", cookie.as_str()),
            ("x-auth-token", INBOUND),
            ("x-forwarded-authorization", INBOUND),
        ];
        for path in DIALECTS.into_iter().chain(["/mcp"]) {
            let body = match path {
                "/mcp" => json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
                path => body_of(path),
            };
            request("POST", &daemon.url(path), &headers, Some(body.to_string()));
        }
        drop(daemon);
    }
    let received = upstream.received();
    assert!(received.len() >= 15, "the control: they were asked, {}", received.len());
    for one in received {
        assert!(!format!("{:?} {} {}", one.headers, one.path, one.body).contains(INBOUND), "{one:?}");
    }
}
