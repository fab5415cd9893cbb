//! MCP servers: their states, restarting them, and the daemon's health.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use lf_core::Project;
use lf_mcp::ServerReport;
use serde_json::{Value, json};

use super::Shared;
use super::manage::{Scope, main_project};
use crate::app::{App, Refusal};
use crate::reply::Caller;
use crate::view;

pub(super) async fn list(
    State(shared): State<Shared>,
    caller: Caller,
    Path((namespace, name)): Scope,
) -> Response {
    match shared.app.find_project(&namespace, &name).await {
        Ok(project) => list_of(&shared.app, &project),
        Err(refusal) => caller.refusal(&refusal),
    }
}

pub(super) async fn main_list(State(shared): State<Shared>, caller: Caller) -> Response {
    match main_project(&shared.app) {
        Ok(project) => list_of(&shared.app, &project),
        Err(refusal) => caller.refusal(&refusal),
    }
}

fn list_of(app: &App, project: &Project) -> Response {
    let servers: Vec<Value> = app.servers_of(project).reports().iter().map(view::server).collect();
    Json(json!({"total": servers.len(), "servers": servers})).into_response()
}

type Named = Path<(String, String, String)>;

pub(super) async fn get(
    State(shared): State<Shared>,
    caller: Caller,
    Path((namespace, name, server)): Named,
) -> Response {
    match shared.app.find_project(&namespace, &name).await {
        Ok(project) => shown(&caller, &project, &server, shared.app.servers_of(&project).report_of(&server)),
        Err(refusal) => caller.refusal(&refusal),
    }
}

pub(super) async fn main_get(
    State(shared): State<Shared>,
    caller: Caller,
    Path(server): Path<String>,
) -> Response {
    match main_project(&shared.app) {
        Ok(project) => shown(&caller, &project, &server, shared.app.servers_of(&project).report_of(&server)),
        Err(refusal) => caller.refusal(&refusal),
    }
}

/// Answers when the server is ready again, or is not: 200 in both cases, as the restart was made.
pub(super) async fn restart(
    State(shared): State<Shared>,
    caller: Caller,
    Path((namespace, name, server)): Named,
) -> Response {
    match shared.app.find_project(&namespace, &name).await {
        Ok(project) => restarted(&shared.app, &caller, &project, &server).await,
        Err(refusal) => caller.refusal(&refusal),
    }
}

pub(super) async fn main_restart(
    State(shared): State<Shared>,
    caller: Caller,
    Path(server): Path<String>,
) -> Response {
    match main_project(&shared.app) {
        Ok(project) => restarted(&shared.app, &caller, &project, &server).await,
        Err(refusal) => caller.refusal(&refusal),
    }
}

async fn restarted(app: &App, caller: &Caller, project: &Project, server: &str) -> Response {
    let report = app.servers_of(project).renew(server).await;
    shown(caller, project, server, report)
}

fn shown(caller: &Caller, project: &Project, server: &str, report: Option<ServerReport>) -> Response {
    match report {
        Some(report) => Json(view::server_in_full(&report)).into_response(),
        None => caller.refusal(&Refusal::UnknownServer {
            server: server.to_owned(),
            known: project.servers.keys().cloned().collect(),
        }),
    }
}

/// A server that is down costs its own tools, so the daemon is as healthy as before; only one that chats cannot do
/// without makes it degraded. A server that was never needed is neither up nor down.
pub(super) async fn health(State(shared): State<Shared>) -> Response {
    // what a leak of anything that runs shows in first
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let mut components = vec![json!({
        "name": "server",
        "status": "healthy",
        "message": "running",
        "details": {"tasks": tasks},
    })];
    let mut status = "healthy";
    for report in reports(&shared.app) {
        let error = report.last_error();
        if error.is_some() && report.required {
            status = "degraded";
        }
        components.push(json!({
            "name": format!("mcp:{}", report.name),
            "status": if error.is_some() { "degraded" } else { "healthy" },
            "message": error.unwrap_or(report.state.name()),
            "details": view::server(&report),
        }));
    }
    let summary: Vec<String> = components
        .iter()
        .map(|part| {
            format!("{}={}", part["name"].as_str().unwrap_or(""), part["status"].as_str().unwrap_or(""))
        })
        .collect();
    let timestamp =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Json(json!({
        "status": status,
        "summary": summary.join(", "),
        "components": components,
        "seeds": [],
        "timestamp": timestamp,
    }))
    .into_response()
}

/// Ready from the first accepted connection on: MCP servers and models are reached when they are needed.
pub(super) async fn readiness(State(shared): State<Shared>) -> Json<Value> {
    let servers: Vec<Value> = reports(&shared.app)
        .iter()
        .map(|report| {
            let ready = matches!(report.state, lf_mcp::ServerState::Ready { .. });
            json!({"name": report.name, "state": report.state.name(), "ready": ready})
        })
        .collect();
    Json(json!({"status": "ready", "mcp_servers": servers}))
}

/// Those of the project that the daemon was started in.
fn reports(app: &App) -> Vec<ServerReport> {
    app.project().map(|project| app.servers_of(project).reports()).unwrap_or_default()
}
