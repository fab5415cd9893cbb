//! WebSocket mode of the Responses API: `GET …/responses` upgraded. The same turns as over HTTP, one after another on one
//! connection, which also remembers what is not stored. What a connection does and when it ends is [`talk`]'s.

mod talk;

use std::sync::Arc;

use async_stream::stream;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts as _, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use lf_core::{ChatEvent, Principal, Project};
use lf_dialects::openai_responses::{Create, error_frame};
use tokio::sync::Semaphore;

use super::answer::{Asked, Begun, first};
use super::faces::{View, now};
use super::responses::Keeper;
use super::{Scoped, Shared, Who};
use crate::guard::BODY_LIMIT;
use crate::reply::Caller;
use crate::responses::{Aside, Held};
use talk::{Ends, Frames, Line, talk};

/// Connections at the same time: each may hold a message of [`BODY_LIMIT`].
const CONNECTIONS: usize = 512;

/// What all connections share.
#[derive(Clone)]
pub(crate) struct Sockets {
    room: Arc<Semaphore>,
    held: Held,
}

impl Sockets {
    pub(crate) fn new() -> Self {
        Self { room: Arc::new(Semaphore::new(CONNECTIONS)), held: Held::new() }
    }
}

pub(super) async fn open(
    State(shared): State<Shared>,
    Who(who): Who,
    Scoped(scope): Scoped,
    request: Request,
) -> Response {
    let (mut parts, _) = request.into_parts();
    let caller = Caller::of(&parts);
    let upgrade = match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => upgrade,
        Err(rejection) => return no_upgrade(&caller, &parts, &rejection),
    };
    if shared.stop.is_cancelled() {
        return caller.refuse(StatusCode::SERVICE_UNAVAILABLE, "the daemon is shutting down");
    }
    let Ok(room) = shared.sockets.room.clone().try_acquire_owned() else {
        let what = format!("{CONNECTIONS} WebSocket connections are open, and no more may be");
        return caller.refuse(StatusCode::SERVICE_UNAVAILABLE, &what);
    };
    let held = shared.tasks.token();
    let aside = Arc::new(Aside::new(shared.sockets.held.clone()));
    let ends = Ends { stop: shared.stop.clone() };
    // a connection that was opened with a key ends with it
    let until = shared.app.access.until_revoked(&who);
    let asker = Asker { shared, who, scope, caller, headers: parts.headers, aside };
    upgrade.max_message_size(BODY_LIMIT).max_frame_size(BODY_LIMIT).on_upgrade(async move |socket| {
        tokio::select! {
            () = talk(socket, &ends, |create| asker.turn(create)) => {}
            () = until.cancelled() => {}
        }
        drop((held, room));
    })
}

fn no_upgrade(caller: &Caller, parts: &Parts, rejection: &WebSocketUpgradeRejection) -> Response {
    if parts.headers.contains_key(header::UPGRADE) {
        return caller.refuse(rejection.status(), &rejection.body_text());
    }
    let what =
        format!("`{}` has no method {}: use POST, or open a WebSocket", parts.uri.path(), parts.method);
    caller.refuse(StatusCode::METHOD_NOT_ALLOWED, &what)
}

impl Line for WebSocket {
    async fn hear(&mut self) -> Option<Result<Message, axum::Error>> {
        self.recv().await
    }

    async fn tell(&mut self, message: Message) -> Result<(), axum::Error> {
        self.send(message).await
    }
}

/// Who is at the other end.
struct Asker {
    shared: Shared,
    who: Arc<Principal>,
    scope: Option<Arc<Project>>,
    caller: Caller,
    headers: HeaderMap,
    aside: Arc<Aside>,
}

impl Asker {
    /// The frames that answer a request. Dropping them cancels the turn.
    fn turn(&self, create: Create) -> Frames {
        let app = self.shared.app.clone();
        let keeper = Keeper::new(app, self.who.clone(), self.scope.clone(), self.caller.clone());
        let asked = Asked {
            shared: self.shared.clone(),
            who: self.who.clone(),
            scope: self.scope.clone(),
            keeper: keeper.with(self.aside.clone()),
            caller: self.caller.clone(),
            headers: self.headers.clone(),
        };
        let aside = self.aside.clone();
        Box::pin(stream! {
            // a continuation that fails must not be tried again from the same state
            let forget = || create.previous_response_id.as_deref().map(|id| aside.forget(id));
            let (mut events, mut head) = match asked.begin(&create.body.into()).await {
                Ok(Begun::Turn(events, head)) => (events, head),
                Ok(Begun::Aside(_)) => return,
                Err(error) => {
                    forget();
                    yield error_frame(error);
                    return;
                }
            };
            let held = match first(&mut events, &mut head).await {
                Ok(held) => held,
                Err(error) => {
                    forget();
                    yield error_frame(asked.caller.model_error(&error));
                    return;
                }
            };
            let View::Responses(view) = &head.view else { return };
            let mut encoder = head.response_encoder(view);
            let mut events = stream::iter(held).chain(events);
            while let Some(event) = events.next().await {
                if matches!(event, ChatEvent::Failed(_)) {
                    forget();
                }
                encoder.set_now(now());
                for (_, frame) in encoder.event(&event) {
                    yield frame;
                }
                if matches!(event, ChatEvent::Finished { .. } | ChatEvent::Failed(_)) {
                    return;
                }
            }
        })
    }
}
