//! Kept responses: what a request goes on from, and what it leaves behind. The routes to come back to it are [`reading`]'s.

mod beginning;
pub(super) mod reading;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_stream::stream;
use axum::body::Bytes;
use futures_core::Stream;
use futures_util::StreamExt as _;
use lf_core::{ChatEvent, Message, ModelError, Principal, Project};
use lf_dialects::openai_chat::{ErrorReply, RequestError};
use lf_dialects::openai_responses::{self, ResponsesView};
use lf_store::Response as Stored;
use serde_json::{Map, Value};

use super::answer::Events;
use super::faces::{View, now};
use crate::app::{App, Refusal};
use crate::chat::{Conversation, Said};
use crate::memory::{named, unkept};
use crate::reply::Caller;
use crate::responses::{Aside, Made, Unstored};

/// Responses that the items of one request may refer to.
const REFERRED: usize = 64;

/// The kept responses as one request sees them.
pub(super) struct Keeper {
    app: Arc<App>,
    who: Arc<Principal>,
    caller: Caller,
    project: Option<Arc<Project>>,
    /// `namespace/project` of the route, or nothing: a response is found where it was made.
    scope: String,
    aside: Option<Arc<Aside>>,
}

/// A response that came before.
enum Earlier {
    Aside(Arc<Unstored>),
    Kept(Box<Stored>),
}

/// Where a request goes on from, and what becomes of its response.
pub(super) struct Plan {
    before: Arc<[Message]>,
    /// The stored response that it goes on from.
    previous: Option<Box<Stored>>,
    pub way: Way,
}

pub(super) enum Way {
    /// Nothing is left.
    Unkept,
    /// Its connection keeps it.
    Aside(Arc<Aside>),
    /// Stored; its turn ends with its client.
    Bound,
    /// Stored; its turn goes on by itself.
    Background,
    /// Stored, as a turn of a kept conversation of this id.
    Conversation(String),
}

impl Plan {
    /// For a request that goes on from nothing and leaves nothing.
    fn none() -> Self {
        Self { before: [].into(), previous: None, way: Way::Unkept }
    }

    /// What was said before, which may have brought tools.
    pub(super) fn before(&self) -> &[Message] {
        &self.before
    }

    /// The conversation that the turn is about.
    pub(super) fn conversation(&self, view: &View) -> (Conversation, Arc<Said>) {
        let said = Arc::<Said>::default();
        let View::Responses(view) = view else { return (Conversation::default(), said) };
        let is_kept = !matches!(self.way, Way::Unkept);
        let conversation = Conversation {
            before: self.before.clone(),
            unkept: usize::from(view.has_instructions),
            calls_left: view.max_tool_calls,
            leave: is_kept.then(|| said.clone()),
            ..Conversation::default()
        };
        (conversation, said)
    }
}

impl Keeper {
    pub(super) fn new(
        app: Arc<App>,
        who: Arc<Principal>,
        project: Option<Arc<Project>>,
        caller: Caller,
    ) -> Self {
        let scope = project.as_ref().map(|project| format!("{}/{}", project.namespace, project.name));
        Self { app, who, caller, project, scope: scope.unwrap_or_default(), aside: None }
    }

    /// The same for a request over a connection that keeps what is not stored.
    pub(super) fn with(self, aside: Arc<Aside>) -> Self {
        Self { aside: Some(aside), ..self }
    }

    async fn find(&self, id: &str) -> Result<Option<Earlier>, Refusal> {
        if let Some(found) = self.aside.as_ref().and_then(|aside| aside.find(id)) {
            return Ok(Some(Earlier::Aside(found)));
        }
        let found = reading::find(&self.app, &self.who, &self.scope, id).await?;
        Ok(found.map(|found| Earlier::Kept(Box::new(found))))
    }

    /// The output items of earlier responses that a request refers to, by their ids.
    pub(super) async fn items(&self, body: &Bytes) -> Result<HashMap<String, Value>, ErrorReply> {
        let mut items = HashMap::new();
        if self.caller.face != crate::reply::Face::Responses {
            return Ok(items);
        }
        for id in referred(body) {
            let found = self.find(&id).await.map_err(|refusal| self.caller.refused(&refusal))?;
            let body = match found {
                None => continue,
                Some(Earlier::Aside(unstored)) => unstored.body.clone(),
                Some(Earlier::Kept(stored)) => reading::body(&self.app, &stored).await,
            };
            let output = body["output"].as_array().into_iter().flatten();
            items.extend(output.filter_map(|item| Some((item["id"].as_str()?.to_owned(), item.clone()))));
        }
        Ok(items)
    }

    /// What the request goes on from, and where its own end is to be left. A view that did not insist on being stored is not
    /// stored where that is impossible.
    pub(super) async fn plan(&self, view: &mut View) -> Result<(Plan, Option<String>), ErrorReply> {
        let View::Responses(view) = view else { return Ok((Plan::none(), None)) };
        let wrong = |key, message: &str, hint: &str| {
            self.caller.unreadable(&RequestError::value(key, message.to_owned(), hint))
        };
        if view.background && !view.store {
            let message = "`background` needs `store`: there is no other way to come back";
            return Err(wrong("background", message, "leave `store` out, or set it to true"));
        }
        if view.background && view.conversation.is_some() {
            let message = "`background` and `conversation` are both given";
            return Err(wrong(
                "background",
                message,
                "a turn of a conversation goes on by itself in any case",
            ));
        }
        if let Some(id) = view.conversation.clone() {
            self.app.memory().map_err(|refusal| self.caller.refused(&refusal))?;
            return Ok((Plan { way: Way::Conversation(id), ..Plan::none() }, None));
        }
        let (before, previous) = self.earlier(view).await?;
        let mut notice = None;
        if let Some(refusal) = self.app.memory().err().filter(|_| view.store) {
            notice = Some(self.do_without(view, &refusal)?);
        }
        let way = match &self.aside {
            _ if view.store && view.background => Way::Background,
            _ if view.store => Way::Bound,
            Some(aside) => Way::Aside(aside.clone()),
            None => Way::Unkept,
        };
        Ok((Plan { before, previous, way }, notice))
    }

