//! Routes that answer with a turn: `…/chat/completions`, `…/responses` and `…/messages`. One way through for all of them; what differs
//! is how the request is read and how the events are written.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::sse::Sse;
use axum::response::{IntoResponse as _, Response};
use futures_core::Stream;
use futures_util::{StreamExt as _, stream};
use lf_core::{ChatEvent, ModelError, Project};
use lf_dialects::anthropic_messages;
use lf_dialects::openai_chat::LfEvents;
use serde_json::json;

use super::Shared;
use super::faces::{Head, View};
use super::responses::Keeper;
use crate::guard::json_body;
use crate::reply::{Caller, error_reply};

/// How long the first event is waited for, so that trouble before it is an HTTP status; then the stream begins anyway,
/// because clients give up a connection that says nothing.
const STATUS_WAIT: Duration = Duration::from_secs(10);

pub(super) async fn unscoped(State(shared): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    answer(shared, None, &parts, body).await
}

pub(super) async fn scoped(
    State(shared): State<Shared>,
    Path((namespace, project)): Path<(String, String)>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    match shared.app.find_project(&namespace, &project) {
        Ok(project) => answer(shared, Some(project), &parts, body).await,
        Err(refusal) => Caller::of(&parts).refusal(&refusal),
    }
}

/// `POST …/messages/count_tokens`: an estimate, no tokenizer is asked. The model need not exist.
pub(super) async fn count_tokens(request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = match json_body(&parts, body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    match anthropic_messages::decode_count_request(&body) {
        Ok(request) => {
            Json(json!({"input_tokens": anthropic_messages::count_tokens(&request)})).into_response()
        }
        Err(error) => Caller::of(&parts).unreadable(&error),
    }
}

async fn answer(shared: Shared, scope: Option<Arc<Project>>, parts: &Parts, body: Body) -> Response {
    let caller = Caller::of(parts);
    let body = match json_body(parts, body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let keeper = Keeper::new(shared.app.responses.clone(), scope.as_deref());
    let item = |id: &str| keeper.item(id);
    let (request, view) = match View::decode(caller.face, &parts.headers, &body, &item) {
        Ok(decoded) => decoded,
        Err(error) => return caller.unreadable(&error),
    };
    let (conversation, said) = match keeper.conversation(&view) {
        Ok(found) => found,
        Err(error) => return caller.unreadable(&error),
    };
    let mut events = match shared.app.chat_on(scope.as_ref(), request, conversation).await {
        Ok(events) => Box::pin(events),
        Err(refusal) => return caller.refusal(&refusal),
    };
    let Some(ChatEvent::Started { turn, model }) = events.next().await else {
        return caller.refuse(StatusCode::INTERNAL_SERVER_ERROR, "the turn did not start");
    };
    let told = match parts.headers.get("x-lf-events").is_some_and(|value| value == "none") {
        true => LfEvents::Hidden,
        false => LfEvents::Told,
    };
    let head = Head::new(&turn, model, view, told);
    let events = events.take_until(shared.cut.clone().cancelled_owned());
    // the turn's own end comes before this one: a view ends with the first end it is told
    let events = events.chain(stream::once(async { ChatEvent::Failed(going_down()) }));
    let events: Events = match keeper.keep(&head, &body, said) {
        None => Box::pin(events),
        Some(record) if record.in_background() => {
            let begun = record.body();
            let told = record.run(Box::pin(events), &shared.tasks, head.view.streams());
            match told {
                None => return Json(begun).into_response(),
                Some(events) => events,
            }
        }
        Some(record) => Box::pin(record.follow(Box::pin(events))),
    };
    if head.view.streams() {
        streamed(events, head, caller).await
    } else {
        whole(events, &head, &caller).await
    }
}

/// The events of a turn, to be shown.
pub(super) type Events = Pin<Box<dyn Stream<Item = ChatEvent> + Send>>;

async fn whole(mut events: Events, head: &Head, caller: &Caller) -> Response {
    let mut fold = head.fold();
    let mut tools_ran = false;
    while let Some(event) = events.next().await {
        tools_ran |= matches!(event, ChatEvent::CallStarted { tool: Some(_), .. });
        fold.push(&event);
    }
    match fold.finish(&caller.request_id) {
        Ok(body) => Json(body).into_response(),
        Err(error) => {
            let mut response = error_reply(error);
            if tools_ran {
                // the official SDKs ask again after a 5xx or 429 unless they are told not to: that would run the tools twice
                response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
            }
            response
        }
    }
}

async fn streamed(mut events: Events, mut head: Head, caller: Caller) -> Response {
    let mut held = Vec::new();
    let deadline = tokio::time::Instant::now() + STATUS_WAIT;
    while let Ok(Some(event)) = tokio::time::timeout_at(deadline, events.next()).await {
        if let ChatEvent::Failed(error) = &event {
            return caller.model_error(error);
        }
        if let ChatEvent::Answering { model } = &event {
            head.model.clone_from(model);
        }
        let shown = !matches!(event, ChatEvent::Notice(_) | ChatEvent::Answering { .. });
        held.push(event);
        if shown {
            break;
        }
    }
    let mut encoder = head.encoder();
    let keep_alive = encoder.keep_alive();
    let told = stream! {
        let mut events = stream::iter(held).chain(events);
        // the beginning of the answer, before anything is known of it
        let started = ChatEvent::Started { turn: String::new(), model: head.model.clone() };
        for told in encoder.event(&started) {
            yield Ok::<_, Infallible>(told);
        }
        while let Some(event) = events.next().await {
            for told in encoder.event(&event) {
                yield Ok(told);
            }
            match event {
                ChatEvent::Finished { .. } => break,
                // the error event is the end: an end mark would say that all is well
                ChatEvent::Failed(_) => return,
                _ => {}
            }
        }
        if let Some(mark) = encoder.end_mark() {
            yield Ok(mark);
        }
    };
    let mut response = Sse::new(told).keep_alive(keep_alive).into_response();
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
