//! What is there: models, tools, and the daemon itself.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use lf_core::policy::Labels;
use lf_core::project::Disabled;
use lf_core::tool::{Approval, Hints, ToolProgress};
use lf_core::{Principal, Project, ToolError, ToolRef, ToolSet};
use lf_dialects::{anthropic_messages, openai_chat};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Here, Shared, Who};
use crate::app::{App, Refusal};
use crate::approvals::{About, No};
use crate::driver::execute_tool;
use crate::guard::json_body;
use crate::reply::{Caller, Face};
use crate::rules::{Asked, Became, Began, Check as _, Facts, NO_TOOL, Rules, Told};
use crate::view;

/// `owned_by` of every model.
const OWNER: &str = "llamafarm";

/// In the shape of the API that asks: Anthropic's clients say which version of it they speak.
pub(super) async fn models(State(shared): State<Shared>, Who(who): Who, headers: HeaderMap) -> Response {
    let names = shared.app.model_names(&who, None).await;
    let names = names.iter().map(String::as_str);
    match speaks_anthropic(&headers) {
        true => Json(anthropic_messages::models(names)).into_response(),
        false => Json(openai_chat::models(names, 0, OWNER)).into_response(),
    }
}

fn speaks_anthropic(headers: &HeaderMap) -> bool {
    headers.contains_key("anthropic-version")
}

pub(super) async fn model(
    State(shared): State<Shared>,
    Who(who): Who,
    mut caller: Caller,
    headers: HeaderMap,
    Path(model): Path<String>,
) -> Response {
    if speaks_anthropic(&headers) {
        caller.face = Face::Messages;
    }
    let found = shared.app.find_model(&who, None, Some(&model)).await;
    caller.answer(found, |_| match caller.face {
        Face::Messages => Json(anthropic_messages::model(&model)),
        _ => Json(openai_chat::models([model.as_str()], 0, OWNER)["data"][0].take()),
    })
}

pub(super) async fn project_models(Here(project): Here, Who(who): Who, headers: HeaderMap) -> Response {
    let reached = || project.models.iter().filter(|(name, _)| who.reaches_model(name));
    let names = || reached().map(|(name, _)| name.as_str());
    if speaks_anthropic(&headers) {
        return Json(anthropic_messages::models(names())).into_response();
    }
    let models: Vec<Value> = reached()
        .map(|(name, entry)| {
            let mut shown = view::model(name, entry);
            if let Ok(model) = entry {
                shown["base_url"] = lf_core::secret::shown_url_without(&model.base_url, &model.in_url).into();
                shown["default"] = (project.default_model.as_ref() == Some(name)).into();
            }
            shown
        })
        .collect();
    let mut list = openai_chat::models(names(), 0, OWNER);
    list["total"] = models.len().into();
    list["models"] = models.into();
    Json(list).into_response()
}

pub(super) fn main_project(app: &App, who: &Principal) -> Result<Arc<Project>, Refusal> {
    app.main_for(who).ok_or_else(|| Refusal::UnknownProject("(the daemon was started in none)".to_owned()))
}

#[derive(Deserialize)]
pub(super) struct OfModel {
    model: Option<String>,
}

