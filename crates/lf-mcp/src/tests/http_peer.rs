//! A scripted HTTP server on the loopback: one answer per connection, decided by a closure.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::clock::soon;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1_024;

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Value,
}

impl Request {
    pub(crate) fn rpc(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

pub(crate) struct Reply {
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
    /// Nothing is answered, and it is told when the client has closed the connection.
    Silence(mpsc::UnboundedSender<()>),
    /// Written as it is, head and all.
    Raw(Vec<u8>, Ending),
}

/// What follows the last byte of an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Ending {
    /// The connection is closed in order.
    Close,
    /// It is reset.
    Reset,
    /// Our side is closed; the other is read until it is closed too.
    HalfClose,
    /// Nothing, until the client has closed the connection.
    Silence,
    /// The last 4 KiB again and again, until the client has closed the connection.
    Endless,
    /// The last byte again and again, one each 20 ms, until the client has closed the connection.
    Drip,
}

impl Reply {
    pub(crate) fn new(status: u16, kind: &str, body: impl Into<String>) -> Self {
        Self { status, headers: vec![("content-type", kind.to_owned())], body: Body::Whole(body.into()) }
    }

    pub(crate) fn json(body: &Value) -> Self {
        Self::new(200, "application/json", body.to_string())
    }

    pub(crate) fn accepted() -> Self {
        Self::new(202, "text/plain", "")
    }

    pub(crate) fn events() -> (Self, mpsc::UnboundedSender<String>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let headers = vec![("content-type", "text/event-stream".to_owned())];
        (Self { status: 200, headers, body: Body::Stream(receiver) }, sender)
    }

    pub(crate) fn nothing() -> Self {
        Self { status: 0, headers: Vec::new(), body: Body::None }
    }

    pub(crate) fn silence(gone: mpsc::UnboundedSender<()>) -> Self {
        Self { status: 0, headers: Vec::new(), body: Body::Silence(gone) }
    }

    /// An answer of these bytes, head and all.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>, ending: Ending) -> Self {
        Self { status: 0, headers: Vec::new(), body: Body::Raw(bytes.into(), ending) }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// The server; it ends when dropped, and fails the test then if an answer of its panicked.
pub(crate) struct Peer {
    pub(crate) url: String,
    pub(crate) requests: Arc<Mutex<Vec<Request>>>,
    panicked: Arc<AtomicBool>,
    open: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Peer {
    pub(crate) async fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(None, answer).await
    }

    /// Over TLS where there is an acceptor for it; the URL names `localhost` then.
    #[expect(clippy::unused_async, reason = "only within a runtime is there something to listen with")]
    pub(crate) async fn start_with(
        tls: Option<TlsAcceptor>,
        answer: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        // Every test that builds a client comes here first; the second installation is refused, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Both are bound before one listens; where none does, connects are refused, and nobody else gets the port.
        let holder = bound("127.0.0.1:0".parse().unwrap());
        let address = holder.local_addr().unwrap();
        let listener = bound(address).listen(BACKLOG).unwrap();
        let url = match tls {
            Some(_) => format!("https://localhost:{}", address.port()),
            None => format!("http://{address}"),
        };
        let requests = Arc::new(Mutex::new(Vec::new()));
        let panicked = Arc::new(AtomicBool::new(false));
        let (answer, seen, alarm) = (Arc::new(answer), requests.clone(), panicked.clone());
        let mut tasks = JoinSet::new();
        let open = watch::Sender::new(true);
        let mut wanted = open.subscribe();
        tasks.spawn(async move {
            let _holder = holder;
            let mut connections = JoinSet::new();
            let mut listener = Some(listener);
            while wanted.has_changed().is_ok() {
                tokio::select! {
                    Ok((stream, _)) = accept(listener.as_ref()) => {
                        let (answer, seen, tls) = (answer.clone(), seen.clone(), tls.clone());
                        let alarm = alarm.clone();
                        connections.spawn(async move {
                            let answer = |request: &Request| {
                                let _alarm = Alarm(&alarm);
                                answer(request)
                            };
                            let _ = match tls {
                                None => serve(stream, &answer, &seen).await,
                                Some(tls) => match tls.accept(stream).await {
                                    Ok(stream) => serve(stream, &answer, &seen).await,
                                    Err(error) => Err(error),
                                },
                            };
                        });
                    }
                    Ok(()) = wanted.changed() => match *wanted.borrow() {
                        true => listener = Some(bound(address).listen(BACKLOG).unwrap()),
                        false => drop(listener.take()),
                    },
                }
            }
        });
        Self { url, requests, panicked, open, tasks }
    }

