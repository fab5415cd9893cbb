//! Routes that answer with a turn: `…/chat/completions` and `…/messages`. One way through for all of them; what differs
//! is how the request is read and how the events are written.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_stream::stream;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_core::Stream;
use futures_util::{StreamExt as _, stream};
use lf_core::model::ChatRequest;
use lf_core::{ChatEvent, ModelError, Project};
use lf_dialects::anthropic_messages::{self, EventEncoder, MessagesView};
use lf_dialects::openai_chat::{self, ChunkEncoder, ErrorReply, LfEvents, RequestError, ViewOptions};
use serde_json::{Value, json};

use super::Shared;
use crate::guard::json_body;
use crate::reply::{Caller, Face, error_reply};

/// Between two signs of life on a stream that is silent while a model thinks or a tool runs.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
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

/// How the client wants its answer shown.
#[derive(Clone, Copy)]
enum View {
    Chat(ViewOptions),
    Messages(MessagesView),
}

impl View {
    fn decode(face: Face, body: &Bytes) -> Result<(ChatRequest, Self), RequestError> {
        match face {
            Face::Messages => anthropic_messages::decode_request(body)
                .map(|(request, view)| (request, Self::Messages(view))),
            Face::Chat | Face::Own => {
                openai_chat::decode_request(body).map(|(request, view)| (request, Self::Chat(view)))
            }
        }
    }

    fn streams(self) -> bool {
        match self {
            Self::Chat(view) => view.stream,
            Self::Messages(view) => view.stream,
        }
    }
}

async fn answer(shared: Shared, scope: Option<Arc<Project>>, parts: &Parts, body: Body) -> Response {
    let caller = Caller::of(parts);
    let body = match json_body(parts, body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let (request, view) = match View::decode(caller.face, &body) {
        Ok(decoded) => decoded,
        Err(error) => return caller.unreadable(&error),
    };
    let mut events = match shared.app.chat(scope.as_ref(), request).await {
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
    if view.streams() {
        streamed(Box::pin(events), head, caller).await
    } else {
        whole(Box::pin(events), &head, &caller).await
    }
}

/// What is said of an answer beside its content.
struct Head {
    id: String,
    created: u64,
    model: String,
    view: View,
    told: LfEvents,
}

impl Head {
    fn new(turn: &str, model: String, view: View, told: LfEvents) -> Self {
        let prefix = match view {
            View::Chat(_) => "chatcmpl-",
            View::Messages(_) => "msg_",
        };
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { id: format!("{prefix}{turn}"), created, model, view, told }
    }

    fn fold(&self) -> Fold {
        match self.view {
            View::Chat(_) => {
                Fold::Chat(openai_chat::Completion::new(&self.id, self.created, &self.model, self.told))
            }
            View::Messages(view) => {
                Fold::Messages(anthropic_messages::Completion::new(&self.id, &self.model, view, self.told))
            }
        }
    }

    fn encoder(&self) -> Encoder {
        match self.view {
            View::Chat(view) => {
                Encoder::Chat(ChunkEncoder::new(&self.id, self.created, &self.model, view, self.told))
            }
            View::Messages(view) => {
                Encoder::Messages(EventEncoder::new(&self.id, &self.model, view, self.told))
            }
        }
    }
}

async fn whole(mut events: impl Stream<Item = ChatEvent> + Unpin, head: &Head, caller: &Caller) -> Response {
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

/// Folds the events into one body.
enum Fold {
    Chat(openai_chat::Completion),
    Messages(anthropic_messages::Completion),
}

impl Fold {
    fn push(&mut self, event: &ChatEvent) {
        match self {
            Self::Chat(completion) => completion.push(event),
            Self::Messages(completion) => completion.push(event),
        }
    }

    fn finish(self, request_id: &str) -> Result<Value, ErrorReply> {
        match self {
            Self::Chat(completion) => completion.finish(),
            Self::Messages(completion) => completion.finish(request_id),
        }
    }
}

enum Encoder {
    Chat(ChunkEncoder),
    Messages(EventEncoder),
}

impl Encoder {
    fn event(&mut self, event: &ChatEvent) -> Vec<Event> {
        match self {
            Self::Chat(encoder) => {
                encoder.event(event).into_iter().map(|chunk| Event::default().data(chunk)).collect()
            }
            Self::Messages(encoder) => encoder
                .event(event)
                .into_iter()
                .map(|(name, data)| Event::default().event(name).data(data))
                .collect(),
        }
    }

    /// What follows the last event of an answer that ended well.
    fn end_mark(&self) -> Option<Event> {
        match self {
            Self::Chat(_) => Some(Event::default().data("[DONE]")),
            Self::Messages(_) => None,
        }
    }

    fn keep_alive(&self) -> KeepAlive {
        let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
        match self {
            Self::Chat(_) => keep_alive,
            Self::Messages(_) => keep_alive.event(Event::default().event("ping").data(r#"{"type":"ping"}"#)),
        }
    }
}

async fn streamed(
    mut events: impl Stream<Item = ChatEvent> + Unpin + Send + 'static,
    head: Head,
    caller: Caller,
) -> Response {
    let mut held = Vec::new();
    let deadline = tokio::time::Instant::now() + STATUS_WAIT;
    while let Ok(Some(event)) = tokio::time::timeout_at(deadline, events.next()).await {
        if let ChatEvent::Failed(error) = &event {
            return caller.model_error(error);
        }
        let shown = !matches!(event, ChatEvent::Notice(_));
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
