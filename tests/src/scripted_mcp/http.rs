//! Streamable HTTP: a POST per message, answered by an event stream; sessions by header.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::script::Generation;
use super::{Outgoing, Server, modern};

struct Endpoint {
    server: Arc<Server>,
    sessions: Mutex<HashSet<String>>,
    opened: AtomicUsize,
    /// Requests of the modern generation.
    modern: AtomicUsize,
    expired: AtomicBool,
    unavailable: AtomicUsize,
    /// What the requests of sessions asked for, by [`key`]: a cancellation names but an id, and its response may be closed
    /// before it comes. Kept as long as the session.
    asked_for: Mutex<HashMap<String, String>>,
}

pub(super) fn router(server: Arc<Server>) -> Router {
    let endpoint = Endpoint {
        server,
        sessions: Mutex::default(),
        opened: AtomicUsize::new(0),
        modern: AtomicUsize::new(0),
        expired: AtomicBool::new(false),
        unavailable: AtomicUsize::new(0),
        asked_for: Mutex::default(),
    };
    Router::new().route("/mcp", any(take)).with_state(Arc::new(endpoint))
}

/// 401 unless the header that is asked for is there.
pub(super) fn permitted(server: &Server, headers: &HeaderMap) -> Result<(), StatusCode> {
    let Some((name, value)) = &server.script.require_header else { return Ok(()) };
    match headers.get(name.as_str()) {
        Some(found) if found == value.as_str() => Ok(()),
        _ => Err(StatusCode::UNAUTHORIZED),
    }
}

async fn take(
    State(endpoint): State<Arc<Endpoint>>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Err(status) = permitted(&endpoint.server, &headers) {
        endpoint.server.note("unauthorized");
        return (status, "this server wants a header").into_response();
    }
    match method {
        Method::POST => {}
        _ if endpoint.server.script.generation == Generation::Modern => {
            return StatusCode::METHOD_NOT_ALLOWED.into_response();
        }
        Method::GET => return announcements(&endpoint, &headers),
        Method::DELETE => {
            let session = session_of(&headers);
            endpoint.server.note("delete");
            endpoint.sessions.lock().unwrap().remove(&session);
            let ours = format!("{session} ");
            endpoint.asked_for.lock().unwrap().retain(|key, _| !key.starts_with(&ours));
            return StatusCode::OK.into_response();
        }
        _ => return StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
    let Ok(message) = serde_json::from_slice::<Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let is_modern =
        endpoint.server.script.generation != Generation::Legacy && modern::is_modern(&message["params"]);
    let mut session = None;
    if is_modern {
        if let Some(refusal) = endpoint.server.refuse_headers(&message, &headers) {
            return (StatusCode::BAD_REQUEST, axum::Json(refusal.envelope(&message["id"]))).into_response();
        }
    } else if let Some(refusal) = endpoint.server.refuse_generation("", false) {
        return (StatusCode::BAD_REQUEST, axum::Json(refusal.envelope(&message["id"]))).into_response();
    } else if message["method"] == "initialize" {
        let id = format!("session-{}", endpoint.opened.fetch_add(1, Ordering::SeqCst));
        endpoint.sessions.lock().unwrap().insert(id.clone());
        session = Some(id);
    } else if let Some(refusal) = endpoint.refuse(&message, &headers) {
        return refusal;
    }
    if message["method"] == "tools/call"
        && endpoint.unavailable.fetch_add(1, Ordering::SeqCst) < endpoint.server.script.unavailable
    {
        endpoint.server.note("unavailable");
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    if message["method"] == "notifications/cancelled" {
        let key = key(&headers, &message["params"]["requestId"]);
        let what = endpoint.asked_for.lock().unwrap().get(&key).cloned();
        endpoint.server.note(&format!("cancellation of {}", what.as_deref().unwrap_or("what never came")));
        endpoint.server.cancel(&key);
        return StatusCode::ACCEPTED.into_response();
    }
    if message["id"].is_null() || message["method"].is_null() {
        let (nowhere, _) = mpsc::unbounded_channel();
        endpoint.server.answer(message, &nowhere).await;
        return StatusCode::ACCEPTED.into_response();
    }
    // without a session there are no ids to tell calls by: only the end of its own response cancels one
    let key = match is_modern {
        true => format!("request {}", endpoint.modern.fetch_add(1, Ordering::SeqCst)),
        false => {
            let key = key(&headers, &message["id"]);
            endpoint.asked_for.lock().unwrap().insert(key.clone(), subject(&message));
            key
        }
    };
    let mut response = reply(endpoint.server.clone(), key, message);
    if let Some(session) = session {
        let value = HeaderValue::from_str(&session).expect("a session id is a header value");
        response.headers_mut().insert("mcp-session-id", value);
    }
    response
}

fn session_of(headers: &HeaderMap) -> String {
    headers.get("mcp-session-id").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

impl Endpoint {
    fn refuse(&self, message: &Value, headers: &HeaderMap) -> Option<Response> {
        let id = &message["id"];
        let session = session_of(headers);
        if session.is_empty() {
            // What servers of this generation say to a request that comes before `initialize`.
            let error = json!({"code": -32000, "message": "Bad Request: no session"});
            let body = json!({"jsonrpc": "2.0", "id": id, "error": error});
            return Some((StatusCode::BAD_REQUEST, axum::Json(body)).into_response());
        }
        let rules = &self.server.script.session;
        if let Some(limit) = rules.expires_after
            && self.server.calls.load(Ordering::SeqCst) >= limit
            && !self.expired.swap(true, Ordering::SeqCst)
        {
            self.server.note("expired");
            self.sessions.lock().unwrap().clear();
        }
        if self.sessions.lock().unwrap().contains(&session) {
            return None;
        }
        let error = json!({"code": -32000, "message": "Bad Request: No valid session ID provided"});
        if rules.expired_is_400 {
            let body = json!({"jsonrpc": "2.0", "error": error});
            return Some((StatusCode::BAD_REQUEST, axum::Json(body)).into_response());
        }
        let body =
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32001, "message": "Session not found"}});
        Some((StatusCode::NOT_FOUND, axum::Json(body)).into_response())
    }
}

