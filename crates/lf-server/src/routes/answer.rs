//! Routes that answer with a turn: `…/chat/completions`, `…/responses` and `…/messages`. One way through for all of them; what differs
//! is how the request is read and how the events are written.

mod late;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_core::Stream;
use futures_util::{StreamExt as _, stream};
use lf_core::model::ChatRequest;
use lf_core::{ChatEvent, ModelError, Principal, Project};
use lf_dialects::anthropic_messages;
use lf_dialects::openai_chat::{ErrorReply, LfEvents};
use serde_json::{Value, json};

use super::faces::{self, Head, View};
use super::responses::{Keeper, Way};
use super::sessions;
use super::{Scoped, Shared, Who};
use crate::approvals::Attendance;
use crate::chat::Conversation;
use crate::guard::json_body;
use crate::reply::{Caller, Face, error_reply};

/// How long the first event is waited for, so that trouble before it is an HTTP status; then the stream begins anyway,
/// because clients give up a connection that says nothing.
pub(super) const STATUS_WAIT: Duration = Duration::from_secs(10);

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
        Err(error) => error_reply(Caller::of(&parts).unreadable(&error)),
    }
}

pub(super) async fn ask(
    State(shared): State<Shared>,
    Who(who): Who,
    Scoped(scope): Scoped,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let caller = Caller::of(&parts);
    let body = match json_body(&parts, body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let keeper = Keeper::new(shared.app.clone(), who.clone(), scope.clone(), caller.clone());
    let headers = parts.headers.clone();
    let asked = Asked { shared, who, scope, keeper, caller: caller.clone(), headers: parts.headers };
    let given = body.clone();
    let mut begun: Begins = Box::pin(async move { asked.begin(&given).await });
    let begun = match tokio::time::timeout(STATUS_WAIT, &mut begun).await {
        Ok(begun) => begun,
        Err(_) if late::is_streamed(&body) => return late::streamed(begun, caller, &headers),
        Err(_) => begun.await,
    };
    let (events, head) = match begun {
        Ok(Begun::Turn(events, head)) => (events, head),
        Ok(Begun::Aside(begun)) => return Json(begun).into_response(),
        Err(error) => return error_reply(error),
    };
    let mut response = match head.view.streams() {
        true => streamed(events, *head, &caller).await,
        false => whole(events, &head, &caller).await,
    };
    sessions::echo(&headers, response.headers_mut());
    response
}

/// Who asks for a turn, and where.
pub(super) struct Asked {
    pub shared: Shared,
    pub who: Arc<Principal>,
    pub scope: Option<Arc<Project>>,
    pub keeper: Keeper,
    pub caller: Caller,
    pub headers: HeaderMap,
}

/// A turn that is about to begin.
type Begins = Pin<Box<dyn Future<Output = Result<Begun, ErrorReply>> + Send>>;

/// A turn that has begun.
pub(super) enum Begun {
    /// To be shown.
    Turn(Events, Box<Head>),
    /// It goes on by itself, and this is what there is to say of it now.
    Aside(Value),
}

impl Asked {
    /// From a body to a turn.
    ///
    /// # Errors
    /// What can be said to be wrong before a model is asked, in the caller's dialect.
    pub(super) async fn begin(&self, body: &Bytes) -> Result<Begun, ErrorReply> {
        let Self { who, keeper, caller, headers, .. } = self;
        let items = keeper.items(body).await?;
        let item = |id: &str| items.get(id).cloned();
        let (mut request, mut view) =
            View::decode(caller.face, headers, body, &item).map_err(|error| caller.unreadable(&error))?;
        for (_, decision) in &mut request.approvals {
            *decision = decision.clone().of(who);
        }
        let (plan, notice) = keeper.plan(&mut view).await?;
        if let View::Responses(view) = &mut view {
            // what a kept conversation has is known when it is this one's turn
            if !matches!(plan.way, Way::Conversation(_)) {
                view.recall_tools(&mut request, plan.before()).map_err(|error| caller.unreadable(&error))?;
            }
        }
        match plan.way {
            Way::Background => return self.in_background(request, view, plan, body).await,
            Way::Conversation(ref id) => return self.in_conversation(id, request, view, body).await,
            Way::Unkept | Way::Aside(_) | Way::Bound => {}
        }
        let (conversation, said) = plan.conversation(&view);
        let (events, turn, model) = self.events(request, conversation).await?;
        let mut head = Box::new(Head::new(&turn, model, view, self.told()));
        let (record, unstored) = keeper.begin(&mut head, body, plan, said).await?;
        let events: Events = match record {
            Some(record) => Box::pin(record.follow(events)),
            None => events,
        };
        let notices: Vec<ChatEvent> = notice.into_iter().chain(unstored).map(ChatEvent::Notice).collect();
        Ok(Begun::Turn(Box::pin(stream::iter(notices).chain(events)), head))
    }

    /// Whether the client wants to hear of the server's own work.
    pub(super) fn told(&self) -> LfEvents {
        match self.headers.get("x-lf-events").is_some_and(|value| value == "none") {
            true => LfEvents::Hidden,
            false => LfEvents::Told,
        }
    }

    /// The events of a new turn behind the first, with what that tells: the turn and the model.
    pub(super) async fn events(
        &self,
        request: ChatRequest,
        mut conversation: Conversation,
    ) -> Result<(Events, String, String), ErrorReply> {
        let Self { shared, who, scope, caller, headers, .. } = self;
        let refused = |refusal| caller.refused(&refusal);
        let events: Events = match sessions::named(headers, caller.face).map_err(refused)? {
            Some(session) => {
                let running = sessions::converse(&shared.app, who, scope.as_ref(), &session, request).await;
                let running = running.map_err(refused)?;
                let memory = shared.app.memory().map_err(refused)?;
                Box::pin(memory.watch(running, 0).map(|(_, event)| (*event).clone()))
            }
            None => {
                conversation.attendance = match caller.face {
                    Face::Responses => Attendance::HandedOver,
                    Face::Chat | Face::Messages | Face::Mcp | Face::Own => Attendance::Told,
                };
                let events = shared.app.chat_on(who, scope.as_ref(), request, conversation).await;
                Box::pin(events.map_err(refused)?)
            }
        };
        self.started(events).await
    }

    /// The events behind the first, with what that tells; they end with the daemon.
    ///
    /// # Errors
    /// When there is no first one.
    pub(super) async fn started(&self, mut events: Events) -> Result<(Events, String, String), ErrorReply> {
        let Some(ChatEvent::Started { turn, model }) = events.next().await else {
            return Err(self.caller.trouble(StatusCode::INTERNAL_SERVER_ERROR, "the turn did not start"));
        };
        let events = events.take_until(self.shared.cut.clone().cancelled_owned());
        // the turn's own end comes before this one: a view ends with the first end it is told
        let events = events.chain(stream::once(async { ChatEvent::Failed(ModelError::going_down()) }));
        Ok((Box::pin(events), turn, model))
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

/// Waits for the first event that shows something of the answer, and gives what came up to it.
///
/// # Errors
/// When the turn fails before it.
pub(super) async fn first(events: &mut Events, head: &mut Head) -> Result<Vec<ChatEvent>, ModelError> {
    let mut held = Vec::new();
    let deadline = tokio::time::Instant::now() + STATUS_WAIT;
    while let Ok(Some(event)) = tokio::time::timeout_at(deadline, events.next()).await {
        if let ChatEvent::Failed(error) = event {
            return Err(error);
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
    // the beginning of the answer, before anything is known of it
    held.insert(0, ChatEvent::Started { turn: String::new(), model: head.model.clone() });
    Ok(held)
}

async fn streamed(mut events: Events, mut head: Head, caller: &Caller) -> Response {
    let held = match first(&mut events, &mut head).await {
        Ok(held) => held,
        Err(error) => return error_reply(caller.model_error(&error)),
    };
    respond(told(held, events, &head), caller.face)
}

/// What a client of a stream is told.
fn told(
    held: Vec<ChatEvent>,
    events: Events,
    head: &Head,
) -> impl Stream<Item = Result<Event, Infallible>> + Send + use<> {
    let mut encoder = head.encoder();
    stream! {
        let mut events = stream::iter(held).chain(events);
        while let Some(event) = events.next().await {
            for told in encoder.event(&event) {
                yield Ok::<_, Infallible>(told);
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
    }
}

fn respond(told: impl Stream<Item = Result<Event, Infallible>> + Send + 'static, face: Face) -> Response {
    let mut response = Sse::new(told).keep_alive(faces::keep_alive(face)).into_response();
    let headers = response.headers_mut();
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
