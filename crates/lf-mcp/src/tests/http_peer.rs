//! A scripted HTTP server on the loopback: one answer per connection, decided by a closure.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    /// Names in lower case.
    pub(super) headers: HashMap<String, String>,
    pub(super) body: Value,
}

impl Request {
    pub(super) fn rpc(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

pub(super) struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Body,
}

enum Body {
    Whole(String),
    /// Sent as it comes; the connection closes when the sender is dropped.
    Stream(mpsc::UnboundedReceiver<String>),
    /// The connection is closed without an answer.
    None,
}

impl Reply {
    pub(super) fn new(status: u16, kind: &str, body: impl Into<String>) -> Self {
        Self { status, headers: vec![("content-type", kind.to_owned())], body: Body::Whole(body.into()) }
    }

    pub(super) fn json(body: &Value) -> Self {
        Self::new(200, "application/json", body.to_string())
    }

    pub(super) fn accepted() -> Self {
        Self::new(202, "text/plain", "")
    }

    pub(super) fn events() -> (Self, mpsc::UnboundedSender<String>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let headers = vec![("content-type", "text/event-stream".to_owned())];
        (Self { status: 200, headers, body: Body::Stream(receiver) }, sender)
    }

    pub(super) fn nothing() -> Self {
        Self { status: 0, headers: Vec::new(), body: Body::None }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// The server; it ends when dropped.
pub(super) struct Peer {
    pub(super) url: String,
    pub(super) requests: Arc<Mutex<Vec<Request>>>,
    tasks: JoinSet<()>,
}

impl Peer {
    pub(super) async fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        // Every test that builds a client comes here first; the second installation is refused, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (answer, seen) = (Arc::new(answer), requests.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (answer, seen) = (answer.clone(), seen.clone());
                connections.spawn(async move {
                    let _ = serve(stream, &*answer, &seen).await;
                });
            }
        });
        Self { url, requests, tasks }
    }

    /// How many requests of this JSON-RPC method came.
    pub(super) fn count(&self, method: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|request| request.rpc() == method).count()
    }

    /// Closes the port and every connection.
    pub(super) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

async fn serve(
    stream: TcpStream,
    answer: &(impl Fn(&Request) -> Reply + Send + Sync),
    seen: &Mutex<Vec<Request>>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut first = String::new();
    stream.read_line(&mut first).await?;
    let mut words = first.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length: usize = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let request = Request { method, path, headers, body };
    seen.lock().unwrap().push(request.clone());
    let reply = answer(&request);
    let mut head = format!("HTTP/1.1 {} Scripted\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match reply.body {
        Body::None => {}
        Body::Whole(body) => {
            head.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
            stream.write_all(head.as_bytes()).await?;
        }
        Body::Stream(mut chunks) => {
            head.push_str("\r\n");
            stream.write_all(head.as_bytes()).await?;
            while let Some(chunk) = chunks.recv().await {
                stream.write_all(chunk.as_bytes()).await?;
                stream.flush().await?;
            }
        }
    }
    stream.flush().await
}

/// What a well-behaved server of one tool answers; `None` for a notification.
pub(super) fn answer(request: &Request) -> Option<Value> {
    let id = request.body.get("id")?;
    let result = match request.rpc() {
        "initialize" => json!({
            "protocolVersion": request.body["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "scripted", "version": "1"},
        }),
        "tools/list" => json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}),
        "tools/call" => json!({"content": [{"type": "text", "text": "called"}]}),
        method => panic!("unexpected method {method}"),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}
