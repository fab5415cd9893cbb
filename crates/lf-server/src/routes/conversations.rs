//! `/conversations`: conversations that are kept, as the clients of the MCP Open Client know them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::{FromRequest, Path, Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use lf_core::message::Prose;
use lf_core::model::ChatRequest;
use lf_core::{ChatEvent, Message, Principal};
use lf_store::{Change, Conversation, Kept, Kind, Page};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::answer::STATUS_WAIT;
use super::messages::message;
use super::sessions::forget;
use super::{Shared, Who, turns};
use crate::app::Refusal;
use crate::approvals::Attendance;
use crate::guard::json_body;
use crate::memory::{Running, Saying, unkept};
use crate::reply::Caller;

/// Conversations of one answer, where nobody asks for another number; more than [`MOST`] are not given at once.
const SHOWN: u32 = 50;
const MOST: u32 = 500;

/// The header that names the turn of an answer: the answer itself has the documented fields and no others.
const TURN: &str = "x-turn-id";

/// The time as ISO 8601 in UTC.
pub(super) fn at(milliseconds: i64) -> String {
    let since = Duration::from_millis(milliseconds.try_into().unwrap_or(0));
    crate::timestamp::timestamp(UNIX_EPOCH + since)
}

pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(i64::MAX)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct New {
    #[serde(alias = "name")]
    title: Option<String>,
    #[serde(alias = "system")]
    system_prompt: Option<String>,
    model: Option<String>,
    /// `namespace/project`; without it the project that the daemon was started in.
    project: Option<String>,
}

pub(super) async fn create(
    State(shared): State<Shared>,
    Who(who): Who,
    caller: Caller,
    Object(new): Object<New>,
) -> Response {
    let created = async {
        let scope = scope(&shared, &who, new.project.as_deref()).await?;
        if let Some(model) = &new.model {
            let project = shared.app.project_of(&who, &scope).await?;
            shared.app.find_model(&who, Some(&project), Some(model)).await?;
        }
        let at = now();
        let conversation = Conversation {
            id: format!("conv-{}", uuid::Uuid::now_v7().simple()),
            scope,
            kind: Kind::Conversation,
            owner: who.id.clone(),
            title: new.title,
            system: new.system_prompt,
            model: new.model,
            created: at,
            updated: at,
        };
        let memory = shared.app.memory()?;
        memory.store.create(&conversation).await.map_err(|error| unkept(&error))?;
        Ok::<_, Refusal>(conversation)
    };
    caller.answer(created.await, |conversation| {
        let body = json!({
            "success": true,
            "conversation": shown(&conversation),
            "message": "Conversation created successfully",
        });
        (StatusCode::CREATED, Json(body))
    })
}

#[derive(Deserialize)]
pub(super) struct Which {
    project: Option<String>,
    #[serde(alias = "q")]
    search: Option<String>,
    limit: Option<u32>,
    offset: Option<u32>,
}

pub(super) async fn list(
    State(shared): State<Shared>,
    Who(who): Who,
    Query(which): Query<Which>,
    caller: Caller,
) -> Response {
    let listed = async {
        let scope = scope(&shared, &who, which.project.as_deref()).await?;
        let store = &shared.app.memory()?.store;
        let page = Page { offset: which.offset.unwrap_or(0), limit: which.limit.unwrap_or(SHOWN).min(MOST) };
        let found = match &which.search {
            // no word has it, and neither SQLite nor Postgres takes it
            Some(words) => store.search(&scope, &words.replace('\0', " "), owner(&who), page).await,
            None => store.conversations(&scope, Kind::Conversation, owner(&who), page).await,
        };
        found.map_err(|error| unkept(&error))
    };
    caller.answer(listed.await, |found| {
        let found: Vec<Value> = found.iter().map(shown).collect();
        Json(json!({"success": true, "count": found.len(), "conversations": found}))
    })
}

pub(super) async fn get(
    State(shared): State<Shared>,
    Who(who): Who,
    Path(id): Path<String>,
    caller: Caller,
) -> Response {
    let found = async {
        let conversation = find(&shared, &who, &id).await?;
        let running = shared.app.memory()?.store.running_in(&id).await;
        Ok::<_, Refusal>((conversation, running.map_err(|error| unkept(&error))?))
    };
    caller.answer(found.await, |(conversation, running)| {
        let mut view = shown(&conversation);
        view["running_turns"] = json!(running);
        Json(json!({"success": true, "conversation": view}))
    })
}