    /// What is told when a response is not stored; an error where the client insists.
    fn do_without(&self, view: &mut ResponsesView, refusal: &Refusal) -> Result<String, ErrorReply> {
        if view.is_store_said || view.background {
            return Err(self.caller.refused(refusal));
        }
        view.leave_unstored();
        Ok(format!("this response is not stored: {refusal}"))
    }

    /// What the request goes on from; nothing where it does not.
    pub(super) async fn earlier(
        &self,
        view: &ResponsesView,
    ) -> Result<(Arc<[Message]>, Option<Box<Stored>>), ErrorReply> {
        let Some(id) = &view.previous_response_id else { return Ok(([].into(), None)) };
        let refused = |refusal: Refusal| self.caller.refused(&refusal);
        let wrong = |message: String, hint: &str| {
            let mut error = RequestError::value("previous_response_id", message, hint);
            error.code = Some("previous_response_not_found");
            self.caller.unreadable(&error)
        };
        match self.find(id).await.map_err(refused)? {
            None => Err(wrong(
                format!("there is no response `{id}`"),
                "it may be deleted, too old, or not stored; send the whole `input` instead",
            )),
            Some(Earlier::Aside(unstored)) => Ok((unstored.conversation.clone(), None)),
            Some(Earlier::Kept(stored)) => {
                let body = reading::body(&self.app, &stored).await;
                let status = body["status"].as_str().unwrap_or_default();
                if !matches!(status, "completed" | "incomplete") {
                    let message = format!("the response `{id}` is {status}: there is nothing to go on from");
                    return Err(wrong(message, "go on from one that is completed"));
                }
                let store = &self.app.memory().map_err(refused)?.store;
                let said = store.said_until(&stored).await.map_err(|error| refused(unkept(&error)))?;
                Ok((said.into(), Some(stored)))
            }
        }
    }
}

/// The responses whose items a request refers to.
fn referred(body: &Bytes) -> HashSet<String> {
    let read = serde_json::from_slice::<Map<String, Value>>(body);
    let input = read.ok().and_then(|mut body| body.remove("input"));
    let items = input.as_ref().and_then(Value::as_array).into_iter().flatten();
    // an item with more than an id says itself what it is
    let referring = items.filter(|item| item["type"] == "item_reference" || item["type"].is_null());
    let ids = referring.filter_map(|item| item["id"].as_str());
    ids.filter_map(openai_responses::response_of_item).take(REFERRED).collect()
}

/// A response that is being made for its client.
pub(super) struct Record {
    completion: Option<openai_responses::Completion>,
    said: Arc<Said>,
    kind: Kind,
}

enum Kind {
    Aside { aside: Arc<Aside>, id: String, before: Arc<[Message]> },
    Stored { app: Arc<App>, stored: Box<Stored>, made: Made },
}

impl Record {
    /// The same events, with their end kept before it is told. Dropped before it, the response counts as cancelled.
    pub(super) fn follow(mut self, events: Events) -> impl Stream<Item = ChatEvent> + Send {
        let stop = match &self.kind {
            Kind::Stored { made, .. } => made.stop.clone(),
            Kind::Aside { .. } => tokio_util::sync::CancellationToken::new(),
        };
        let events = events.take_until(stop.cancelled_owned());
        stream! {
            tokio::pin!(events);
            while let Some(event) = events.next().await {
                if let Some(notice) = self.take(&event).await {
                    yield ChatEvent::Notice(notice);
                }
                yield event;
            }
            // for the one who is still listening
            yield ChatEvent::Failed(cancelled());
        }
    }

    /// Tells what went wrong with keeping the end.
    async fn take(&mut self, event: &ChatEvent) -> Option<String> {
        let completion = self.completion.as_mut()?;
        let over = matches!(event, ChatEvent::Finished { .. } | ChatEvent::Failed(_));
        if over {
            completion.set_now(now());
        }
        completion.push(event);
        if !over {
            return None;
        }
        let body = completion.response();
        self.completion = None;
        let answered = self.said.answered.get().cloned();
        match &self.kind {
            Kind::Aside { aside, id, before } => {
                if let Some(answered) = answered {
                    let asked = self.said.asked.get().map_or(&[][..], Vec::as_slice);
                    let conversation = before.iter().chain(asked).chain(&answered).cloned().collect();
                    aside.hold(id, Unstored { body, conversation });
                }
                None
            }
            Kind::Stored { made, .. } if !made.ends() => None,
            Kind::Stored { app, stored, .. } => {
                let memory = app.memory().ok()?;
                let said = named(answered.unwrap_or_default());
                let error = memory.store.end_response(stored, &body, &said).await.err()?;
                tracing::error!(response = stored.id, %error, "the end of a response could not be kept");
                Some(format!("this response is not stored: {error}"))
            }
        }
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
