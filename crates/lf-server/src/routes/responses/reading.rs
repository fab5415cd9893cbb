//! The routes to come back to a response: read it, hear its events again, stop it, delete it, list its input.

use std::convert::Infallible;

use async_stream::stream;
use axum::Json;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use lf_core::ChatEvent;
use lf_store::{Response as Stored, TurnState};
use serde_json::{Value, json};

use super::beginning::numbered;
use crate::app::{App, Refusal};
use crate::memory::{events_of, unkept};
use crate::reply::{Caller, Face};
use crate::responses::cancelled;
use crate::routes::Shared;
use crate::routes::answer::Events;
use crate::routes::faces::{Head, Shown, View, keep_alive};
use crate::routes::turns::respond;

/// `…/responses/{id}`, or the same within a project.
#[derive(serde::Deserialize)]
pub(in super::super) struct At {
    namespace: Option<String>,
    project: Option<String>,
    id: String,
}

impl At {
    fn scope(&self) -> String {
        let both = self.namespace.as_ref().zip(self.project.as_ref());
        both.map(|(namespace, project)| format!("{namespace}/{project}")).unwrap_or_default()
    }

    async fn find(&self, app: &App, caller: &Caller) -> Result<Stored, Response> {
        let found = async {
            let store = &app.memory()?.store;
            store.response(&self.scope(), &self.id).await.map_err(|error| unkept(&error))
        };
        match found.await {
            Ok(Some(stored)) => Ok(stored),
            Ok(None) => {
                let what =
                    format!("there is no response `{}`; it may be deleted, too old, or not stored", self.id);
                Err(caller.refuse(StatusCode::NOT_FOUND, &what))
            }
            Err(refusal) => Err(caller.refusal(&refusal)),
        }
    }
}

/// The response that the path names. A request for one that is not there is refused.
pub(in super::super) struct Found(Stored);

impl FromRequestParts<Shared> for Found {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Response> {
        let caller = Caller::of(parts);
        let at = Path::<At>::from_request_parts(parts, shared).await;
        let Path(at) = at.map_err(|rejection| caller.refuse(rejection.status(), &rejection.body_text()))?;
        at.find(&shared.app, &caller).await.map(Self)
    }
}

#[derive(serde::Deserialize)]
pub(in super::super) struct How {
    #[serde(default)]
    stream: bool,
    /// Only the events behind this number.
    starting_after: Option<u64>,
}

pub(in super::super) async fn get(
    State(shared): State<Shared>,
    caller: Caller,
    Found(stored): Found,
    Query(how): Query<How>,
) -> Response {
    if how.stream {
        return again(&shared, &caller, stored, how.starting_after).await;
    }
    if how.starting_after.is_some() {
        let what = "`starting_after` is for a stream: add `stream=true`";
        return caller.refuse(StatusCode::BAD_REQUEST, what);
    }
    Json(body(&shared.app, &stored).await).into_response()
}

/// The response object as the response now stands.
pub(in super::super) async fn body(app: &App, stored: &Stored) -> Value {
    let is_open = is_open(&stored.body);
    let Some(head) = head_of(stored) else {
        // its turn went with its client, or with a daemon that ended
        let is_gone = is_open && !app.making.has(&stored.id) && !made_elsewhere(app, stored).await;
        return if is_gone { cancelled(stored.body.clone()) } else { stored.body.clone() };
    };
    let Ok(memory) = app.memory() else { return stored.body.clone() };
    let View::Responses(view) = &head.view else { return stored.body.clone() };
    let mut completion = head.response(view);
    if let Some(running) = memory.running(&stored.turn) {
        for event in running.told() {
            completion.push(&event);
        }
        return completion.response();
    }
    let Ok(Some(turn)) = memory.store.turn(&stored.turn).await else {
        // it is about to begin, or never will
        let begins = made_elsewhere(app, stored).await;
        return if begins { stored.body.clone() } else { cancelled(stored.body.clone()) };
    };
    completion.set_now(u64::try_from(turn.updated / 1000).unwrap_or_default());
    match events_of(memory, &turn).await {
        Ok(events) => events.iter().flatten().for_each(|event| completion.push(event)),
        Err(reason) => {
            tracing::warn!(response = stored.id, reason, "a response cannot be read from its turn");
        }
    }
    let body = completion.response();
    if turn.state == TurnState::Cancelled { cancelled(body) } else { body }
}

fn is_open(body: &Value) -> bool {
    matches!(body["status"].as_str(), Some("queued" | "in_progress"))
}

/// Whether another daemon may be making an open response; what cannot be asked may be so.
async fn made_elsewhere(app: &App, stored: &Stored) -> bool {
    let Ok(memory) = app.memory() else { return false };
    memory.store.is_made_elsewhere(&stored.id).await.unwrap_or_else(|error| {
        tracing::warn!(response = stored.id, %error, "cannot ask who makes a response");
        true
    })
}

fn head_of(stored: &Stored) -> Option<Head> {
    let shown: Shown = serde_json::from_value(stored.head.clone()?).ok()?;
    Some(shown.head(&stored.id))
}

