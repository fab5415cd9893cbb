//! `/mcp` and what is below it: the daemon as an MCP server, over streamable HTTP.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, Request as HttpRequest, StatusCode, header};
use axum::response::Response;
use lf_core::{Principal, Scope};
use lf_mcp::endpoint::{INSTANCE_HEADER, ON_BEHALF, Offer, instance};
use serde::Deserialize;
use serde_json::Value;

use super::{Shared, Who};
use crate::admission::lacking;
use crate::authority::Granted;
use crate::gateway::{Gateway, Offering, Own, need_of};
use crate::guard::json_body;
use crate::reply::Caller;

/// What of a message says what it needs.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    method: String,
    params: Value,
}

impl Asked {
    /// On whose behalf this daemon asks itself.
    fn granted(&self, shared: &Shared) -> Option<Granted> {
        shared.app.grants.find(self.params["_meta"][ON_BEHALF].as_str()?)
    }
}

#[derive(Deserialize)]
pub(super) struct OfModel {
    model: Option<String>,
}

/// What each of its tools needs is said by its own table.
pub(super) async fn own(State(shared): State<Shared>, Who(who): Who, request: Request) -> Response {
    let own = Own::new(shared.app.clone(), asks_itself(&request), who.clone());
    let (parts, body) = request.into_parts();
    match whole(&parts, body).await {
        Ok(body) => served(&shared, (&who, ""), Arc::new(own), HttpRequest::from_parts(parts, body)).await,
        Err(refusal) => refusal,
    }
}

pub(super) async fn project(
    State(shared): State<Shared>,
    Path((namespace, project)): Path<(String, String)>,
    Query(of): Query<OfModel>,
    Who(who): Who,
    request: Request,
) -> Response {
    let offering = of.model.map_or(Offering::All, Offering::Model);
    gateway(&shared, who, (&namespace, &project), offering, request).await
}

pub(super) async fn server(
    State(shared): State<Shared>,
    Path((namespace, project, server)): Path<(String, String, String)>,
    Who(who): Who,
    request: Request,
) -> Response {
    gateway(&shared, who, (&namespace, &project), Offering::Server(server), request).await
}

async fn gateway(
    shared: &Shared,
    door: Arc<Principal>,
    project: (&str, &str),
    offering: Offering,
    request: Request,
) -> Response {
    let itself = asks_itself(&request);
    let (parts, body) = request.into_parts();
    let caller = Caller::of(&parts);
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let asks_itself_at = host.filter(|_| itself).map(str::to_owned);
    let body = match whole(&parts, body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let asked = serde_json::from_slice::<Asked>(&body);
    // what cannot be read here may be read otherwise elsewhere
    let need = asked.as_ref().map_or(Scope::Tools, |asked| need_of(&asked.method));
    let asked = asked.unwrap_or_default();
    let granted = asked.granted(shared).filter(|_| itself);
    let who = match &granted {
        // a model of this daemon has it run for whoever asked that model
        Some(granted) if need == Scope::Tools => match granted.running_tools(&door) {
            Ok(who) => Arc::new(who),
            Err(what) => {
                shared.app.audit.refused(Some(&door), &format!("{}: {what}", parts.uri.path()));
                return caller.refuse(StatusCode::FORBIDDEN, &what);
            }
        },
        _ => door.clone(),
    };
    if parts.method == Method::POST && !who.has(need) {
        shared.app.lacks(&who, need, &format!("{} at {}", asked.method, parts.uri.path()));
        return lacking(&caller, &who, need);
    }
    let scope = format!("{}/{} {offering:?}", project.0, project.1);
    let request = HttpRequest::from_parts(parts, body);
    match Gateway::open_within(shared.app.clone(), who, project, offering, (asks_itself_at, granted)).await {
        Ok(gateway) => served(shared, (&door, &scope), Arc::new(gateway), request).await,
        Err(refusal) => caller.refusal(&refusal),
    }
}

/// Whether the request comes from a session of this very process.
fn asks_itself(request: &Request) -> bool {
    request.headers().get(INSTANCE_HEADER).is_some_and(|sender| sender.as_bytes() == instance().as_bytes())
}

/// The body of a message, within the size and time that every body has.
async fn whole(parts: &Parts, body: Body) -> Result<Bytes, Response> {
    match parts.method {
        Method::POST => json_body(parts, body).await,
        _ => Ok(Bytes::new()),
    }
}

/// A session is of whoever began it.
async fn served(
    shared: &Shared,
    (door, scope): (&Principal, &str),
    offer: Arc<dyn Offer>,
    request: HttpRequest<Bytes>,
) -> Response {
    let scope = format!("{} {scope}", door.id);
    shared.mcp.serve(&scope, offer, request).await.map(Body::new)
}
