//! An MCP server that behaves as it is told, well or badly, over every transport. Raw JSON-RPC: it shares no code with
//! what it tests. The program is `lf-scripted-mcp`; see [`Script`] for what it can be told.

mod http;
mod modern;
mod pages;
mod script;
mod sse;
mod stdio;
mod tools;

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::AbortHandle;

pub use script::{Act, Generation, Script, ScriptedTool, Session};
pub use stdio::serve_stdio;

/// Runs the server over `http` or `sse` on a loopback port; prints its URL as the first line of stdout.
pub async fn serve_network(transport: &str, script: Script) -> anyhow::Result<()> {
    let port = script.port.unwrap_or(0);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    let server = Server::new(script);
    let (router, path) = match transport {
        "http" => (http::router(server), "/mcp"),
        "sse" => (sse::router(server), "/sse"),
        other => anyhow::bail!("no transport `{other}`: stdio, http or sse"),
    };
    println!("http://{address}{path}");
    axum::serve(listener, router).await?;
    Ok(())
}

/// Where messages to the client go that belong to one request, or to the connection.
type Outbox = mpsc::UnboundedSender<Outgoing>;

#[derive(Clone, Debug)]
enum Outgoing {
    Message(Value),
    /// Bytes that are no message; only stdio can misbehave so.
    Raw(Vec<u8>),
}

struct Server {
    script: Script,
    /// Calls that got in so far, over all connections.
    calls: AtomicUsize,
    /// Calls inside a tool that waits for company.
    together: tokio::sync::watch::Sender<usize>,
    changed: AtomicBool,
    /// Notifications that belong to no request.
    announcements: broadcast::Sender<Value>,
    running: Mutex<HashMap<String, AbortHandle>>,
    /// What a person was asked, by the id of the request.
    asked: Mutex<HashMap<String, oneshot::Sender<Value>>>,
    /// Over `stdio`: whether the first message was of the modern generation.
    settled: OnceLock<bool>,
}

impl Server {
    fn new(script: Script) -> Arc<Self> {
        let server = Self {
            script,
            calls: AtomicUsize::new(0),
            together: tokio::sync::watch::Sender::new(0),
            changed: AtomicBool::new(false),
            announcements: broadcast::Sender::new(4096),
            running: Mutex::default(),
            asked: Mutex::default(),
            settled: OnceLock::new(),
        };
        server.note(&format!("start {}", std::process::id()));
        for _ in 0..server.script.grandchildren {
            server.spawn_grandchild();
        }
        Arc::new(server)
    }

    /// Appends a line to the log, in one write, so that lines of several processes do not mix.
    fn note(&self, line: &str) {
        let Some(path) = &self.script.log else { return };
        let since = std::time::UNIX_EPOCH.elapsed().expect("a time after 1970");
        let at = if self.script.timed { format!(" @{}", since.as_micros()) } else { String::new() };
        let mut file =
            OpenOptions::new().create(true).append(true).open(path).expect("the log can be opened");
        file.write_all(format!("{line}{at}\n").as_bytes()).expect("the log can be written");
    }

    #[expect(clippy::zombie_processes, reason = "leaving it behind is the point")]
    fn spawn_grandchild(&self) {
        let mut command = if self.script.grandchild_setsid {
            let mut command = std::process::Command::new("setsid");
            command.arg("sleep");
            command
        } else {
            std::process::Command::new("sleep")
        };
        // Longer than any test; whoever starts us is to end it.
        let child =
            command.arg("600").stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).spawn();
        let child = child.expect("`sleep` can be started");
        self.note(&format!("grandchild {}", child.id()));
    }

    /// The answer to one message; `None` for a notification or for silence.
    async fn answer(self: &Arc<Self>, message: Value, outbox: &Outbox) -> Option<Value> {
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let id = message["id"].clone();
        if method == "notifications/cancelled" {
            self.cancel(&message["params"]["requestId"].to_string());
            return None;
        }
        if method.is_empty()
            && let Some(waiting) = self.asked.lock().unwrap().remove(&id.to_string())
        {
            // Who asked may have been cancelled meanwhile.
            let _ = waiting.send(message);
            return None;
        }
        if id.is_null() || method.is_empty() {
            return None;
        }
        if self.script.silent {
            return std::future::pending().await;
        }
        let params = &message["params"];
        let is_modern = modern::is_modern(params);
        if let Some(refused) = self.refuse_generation(&method, is_modern) {
            return Some(refused.envelope(&id));
        }
        let result = match method.as_str() {
            "initialize" => {
                self.note("initialize");
                Ok(self.initialize(params))
            }
            "server/discover" if is_modern && self.script.generation != Generation::Legacy => {
                self.note("discover");
                Ok(modern::discovery(self.script.ttl))
            }
            "subscriptions/listen" if is_modern => return self.listen(&id, params, outbox).await,
            "ping" => Ok(json!({})),
            "tools/list" => {
                self.note("list");
                self.list(params).await
            }
            "tools/call" => return self.call(message, outbox).await,
            _ if self.script.exit_on_unknown => {
                self.note(&format!("exit on {method}"));
                std::process::exit(1);
            }
            _ if self.script.mute_on_unknown => return None,
            _ => Err((-32601, format!("unknown method {method}"))),
        };
        let result =
            result.map(|result| if is_modern { modern::complete(result, self.script.ttl) } else { result });
        Some(envelope(&id, result))
    }

    fn initialize(&self, params: &Value) -> Value {
        let version = params["protocolVersion"].as_str().unwrap_or("2024-11-05");
        // A server of the older generation: it answers with what it knows.
        let version = if version > "2025-11-25" { "2025-11-25" } else { version };
        let mut result = json!({
            "protocolVersion": version,
            "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": {"name": "scripted", "version": "1"},
        });
        for key in ["serverInfo", "instructions"] {
            let said = self.says(key);
            if !said.is_null() {
                result[key] = said;
            }
        }
        result
    }

    fn cancel(&self, key: &str) {
        if let Some(task) = self.running.lock().unwrap().remove(key) {
            task.abort();
        }
    }

    fn announce(&self, method: &str) {
        // Nobody listening is fine.
        let _ = self.announcements.send(json!({"jsonrpc": "2.0", "method": method}));
    }

    fn has_changed(&self) -> bool {
        self.changed.load(Ordering::SeqCst)
    }
}

fn envelope(id: &Value, result: Result<Value, (i64, String)>) -> Value {
    match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err((code, message)) => {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
        }
    }
}
