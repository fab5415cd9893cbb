//! `/mcp` and what is below it: the daemon as an MCP server, over streamable HTTP.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, Request, State};
use axum::http::{Method, header};
use axum::response::Response;
use lf_mcp::endpoint::{INSTANCE_HEADER, Offer, instance};
use serde::Deserialize;

use super::{Shared, Who};
use crate::gateway::{Gateway, Offering, Own};
use crate::guard::json_body;
use crate::reply::Caller;

#[derive(Deserialize)]
pub(super) struct OfModel {
    model: Option<String>,
}

pub(super) async fn own(State(shared): State<Shared>, Who(who): Who, request: Request) -> Response {
    let own = Own::new(shared.app.clone(), asks_itself(&request), who);
    answer(&shared, "", Arc::new(own), request).await
}

pub(super) async fn project(
    State(shared): State<Shared>,
    Path((namespace, project)): Path<(String, String)>,
    Query(of): Query<OfModel>,
    request: Request,
) -> Response {
    let offering = of.model.map_or(Offering::All, Offering::Model);
    gateway(&shared, (&namespace, &project), offering, request).await
}

pub(super) async fn server(
    State(shared): State<Shared>,
    Path((namespace, project, server)): Path<(String, String, String)>,
    request: Request,
) -> Response {
    gateway(&shared, (&namespace, &project), Offering::Server(server), request).await
}

async fn gateway(shared: &Shared, project: (&str, &str), offering: Offering, request: Request) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let asks_itself_at = host.filter(|_| asks_itself(&request)).map(str::to_owned);
    let scope = format!("{}/{} {offering:?}", project.0, project.1);
    match Gateway::open(shared.app.clone(), project, offering, asks_itself_at).await {
        Ok(gateway) => answer(shared, &scope, Arc::new(gateway), request).await,
        Err(refusal) => {
            let (parts, _) = request.into_parts();
            Caller::of(&parts).refusal(&refusal)
        }
    }
}

/// Whether the request comes from a session of this very process.
fn asks_itself(request: &Request) -> bool {
    request.headers().get(INSTANCE_HEADER).is_some_and(|sender| sender.as_bytes() == instance().as_bytes())
}

async fn answer(shared: &Shared, scope: &str, offer: Arc<dyn Offer>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = match parts.method {
        // within the size and time that every body has
        Method::POST => match json_body(&parts, body).await {
            Ok(body) => body,
            Err(refusal) => return refusal,
        },
        _ => Bytes::new(),
    };
    shared.mcp.serve(scope, offer, Request::from_parts(parts, body)).await.map(Body::new)
}
