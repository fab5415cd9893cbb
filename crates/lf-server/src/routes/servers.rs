//! MCP servers: their states, restarting them, and the daemon's health.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use lf_core::Project;
use lf_mcp::ServerReport;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Here, Shared};
use crate::app::{App, Refusal};
use crate::reply::Caller;
use crate::view;

pub(super) async fn list(State(shared): State<Shared>, Here(project): Here) -> Response {
    let servers: Vec<Value> = shared.app.servers_of(&project).reports().iter().map(view::server).collect();
    Json(json!({"total": servers.len(), "servers": servers})).into_response()
}

#[derive(Deserialize)]
pub(super) struct Named {
    server: String,
}

pub(super) async fn get(
    State(shared): State<Shared>,
    caller: Caller,
    Here(project): Here,
    Path(Named { server }): Path<Named>,
) -> Response {
    shown(&caller, &project, &server, shared.app.servers_of(&project).report_of(&server))
}

/// Answers when the server is ready again, or is not: 200 in both cases, as the restart was made.
pub(super) async fn restart(
    State(shared): State<Shared>,
    caller: Caller,
    Here(project): Here,
    Path(Named { server }): Path<Named>,
) -> Response {
    let report = shared.app.servers_of(&project).renew(&server).await;
    shown(&caller, &project, &server, report)
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
    let mut config_error = Value::Null;
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
    for one in shared.app.config_status() {
        let error = view::config_error(&one);
        let name = format!("{}/{}", one.active.project.namespace, one.active.project.name);
        components.push(json!({
            "name": format!("config:{name}"),
            "status": if error.is_some() { "degraded" } else { "healthy" },
            "message": match &one.refused {
                Some(refused) => refused.broken.reason.clone(),
                None => format!("generation {}", one.active.number),
            },
            "details": {"generation": one.active.number, "hash": one.active.hash},
        }));
        if let Some(error) = error {
            status = "degraded";
            if one.is_main {
                config_error = error;
            }
        }
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
        // what is wrong with the file of the project that the daemon was started in; the last good one is active
        "config_error": config_error,
        "seeds": [],
        "timestamp": timestamp,
    }))
    .into_response()
}

/// Which generation of the configuration is active, for each project that is loaded.
pub(super) async fn config_status(State(shared): State<Shared>) -> Json<Value> {
    let projects: Vec<Value> = shared.app.config_status().iter().map(view::config).collect();
    Json(json!({"total": projects.len(), "projects": projects}))
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
    app.project().map(|project| app.servers_of(&project).reports()).unwrap_or_default()
}
