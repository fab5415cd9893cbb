//! A plain HTTP client for tests: what is on the wire, without an SDK's opinion.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::LazyLock;

use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::Method;
use serde_json::{Value, json};

use crate::keys;
use crate::runtime::block_on;
use crate::wait::PATIENCE;

/// A whole response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Response {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The body, after a 200.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// One for all: to make one takes longer than most requests.
fn client() -> reqwest::Client {
    static CLIENT: LazyLock<reqwest::Client> = LazyLock::new(|| {
        // No pool: a test that closes a connection closes it.
        let builder = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0);
        builder.read_timeout(PATIENCE).build().expect("a client")
    });
    CLIENT.clone()
}

pub fn get(url: &str) -> Response {
    request("GET", url, &[], None)
}

pub fn post(url: &str, body: &Value) -> Response {
    request("POST", url, &[], Some(body.to_string()))
}

/// What clients of `/mcp` take.
pub const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");

/// One request of the modern generation of MCP, by hand.
pub fn modern(url: &str, method: &str, params: &Value, more: &[(&str, &str)]) -> Response {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    let mut headers = vec![ACCEPT, ("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
    if !name.is_empty() {
        headers.push(("mcp-name", &name));
    }
    headers.extend(more);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    request("POST", url, &headers, Some(body.to_string()))
}

/// Begins a session of the legacy generation of MCP by hand, and gives its id.
pub fn begin(url: &str) -> String {
    let client = json!({"name": "c", "version": "1"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let begun = request("POST", url, &[ACCEPT], Some(begin.to_string()));
    begun.header("mcp-session-id").expect("a session").to_owned()
}

/// The last message of an event stream, or the only one of a body.
pub fn message(response: &Response) -> Value {
    let body = &response.text;
    let mut last =
        body.lines().filter_map(|line| line.strip_prefix("data:")).filter(|data| !data.trim().is_empty());
    serde_json::from_str(last.next_back().unwrap_or(body).trim()).expect("a message")
}

/// Any request; a body is sent as JSON.
pub fn request(method: &str, url: &str, headers: &[(&str, &str)], body: Option<String>) -> Response {
    let request = build(method, url, headers, body);
    block_on(async {
        let response = request.send().await.expect("an answer");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Response { status, headers, text: response.text().await.expect("a whole answer") }
    })
}

/// As the owner of the daemon, unless a header says who asks.
fn build(method: &str, url: &str, headers: &[(&str, &str)], body: Option<String>) -> reqwest::RequestBuilder {
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    let mut request = client().request(method, url);
    let says_who =
        |(name, _): &(&str, &str)| ["authorization", "x-api-key"].contains(&name.to_lowercase().as_str());
    if !headers.iter().any(says_who) {
        request = request.headers(keys::headers(url));
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if let Some(body) = body {
        request = request.header("content-type", "application/json").body(body);
    }
    request
}

/// A request whose answer is read byte by byte, or not at all; dropping it closes the connection.
#[derive(Debug)]
pub struct Open {
    connection: TcpStream,
    read: Vec<u8>,
}

impl Open {
    /// Posts to a daemon on this machine.
    pub fn post(port: u16, path: &str, body: &Value) -> Self {
        let body = body.to_string();
        let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        connection.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let mut head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json");
        if let Some(token) = keys::of(&format!("http://127.0.0.1:{port}")) {
            head.push_str(&format!("\r\nx-api-key: {token}"));
        }
        write!(connection, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).expect("a request");
        Self { connection, read: Vec::new() }
    }

    /// Reads until this text has come.
    #[track_caller]
    pub fn until(&mut self, text: &str) {
        let mut block = [0; 4096];
        while !self.read.windows(text.len()).any(|window| window == text.as_bytes()) {
            let count = self.connection.read(&mut block).expect("something to read");
            assert!(count > 0, "no `{text}` in {}", String::from_utf8_lossy(&self.read));
            self.read.extend_from_slice(&block[..count]);
        }
    }
}

/// One event of a stream, without its `data:`.
pub type Event = String;

/// A streamed chat; dropping it closes the connection.
pub struct Events {
    pub status: u16,
    stream: BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    buffer: BytesMut,
}

/// Posts, and reads the answer's events one by one.
pub fn stream(url: &str, body: &Value) -> Events {
    open(build("POST", url, &[], Some(body.to_string())))
}

/// The same with further headers.
pub fn stream_with(url: &str, headers: &[(&str, &str)], body: &Value) -> Events {
    open(build("POST", url, headers, Some(body.to_string())))
}

/// Gets a stream, and reads its events one by one.
pub fn watch(url: &str, headers: &[(&str, &str)]) -> Events {
    open(build("GET", url, headers, None))
}

fn open(request: reqwest::RequestBuilder) -> Events {
    block_on(async {
        let response = request.send().await.expect("an answer");
        let status = response.status().as_u16();
        Events { status, stream: response.bytes_stream().boxed(), buffer: BytesMut::new() }
    })
}

impl Events {
    /// The next event's data; `None` at the end, also at a bad end.
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|two| two == b"\n\n") {
                let block = self.buffer.split_to(at + 2);
                let block = String::from_utf8_lossy(&block).into_owned();
                let data: Vec<&str> = block
                    .lines()
                    .filter_map(|line| line.strip_prefix("data:"))
                    .map(str::trim_start)
                    .collect();
                if data.is_empty() {
                    continue;
                }
                return Some(data.join("\n"));
            }
            match block_on(self.stream.next()) {
                Some(Ok(bytes)) => self.buffer.extend_from_slice(&bytes),
                _ => return None,
            }
        }
    }

    /// Reads until something begins with this text that is still to be read, such as a sign of life.
    #[track_caller]
    pub fn until_text(&mut self, text: &str) {
        while !self.buffer.windows(text.len()).any(|window| window == text.as_bytes()) {
            match block_on(self.stream.next()) {
                Some(Ok(bytes)) => self.buffer.extend_from_slice(&bytes),
                _ => panic!("the stream ended before `{text}`: {}", String::from_utf8_lossy(&self.buffer)),
            }
        }
    }

    /// Reads until an event for which this is true.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut found: impl FnMut(&Value) -> bool) -> Value {
        loop {
            let event = self.next_event().unwrap_or_else(|| panic!("the stream ended before {what}"));
            let value: Value = serde_json::from_str(&event).unwrap_or_default();
            if found(&value) {
                return value;
            }
        }
    }

    /// Everything that is left.
    pub fn rest(mut self) -> Vec<Event> {
        std::iter::from_fn(move || self.next_event()).collect()
    }
}

/// A chat request with one user message.
pub fn chat(text: &str) -> Value {
    json!({"model": "assistant", "messages": [{"role": "user", "content": text}]})
}

/// The same, to be streamed.
pub fn streamed_chat(text: &str) -> Value {
    json!({
        "model": "assistant",
        "messages": [{"role": "user", "content": text}],
        "stream": true,
        "stream_options": {"include_usage": true},
    })
}

/// A streamed answer put together.
#[derive(Debug, Default, PartialEq)]
pub struct Assembled {
    pub ids: Vec<String>,
    pub text: String,
    pub finish_reasons: Vec<String>,
    /// Deltas of calls, as they came.
    pub calls: Vec<Value>,
    pub usage: Option<Value>,
    /// Names of the `lf` events.
    pub progress: Vec<String>,
    pub errors: Vec<Value>,
    pub done: bool,
}

/// Reads OpenAI chunks.
pub fn assemble(events: &[Event]) -> Assembled {
    let mut whole = Assembled::default();
    for event in events {
        if event == "[DONE]" {
            whole.done = true;
            continue;
        }
        let chunk: Value = serde_json::from_str(event).unwrap_or_else(|error| panic!("{error} in {event}"));
        if !chunk["error"].is_null() {
            whole.errors.push(chunk["error"].clone());
        }
        if let Some(id) = chunk["id"].as_str()
            && !whole.ids.iter().any(|known| known == id)
        {
            whole.ids.push(id.to_owned());
        }
        let choice = &chunk["choices"][0];
        whole.text.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        whole.calls.extend(choice["delta"]["tool_calls"].as_array().into_iter().flatten().cloned());
        whole.finish_reasons.extend(choice["finish_reason"].as_str().map(str::to_owned));
        if chunk["usage"].is_object() {
            whole.usage = Some(chunk["usage"].clone());
        }
        whole.progress.extend(chunk["lf"]["event"].as_str().map(str::to_owned));
    }
    whole
}
