//! The messages of a kept conversation, in the document's form: OpenAI's, with an id and a time.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use lf_core::{Content, Message};
use lf_dialects::openai_chat::decode_request;
use lf_store::{Kept, Store, StoreError};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::conversations::{Object, bad, find};
use super::{Shared, Who};
use crate::app::Refusal;
use crate::memory::{TRIES, busy, named, pending, unkept};
use crate::reply::Caller;

/// The fields that a message may be given with.
const FIELDS: [&str; 5] = ["role", "content", "tool_calls", "tool_call_id", "name"];

/// Messages of one answer, and the bytes that are kept of them: the one that goes beyond is the last. With that one an answer
/// still has less than the 16 MiB that `lf` takes of one.
const MOST: u32 = 1000;
const MOST_BYTES: i64 = 4 * 1024 * 1024;

/// Which part of the messages is wanted.
#[derive(Deserialize)]
pub(super) struct Part {
    /// How many at most.
    limit: Option<u32>,
    /// Behind this place, as an answer names it.
    after: Option<i64>,
}

impl Part {
    /// `messages`, and `next_after` where there are more.
    pub(super) async fn of(&self, store: &Store, conversation: &str) -> Result<Map<String, Value>, Refusal> {
        let limit = self.limit.unwrap_or(MOST).clamp(1, MOST);
        let read = store.messages_within(conversation, self.after.unwrap_or(0), (limit, MOST_BYTES));
        let (kept, has_more) = read.await.map_err(|error| unkept(&error))?;
        let messages: Vec<Value> = kept.iter().map(message).collect();
        let mut part = Map::from_iter([("messages".to_owned(), messages.into())]);
        if let Some(last) = kept.last().filter(|_| has_more) {
            part.insert("next_after".to_owned(), last.seq.into());
        }
        Ok(part)
    }
}

pub(super) async fn list(
    State(shared): State<Shared>,
    Who(who): Who,
    Path(id): Path<String>,
    Query(part): Query<Part>,
    caller: Caller,
) -> Response {
    let read = async {
        find(&shared, &who, &id).await?;
        part.of(&shared.app.memory()?.store, &id).await
    };
    caller.answer(read.await, |mut part| {
        let count = part["messages"].as_array().map_or(0, Vec::len);
        part.insert("success".to_owned(), true.into());
        part.insert("count".to_owned(), count.into());
        Json(part)
    })
}

pub(super) async fn get(
    State(shared): State<Shared>,
    Who(who): Who,
    Path((id, name)): Path<(String, String)>,
    caller: Caller,
) -> Response {
    let read = async {
        find(&shared, &who, &id).await?;
        let store = &shared.app.memory()?.store;
        store.message(&id, &name).await.map_err(|error| unkept(&error))
    };
    match read.await {
        Ok(Some(kept)) => Json(json!({"success": true, "message": message(&kept)})).into_response(),
        Ok(None) => none(&caller, &id, &name),
        Err(refusal) => caller.refusal(&refusal),
    }
}

/// Adds a message without asking the model. While a turn runs, it waits for its end.
pub(super) async fn append(
    State(shared): State<Shared>,
    Who(who): Who,
    Path(id): Path<String>,
    caller: Caller,
    Object(fields): Object<Map<String, Value>>,
) -> Response {
    let appended = async {
        let said = said(&fields)?;
        let conversation = find(&shared, &who, &id).await?;
        let memory = shared.app.memory()?;
        let longest = shared.app.wait_in(&who, memory, &conversation).await;
        let named = named(vec![said.clone()]);
        for _ in 0..TRIES {
            let _guard = memory.next_to_speak(&id, longest).await?;
            let before = memory.store.messages(&id, 0).await.map_err(|error| unkept(&error))?;
            fits(&said, &before)?;
            let after = before.last().map_or(0, |last| last.seq);
            match memory.store.append(&id, after, &named).await {
                Ok(()) => {}
                Err(StoreError::Overtaken { .. }) => continue,
                Err(error) => return Err(unkept(&error)),
            }
            let name = named.first().map(|(name, _)| name.clone()).unwrap_or_default();
            return memory.store.message(&id, &name).await.map_err(|error| unkept(&error));
        }
        Err(busy(&id, "is spoken in at other daemons again and again"))
    };
    match appended.await {
        Ok(kept) => {
            let body = json!({"success": true, "message": kept.as_ref().map(message)});
            (StatusCode::CREATED, Json(body)).into_response()
        }
        Err(refusal) => caller.refusal(&refusal),
    }
}

