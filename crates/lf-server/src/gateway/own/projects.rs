//! The tools that show and change stored projects: the same functions, rules and words as their routes.

use lf_core::{Principal, ToolOutput};
use serde_json::{Map, Value, json};

use super::{definition, reading, shown};
use crate::app::{App, EditRefusal, StoredProject, Wanted};
use crate::routes::projects::{TEMPLATES, shown as stored};

/// Whether a model of this daemon asks, which changes nothing through the daemon itself.
pub(super) const NOT_OF_ITSELF: &str =
    "a model of this daemon cannot change projects through the daemon itself";

/// The arguments of a tool of this module; `None` for others.
pub(super) fn arguments(tool: &str) -> Option<&'static [&'static str]> {
    Some(match tool {
        "projects_list" => &["namespace"],
        "project_create" => &["namespace", "name", "config_template", "config"],
        "project_update" => &["namespace", "project", "config", "revision"],
        "project_delete" => &["namespace", "project"],
        _ => return None,
    })
}

pub(super) async fn run(
    (app, who): (&App, &Principal),
    tool: &str,
    arguments: &Map<String, Value>,
) -> Result<ToolOutput, String> {
    let text = |key: &str| text(arguments, key);
    if tool == "projects_list" {
        let projects = app.list_projects(who, text("namespace")?).await.map_err(|refusal| told(&refusal))?;
        let projects: Vec<Value> = projects.iter().map(without_config).collect();
        return Ok(shown(&json!({"total": projects.len(), "projects": projects})));
    }
    let config = match arguments.get("config") {
        None | Some(Value::Null) => None,
        Some(config @ Value::Object(_)) => Some(Wanted::Value(config.clone())),
        Some(Value::String(text)) => Some(Wanted::Text(text.clone())),
        Some(_) => return Err("`config` must be an object, or a text in YAML".to_owned()),
    };
    if tool == "project_create" {
        let namespace = text("namespace")?.unwrap_or_else(|| "default".to_owned());
        let name = text("name")?.ok_or("`name` is missing")?;
        if let Some(template) = text("config_template")?.filter(|name| !TEMPLATES.contains(&name.as_str())) {
            return Err(format!(
                "the template `{template}` does not exist; there is: {}",
                TEMPLATES.join(", ")
            ));
        }
        return answer(app.create_project(who, namespace, name, config).await);
    }
    let (namespace, name) = named(arguments)?.ok_or("`project` is missing")?;
    if tool == "project_delete" {
        let gone = json!({"project": {"namespace": namespace, "name": name}});
        return app
            .remove_project(who, namespace, name)
            .await
            .map(|()| shown(&gone))
            .map_err(|refusal| told(&refusal));
    }
    let config = config.ok_or("`config` is missing")?;
    answer(app.replace_project(who, namespace, name, config, text("revision")?).await)
}

/// The project that is meant: as `namespace/name`, or both apart; `None` where none is.
pub(super) fn named(arguments: &Map<String, Value>) -> Result<Option<(String, String)>, String> {
    let Some(project) = text(arguments, "project")? else { return Ok(None) };
    let namespace = text(arguments, "namespace")?;
    Ok(Some(match (namespace, project.split_once('/')) {
        (None, Some((namespace, name))) => (namespace.to_owned(), name.to_owned()),
        (Some(namespace), None) => (namespace, project),
        (Some(given), Some((namespace, name))) if given == namespace => (given, name.to_owned()),
        (None, None) => {
            return Err("`project` must be `namespace/name`, or `namespace` must be given".to_owned());
        }
        (Some(_), Some(_)) => return Err("`namespace` and `project` name two namespaces".to_owned()),
    }))
}

fn text(arguments: &Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    match arguments.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("`{key}` must be a text")),
    }
}

fn answer(project: Result<StoredProject, EditRefusal>) -> Result<ToolOutput, String> {
    project.map(|project| shown(&json!({"project": stored(&project)}))).map_err(|refusal| told(&refusal))
}

fn without_config(project: &StoredProject) -> Value {
    let mut shown = stored(project);
    if let Some(fields) = shown.as_object_mut() {
        fields.remove("config");
    }
    shown
}

/// For a model: every mistake of a file, with its place.
pub(super) fn told(refusal: &EditRefusal) -> String {
    let mut told = refusal.to_string();
    if let EditRefusal::Invalid { details, .. } = refusal {
        for one in details {
            let text = |key: &str| one[key].as_str().unwrap_or_default();
            let line = one["line"].as_u64().map_or_else(String::new, |line| format!(" (line {line})"));
            told.push_str(&format!("\n{}: {}{line}", text("severity"), text("message")));
            if one["hint"].is_string() {
                told.push_str(&format!("; {}", text("hint")));
            }
        }
    }
    told
}

pub(super) fn definitions() -> Vec<Value> {
    let namespace = json!({"type": "string", "description": "Namespace; without it `default`."});
    let project = json!({"type": "string", "description": "`namespace/name`."});
    let config = json!({
        "type": ["object", "string"],
        "description": "The whole configuration, as an object or as YAML. Masked secrets keep what is stored.",
    });
    let of = json!({"type": "string", "description": "Only those of this namespace."});
    let mut tools = vec![reading(
        "projects_list",
        "List projects",
        "Lists the projects of this daemon.",
        &json!({"namespace": of}),
        &[],
    )];
    let apart = json!({"type": "string", "description": "Its namespace, where `project` is the name alone."});
    let template = json!({"type": "string", "enum": TEMPLATES, "description": "What it begins with."});
    let revision = json!({
        "type": "string",
        "description": "`revision` of the file that was read: a file that has changed since is left alone.",
    });
    let writes = |destructive: bool, idempotent: bool| {
        json!({
            "readOnlyHint": false,
            "destructiveHint": destructive,
            "idempotentHint": idempotent,
            "openWorldHint": false,
        })
    };
    tools.push(definition(
        "project_create",
        "Create a project",
        "Creates a project. New commands in it wait for approval on the machine before they are run.",
        &json!({
            "namespace": namespace,
            "name": {"type": "string", "description": "Letters, digits, `.`, `_` and `-`."},
            "config_template": template,
            "config": config,
        }),
        &["name"],
        &writes(false, false),
    ));
    tools.push(definition(
        "project_update",
        "Change a project",
        "Replaces a project's configuration. New or changed commands in it wait for approval on the machine.",
        &json!({"project": project, "namespace": apart, "config": config, "revision": revision}),
        &["project", "config"],
        &writes(true, true),
    ));
    tools.push(definition(
        "project_delete",
        "Delete a project",
        "Moves a project to the daemon's trash and ends its sessions.",
        &json!({"project": project, "namespace": apart}),
        &["project"],
        &writes(true, true),
    ));
    tools
}
