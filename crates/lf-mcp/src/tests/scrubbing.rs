//! Secrets of the configuration that a server repeats are shown to nobody.

use lf_core::project::HttpServer;

use super::http_peer::{Peer, Reply, Request, answer};
use super::*;

const KEY: &str = "very-secret-key";

fn http(url: &str) -> McpServer {
    let headers = vec![("Authorization".to_owned(), format!("Bearer {KEY}").into())];
    server(Transport::Http(HttpServer { headers, ..HttpServer::new(url) }))
}

/// The scripted server with a secret in its environment.
fn keeper() -> McpServer {
    let mut keeper = peer("-", "");
    if let Transport::Stdio(stdio) = &mut keeper.transport {
        stdio.env = vec![("API_KEY".to_owned(), KEY.into()), ("ROOT".to_owned(), "/srv/barn".into())];
    }
    keeper
}

#[tokio::test]
async fn a_result_a_report_and_a_refusal_hold_no_secret() {
    let pool = pool();
    let tools = tools(&pool, keeper());
    let echo = json!({"a": format!("key {KEY}"), "b": "/srv/barn/hay.txt"});
    let echoed = text(call(&tools, "echo", echo).await);
    assert_eq!(echoed, r#"{"a": "key [secret]", "b": "/srv/barn/hay.txt"}"#);
    let reports = Mutex::new(Vec::new());
    let output = call_with(&tools, "leak", json!({}), &|p| reports.lock().unwrap().push(p.message)).await;
    let output = output.unwrap();
    assert_eq!(output.structured, Some(json!({"key": "[secret]", "seen": ["[secret]"]})));
    assert!(!format!("{output:?}").contains(KEY), "{output:?}");
    assert_eq!(*reports.lock().unwrap(), [Some("with [secret]".to_owned())]);
    let refused = call(&tools, "leak_error", json!({})).await;
    let message = "bad key [secret]".to_owned();
    assert_eq!(refused, Err(ToolError::Refused { server: NAME.into(), message, code: -32_000 }));
    pool.shutdown().await;
}

#[tokio::test]
async fn last_words_and_reports_of_a_server_that_died_hold_no_secret() {
    let pool = pool();
    let tools = tools(&pool, keeper());
    names(&list(&tools).await);
    let lost = call(&tools, "leak_exit", json!({})).await;
    let reason = "exited with status 3; stderr: bad key [secret]";
    let expected = ToolError::Lost { server: NAME.into(), tool: "leak_exit".into(), reason: reason.into() };
    assert_eq!(lost, Err(expected));
    assert_eq!(tools.reports()[0].last_error(), Some(reason));
    pool.shutdown().await;
}

fn echoing(request: &Request) -> Reply {
    if request.method != "POST" {
        return Reply::new(405, "text/plain", "");
    }
    let said = request.header("authorization").to_owned();
    let Some(mut body) = answer(request) else { return Reply::accepted() };
    match request.rpc() {
        "initialize" => body["result"]["serverInfo"]["name"] = json!(said),
        "tools/list" => {
            body["result"]["tools"][0]["description"] = json!(format!("asks with {said}"));
            body["result"]["tools"][0]["inputSchema"]["properties"]["key"] = json!({"default": said});
        }
        "tools/call" if request.body["params"]["arguments"].get("cut").is_some() => {
            // long enough for the message to be cut off inside of the secret
            return Reply::new(400, "text/plain", format!("{}{said}", "x".repeat(170)));
        }
        "tools/call" => return Reply::new(400, "text/plain", format!("wrong: {said}")),
        _ => {}
    }
    Reply::json(&body)
}

#[tokio::test]
async fn what_a_remote_server_says_of_itself_and_answers_to_calls_holds_no_secret() {
    let peer = Peer::start(echoing).await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    let catalogue = list(&tools).await;
    assert_eq!(catalogue.tools[0].description.as_deref(), Some("asks with [secret]"));
    assert_eq!(catalogue.tools[0].schema["properties"]["key"]["default"], "[secret]");
    assert!(!format!("{:?}", tools.reports()).contains(KEY), "{:?}", tools.reports());
    for arguments in [json!({}), json!({"cut": true})] {
        let broken = call(&tools, "echo", arguments).await.unwrap_err().to_string();
        assert!(broken.contains("[secret]"), "{broken}");
        assert!(!broken.contains("very-sec"), "{broken}");
    }
    pool.shutdown().await;
}
