//! An MCP client that is only what is on the wire: requests of either generation with ids of the test's choosing, and
//! every message that comes back, over connections that are kept.

use std::time::Duration;

use futures_util::StreamExt;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use crate::keys;
use crate::scripted_mcp::Generation;

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
/// For one request; only a test that fails waits that long.
const LIMIT: Duration = Duration::from_secs(600);

/// One client at one URL.
#[derive(Clone, Debug)]
pub struct Caller {
    http: reqwest::Client,
    url: String,
    generation: Generation,
    session: Option<String>,
}

/// What came back for one request.
#[derive(Debug)]
pub struct Told {
    pub status: u16,
    /// In the order in which they came: notifications, and the answer.
    pub messages: Vec<Value>,
}

impl Told {
    /// The answers with this id; there is to be one.
    pub fn answers(&self, id: u64) -> Vec<&Value> {
        self.messages.iter().filter(|message| message["id"] == id && message["method"].is_null()).collect()
    }

    /// The only answer's first text.
    #[track_caller]
    pub fn text(&self, id: u64) -> &str {
        match self.answers(id)[..] {
            [answer] => answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{self:?}")),
            _ => panic!("not one answer to {id}: {self:?}"),
        }
    }

    /// What the progress of this token said.
    pub fn progress(&self, token: u64) -> Vec<&str> {
        let all = self.messages.iter().filter(|message| message["method"] == "notifications/progress");
        let ours = all.filter(|message| message["params"]["progressToken"] == token);
        ours.map(|message| message["params"]["message"].as_str().unwrap_or_default()).collect()
    }
}

impl Caller {
    /// Of the legacy generation: with a session of its own.
    pub async fn open(url: &str, generation: Generation) -> Self {
        let mut caller = Self { http: connections(), url: url.to_owned(), generation, session: None };
        if generation == Generation::Legacy {
            let client = json!({"name": "caller", "version": "1"});
            let params = json!({"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client});
            let response = caller.send(&caller.request(0, "initialize", params)).await;
            let session = header(response.headers(), "mcp-session-id");
            let status = response.status();
            caller.session = Some(session.unwrap_or_else(|| panic!("no session, but {status}")));
            response.bytes().await.expect("the whole answer");
            caller.notify("notifications/initialized", json!({})).await;
        }
        caller
    }

    /// Calls a tool; its progress is reported under the request's id.
    pub async fn call(&self, id: u64, tool: &str, arguments: &Value) -> Told {
        let response = self.send(&self.call_request(id, tool, arguments)).await;
        let status = response.status().as_u16();
        Told { status, messages: messages(&response.text().await.expect("the whole answer")) }
    }

    /// Calls a tool, waits for a first sign of it, and then takes the call back: in the legacy generation by a
    /// notification, in the modern one by closing the connection.
    pub async fn call_and_cancel(&self, id: u64, tool: &str, arguments: &Value) {
        let response = self.send(&self.call_request(id, tool, arguments)).await;
        let mut body = response.bytes_stream();
        let mut said = Vec::new();
        while !String::from_utf8_lossy(&said).contains("notifications/progress") {
            let Some(piece) = body.next().await else {
                panic!("no progress, but {}", String::from_utf8_lossy(&said));
            };
            said.extend_from_slice(&piece.expect("a sign of the call"));
        }
        if self.generation == Generation::Legacy {
            self.notify("notifications/cancelled", json!({"requestId": id, "reason": "enough"})).await;
        }
    }

    /// Calls a tool and closes the connection without waiting for anything but the head of the answer.
    pub async fn call_and_leave(&self, id: u64, tool: &str, arguments: &Value) {
        drop(self.send(&self.call_request(id, tool, arguments)).await);
    }

    /// Goes away with its connections, and leaves its session behind; the caller that comes back has the same one.
    /// `None` where there is none to leave.
    pub fn leave(self) -> Option<Self> {
        self.session.is_some().then(|| Self { http: connections(), ..self })
    }

    /// Ends the session, if there is one.
    pub async fn close(self) {
        let Some(session) = &self.session else { return };
        let response = self
            .http
            .delete(&self.url)
            .headers(keys::headers(&self.url))
            .header("mcp-session-id", session)
            .send()
            .await;
        let status = response.expect("an answer").status();
        assert!(status.is_success(), "the session's end was answered with {status}");
    }

    fn call_request(&self, id: u64, tool: &str, arguments: &Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": id}});
        self.request(id, "tools/call", params)
    }

    fn request(&self, id: u64, method: &str, mut params: Value) -> Value {
        if self.generation != Generation::Legacy {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    async fn notify(&self, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        let response = self.send(&message).await;
        assert_eq!(response.status(), 202, "to {method}");
    }

    async fn send(&self, message: &Value) -> reqwest::Response {
        let mut request = self.http.post(&self.url).header("accept", "application/json, text/event-stream");
        request = request.headers(keys::headers(&self.url));
        if self.generation == Generation::Legacy {
            if let Some(session) = &self.session {
                request = request.header("mcp-session-id", session).header("mcp-protocol-version", LEGACY);
            }
        } else {
            let name = message["params"]["name"].as_str().unwrap_or_default();
            let method = message["method"].as_str().unwrap_or_default();
            request = request.header("mcp-protocol-version", MODERN);
            request = request.header("mcp-method", method).header("mcp-name", name);
        }
        let request = request.header("content-type", "application/json").body(message.to_string());
        request.send().await.expect("an answer")
    }
}

/// None yet; they are made as they are needed, and kept.
fn connections() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().timeout(LIMIT).build().expect("a client")
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// The messages of an event stream, or the only one of a body.
fn messages(body: &str) -> Vec<Value> {
    if let Ok(only) = serde_json::from_str(body) {
        return vec![only];
    }
    let data = body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    let data = data.filter(|data| !data.is_empty());
    data.map(|data| serde_json::from_str(data).unwrap_or_else(|error| panic!("{error} in {data}"))).collect()
}
