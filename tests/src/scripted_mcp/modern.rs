//! Revision 2026-07-28: no handshake and no session, and each request says what it needs.

use std::sync::Arc;

use axum::http::HeaderMap;
use serde_json::{Value, json};

use super::script::Generation;
use super::{Outbox, Outgoing, Server};

pub(super) const REVISION: &str = "2026-07-28";
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// Whether a request is one of this revision, by its parameters.
pub(super) fn is_modern(params: &Value) -> bool {
    params["_meta"][VERSION_KEY] == REVISION
}

pub(super) fn discovery(ttl: u64) -> Value {
    json!({
        "supportedVersions": [REVISION],
        "capabilities": {"tools": {"listChanged": true}},
        "ttlMs": ttl,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "scripted", "version": "2"}},
    })
}

/// A result with what the revision wants of every one.
pub(super) fn complete(mut result: Value, ttl: u64) -> Value {
    if result["resultType"].is_null() {
        result["resultType"] = json!("complete");
    }
    if result["tools"].is_array() {
        result["ttlMs"] = json!(ttl);
        result["cacheScope"] = json!("private");
    }
    result
}

/// An error with its data.
pub(super) struct Refusal {
    code: i64,
    message: String,
    data: Value,
}

impl Refusal {
    pub(super) fn envelope(&self, id: &Value) -> Value {
        let error = json!({"code": self.code, "message": self.message, "data": self.data});
        json!({"jsonrpc": "2.0", "id": id, "error": error})
    }
}

impl Server {
    /// Refuses a request of a generation that this server does not speak.
    pub(super) fn refuse_generation(&self, method: &str, is_modern: bool) -> Option<Refusal> {
        let speaks = match (self.script.generation, self.settled.get()) {
            // It does not know what it is asked, and takes it for any other unknown method.
            (Generation::Legacy, _) => return None,
            (Generation::Dual, None) => return None,
            (Generation::Dual, Some(settled)) => *settled == is_modern,
            (Generation::Modern, _) => is_modern,
        };
        if speaks {
            return None;
        }
        let data = json!({"supported": [REVISION], "requested": method});
        Some(Refusal { code: -32022, message: "this revision is not spoken here".to_owned(), data })
    }

    /// What is wrong with the headers of a request.
    pub(super) fn refuse_headers(&self, message: &Value, headers: &HeaderMap) -> Option<Refusal> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let params = &message["params"];
        let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default();
        let mut wanted = vec![
            ("mcp-protocol-version".to_owned(), REVISION.to_owned()),
            ("mcp-method".to_owned(), message["method"].as_str().unwrap_or_default().to_owned()),
            ("mcp-name".to_owned(), name.to_owned()),
            ("mcp-session-id".to_owned(), String::new()),
        ];
        let tool = self.all_tools().into_iter().find(|tool| tool.name == name);
        let schema = tool.and_then(|tool| tool.schema).unwrap_or_default();
        for (property, schema) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(header) = schema["x-mcp-header"].as_str() {
                let value = params["arguments"][property].as_str().unwrap_or_default().to_owned();
                wanted.push((format!("mcp-param-{}", header.to_lowercase()), value));
            }
        }
        let (wrong, value) = wanted.into_iter().find(|(name, value)| header(name) != value)?;
        self.note(&format!("header {wrong} is {:?}, not {value:?}", header(&wrong)));
        Some(Refusal { code: -32020, message: format!("header {wrong} is wrong"), data: Value::Null })
    }

    /// Tells changes until it is cancelled.
    pub(super) async fn listen(
        self: &Arc<Self>,
        id: &Value,
        params: &Value,
        outbox: &Outbox,
    ) -> Option<Value> {
        self.note("listen");
        let mut announcements = self.announcements.subscribe();
        let acknowledged = json!({
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"_meta": {SUBSCRIPTION_KEY: id}, "notifications": params["notifications"]},
        });
        let _ = outbox.send(Outgoing::Message(acknowledged));
        while let Ok(mut message) = announcements.recv().await {
            message["params"] = json!({"_meta": {SUBSCRIPTION_KEY: id}});
            if outbox.send(Outgoing::Message(message)).is_err() {
                break;
            }
        }
        None
    }
}
