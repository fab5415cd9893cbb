//! `/v1/approvals`: calls that wait for a person, and what is decided about them.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use lf_core::Principal;
use lf_core::turn::{Decision, Verdict};
use serde::Deserialize;
use serde_json::{Value, json};

use super::conversations::{Object, at};
use super::{Shared, Who};
use crate::app::{App, Refusal};
use crate::approvals::{About, KEPT, Outcome, Pending, oldest};
use crate::memory::unkept;
use crate::reply::Caller;

pub(super) async fn list(State(shared): State<Shared>, Who(who): Who) -> Response {
    let (pending, trouble) = pending(&shared.app, &who).await;
    let data: Vec<Value> = pending.iter().map(shown).collect();
    let mut list = json!({"object": "list", "data": data});
    if let Some(refusal) = trouble {
        list["notice"] = format!("what ended turns wait for is not listed: {refusal}").into();
    }
    Json(list).into_response()
}

pub(super) async fn get(
    State(shared): State<Shared>,
    Who(who): Who,
    Path(id): Path<String>,
    caller: Caller,
) -> Response {
    match find(&shared.app, (&who, &caller), &id).await {
        Ok(pending) => Json(shown(&pending)).into_response(),
        Err(refused) => refused,
    }
}

/// One that is not theirs who ask is not there.
async fn find(app: &App, (who, caller): (&Principal, &Caller), id: &str) -> Result<Pending, Response> {
    let (pending, trouble) = pending(app, who).await;
    match (pending.into_iter().find(|pending| pending.ask.id == id), trouble) {
        (Some(pending), _) => Ok(pending),
        (None, None) => Err(unknown(caller, id)),
        (None, Some(refusal)) => Err(caller.refusal(&refusal)),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    decision: Word,
    /// For the model to read, and for the journal.
    reason: Option<String>,
    /// For whom whoever asks decides, as it says, for the journal.
    by: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Approve,
    Always,
    Deny,
}

/// Longest reason or name that is kept, in bytes.
const LONGEST: usize = 1_000;

/// Decides. The answer comes once the decision is kept.
pub(super) async fn decide(
    State(shared): State<Shared>,
    Who(who): Who,
    Path(id): Path<String>,
    caller: Caller,
    Object(wanted): Object<Wanted>,
) -> Response {
    for (key, text) in [("reason", &wanted.reason), ("by", &wanted.by)] {
        if text.as_ref().is_some_and(|text| text.len() > LONGEST) {
            let what = format!("`{key}` is longer than {LONGEST} bytes");
            return caller.refuse(StatusCode::BAD_REQUEST, &what);
        }
    }
    if let Err(refused) = find(&shared.app, (&who, &caller), &id).await {
        return refused;
    }
    let verdict = match wanted.decision {
        Word::Approve => Verdict::Approved,
        Word::Always => Verdict::Always,
        Word::Deny => Verdict::Denied,
    };
    let by = wanted.by.unwrap_or_default();
    let decision = Decision { verdict, by, reason: wanted.reason, who: None }.of(&who);
    match shared.app.decide(&id, decision).await {
        Ok(Outcome::Taken) => {
            Json(json!({"id": id, "object": "approval", "status": verdict.name()})).into_response()
        }
        Ok(Outcome::Unknown) => unknown(&caller, &id),
        Ok(Outcome::Unkept) => {
            caller.refuse(StatusCode::SERVICE_UNAVAILABLE, "the decision could not be kept in time")
        }
        Err(refusal) => caller.refusal(&refusal),
    }
}

fn unknown(caller: &Caller, id: &str) -> Response {
    let what = format!(
        "no call waits for approval `{id}`: it was decided, is too old, or never was. GET /v1/approvals lists those that wait"
    );
    caller.refuse(StatusCode::NOT_FOUND, &what)
}

/// Everything that waits for whoever asks; and why some of it is not known.
async fn pending(app: &App, who: &Principal) -> (Vec<Pending>, Option<Refusal>) {
    let (mut pending, trouble) = all_pending(app).await;
    pending.retain(|pending| {
        let (namespace, project) = pending.about.project.split_once('/').unwrap_or_default();
        who.sees(&pending.about.owner) && who.reaches_project(namespace, project)
    });
    (pending, trouble)
}

/// In turns that run, here and in daemons that share the store, after turns that ended, and calls that are of no turn.
async fn all_pending(app: &App) -> (Vec<Pending>, Option<Refusal>) {
    let mut pending = app.approvals.pending();
    // without memory there are no conversations in which something could wait
    let Ok(memory) = app.memory() else { return (pending, None) };
    match app.asks_elsewhere(memory).await {
        Ok(elsewhere) => pending.extend(elsewhere),
        Err(refusal) => return (pending, Some(refusal)),
    }
    let all = match memory.store.all_waiting(oldest()).await {
        Ok(all) => all,
        Err(error) => return (pending, Some(unkept(&error))),
    };
    for left in all {
        let created = std::time::UNIX_EPOCH
            + std::time::Duration::from_millis(u64::try_from(left.created).unwrap_or_default());
        let about = About {
            owner: left.owner.clone(),
            project: left.scope.clone(),
            model: None,
            turn: None,
            conversation: Some(left.conversation.clone()),
        };
        let asks = left.waiting.asks.into_iter().filter(|ask| ask.decision.is_none());
        let expires = created + KEPT;
        pending.extend(asks.map(|ask| Pending { ask, about: about.clone(), created, expires }));
    }
    (pending, None)
}

fn shown(pending: &Pending) -> Value {
    let Pending { ask, about, created, expires } = pending;
    let arguments = ask.call.arguments.value();
    let time = |time: &std::time::SystemTime| {
        let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        at(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    };
    json!({
        "id": ask.id,
        "object": "approval",
        "status": "pending",
        "server": ask.tool.server,
        "tool": ask.tool.name,
        "why": ask.why,
        "arguments": arguments.map_or_else(|_| ask.call.arguments.raw().into(), |map| Value::Object(map.clone())),
        "project": about.project,
        "model": about.model,
        "turn_id": about.turn,
        "conversation_id": about.conversation,
        "created_at": time(created),
        "expires_at": time(expires),
    })
}