/// A field that is null is taken away; one that is not there stays.
pub(super) async fn change(
    State(shared): State<Shared>,
    Who(who): Who,
    Path(id): Path<String>,
    caller: Caller,
    Object(changes): Object<Map<String, Value>>,
) -> Response {
    let changed = async {
        let conversation = find(&shared, &who, &id).await?;
        let mut change = Change::default();
        for (key, value) in changes {
            let text = match value {
                Value::String(text) => Some(text),
                Value::Null => None,
                _ => return Err(bad(&key, format!("`{key}` must be a text or null"))),
            };
            match key.as_str() {
                "title" | "name" => change.title = Some(text),
                "system_prompt" | "system" => change.system = Some(text),
                "model" => change.model = Some(text),
                _ => {
                    let what = format!("`{key}` cannot be changed; title, system_prompt and model can");
                    return Err(bad(&key, what));
                }
            }
        }
        if let Some(Some(model)) = &change.model {
            let project = shared.app.project_of(&who, &conversation.scope).await?;
            shared.app.find_model(&who, Some(&project), Some(model)).await?;
        }
        let store = &shared.app.memory()?.store;
        store.change(&id, change).await.map_err(|error| unkept(&error))?;
        find(&shared, &who, &id).await
    };
    caller.answer(changed.await, |conversation| {
        Json(json!({"success": true, "conversation": shown(&conversation)}))
    })
}

