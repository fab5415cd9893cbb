//! Sessions: conversations of a project that a client names itself, with `X-Session-ID`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use lf_core::model::ChatRequest;
use lf_core::{Principal, Project};
use lf_store::{Conversation, Kind, Page};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::conversations::{now, owner};
use super::messages::Part;
use super::{Shared, Who};
use crate::app::{App, Refusal};
use crate::approvals::Attendance;
use crate::memory::{Memory, Running, Saying, unkept};
use crate::reply::{Caller, Face};

const HEADER: &str = "x-session-id";
/// Longest name of a session, in bytes.
const LONGEST: usize = 256;
/// Sessions that are deleted at once.
const AT_ONCE: u32 = 500;

/// The session that a request belongs to. `X-No-Session` wins over it; the Responses API has ways of its own.
///
/// # Errors
/// When the name is none.
pub(super) fn named(headers: &HeaderMap, face: Face) -> Result<Option<String>, Refusal> {
    if headers.contains_key("x-no-session") || !matches!(face, Face::Chat | Face::Messages) {
        return Ok(None);
    }
    let Some(value) = headers.get(HEADER) else { return Ok(None) };
    match value.to_str().map(str::trim) {
        Ok("") => Ok(None),
        Ok(name) if name.len() <= LONGEST => Ok(Some(name.to_owned())),
        _ => Err(Refusal::BadRequest {
            message: format!("`X-Session-ID` must be printable ASCII of at most {LONGEST} bytes"),
            param: Some("X-Session-ID".to_owned()),
        }),
    }
}

/// Tells the client which session answered.
pub(super) fn echo(request: &HeaderMap, response: &mut HeaderMap) {
    if let Some(session) = request.get(HEADER).filter(|_| !request.contains_key("x-no-session")) {
        response.insert(HEADER, session.clone());
    }
}

/// Goes on with a session, which begins when it is first named.
pub(super) async fn converse(
    app: &Arc<App>,
    who: &Arc<Principal>,
    scope: Option<&Arc<Project>>,
    session: &str,
    request: ChatRequest,
) -> Result<Arc<Running>, Refusal> {
    let (project, _) = app.find_model(who, scope, request.model.as_deref()).await?;
    let memory = app.memory()?;
    let at = now();
    let conversation = Conversation {
        id: id(who, &project.namespace, &project.name, session),
        scope: format!("{}/{}", project.namespace, project.name),
        kind: Kind::Session,
        owner: who.id.clone(),
        title: Some(session.to_owned()),
        system: None,
        model: None,
        created: at,
        updated: at,
    };
    memory.store.create(&conversation).await.map_err(|error| unkept(&error))?;
    let attendance = Attendance::Told;
    let who = who.clone();
    let saying = Saying { who, request, chosen_tools: false, calls_left: None, attendance, recall: None };
    app.converse(scope, &conversation, saying).await
}

/// A session is of one project and of whoever named it: the same name of another one is another conversation.
fn id(who: &Principal, namespace: &str, project: &str, session: &str) -> String {
    let mut named = format!("{namespace}/{project}\0{session}");
    if !who.id.is_empty() {
        named.push_str(&format!("\0{}", who.id));
    }
    let digest = Sha256::digest(named.as_bytes());
    let digits: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("sess-{digits}")
}

pub(super) async fn history(
    State(shared): State<Shared>,
    Who(who): Who,
    Path((namespace, project, session)): Path<(String, String, String)>,
    Query(part): Query<Part>,
    caller: Caller,
) -> Response {
    let read = async {
        shared.app.find_project(&who, &namespace, &project).await?;
        part.of(&shared.app.memory()?.store, &id(&who, &namespace, &project, &session)).await
    };
    caller.answer(read.await, Json)
}

pub(super) async fn delete(
    State(shared): State<Shared>,
    Who(who): Who,
    Path((namespace, project, session)): Path<(String, String, String)>,
    caller: Caller,
) -> Response {
    let deleted = async {
        shared.app.find_project(&who, &namespace, &project).await?;
        forget(shared.app.memory()?, &id(&who, &namespace, &project, &session)).await
    };
    caller.answer(deleted.await, |_| Json(json!({"message": format!("Session {session} deleted")})))
}

pub(super) async fn delete_all(
    State(shared): State<Shared>,
    Who(who): Who,
    Path((namespace, project)): Path<(String, String)>,
    caller: Caller,
) -> Response {
    let deleted = async {
        shared.app.find_project(&who, &namespace, &project).await?;
        let memory = shared.app.memory()?;
        let scope = format!("{namespace}/{project}");
        let mut count = 0;
        loop {
            let page = Page { offset: 0, limit: AT_ONCE };
            let found = memory.store.conversations(&scope, Kind::Session, owner(&who), page).await;
            let found = found.map_err(|error| unkept(&error))?;
            if found.is_empty() {
                return Ok::<_, Refusal>(count);
            }
            for session in found {
                count += u32::from(forget(memory, &session.id).await?);
            }
        }
    };
    caller.answer(deleted.await, |count| {
        Json(json!({"message": format!("Deleted {count} session(s)"), "count": count}))
    })
}

/// False where there was none. What runs in it is stopped.
pub(super) async fn forget(memory: &Memory, id: &str) -> Result<bool, Refusal> {
    memory.forget(id).await.map_err(|error| unkept(&error))
}