    /// Closes the port, so that connects are refused, or opens it again. Connections that are open go on.
    pub(crate) async fn set_open(&self, is_open: bool) {
        self.open.send_replace(is_open);
        let address = self.url.strip_prefix("http://").unwrap();
        soon(async {
            while TcpStream::connect(address).await.is_ok() != is_open {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// How many requests of this JSON-RPC method came.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|request| request.rpc() == method).count()
    }

    /// Closes the port and every connection.
    pub(crate) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let panicked = self.panicked.load(Ordering::SeqCst);
        assert!(!panicked || std::thread::panicking(), "the scripted server panicked: see above");
    }
}

/// Set off by a panic while it lives, before the client learns of anything.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> std::io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// Of an address that others may be bound to as well, as long as none of them listens.
fn bound(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

/// A connection, encrypted or not.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send {
    fn socket(&self) -> &TcpStream;
}

impl Wire for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Wire for TlsStream<TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }
}

async fn serve(
    stream: impl Wire,
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
        Body::Silence(gone) => {
            let _ = stream.read(&mut [0]).await;
            let _ = gone.send(());
        }
        Body::Raw(bytes, ending) => {
            stream.write_all(&bytes).await?;
            stream.flush().await?;
            end(&mut stream, &bytes, ending).await?;
        }
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

async fn end(stream: &mut BufReader<impl Wire>, bytes: &[u8], ending: Ending) -> std::io::Result<()> {
    match ending {
        Ending::Close => return Ok(()),
        Ending::Reset => return stream.get_ref().socket().set_zero_linger(),
        Ending::HalfClose => stream.get_mut().shutdown().await?,
        Ending::Silence => {}
        Ending::Endless => {
            let last = &bytes[bytes.len().saturating_sub(4096)..];
            loop {
                stream.write_all(last).await?;
            }
        }
        Ending::Drip => loop {
            stream.write_all(&bytes[bytes.len() - 1..]).await?;
            stream.flush().await?;
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        },
    }
    while stream.read(&mut [0; 64]).await? > 0 {}
    Ok(())
}

/// What a well-behaved server of the modern generation answers, with a schema that has arguments sent as headers; `None`
/// for a notification. It insists on the headers of the generation.
pub(crate) fn modern_answer(request: &Request) -> Option<Value> {
    let id = request.body.get("id")?;
    let params = &request.body["params"];
    assert_eq!(request.header("mcp-protocol-version"), "2026-07-28");
    assert_eq!(params["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(request.header("mcp-method"), request.rpc());
    assert_eq!(request.header("mcp-name"), params["name"].as_str().unwrap_or_default());
    assert_eq!(request.header("mcp-session-id"), "", "there are no sessions");
    let header = |name: &str| json!({"type": "string", "x-mcp-header": name});
    let result = match request.rpc() {
        "server/discover" => json!({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "ttlMs": 0,
            "cacheScope": "public",
        }),
        "tools/list" => json!({"resultType": "complete", "ttlMs": 300_000, "cacheScope": "public", "tools": [
            {"name": "echo", "inputSchema": {"type": "object", "properties": {"region": header("Region")}}},
            {"name": "wrong", "inputSchema": {"type": "object", "properties": {"region": header("Not a token")}}},
        ]}),
        "tools/call" => json!({"resultType": "complete", "content": [{"type": "text", "text": "called"}]}),
        method => panic!("unexpected method {method}"),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// What a well-behaved server of one tool answers; `None` for a notification.
pub(crate) fn answer(request: &Request) -> Option<Value> {
    let id = request.body.get("id")?;
    let result = match request.rpc() {
        "initialize" => json!({
            "protocolVersion": request.body["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "scripted", "version": "1"},
        }),
        "tools/list" => json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}),
        "tools/call" => json!({"content": [{"type": "text", "text": "called"}]}),
        "ping" => json!({}),
        // what a question of its own is answered
        "" => return None,
        "server/discover" => {
            let error = json!({"code": -32601, "message": "Method not found"});
            return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
        method => panic!("unexpected method {method}"),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}