/// Forgets a conversation; what runs in it is stopped.
pub(super) async fn delete(
    State(shared): State<Shared>,
    Who(who): Who,
    Path(id): Path<String>,
    caller: Caller,
) -> Response {
    let deleted = async {
        find(&shared, &who, &id).await?;
        match forget(shared.app.memory()?, &id).await? {
            true => Ok(()),
            false => Err(Refusal::UnknownConversation(id.clone())),
        }
    };
    caller.answer(deleted.await, |()| {
        Json(json!({"success": true, "message": "Conversation deleted successfully"}))
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Said {
    content: String,
    #[serde(default)]
    stream: bool,
    model: Option<String>,
}

/// Says something and waits for the answer; with `stream`, gives the turn's events as they come. The turn goes on
/// without its client.
pub(super) async fn chat(
    State(shared): State<Shared>,
    Who(who): Who,
    Path(id): Path<String>,
    caller: Caller,
    Object(said): Object<Said>,
) -> Response {
    if said.content.trim().is_empty() {
        let refusal = bad("content", "`content` is empty: say something".to_owned());
        return caller.refusal(&refusal);
    }
    let here = shared.clone();
    let mut begun: turns::Begins = Box::pin(async move {
        let shared = here;
        let conversation = find(&shared, &who, &id).await?;
        let project = shared.app.project_of(&who, &conversation.scope).await?;
        let words = Message::User(Prose { content: said.content.into(), ..Prose::default() });
        let request =
            ChatRequest { model: said.model, messages: vec![words], stream: true, ..ChatRequest::default() };
        let attendance = Attendance::Watched;
        let saying = Saying { who, request, chosen_tools: true, calls_left: None, attendance, recall: None };
        let running = shared.app.converse(Some(&project), &conversation, saying).await?;
        Ok((shared.app.memory()?.clone(), running))
    });
    let begun = match tokio::time::timeout(STATUS_WAIT, &mut begun).await {
        Ok(begun) => begun,
        Err(_) if said.stream => return turns::awaited(&shared, begun),
        Err(_) => begun.await,
    };
    let (memory, running) = match begun {
        Ok(begun) => begun,
        Err(refusal) => return caller.refusal(&refusal),
    };
    if said.stream {
        return turns::watched(&shared, running.turn.clone(), memory.watch(running, 0));
    }
    let (mut failed, mut ended) = (None, false);
    let mut events = Box::pin(memory.watch(running.clone(), 0));
    while let Some((_, event)) = events.next().await {
        ended |= event.is_last();
        if let ChatEvent::Failed(error) = &*event {
            failed = Some(error.clone());
        }
    }
    if let Some(error) = failed {
        return caller.refusal(&Refusal::Model(error));
    }
    if !ended {
        let what = turns::left(shared.cut.is_cancelled());
        return caller.refuse(StatusCode::SERVICE_UNAVAILABLE, &what);
    }
    let (user, answer) = match said_in(&shared, &running).await {
        Ok(said) => said,
        Err(refusal) => return caller.refusal(&refusal),
    };
    let body = json!({
        "success": true,
        "user_message": user.as_ref().map(message),
        "assistant_message": answer.as_ref().map(message),
        "message": "Chat completed successfully",
    });
    ([(TURN, running.turn.clone())], Json(body)).into_response()
}

/// What the user said last, and the answer to it. A message that was kept with an earlier turn, which failed, is of that one.
async fn said_in(shared: &Shared, running: &Running) -> Result<(Option<Kept>, Option<Kept>), Refusal> {
    let store = &shared.app.memory()?.store;
    let mut kept = store.messages_of(&running.turn).await.map_err(|error| unkept(&error))?;
    if !kept.iter().any(|kept| matches!(kept.message, Message::User(_))) {
        kept = store.messages(&running.conversation, 0).await.map_err(|error| unkept(&error))?;
    }
    let of_turn = |kept: &Kept| kept.turn.as_deref() == Some(&running.turn);
    let answer = kept.iter().rposition(|kept| of_turn(kept) && matches!(kept.message, Message::Assistant(_)));
    let before = &kept[..answer.unwrap_or(kept.len())];
    let user = before.iter().rfind(|kept| matches!(kept.message, Message::User(_))).cloned();
    Ok((user, answer.map(|at| kept[at].clone())))
}

/// One that is not theirs who ask is not there.
pub(super) async fn find(shared: &Shared, who: &Principal, id: &str) -> Result<Conversation, Refusal> {
    let found = shared.app.memory()?.store.conversation(id).await.map_err(|error| unkept(&error))?;
    let found = found.filter(|found| found.kind == Kind::Conversation && is_for(who, found));
    found.ok_or_else(|| Refusal::UnknownConversation(id.to_owned()))
}

/// Whether a conversation is theirs who ask, and of a project that they reach.
pub(super) fn is_for(who: &Principal, conversation: &Conversation) -> bool {
    let (namespace, project) = conversation.scope.split_once('/').unwrap_or((&conversation.scope, ""));
    who.sees(&conversation.owner) && who.reaches_project(namespace, project)
}

/// Whose conversations are listed: their own, or everybody's for an administrator.
pub(super) fn owner(who: &Principal) -> Option<&str> {
    (!who.has(lf_core::Scope::Admin)).then_some(who.id.as_str())
}

/// `namespace/project` of a project that exists.
async fn scope(shared: &Shared, who: &Principal, named: Option<&str>) -> Result<String, Refusal> {
    let project = match named.map(|named| (named.split_once('/'), named)) {
        None => shared.app.main_for(who).ok_or_else(|| {
            bad("project", "the daemon was started in no project: name one as `project`".to_owned())
        })?,
        Some((Some((namespace, name)), _)) => shared.app.find_project(who, namespace, name).await?,
        Some((None, named)) => {
            return Err(bad("project", format!("`project` is `{named}`; it must be `namespace/project`")));
        }
    };
    Ok(format!("{}/{}", project.namespace, project.name))
}

pub(super) fn bad(param: &str, message: String) -> Refusal {
    Refusal::BadRequest { message, param: Some(param.to_owned()) }
}

/// The body of a request: a JSON object of this form.
pub(super) struct Object<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Shared> for Object<T> {
    type Rejection = Response;

    async fn from_request(request: Request, _: &Shared) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let body = json_body(&parts, body).await?;
        // serde would take an array for the fields in their order
        let object = serde_json::from_slice::<Map<String, Value>>(&body);
        let read = object.and_then(|object| serde_json::from_value(Value::Object(object)));
        read.map(Self).map_err(|error| {
            let what = format!("the body cannot be read: {error}");
            Caller::of(&parts).refuse(StatusCode::BAD_REQUEST, &what)
        })
    }
}

fn shown(conversation: &Conversation) -> Value {
    json!({
        "id": conversation.id,
        "title": conversation.title,
        "system_prompt": conversation.system,
        "model": conversation.model,
        "project": conversation.scope,
        "created_at": at(conversation.created),
        "updated_at": at(conversation.updated),
    })
}
