//! Kept responses: what a request goes on from, what it leaves behind, and the routes to come back to it.

use std::sync::Arc;

use async_stream::stream;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use futures_core::Stream;
use futures_util::StreamExt as _;
use lf_core::{ChatEvent, ModelError, Project};
use lf_dialects::openai_chat::RequestError;
use lf_dialects::openai_responses::{self, ResponsesView, input_items};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::Shared;
use super::answer::Events;
use super::faces::{Head, View, now};
use crate::chat::Conversation;
use crate::reply::Caller;
use crate::responses::{Aside, Record, Responses, Said, Scope, Stored};

/// Events of a background response that wait for a slow client. A full buffer slows the turn; a client that goes away
/// does not.
const WAITING_EVENTS: usize = 256;

/// The kept responses as one request sees them.
pub(super) struct Keeper {
    responses: Responses,
    scope: Scope,
    aside: Option<Arc<Aside>>,
}

impl Keeper {
    pub(super) fn new(responses: Responses, project: Option<&Project>) -> Self {
        let scope = project.map(|project| format!("{}/{}", project.namespace, project.name));
        Self { responses, scope, aside: None }
    }

    /// The same for a request over a connection that keeps what is not stored.
    pub(super) fn with(self, aside: Arc<Aside>) -> Self {
        Self { aside: Some(aside), ..self }
    }

    fn find(&self, id: &str) -> Option<Arc<Stored>> {
        let aside = self.aside.as_ref().and_then(|aside| aside.find(id));
        aside.or_else(|| self.responses.find(&self.scope, id))
    }

    /// An output item of an earlier response, by its id.
    pub(super) fn item(&self, id: &str) -> Option<Value> {
        let stored = self.find(&openai_responses::response_of_item(id)?)?;
        let output = stored.body["output"].as_array()?;
        output.iter().find(|item| item["id"] == id).cloned()
    }

    /// What the request goes on from, and where its own end is to be left.
    pub(super) fn conversation(&self, view: &View) -> Result<(Conversation, Said), RequestError> {
        let said = Said::default();
        let View::Responses(view) = view else { return Ok((Conversation::default(), said)) };
        if view.background && !view.store {
            let message = "`background` needs `store`: there is no other way to come back".to_owned();
            return Err(RequestError::value("background", message, "leave `store` out, or set it to true"));
        }
        let before = self.earlier(view)?;
        let left = said.clone();
        let keep: Box<dyn FnOnce(_) + Send> = Box::new(move |messages| drop(left.set(messages)));
        let conversation = Conversation {
            before,
            unkept: usize::from(view.has_instructions),
            calls_left: view.max_tool_calls,
            keep: (view.store || self.aside.is_some()).then_some(keep),
            ..Conversation::default()
        };
        Ok((conversation, said))
    }

    /// What the request goes on from; nothing where it does not.
    pub(super) fn earlier(&self, view: &ResponsesView) -> Result<Arc<[lf_core::Message]>, RequestError> {
        if view.conversation.is_some() {
            let message = "`conversation` is not offered here".to_owned();
            let hint = "send `previous_response_id`, or the whole `input`";
            return Err(RequestError::value("conversation", message, hint));
        }
        match &view.previous_response_id {
            None => Ok([].into()),
            Some(id) => self.before(id),
        }
    }

    fn before(&self, id: &str) -> Result<Arc<[lf_core::Message]>, RequestError> {
        let wrong = |message: String, hint: &str| {
            let mut error = RequestError::value("previous_response_id", message, hint);
            error.code = Some("previous_response_not_found");
            error
        };
        let Some(stored) = self.find(id) else {
            let message = format!("there is no response `{id}`");
            return Err(wrong(
                message,
                "it may be deleted, too old, or not stored; send the whole `input` instead",
            ));
        };
        stored.conversation.clone().ok_or_else(|| {
            let status = stored.body["status"].as_str().unwrap_or_default();
            let message = format!("the response `{id}` is {status}: there is nothing to go on from");
            wrong(message, "go on from one that is completed")
        })
    }

    /// Begins to keep the response; `None` where nothing is to be kept.
    pub(super) fn keep(&self, head: &Head, request: &Bytes, said: Said) -> Option<Kept> {
        let View::Responses(view) = &head.view else { return None };
        let completion = head.response(view);
        let begun = completion.response();
        let record = match &self.aside {
            _ if view.store => {
                let input = input_items(request, &head.id);
                self.responses.begin(&head.id, self.scope.clone(), begun, input, said)
            }
            Some(aside) => aside.begin(&head.id, begun, said),
            None => return None,
        };
        Some(Kept { record, completion: Some(completion), view: (**view).clone() })
    }
}

