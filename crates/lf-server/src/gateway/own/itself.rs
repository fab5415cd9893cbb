//! The daemon's own tools for a model of this daemon: within what that model was granted, and for whoever asked it.

use std::sync::Arc;

use lf_core::tool::Attendant;
use lf_core::{Principal, Project, ToolOutput};
use serde_json::{Map, Value, json};

use super::{chat, project_view, projects, shown};
use crate::app::App;
use crate::authority::Granted;
use crate::view;

pub(super) async fn run(
    app: &App,
    (who, granted): (&Arc<Principal>, &Granted),
    tool: &str,
    arguments: &Map<String, Value>,
    attendant: &dyn Attendant,
) -> Result<ToolOutput, String> {
    let (namespace, name) = &granted.project;
    // its own project is the only one there is
    let named = if tool == "projects_list" { None } else { projects::named(arguments)? };
    if named.is_some_and(|named| named != granted.project) {
        return Err(format!("a model asks its own daemon only about its own project, `{namespace}/{name}`"));
    }
    let project = app.find_project(who, namespace, name).await.map_err(|refusal| refusal.to_string())?;
    match tool {
        "models_list" => {
            let models: Vec<&String> = reached(&project, granted).collect();
            let default = project.default_model.as_ref().filter(|name| granted.reaches_model(name));
            Ok(shown(&json!({"models": models, "default": default})))
        }
        "projects_list" => {
            let project = json!({"namespace": namespace, "name": name});
            Ok(shown(&json!({"total": 1, "projects": [project]})))
        }
        "project_get" => {
            let mut view = project_view(&project, |model| granted.reaches_model(model));
            view["mcp_servers"] = json!(granted.servers);
            Ok(shown(&view))
        }
        "mcp_servers" => {
            let reports = app.reports_for(who, &project);
            let granted = reports.iter().filter(|it| granted.servers.contains(&it.name));
            Ok(shown(&json!({"servers": granted.map(view::server).collect::<Vec<_>>()})))
        }
        "chat_completions" => ask(app, (who, granted), &project, arguments, attendant).await,
        _ => Err(projects::NOT_OF_ITSELF.to_owned()),
    }
}

fn reached<'a>(project: &'a Project, granted: &'a Granted) -> impl Iterator<Item = &'a String> {
    project.models.keys().filter(|model| granted.reaches_model(model))
}

async fn ask(
    app: &App,
    (who, granted): (&Arc<Principal>, &Granted),
    project: &Arc<Project>,
    arguments: &Map<String, Value>,
    attendant: &dyn Attendant,
) -> Result<ToolOutput, String> {
    // each level of a model that asks itself holds one, so that there is a last level
    let Ok(_nested) = app.nested.try_acquire() else {
        return Err("models of this daemon already ask each other too deeply".to_owned());
    };
    let mut arguments = arguments.clone();
    let wanted = arguments.get("model").and_then(Value::as_str).filter(|name| !name.is_empty());
    let full = format!("{}/{}/", project.namespace, project.name);
    // it may name the model with its project, as lists of models do
    let model = match wanted.or(project.default_model.as_deref()) {
        Some(name) => name.strip_prefix(&full).unwrap_or(name).to_owned(),
        None => return Err("`model` is missing".to_owned()),
    };
    if !granted.reaches_model(&model) {
        let known: Vec<&str> = reached(project, granted).map(String::as_str).collect();
        return Err(format!(
            "this model may not ask `{model}` through its own daemon, but: {}",
            known.join(", ")
        ));
    }
    arguments.insert("model".to_owned(), model.into());
    chat(app, who, Some(project), &arguments, attendant).await
}
