use std::time::Duration;

use lf_core::tool::{Attendant as _, BoxFuture, ToolContent, ToolProgress};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio_util::task::TaskTracker;

use super::*;

/// One tool that reports twice and answers with an image.
struct Album;

impl Offer for Album {
    fn about<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Value, Refused>> {
        let about = json!({"capabilities": {"tools": {}}, "instructions": "pictures"});
        Box::pin(std::future::ready(Ok(about)))
    }

    fn answer<'a>(
        &'a self,
        request: Request,
        _caller: &'a Caller,
        channel: &'a Channel,
    ) -> BoxFuture<'a, Result<Map<String, Value>, Refused>> {
        Box::pin(async move {
            let result = match (request.method.as_str(), request.param("name")) {
                ("tools/list", _) => {
                    let tool = json!({"name": "a__show", "description": "Shows.", "inputSchema": {"type": "object"}});
                    let broken = json!({"name": "broken", "inputSchema": 7});
                    json!({"tools": [tool, broken], "_meta": {"io.lf/outcomes": {"b": {"status": "down"}}}})
                }
                ("tools/call", "a__show") => {
                    for step in [1.0, 2.0] {
                        channel.progress(ToolProgress { progress: step, total: Some(2.0), message: None });
                    }
                    let image = ToolContent::Image { data: "aGF5".into(), mime_type: "image/png".into() };
                    let other = ToolContent::Other(json!({"type": "smell", "of": "hay"}));
                    let content = vec![image, other];
                    Value::Object(tool_result(&ToolOutput {
                        content,
                        structured: Some(json!([1])),
                        is_error: true,
                    }))
                }
                ("tools/call", "a__wrong") => return Err(Refused::upstream(-32_050, "no".to_owned())),
                ("tools/call", name) => return Err(Refused::UnknownTool(name.to_owned())),
                _ => return Err(Refused::UnknownMethod(request.method)),
            };
            Ok(result.as_object().cloned().unwrap_or_default())
        })
    }
}

/// Sends the lines over a pipe and gives what comes back until as many answers as requests have come.
async fn talk(messages: &[Value]) -> Vec<Value> {
    let (client, server) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(server);
    let serving = TaskTracker::new().spawn(serve_on(Arc::new(Album), reader, writer));
    let (reader, mut writer) = tokio::io::split(client);
    let mut lines = BufReader::new(reader).lines();
    let mut heard = Vec::new();
    for message in messages {
        writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        while !message["id"].is_null() {
            let line = tokio::time::timeout(Duration::from_secs(10), lines.next_line()).await;
            let line: Value = serde_json::from_str(&line.unwrap().unwrap().unwrap()).unwrap();
            let answered = line["id"] == message["id"];
            heard.push(line);
            if answered {
                break;
            }
        }
    }
    drop((writer, lines));
    let _ = tokio::time::timeout(Duration::from_secs(10), serving).await.unwrap();
    heard
}

fn legacy(rest: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    let mut messages = vec![
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
    ];
    messages.extend(rest);
    messages
}

fn modern(id: u64, method: &str, mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

#[tokio::test]
async fn a_legacy_client_lists_and_calls_and_is_told_of_the_progress_first() {
    let call = json!({"name": "a__show", "arguments": {}, "_meta": {"progressToken": "p"}});
    let heard = talk(&legacy([
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call}),
    ]))
    .await;
    assert_eq!(heard[0]["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(heard[0]["result"]["instructions"], "pictures");
    let listed = &heard[1]["result"];
    assert_eq!(listed["tools"].as_array().unwrap().len(), 1);
    assert_eq!(listed["_meta"]["io.lf/outcomes"]["b"]["status"], "down");
    assert_eq!(heard[2]["params"], json!({"progressToken": "p", "progress": 1.0, "total": 2.0}));
    assert_eq!(heard[3]["params"]["progress"], 2.0);
    let result = &heard[4]["result"];
    assert_eq!(result["content"][0], json!({"type": "image", "data": "aGF5", "mimeType": "image/png"}));
    assert_eq!(result["content"][1]["text"], r#"{"type":"smell","of":"hay"}"#);
    assert_eq!((&result["structuredContent"], &result["isError"]), (&json!([1]), &json!(true)));
    assert!(result.get("resultType").is_none());
}

#[tokio::test]
async fn a_modern_client_needs_no_greeting() {
    let heard = talk(&[
        modern(1, "server/discover", json!({})),
        modern(2, "tools/list", json!({})),
        modern(3, "tools/call", json!({"name": "a__show", "arguments": {}})),
    ])
    .await;
    assert!(heard[0]["result"]["supportedVersions"].to_string().contains("2026-07-28"), "{}", heard[0]);
    assert_eq!(heard[1]["result"]["tools"][0]["name"], "a__show");
    assert_eq!(heard[1]["result"]["cacheScope"], "private");
    assert_eq!(heard[2]["result"]["resultType"], "complete");
}

#[tokio::test]
async fn what_cannot_be_routed_is_a_protocol_error() {
    let call = |id: u64, name: &str| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name}});
    let heard = talk(&legacy([call(2, "nothing"), call(3, "a__wrong")])).await;
    assert_eq!(heard[1]["error"]["code"], -32_602);
    assert_eq!(heard[1]["error"]["message"], "unknown tool: `nothing`");
    assert_eq!((&heard[2]["error"]["code"], &heard[2]["error"]["message"]), (&json!(-32_050), &json!("no")));
}
