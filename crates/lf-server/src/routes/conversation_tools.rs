//! Which tools a conversation uses.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use lf_core::tool_set::Target;
use lf_core::{ToolRef, ToolSet};
use serde::Deserialize;
use serde_json::{Value, json};

use super::conversations::{Object, bad, find};
use super::{Shared, Who};
use crate::app::Refusal;
use crate::memory::unkept;
use crate::reply::Caller;
use crate::view;

#[derive(Deserialize)]
pub(super) struct Chosen {
    #[serde(alias = "server")]
    server_id: String,
    #[serde(alias = "tool", alias = "name")]
    tool_name: String,
}

pub(super) async fn tools(
    State(shared): State<Shared>,
    Who(who): Who,
    Path(id): Path<String>,
    caller: Caller,
) -> Response {
    let read = async {
        find(&shared, &who, &id).await?;
        let store = &shared.app.memory()?.store;
        store.tools(&id).await.map_err(|error| unkept(&error))
    };
    caller.answer(read.await, |tools| {
        let tools: Vec<Value> =
            tools.iter().map(|tool| json!({"server_id": tool.server, "tool_name": tool.name})).collect();
        Json(json!({"success": true, "count": tools.len(), "enabled_tools": tools}))
    })
}

/// Every tool that the conversation's model may use, and whether it is switched on.
pub(super) async fn available(
    State(shared): State<Shared>,
    Who(who): Who,
    Path(id): Path<String>,
    caller: Caller,
) -> Response {
    let read = async {
        let conversation = find(&shared, &who, &id).await?;
        let project = shared.app.project_of(&who, &conversation.scope).await?;
        let (project, model) =
            shared.app.find_model(&who, Some(&project), conversation.model.as_deref()).await?;
        let on = shared.app.memory()?.store.tools(&id).await.map_err(|error| unkept(&error))?;
        let mut catalogue = shared.app.tools_of(&project, &model).list(&model.servers).await;
        catalogue.narrow(&who);
        let set = ToolSet::new(&catalogue, &[], &[]);
        let mut tools = Vec::with_capacity(set.len());
        for ((exposed, target), spec) in set.iter().zip(set.specs().iter()) {
            let Target::Source(tool) = target else { continue };
            tools.push(json!({
                "server_id": tool.id.server,
                "tool_name": tool.id.name,
                "name": exposed,
                "description": spec.description,
                "parameters": spec.schema,
                "enabled": on.contains(&tool.id),
            }));
        }
        let down: Vec<Value> = catalogue
            .down
            .iter()
            .map(|down| json!({"server_id": down.server, "error": down.reason}))
            .collect();
        let held = view::held(&catalogue);
        Ok::<_, Refusal>(
            json!({"success": true, "count": tools.len(), "tools": tools, "down": down, "held_back": held}),
        )
    };
    caller.answer(read.await, Json)
}

pub(super) async fn switch_on(
    State(shared): State<Shared>,
    Who(who): Who,
    Path(id): Path<String>,
    caller: Caller,
    Object(chosen): Object<Chosen>,
) -> Response {
    let switched = async {
        let conversation = find(&shared, &who, &id).await?;
        let project = shared.app.project_of(&who, &conversation.scope).await?;
        let (project, model) =
            shared.app.find_model(&who, Some(&project), conversation.model.as_deref()).await?;
        if !model.servers.contains(&chosen.server_id) {
            return Err(Refusal::UnknownServer {
                server: chosen.server_id.clone(),
                known: model.servers.clone(),
            });
        }
        let servers = std::slice::from_ref(&chosen.server_id);
        let mut catalogue = shared.app.tools_of(&project, &model).list(servers).await;
        catalogue.narrow(&who);
        let tool = ToolRef { server: chosen.server_id.into(), name: chosen.tool_name.into() };
        if !catalogue.tools.iter().any(|known| known.id == tool) {
            let held = catalogue.held.iter().find(|held| held.tool.id == tool);
            let what = match (held, catalogue.down.first()) {
                (Some(held), _) => format!("tool `{}` is {}", tool.name, held.why),
                (None, Some(down)) => {
                    format!("MCP server `{}` is not available: {}", down.server, down.reason)
                }
                (None, None) => format!(
                    "MCP server `{}` has no tool `{}`; GET /conversations/{id}/tools/available lists them",
                    tool.server, tool.name
                ),
            };
            return Err(bad("tool_name", what));
        }
        let store = &shared.app.memory()?.store;
        store.switch_on(&id, &tool).await.map_err(|error| unkept(&error))?;
        Ok(json!({
            "success": true,
            "message": "Tool enabled successfully",
            "server_id": tool.server,
            "tool_name": tool.name,
        }))
    };
    caller.answer(switched.await, Json)
}

pub(super) async fn switch_off(
    State(shared): State<Shared>,
    Who(who): Who,
    Path(id): Path<String>,
    Query(chosen): Query<Chosen>,
    caller: Caller,
) -> Response {
    let switched = async {
        find(&shared, &who, &id).await?;
        let tool = ToolRef { server: chosen.server_id.into(), name: chosen.tool_name.into() };
        let store = &shared.app.memory()?.store;
        store.switch_off(&id, &tool).await.map_err(|error| unkept(&error))
    };
    caller.answer(switched.await, |was_on| match was_on {
        true => Json(json!({"success": true, "message": "Tool disabled successfully"})).into_response(),
        false => caller.refuse(StatusCode::NOT_FOUND, "this tool is not enabled in this conversation"),
    })
}
