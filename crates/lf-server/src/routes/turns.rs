//! Turns of kept conversations, to watch and to stop: whoever lost the stream comes back to it, from any event.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_core::Stream;
use futures_util::StreamExt as _;
use lf_core::ChatEvent;
use lf_store::{TurnRecord, TurnState};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Shared;
use super::conversations::at;
use crate::app::{App, Refusal};
use crate::memory::{Memory, Running, events_of, unkept};
use crate::reply::Caller;
use crate::view;

const ALIVE: Duration = Duration::from_secs(15);

pub(super) async fn get(State(shared): State<Shared>, Path(id): Path<String>, caller: Caller) -> Response {
    match find(&shared, &caller, &id).await {
        Ok(turn) => Json(shown(&turn)).into_response(),
        Err(refused) => refused,
    }
}

#[derive(Deserialize)]
pub(super) struct After {
    after: Option<String>,
}

/// Server-sent events: each has the number of its place in the turn as `id`, the kind as `event`, and what `lf chat
/// --events` prints as `data`. `Last-Event-ID` or `?after=N` leaves out what was seen.
pub(super) async fn events(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Query(after): Query<After>,
    headers: HeaderMap,
    caller: Caller,
) -> Response {
    let last = headers.get("last-event-id").map(|id| id.to_str().unwrap_or("?").to_owned());
    let seen = match after.after.or(last).map(|seen| (seen.trim().parse::<usize>(), seen)) {
        None => 0,
        Some((Ok(seen), _)) => seen,
        Some((Err(_), seen)) => {
            let what = format!(
                "`{seen}` is no number of an event: `Last-Event-ID` and `after` take the `id` of one"
            );
            return caller.refuse(StatusCode::BAD_REQUEST, &what);
        }
    };
    let memory = match shared.app.memory() {
        Ok(memory) => memory.clone(),
        Err(refusal) => return caller.refusal(&refusal),
    };
    if let Some(running) = memory.going(&id).await {
        return watched(&shared, id, memory.watch(running, seen));
    }
    let turn = match find(&shared, &caller, &id).await {
        Ok(turn) => turn,
        Err(refused) => return refused,
    };
    if turn.state == TurnState::Running && memory.store.is_shared() {
        return watched(&shared, id.clone(), memory.follow(id, seen));
    }
    match events_of(&memory, &turn).await {
        Ok(Some(events)) => told(events, seen),
        Ok(None) => {
            let what = format!("the events of turn `{id}` were deleted with a message of its conversation");
            caller.refuse(StatusCode::GONE, &what)
        }
        Err(reason) => {
            let what = format!("turn `{id}` cannot be read: {reason}");
            caller.refuse(StatusCode::INTERNAL_SERVER_ERROR, &what)
        }
    }
}

/// The events of a running turn as a response. One that is left for the next start says so at last, without a number: who
/// comes back then is told what follows.
pub(super) fn watched(
    shared: &Shared,
    turn: String,
    events: impl Stream<Item = (usize, Arc<ChatEvent>)> + Send + 'static,
) -> Response {
    alive(until_left(shared.clone(), turn, events))
}

/// A turn that is about to begin.
pub(super) type Begins = Pin<Box<dyn Future<Output = Result<(Arc<Memory>, Arc<Running>), Refusal>> + Send>>;

/// The same for one that takes its time to begin; why it does not begin is the only event then.
pub(super) fn awaited(shared: &Shared, begins: Begins) -> Response {
    let shared = shared.clone();
    alive(stream! {
        match begins.await {
            Ok((memory, running)) => {
                let turn = running.turn.clone();
                let mut events = pin!(until_left(shared, turn, memory.watch(running, 0)));
                while let Some(event) = events.next().await {
                    yield event;
                }
            }
            Err(refusal) => {
                let view = json!({"event": "failed", "error": refusal.to_string()});
                yield Ok(Event::default().event("failed").data(view.to_string()));
            }
        }
    })
}

fn until_left(
    shared: Shared,
    turn: String,
    events: impl Stream<Item = (usize, Arc<ChatEvent>)> + Send + 'static,
) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    let Shared { app, cut, .. } = shared;
    stream! {
        let mut events = pin!(events.take_until(cut.cancelled()));
        let mut ended = false;
        while let Some((number, event)) = events.next().await {
            ended |= event.is_last();
            yield Ok::<_, Infallible>(sse(number, &event));
        }
        // who has seen all of them is told nothing more
        if !ended && (cut.is_cancelled() || is_left(&app, &turn).await) {
            yield Ok(sse(0, &ChatEvent::Notice(left(cut.is_cancelled()))));
        }
    }
}

fn alive(events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Response {
    respond(Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE)).into_response())
}

/// Whether a turn that does not run here is not over; what cannot be asked is not.
async fn is_left(app: &App, turn: &str) -> bool {
    let Ok(memory) = app.memory() else { return true };
    let found = memory.store.turn(turn).await;
    found.map_or(true, |turn| turn.is_some_and(|turn| turn.state == TurnState::Running))
}

/// Why the events of a turn end before its last one.
pub(super) fn left(going_down: bool) -> String {
    let why = if going_down { "this daemon is shutting down" } else { "something went wrong in this daemon" };
    format!("{why}; the turn goes on when it is back")
}

fn told(events: Vec<ChatEvent>, seen: usize) -> Response {
    let events = stream! {
        for (at, event) in events.iter().enumerate().skip(seen) {
            yield Ok::<_, Infallible>(sse(at + 1, event));
        }
    };
    respond(Sse::new(events).into_response())
}

fn sse(number: usize, event: &ChatEvent) -> Event {
    let view = view::event(event);
    let named = Event::default().event(view["event"].as_str().unwrap_or("event")).data(view.to_string());
    if number == 0 { named } else { named.id(number.to_string()) }
}

pub(super) fn respond(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Stops a turn; one that is over stays as it is. Answers how it then stands.
pub(super) async fn cancel(State(shared): State<Shared>, Path(id): Path<String>, caller: Caller) -> Response {
    let memory = match shared.app.memory() {
        Ok(memory) => memory.clone(),
        Err(refusal) => return caller.refusal(&refusal),
    };
    if let Err(error) = memory.stop(&id).await {
        return caller.refusal(&unkept(&error));
    }
    get(State(shared), Path(id), caller).await
}

async fn find(shared: &Shared, caller: &Caller, id: &str) -> Result<TurnRecord, Response> {
    let memory = shared.app.memory().map_err(|refusal| caller.refusal(&refusal))?;
    match memory.store.turn(id).await {
        Ok(Some(turn)) => Ok(turn),
        Ok(None) => Err(caller.refuse(StatusCode::NOT_FOUND, &format!("there is no turn `{id}`"))),
        Err(error) => Err(caller.refusal(&unkept(&error))),
    }
}

fn shown(turn: &TurnRecord) -> Value {
    json!({
        "id": turn.id,
        "conversation_id": turn.conversation,
        "status": turn.state.name(),
        "running": turn.state == TurnState::Running,
        "created_at": at(turn.created),
        "updated_at": at(turn.updated),
    })
}
