//! `POST …/chat/completions`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_stream::stream;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_core::Stream;
use futures_util::{StreamExt as _, stream};
use lf_core::{ChatEvent, ModelError, Project};
use lf_dialects::openai_chat::{self, ChunkEncoder, Completion, LfEvents, ViewOptions};

use super::Shared;
use crate::guard::json_body;
use crate::reply;

/// Between two comments on a stream that is silent while a tool runs.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) async fn unscoped(State(shared): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    answer(shared, None, parts.uri.path(), &parts.headers, body).await
}

pub(super) async fn scoped(
    State(shared): State<Shared>,
    Path((namespace, project)): Path<(String, String)>,
    request: Request,
) -> Response {
    match shared.app.find_project(&namespace, &project) {
        Ok(project) => {
            let (parts, body) = request.into_parts();
            answer(shared, Some(project), parts.uri.path(), &parts.headers, body).await
        }
        Err(refusal) => reply::chat_refusal(&refusal),
    }
}

async fn answer(
    shared: Shared,
    scope: Option<Arc<Project>>,
    path: &str,
    headers: &HeaderMap,
    body: Body,
) -> Response {
    let body = match json_body(path, headers, body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let (request, view) = match openai_chat::decode_request(&body) {
        Ok(decoded) => decoded,
        Err(error) => return reply::error_reply(openai_chat::request_error_reply(&error)),
    };
    let mut events = match shared.app.chat(scope.as_ref(), request).await {
        Ok(events) => Box::pin(events),
        Err(refusal) => return reply::chat_refusal(&refusal),
    };
    let Some(ChatEvent::Started { turn, model }) = events.next().await else {
        return reply::error_reply(openai_chat::internal_error_reply(500, "the turn did not start"));
    };
    let head = Head {
        id: format!("chatcmpl-{turn}"),
        created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        model,
        told: match headers.get("x-lf-events").is_some_and(|value| value == "none") {
            true => LfEvents::Hidden,
            false => LfEvents::Told,
        },
    };
    let events = events.take_until(shared.cut.clone().cancelled_owned());
    // the turn's own end comes before this one: a view ends with the first end it is told
    let events = events.chain(stream::once(async { ChatEvent::Failed(going_down()) }));
    if view.stream {
        streamed(Box::pin(events), head, view).await
    } else {
        whole(Box::pin(events), &head).await
    }
}

/// What every chunk of an answer says of it.
struct Head {
    id: String,
    created: u64,
    model: String,
    told: LfEvents,
}

async fn whole(mut events: impl Stream<Item = ChatEvent> + Unpin, head: &Head) -> Response {
    let mut completion = Completion::new(&head.id, head.created, &head.model, head.told);
    while let Some(event) = events.next().await {
        completion.push(&event);
    }
    match completion.finish() {
        Ok(completion) => Json(completion).into_response(),
        Err(error) => reply::error_reply(error),
    }
}

/// Waits for the first event that shows something, so that trouble before it is an HTTP status.
async fn streamed(
    mut events: impl Stream<Item = ChatEvent> + Unpin + Send + 'static,
    head: Head,
    view: ViewOptions,
) -> Response {
    let mut held = Vec::new();
    while let Some(event) = events.next().await {
        if let ChatEvent::Failed(error) = &event {
            return reply::error_reply(openai_chat::error_reply(error));
        }
        let shown = !matches!(event, ChatEvent::Notice(_));
        held.push(event);
        if shown {
            break;
        }
    }
    let mut encoder = ChunkEncoder::new(&head.id, head.created, &head.model, view, head.told);
    let chunks = stream! {
        let mut events = stream::iter(held).chain(events);
        while let Some(event) = events.next().await {
            for chunk in encoder.event(&event) {
                yield Ok::<_, Infallible>(Event::default().data(chunk));
            }
            match event {
                ChatEvent::Finished { .. } => break,
                // the error event is the end: `[DONE]` would say that all is well
                ChatEvent::Failed(_) => return,
                _ => {}
            }
        }
        yield Ok(Event::default().data("[DONE]"));
    };
    let mut response = Sse::new(chunks).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    let headers = response.headers_mut();
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn going_down() -> ModelError {
    ModelError::Failed {
        url: "this daemon".to_owned(),
        status: 503,
        message: "it is shutting down".to_owned(),
        retry_after: None,
    }
}