/// A response that is being made.
pub(super) struct Kept {
    record: Record,
    completion: Option<openai_responses::Completion>,
    view: ResponsesView,
}

impl Kept {
    pub(super) fn in_background(&self) -> bool {
        self.view.background
    }

    /// The response as it now stands.
    pub(super) fn body(&self) -> Value {
        self.completion.as_ref().map(openai_responses::Completion::response).unwrap_or_default()
    }

    /// The same events, with their end kept. Dropped before it, the response counts as cancelled.
    pub(super) fn follow(mut self, events: Events) -> impl Stream<Item = ChatEvent> + Send {
        let stop = self.record.stop();
        let events = events.take_until(stop.cancelled_owned());
        stream! {
            tokio::pin!(events);
            while let Some(event) = events.next().await {
                self.take(&event);
                yield event;
            }
            // for the one who is still listening
            yield ChatEvent::Failed(cancelled());
        }
    }

    fn take(&mut self, event: &ChatEvent) {
        let Some(completion) = &mut self.completion else { return };
        let over = matches!(event, ChatEvent::Finished { .. } | ChatEvent::Failed(_));
        if over {
            completion.set_now(now());
        }
        completion.push(event);
        if over {
            let body = completion.response();
            self.completion = None;
            self.record.finish(body);
        }
    }

    /// Lets the turn go on whether anybody listens or not; gives the events where somebody wants to.
    pub(super) fn run(self, events: Events, tasks: &TaskTracker, streams: bool) -> Option<Events> {
        let (tell, mut told) = mpsc::channel(WAITING_EVENTS);
        let mut events = Box::pin(self.follow(events));
        tasks.spawn(async move {
            let mut tell = streams.then_some(tell);
            while let Some(event) = events.next().await {
                let over = matches!(event, ChatEvent::Finished { .. } | ChatEvent::Failed(_));
                if let Some(listener) = &tell
                    && listener.send(event).await.is_err()
                {
                    tell = None;
                }
                if over {
                    return;
                }
            }
        });
        streams.then(|| -> Events {
            Box::pin(stream! {
                while let Some(event) = told.recv().await {
                    yield event;
                }
            })
        })
    }
}

fn cancelled() -> ModelError {
    ModelError::Failed {
        url: "this response".to_owned(),
        status: 499,
        message: "it was cancelled".to_owned(),
        retry_after: None,
    }
}

/// `…/responses/{id}`, or the same within a project.
#[derive(serde::Deserialize)]
pub(super) struct At {
    namespace: Option<String>,
    project: Option<String>,
    id: String,
}

impl At {
    fn scope(&self) -> Scope {
        self.namespace
            .as_ref()
            .zip(self.project.as_ref())
            .map(|(namespace, project)| format!("{namespace}/{project}"))
    }

    fn unknown(&self, caller: &Caller) -> Response {
        let what = format!("there is no response `{}`; it may be deleted, too old, or not stored", self.id);
        caller.refuse(StatusCode::NOT_FOUND, &what)
    }
}

pub(super) async fn get(State(shared): State<Shared>, caller: Caller, Path(at): Path<At>) -> Response {
    match shared.app.responses.find(&at.scope(), &at.id) {
        Some(stored) => Json(&stored.body).into_response(),
        None => at.unknown(&caller),
    }
}

pub(super) async fn delete(State(shared): State<Shared>, caller: Caller, Path(at): Path<At>) -> Response {
    match shared.app.responses.delete(&at.scope(), &at.id) {
        true => Json(json!({"id": at.id, "object": "response", "deleted": true})).into_response(),
        false => at.unknown(&caller),
    }
}

pub(super) async fn cancel(State(shared): State<Shared>, caller: Caller, Path(at): Path<At>) -> Response {
    match shared.app.responses.cancel(&at.scope(), &at.id) {
        Some(stored) if over(&stored) => {
            let what = format!(
                "the response `{}` is {} already: there is nothing to cancel",
                at.id, stored.body["status"]
            );
            caller.refuse(StatusCode::BAD_REQUEST, &what.replace('"', "`"))
        }
        Some(stored) => Json(&stored.body).into_response(),
        None => at.unknown(&caller),
    }
}

fn over(stored: &Stored) -> bool {
    !stored.is_running() && stored.body["status"] != "cancelled"
}

pub(super) async fn inputs(State(shared): State<Shared>, caller: Caller, Path(at): Path<At>) -> Response {
    let Some(stored) = shared.app.responses.find(&at.scope(), &at.id) else { return at.unknown(&caller) };
    let edge = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    let list = json!({
        "object": "list",
        "data": stored.input,
        "first_id": edge(stored.input.first()),
        "last_id": edge(stored.input.last()),
        "has_more": false,
    });
    Json(list).into_response()
}
