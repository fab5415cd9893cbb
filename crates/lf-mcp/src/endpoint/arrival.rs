//! A request as it arrives over HTTP, before the library reads it: the library keeps only the parameters that it knows.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request as HttpRequest};
use lf_core::project::Generation;
use serde_json::{Map, Value, json};

use crate::relay::{Caller, META_CAPABILITIES, META_CLIENT, META_REVISION};

/// What a message says.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    pub(super) method: String,
    pub(super) params: Arc<Map<String, Value>>,
}

/// All parameters of a request, beside those that the library read.
#[derive(Debug, Clone)]
pub(super) struct Whole(pub(super) Arc<Map<String, Value>>);

impl Arrival {
    /// Reads a message, and leaves its parameters with the request. `None` where it is no request of a client.
    pub(super) fn read(request: HttpRequest<Bytes>) -> (HttpRequest<String>, Option<Self>) {
        let (mut parts, body) = request.into_parts();
        let mut arrival = None;
        if parts.method == Method::POST
            && let Ok(Value::Object(mut message)) = serde_json::from_slice(&body)
            && let Some(Value::String(method)) = message.remove("method")
        {
            let params = match message.remove("params") {
                Some(Value::Object(params)) => params,
                _ => Map::new(),
            };
            let params = Arc::new(params);
            parts.extensions.insert(Whole(params.clone()));
            arrival = Some(Self { method, params });
        }
        // what is not UTF-8 is no JSON either, and answered as that
        let body = String::from_utf8(body.into()).unwrap_or_default();
        (HttpRequest::from_parts(parts, body), arrival)
    }

    /// The client, as far as this message tells: one that begins a session, or says it with every request.
    pub(super) fn caller(&self) -> Caller {
        let meta = self.params.get("_meta").cloned().unwrap_or_default();
        if meta[META_REVISION].is_string() {
            return modern(&meta);
        }
        let capabilities = self.params.get("capabilities").cloned().unwrap_or_else(|| json!({}));
        let info = self.params.get("clientInfo").cloned().unwrap_or_default();
        Caller::new(Generation::Legacy, capabilities, info)
    }
}

/// A client that says who it is in the `_meta` of its requests.
pub(super) fn modern(meta: &Value) -> Caller {
    let revision = meta[META_REVISION].as_str().unwrap_or_default();
    Caller::new(Generation::of(revision), meta[META_CAPABILITIES].clone(), meta[META_CLIENT].clone())
}