/// The events once more, and those to come.
async fn again(shared: &Shared, caller: &Caller, stored: Stored, after: Option<u64>) -> Response {
    let Some(head) = head_of(&stored) else {
        let what = "only a response in the background or of a conversation keeps its events: read it without `stream`";
        return caller.refuse(StatusCode::BAD_REQUEST, what);
    };
    let memory = match shared.app.memory() {
        Ok(memory) => memory,
        Err(refusal) => return caller.refusal(&refusal),
    };
    let present = match memory.present(&stored.turn).await {
        Ok(present) => present,
        Err(error) => return caller.refusal(&unkept(&error)),
    };
    let events: Events = match present {
        Some(events) => Box::pin(numbered(events).take_until(shared.cut.clone().cancelled_owned())),
        None => match told(&shared.app, &stored).await {
            Ok(events) => Box::pin(futures_util::stream::iter(events)),
            Err(reason) => {
                let what = format!("response `{}` cannot be read: {reason}", stored.id);
                return caller.refuse(StatusCode::INTERNAL_SERVER_ERROR, &what);
            }
        },
    };
    replayed(&head, events, after)
}

async fn told(app: &App, stored: &Stored) -> Result<Vec<ChatEvent>, String> {
    let memory = app.memory().map_err(|refusal| refusal.to_string())?;
    let turn = memory.store.turn(&stored.turn).await.map_err(|error| error.to_string())?;
    let events = events_of(memory, &turn.ok_or("its turn was never begun")?).await?;
    events.ok_or_else(|| "its events were deleted".to_owned())
}

fn replayed(head: &Head, mut events: Events, after: Option<u64>) -> Response {
    let keep_alive = keep_alive(Face::Responses);
    let View::Responses(view) = &head.view else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let mut encoder = head.response_encoder(view);
    let told = stream! {
        let mut number = 0;
        while let Some(event) = events.next().await {
            encoder.set_now(crate::routes::faces::now());
            for (name, data) in encoder.event(&event) {
                // they are numbered from 0 without gaps
                if after.is_none_or(|after| number > after) {
                    yield Ok::<_, Infallible>(Event::default().event(name).data(data));
                }
                number += 1;
            }
        }
    };
    respond(Sse::new(told).keep_alive(keep_alive).into_response())
}

pub(in super::super) async fn delete(
    State(shared): State<Shared>,
    caller: Caller,
    Found(stored): Found,
) -> Response {
    match remove(&shared.app, &stored).await {
        Ok(()) => Json(json!({"id": stored.id, "object": "response", "deleted": true})).into_response(),
        Err(refusal) => caller.refusal(&refusal),
    }
}

/// Forgets a response; one that runs is stopped, unless it is a turn of a kept conversation.
pub(super) async fn remove(app: &App, stored: &Stored) -> Result<(), Refusal> {
    let memory = app.memory()?;
    let own = memory.store.conversation(&stored.conversation).await.map_err(|error| unkept(&error))?;
    let is_kept = own.is_some_and(|own| own.kind == lf_store::Kind::Conversation);
    if !is_kept {
        stop(app, stored).await?;
    }
    // in a chain of responses turns hold this only while they begin; a kept conversation loses nothing that a turn needs
    let guard = if is_kept { None } else { Some(memory.turn_to_speak(&stored.conversation).await?) };
    let deleted = memory.store.delete_response(&stored.scope, &stored.id).await;
    drop(guard);
    deleted.map(drop).map_err(|error| unkept(&error))
}

pub(in super::super) async fn cancel(
    State(shared): State<Shared>,
    caller: Caller,
    Found(stored): Found,
) -> Response {
    let is_stopped = match stop(&shared.app, &stored).await {
        Ok(is_stopped) => is_stopped,
        Err(refusal) => return caller.refusal(&refusal),
    };
    let body = body(&shared.app, &stored).await;
    let status = body["status"].as_str().unwrap_or_default();
    if !is_stopped && status != "cancelled" {
        let what = format!("the response `{}` is `{status}` already: there is nothing to cancel", stored.id);
        return caller.refuse(StatusCode::BAD_REQUEST, &what);
    }
    Json(body).into_response()
}

/// False where nothing of the response runs, in no daemon.
async fn stop(app: &App, stored: &Stored) -> Result<bool, Refusal> {
    let memory = app.memory()?;
    let unkept = |error| unkept(&error);
    if app.making.stop(&stored.id) || memory.stop(&stored.turn).await.map_err(unkept)? {
        return Ok(true);
    }
    match stored.head.is_none() && is_open(&stored.body) {
        true => memory.stop_response(&stored.id).await.map_err(unkept),
        false => Ok(false),
    }
}

pub(in super::super) async fn inputs(Found(stored): Found) -> Response {
    let items: &[Value] = stored.input.as_array().map_or(&[], Vec::as_slice);
    let edge = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    let list = json!({
        "object": "list",
        "data": items,
        "first_id": edge(items.first()),
        "last_id": edge(items.last()),
        "has_more": false,
    });
    Json(list).into_response()
}
