//! MCP servers: their states, restarting them, and the daemon's health.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use lf_core::{Principal, Project, Scope};
use lf_mcp::ServerReport;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Here, Shared, Who};
use crate::app::{App, Refusal, narrowed};
use crate::reply::Caller;
use crate::view;

pub(super) async fn list(State(shared): State<Shared>, Who(who): Who, Here(project): Here) -> Response {
    let servers: Vec<Value> = shared.app.reports_for(&who, &project).iter().map(view::server).collect();
    Json(json!({"total": servers.len(), "servers": servers})).into_response()
}

#[derive(Deserialize)]
pub(super) struct Named {
    server: String,
}

pub(super) async fn get(
    State(shared): State<Shared>,
    Who(who): Who,
    caller: Caller,
    Here(project): Here,
    Path(Named { server }): Path<Named>,
) -> Response {
    let report = shared.app.servers_of(&project).report_of(&server);
    shown((&caller, &who), &project, &server, report)
}

/// Answers when the server is ready again, or is not: 200 in both cases, as the restart was made.
pub(super) async fn restart(
    State(shared): State<Shared>,
    Who(who): Who,
    caller: Caller,
    Here(project): Here,
    Path(Named { server }): Path<Named>,
) -> Response {
    if !who.reaches_server(&server) {
        return shown((&caller, &who), &project, &server, None);
    }
    let report = shared.app.servers_of(&project).renew(&server).await;
    shown((&caller, &who), &project, &server, report)
}

fn shown(
    (caller, who): (&Caller, &Principal),
    project: &Project,
    server: &str,
    report: Option<ServerReport>,
) -> Response {
    match report.and_then(|report| narrowed(who, report)) {
        Some(report) => Json(view::server_in_full(&report)).into_response(),
        None => caller.refusal(&Refusal::UnknownServer {
            server: server.to_owned(),
            known: project.servers.keys().filter(|name| who.reaches_server(name)).cloned().collect(),
        }),
    }
}

/// A server that is down costs its own tools, so the daemon is as healthy as before; only one that chats cannot do
/// without makes it degraded. A server that was never needed is neither up nor down.
pub(super) async fn health(State(shared): State<Shared>, Who(who): Who) -> Response {
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
    for report in reports(&shared.app, &who) {
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
    for one in shared.app.config_status_for(&who) {
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
pub(super) async fn config_status(State(shared): State<Shared>, Who(who): Who) -> Json<Value> {
    let projects: Vec<Value> = shared.app.config_status_for(&who).iter().map(view::config).collect();
    Json(json!({"total": projects.len(), "projects": projects}))
}

/// Ready from the first accepted connection on: MCP servers and models are reached when they are needed.
/// Whoever may not read is told no more than that.
pub(super) async fn readiness(State(shared): State<Shared>, Who(who): Who) -> Json<Value> {
    if !who.has(Scope::Read) {
        return Json(json!({"status": "ready"}));
    }
    let servers: Vec<Value> = reports(&shared.app, &who)
        .iter()
        .map(|report| {
            let ready = matches!(report.state, lf_mcp::ServerState::Ready { .. });
            json!({"name": report.name, "state": report.state.name(), "ready": ready})
        })
        .collect();
    Json(json!({"status": "ready", "mcp_servers": servers}))
}

/// Those of the project that the daemon was started in.
fn reports(app: &App, who: &Principal) -> Vec<ServerReport> {
    let main = app.main_for(who);
    main.map(|project| app.reports_for(who, &project)).unwrap_or_default()
}