pub(super) fn event(message: &Value) -> Bytes {
    Bytes::from(format!("event: message\ndata: {message}\n\n"))
}

pub(super) fn event_stream<S>(stream: S) -> Response
where
    S: futures_util::Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
{
    ([("content-type", "text/event-stream")], Body::from_stream(stream)).into_response()
}

/// Ids are unique within a session only.
fn key(headers: &HeaderMap, id: &Value) -> String {
    format!("{} {id}", session_of(headers))
}

/// The tool that a request calls, or else its method.
fn subject(request: &Value) -> String {
    let name = request["params"]["name"].as_str().filter(|_| request["method"] == "tools/call");
    name.or(request["method"].as_str()).unwrap_or_default().to_owned()
}

/// Ends a call whose answer nobody waits for any more.
struct Call {
    server: Arc<Server>,
    key: String,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.server.cancel(&self.key);
    }
}

/// The answer as an event stream, after what the call has to say meanwhile.
fn reply(server: Arc<Server>, key: String, message: Value) -> Response {
    let (outbox, mut inbox) = mpsc::unbounded_channel();
    let worker = server.clone();
    let task = tokio::spawn(async move {
        if let Some(answer) = worker.answer(message, &outbox).await {
            let _ = outbox.send(Outgoing::Message(answer));
        }
    });
    server.running.lock().unwrap().insert(key.clone(), task.abort_handle());
    let call = Call { server, key };
    event_stream(async_stream::stream! {
        // Ends when the task does, having sent its answer or not.
        while let Some(said) = inbox.recv().await {
            if let Outgoing::Message(message) = said {
                yield Ok(event(&message));
            }
        }
        drop(call);
    })
}

/// The stream of notifications that belong to no request.
fn announcements(endpoint: &Endpoint, headers: &HeaderMap) -> Response {
    if !endpoint.sessions.lock().unwrap().contains(&session_of(headers)) {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let mut announcements = endpoint.server.announcements.subscribe();
    event_stream(async_stream::stream! {
        while let Ok(message) = announcements.recv().await {
            yield Ok(event(&message));
        }
    })
}
