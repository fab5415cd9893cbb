//! HTTP+SSE of revision 2024-11-05: a stream that names where to post, and carries every answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::Value;
use tokio::sync::mpsc;

use super::http::{event, event_stream, permitted};
use super::{Outbox, Outgoing, Server};

struct Endpoint {
    server: Arc<Server>,
    streams: Mutex<HashMap<String, Outbox>>,
    opened: AtomicUsize,
}

pub(super) fn router(server: Arc<Server>) -> Router {
    let endpoint = Arc::new(Endpoint { server, streams: Mutex::default(), opened: AtomicUsize::new(0) });
    Router::new().route("/sse", get(open)).route("/message", post(take)).with_state(endpoint)
}

/// Forgets the stream, and stops what was running for it, when the client goes.
struct Opened {
    endpoint: Arc<Endpoint>,
    session: String,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.endpoint.streams.lock().unwrap().remove(&self.session);
        let prefix = format!("{} ", self.session);
        self.endpoint.server.running.lock().unwrap().retain(|id, task| {
            let ours = id.starts_with(&prefix);
            if ours {
                task.abort();
            }
            !ours
        });
    }
}

async fn open(State(endpoint): State<Arc<Endpoint>>, headers: HeaderMap) -> Response {
    if let Err(status) = permitted(&endpoint.server, &headers) {
        endpoint.server.note("unauthorized");
        return (status, "this server wants a header").into_response();
    }
    let session = format!("stream-{}", endpoint.opened.fetch_add(1, Ordering::SeqCst));
    let (outbox, mut inbox) = mpsc::unbounded_channel();
    endpoint.streams.lock().unwrap().insert(session.clone(), outbox);
    let mut announcements = endpoint.server.announcements.subscribe();
    let opened = Opened { endpoint, session };
    event_stream(async_stream::stream! {
        yield Ok(Bytes::from(format!("event: endpoint\ndata: /message?session={}\n\n", opened.session)));
        loop {
            tokio::select! {
                said = inbox.recv() => match said {
                    Some(Outgoing::Message(message)) => yield Ok(event(&message)),
                    Some(Outgoing::Raw(_)) => {}
                    None => return,
                },
                Ok(message) = announcements.recv() => yield Ok(event(&message)),
            }
        }
    })
}

async fn take(
    State(endpoint): State<Arc<Endpoint>>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Err(status) = permitted(&endpoint.server, &headers) {
        return status.into_response();
    }
    let session = query.get("session").cloned().unwrap_or_default();
    let Some(outbox) = endpoint.streams.lock().unwrap().get(&session).cloned() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let Ok(message) = serde_json::from_slice::<Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    // Ids are unique within a stream only.
    let key = |id: &Value| format!("{session} {id}");
    if message["method"] == "notifications/cancelled" {
        endpoint.server.cancel(&key(&message["params"]["requestId"]));
        return StatusCode::ACCEPTED.into_response();
    }
    let id = key(&message["id"]);
    let server = endpoint.server.clone();
    let running = id.clone();
    let task = tokio::spawn(async move {
        if let Some(answer) = server.answer(message, &outbox).await {
            server.running.lock().unwrap().remove(&running);
            let _ = outbox.send(Outgoing::Message(answer));
        }
    });
    endpoint.server.running.lock().unwrap().insert(id, task.abort_handle());
    StatusCode::ACCEPTED.into_response()
}
