use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lf_core::McpServer;
use lf_core::project::{Disabled, Protocol, StdioServer, Transport};
use lf_mcp::{PoolOptions, SessionPool};

use super::*;

/// A server with one tool.
const PEER: &str = r#"
import json, sys
answers = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "serverInfo": {"name": "peer", "version": "1"},
        "capabilities": {"tools": {}},
    },
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
}
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answers[request["method"]]}), flush=True)
"#;

fn server(name: &str, command: &str, args: &[&str]) -> (String, Result<Arc<McpServer>, Disabled>) {
    let transport = Transport::Stdio(StdioServer::new(command, args));
    let server = McpServer {
        timeout: Duration::from_secs(20),
        max_timeout: Duration::from_secs(40),
        startup_timeout: Duration::from_secs(40),
        protocol: Protocol::Legacy,
        ..McpServer::new(name, transport)
    };
    (name.to_owned(), Ok(Arc::new(server)))
}

#[tokio::test]
async fn tools_are_listed_once_their_servers_have_started_however_long_that_takes() {
    let mut options = PoolOptions::new(std::env::vars().collect(), PathBuf::from("lf"));
    options.list_wait = Duration::ZERO;
    let pool = SessionPool::new(options);
    let servers = [
        server("slow", "python3", &["-S", "-c", PEER]),
        server("broken", "/nowhere/at/all", &[]),
        ("off".to_owned(), Err(Disabled { reason: "switched off".to_owned() })),
    ];
    let catalogue = catalogue(&pool.tools(servers)).await;
    let tools: Vec<&str> = catalogue.tools.iter().map(|tool| &*tool.id.name).collect();
    assert_eq!(tools, ["echo"], "{:?}", catalogue.down);
    let down: Vec<&str> = catalogue.down.iter().map(|down| down.server.as_str()).collect();
    assert_eq!(down, ["broken", "off"]);
    assert_eq!(catalogue.down[1].reason, "switched off");
    assert!(!catalogue.down[0].reason.contains("next try"), "{}", catalogue.down[0].reason);
    pool.shutdown().await;
}