pub(super) async fn tools(
    State(shared): State<Shared>,
    caller: Caller,
    Who(who): Who,
    Here(project): Here,
    Query(of): Query<OfModel>,
) -> Response {
    let app = &shared.app;
    let (project, model) = match app.find_model(&who, Some(&project), of.model.as_deref()).await {
        Ok(found) => found,
        Err(refusal) => return caller.refusal(&refusal),
    };
    let mut catalogue = app.tools_of(&project, &model).list(&model.servers).await;
    catalogue.narrow(&who);
    let set = ToolSet::new(&catalogue, &model.tools, &[]);
    let tools = view::tools(&set);
    let down: Vec<Value> =
        catalogue.down.iter().map(|down| json!({"server": down.server, "error": down.reason})).collect();
    Json(json!({"model": model.name, "total": tools.len(), "tools": tools, "down": down, "held_back": view::held(&catalogue)})).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Execute {
    server: String,
    #[serde(alias = "name", alias = "tool_name")]
    tool: String,
    #[serde(default)]
    arguments: Option<Map<String, Value>>,
    /// `namespace/project`; else the project the daemon was started in.
    project: Option<String>,
}

/// Runs one tool, as the design documents' clients do: `{server, tool, arguments}`.
pub(super) async fn execute(State(shared): State<Shared>, Who(who): Who, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let caller = Caller::of(&parts);
    let body = match json_body(&parts, body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    // serde would take an array for the fields in their order
    let object = serde_json::from_slice::<Map<String, Value>>(&body);
    let call: Execute = match object.and_then(|object| serde_json::from_value(Value::Object(object))) {
        Ok(call) => call,
        Err(error) => {
            let what = format!("the body is not `{{\"server\", \"tool\", \"arguments\"}}`: {error}");
            return caller.refuse(StatusCode::BAD_REQUEST, &what);
        }
    };
    let project = match call.project.as_deref().map(|name| name.split_once('/')) {
        None => main_project(&shared.app, &who),
        Some(Some((namespace, name))) => shared.app.find_project(&who, namespace, name).await,
        Some(None) => {
            let what = "`project` must be `namespace/project`";
            return caller.refuse(StatusCode::BAD_REQUEST, what);
        }
    };
    let project = match project {
        Ok(project) => project,
        Err(refusal) => return caller.refusal(&refusal),
    };
    run((&shared.app, &who), &caller, &project, call).await
}

async fn run(
    (app, who): (&App, &Arc<Principal>),
    caller: &Caller,
    project: &Arc<Project>,
    call: Execute,
) -> Response {
    let arguments = call.arguments.unwrap_or_default();
    let tool = ToolRef { server: call.server.as_str().into(), name: call.tool.as_str().into() };
    let began = Began { project: project.clone(), model: None, turn: None, pool: app.pool.clone() };
    let rules = Rules::of_turn(app.active(project), app.authority(who), began);
    let denied = |why: &str| rules.record(&Told::new(None, &tool, &arguments), &Became::Denied(why));
    let entry = project.servers.get(&call.server).filter(|_| who.reaches_server(&call.server));
    let Some(entry) = entry else {
        denied("there is no such server, or not for this key");
        return caller.refuse(StatusCode::NOT_FOUND, &no_server(who, project, &call.server));
    };
    let tools = app.pool.tools([(call.server.clone(), entry.clone())]);
    let server = match entry {
        Ok(server) => server,
        Err(Disabled { reason }) => {
            let down = ToolError::Down { server: call.server.clone(), reason: reason.clone() };
            return caller.refuse(StatusCode::SERVICE_UNAVAILABLE, &down.to_string());
        }
    };
    let facts = Facts::alone(tool.clone(), Hints::default(), Labels::default()).listed_by(&tools).await;
    let is_there =
        server.tools.permits(&call.tool) && server.tools.approval(&call.tool, facts.hints) != Approval::Deny;
    let permitted = match is_there {
        true => app.approvals.may_run(&rules, (facts, &arguments), About::alone(who, project, None)).await,
        false => Err(No::Tool),
    };
    let facts = match permitted {
        Ok(facts) => facts,
        Err(No::Said(text)) => return caller.refuse(StatusCode::FORBIDDEN, &text),
        Err(No::Tool) => {
            denied(NO_TOOL);
            let unknown = ToolError::UnknownTool { server: call.server.clone(), tool: call.tool.clone() };
            return caller.refuse(StatusCode::NOT_FOUND, &unknown.to_string());
        }
    };
    // the configuration may have changed while somebody was asked
    let now = app.find_project(who, &project.namespace, &project.name).await;
    if !now.is_ok_and(|now| now.servers.get(&call.server) == Some(entry)) {
        let what = format!("MCP server `{}` is not configured as it was: ask again", call.server);
        return caller.refuse(StatusCode::CONFLICT, &what);
    }
    if let Err(over) = app.quotas.admit_call(who).await {
        return caller.refusal(&over);
    }
    let asked = Asked { model: None, facts: &facts, arguments: &arguments };
    let call_id = uuid::Uuid::new_v4().simple().to_string();
    match execute_tool(&tools, &rules, &asked, &call_id, &|_: ToolProgress| {}).await.outcome {
        Ok(output) => Json(view::output(&call.server, &call.tool, &output)).into_response(),
        Err(error) => {
            let status = match &error {
                ToolError::UnknownTool { .. } => StatusCode::NOT_FOUND,
                ToolError::Down { .. } | ToolError::RateLimited { .. } => StatusCode::SERVICE_UNAVAILABLE,
                ToolError::Denied { .. } => StatusCode::FORBIDDEN,
                ToolError::Timeout { .. } => StatusCode::GATEWAY_TIMEOUT,
                ToolError::Refused { code: -32602, .. } => StatusCode::BAD_REQUEST,
                ToolError::Refused { .. } | ToolError::Lost { .. } | ToolError::TooLarge { .. } => {
                    StatusCode::BAD_GATEWAY
                }
            };
            caller.refuse(status, &error.to_string())
        }
    }
}

/// Names only what whoever asks reaches.
fn no_server(who: &Principal, project: &Project, server: &str) -> String {
    let known: Vec<&str> =
        project.servers.keys().map(String::as_str).filter(|name| who.reaches_server(name)).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    format!("Server not found: `{server}` is not in `mcp.servers`, which has: {known}")
}

pub(super) async fn liveness() -> Json<Value> {
    Json(json!({"status": "alive"}))
}

pub(super) async fn hello() -> Json<Value> {
    Json(
        json!({"name": "lf", "version": env!("CARGO_PKG_VERSION"), "models": "/v1/models", "health": "/health"}),
    )
}

pub(super) async fn info(State(shared): State<Shared>, Who(who): Who) -> Json<Value> {
    let project = shared.app.main_for(&who).map(|project| format!("{}/{}", project.namespace, project.name));
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "data_directory": shared.app.data_dir().display().to_string(),
        "project": project,
    }))
}