/// The message that these fields are.
fn said(fields: &Map<String, Value>) -> Result<Message, Refusal> {
    if let Some(unknown) = fields.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        let what = format!("`{unknown}` is no field of a message; {} are", FIELDS.join(", "));
        return Err(bad(unknown, what));
    }
    let body = json!({"messages": [fields]}).to_string();
    let (request, _) = decode_request(body.as_bytes()).map_err(|error| {
        // of the one message that there is
        let own = |text: &str| text.replace("messages[0].", "");
        let hint = error.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
        bad(&own(error.param.as_deref().unwrap_or("content")), format!("{}{hint}", own(&error.message)))
    })?;
    let said = request.messages.into_iter().next();
    said.ok_or_else(|| bad("content", "`content` is missing: say something".to_owned()))
}

/// Whether a message can stand at the end of these.
fn fits(said: &Message, before: &[Kept]) -> Result<(), Refusal> {
    let is_empty =
        |content: &Content| content.text().trim().is_empty() && matches!(content, Content::Text(_));
    match said {
        Message::System(prose) | Message::User(prose) if is_empty(&prose.content) => {
            Err(bad("content", "`content` is empty: say something".to_owned()))
        }
        Message::Assistant(said) if is_empty(&said.content) && said.calls.is_empty() => {
            Err(bad("content", "`content` is empty, and there are no `tool_calls`".to_owned()))
        }
        Message::Tool(result) if !pending(before).contains(&result.call_id.as_str()) => {
            let id = &result.call_id;
            let what = format!("`{id}` is no open call: a result follows the message with its call, once");
            Err(bad("tool_call_id", what))
        }
        _ => Ok(()),
    }
}

pub(super) async fn delete(
    State(shared): State<Shared>,
    Who(who): Who,
    Path((id, name)): Path<(String, String)>,
    caller: Caller,
) -> Response {
    let guard = match shared.app.memory() {
        Ok(memory) => memory.quiet(&id),
        Err(refusal) => return caller.refusal(&refusal),
    };
    let deleted = async {
        find(&shared, &who, &id).await?;
        if guard.is_none() {
            return Ok(None);
        }
        let store = &shared.app.memory()?.store;
        match store.delete_message(&id, &name).await {
            Ok(deleted) => Ok(Some(deleted)),
            // a turn of another daemon runs
            Err(StoreError::Overtaken { .. }) => Ok(None),
            Err(error) => Err(unkept(&error)),
        }
    };
    match deleted.await {
        Ok(Some(true)) => {
            Json(json!({"success": true, "message": "Message deleted successfully"})).into_response()
        }
        Ok(Some(false)) => none(&caller, &id, &name),
        Ok(None) => {
            let what =
                "a turn of this conversation is running with its messages: wait for its end, or cancel it";
            caller.refuse(StatusCode::CONFLICT, what)
        }
        Err(refusal) => caller.refusal(&refusal),
    }
}

fn none(caller: &Caller, id: &str, name: &str) -> Response {
    caller.refuse(StatusCode::NOT_FOUND, &format!("conversation `{id}` has no message `{name}`"))
}

/// One message in the document's form.
pub(super) fn message(kept: &Kept) -> Value {
    let (role, content) = match &kept.message {
        Message::System(said) => ("system", &said.content),
        Message::User(said) => ("user", &said.content),
        Message::Assistant(said) => ("assistant", &said.content),
        Message::Tool(result) => ("tool", &result.content),
    };
    let text = content.text();
    let at = super::conversations::at(kept.created);
    let mut view = json!({"id": kept.id, "role": role, "content": text, "timestamp": at});
    match &kept.message {
        Message::Assistant(said) if !said.calls.is_empty() => {
            if text.is_empty() {
                view["content"] = Value::Null;
            }
            let calls = said.calls.iter().map(|call| {
                let function = json!({"name": call.name, "arguments": call.arguments.raw()});
                json!({"id": call.id, "type": "function", "function": function})
            });
            view["tool_calls"] = calls.collect();
        }
        Message::Tool(result) => {
            view["tool_call_id"] = json!(result.call_id);
            view["name"] = json!(result.name);
        }
        _ => {}
    }
    view
}
