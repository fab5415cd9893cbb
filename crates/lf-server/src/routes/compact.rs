//! `POST …/responses/compact`: a conversation made short by the model it is for.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use lf_dialects::openai_chat::ErrorReply;
use lf_dialects::openai_responses::{Compaction, decode_compact_request_with};
use serde_json::Value;

use super::answer::Asked;
use super::faces::now;
use super::responses::Keeper;
use super::{Scoped, Shared, Who};
use crate::chat::Conversation;
use crate::guard::json_body;
use crate::reply::{Caller, error_reply};

pub(super) async fn ask(
    State(shared): State<Shared>,
    Who(who): Who,
    Scoped(scope): Scoped,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let body = match json_body(&parts, body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let caller = Caller::of(&parts);
    let keeper = Keeper::new(shared.app.clone(), who.clone(), scope.clone(), caller.clone());
    let asked = Asked { shared, who, scope, keeper, caller, headers: parts.headers };
    match compacted(&asked, &body).await {
        Ok(body) => Json(body).into_response(),
        Err(error) => error_reply(error),
    }
}

/// An ordinary turn, but for its question: the model may fail over, and its time is limited. Dropped with the client.
async fn compacted(asked: &Asked, body: &Bytes) -> Result<Value, ErrorReply> {
    let items = asked.keeper.items(body).await?;
    let item = |id: &str| items.get(id).cloned();
    let (request, view) =
        decode_compact_request_with(body, &item).map_err(|error| asked.caller.unreadable(&error))?;
    let (before, _) = asked.keeper.earlier(&view).await?;
    let (question, mut compaction) = Compaction::plan(request, &view, &before);
    // the tools are part of the model's prompt all the same; a call of one would change the world for a summary
    let alone = Conversation { calls_left: Some(0), ..Conversation::default() };
    let (mut events, turn, _) = asked.events(question, alone).await?;
    while let Some(event) = events.next().await {
        compaction.push(&event);
    }
    compaction.finish(&format!("resp_{turn}"), now())
}
