//! What `/mcp` has besides tools: the projects as resources, and the prompts of the daemon's main project.

use lf_core::message::Role;
use lf_core::project::PromptSet;
use lf_mcp::endpoint::{Refused, Request};
use serde_json::{Map, Value, json};

use crate::app::{App, EditRefusal};
use crate::template;

const SCHEME: &str = "lf://projects/";
/// As MCP numbers it up to 2025-11-25; later revisions are told by the library that it is wrong parameters.
const NO_RESOURCE: i64 = -32_002;
/// Values that are proposed for an argument; as many as the protocol lets through.
const MOST_VALUES: usize = 100;

/// What is declared of it.
pub(super) fn capabilities() -> Value {
    json!({"resources": {}, "prompts": {}, "completions": {}, "logging": {}})
}

pub(super) async fn answer(app: &App, request: &Request) -> Result<Map<String, Value>, Refused> {
    let result = match request.method.as_str() {
        "resources/list" => json!({"resources": resources(app).await?}),
        "resources/templates/list" => json!({"resourceTemplates": [{
            "uriTemplate": format!("{SCHEME}{{namespace}}/{{name}}"),
            "name": "project",
            "description": "The configuration of a project, secrets masked.",
            "mimeType": "application/json",
        }]}),
        "resources/read" => read(app, request.param("uri")).await?,
        "prompts/list" => json!({"prompts": prompts(app)}),
        "prompts/get" => prompt(app, request)?,
        "completion/complete" => completion(app, request).await?,
        // what is told after this is decided where it is told
        "logging/setLevel" => json!({}),
        _ => return Err(Refused::UnknownMethod(request.method.clone())),
    };
    match result {
        Value::Object(result) => Ok(result),
        _ => Ok(Map::new()),
    }
}

fn unavailable(refusal: &EditRefusal) -> Refused {
    Refused::Unavailable(refusal.to_string())
}

async fn resources(app: &App) -> Result<Vec<Value>, Refused> {
    let projects = app.list_projects(None).await.map_err(|refusal| unavailable(&refusal))?;
    let resource = |namespace: &str, name: &str| {
        json!({
            "uri": format!("{SCHEME}{namespace}/{name}"),
            "name": format!("{namespace}/{name}"),
            "description": format!("The configuration of project {namespace}/{name}, secrets masked."),
            "mimeType": "application/json",
        })
    };
    Ok(projects.iter().map(|project| resource(&project.namespace, &project.name)).collect())
}

async fn read(app: &App, uri: &str) -> Result<Value, Refused> {
    let unknown = || Refused::Upstream {
        code: NO_RESOURCE,
        message: format!("there is no resource `{uri}`"),
        data: Some(json!({"uri": uri})),
    };
    let (namespace, name) =
        uri.strip_prefix(SCHEME).and_then(|path| path.split_once('/')).ok_or_else(unknown)?;
    let project = match app.show_project(namespace.to_owned(), name.to_owned()).await {
        Ok(project) => crate::routes::projects::shown(&project),
        Err(EditRefusal::NotFound(_) | EditRefusal::BadRequest(_)) => return Err(unknown()),
        Err(refusal) => return Err(unavailable(&refusal)),
    };
    Ok(json!({"contents": [{"uri": uri, "mimeType": "application/json", "text": format!("{project:#}")}]}))
}

fn prompts(app: &App) -> Vec<Value> {
    let Some(project) = app.project() else { return Vec::new() };
    let listed = project.prompts.iter().map(|(name, set)| {
        let argument = |(name, has_default): (&str, bool)| json!({"name": name, "required": !has_default});
        let arguments: Vec<Value> = arguments(set).into_iter().map(argument).collect();
        json!({
            "name": name,
            "description": format!("Prompt `{name}` of project {}/{}.", project.namespace, project.name),
            "arguments": arguments,
        })
    });
    listed.collect()
}

/// Each variable once, and whether it has a default wherever it stands.
fn arguments(set: &PromptSet) -> Vec<(&str, bool)> {
    let mut found: Vec<(&str, bool)> = Vec::new();
    for (name, has_default) in set.messages.iter().flat_map(|message| template::names(&message.content)) {
        match found.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known &= has_default,
            None => found.push((name, has_default)),
        }
    }
    found
}

fn named(app: &App, name: &str) -> Result<PromptSet, Refused> {
    let found = app.project().and_then(|project| project.prompts.get(name).cloned());
    found.ok_or_else(|| Refused::Invalid(format!("there is no prompt `{name}`")))
}

fn prompt(app: &App, request: &Request) -> Result<Value, Refused> {
    let variables = request.params.get("arguments").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut messages = Vec::new();
    for message in named(app, request.param("name"))?.messages {
        let text = template::fill(&message.content, &variables);
        let text = text.map_err(|error| Refused::Invalid(error.to_string()))?;
        // MCP knows two roles
        let role = if message.role == Role::Assistant { "assistant" } else { "user" };
        messages.push(json!({"role": role, "content": {"type": "text", "text": text}}));
    }
    Ok(json!({"messages": messages}))
}

/// Names of projects are proposed; what stands in a prompt can be anything.
async fn completion(app: &App, request: &Request) -> Result<Value, Refused> {
    let (wanted, argument) = (&request.params["ref"], &request.params["argument"]);
    let begun = argument["value"].as_str().unwrap_or_default();
    let mut values: Vec<String> = Vec::new();
    if wanted["type"] == "ref/prompt" {
        named(app, wanted["name"].as_str().unwrap_or_default())?;
    } else {
        let projects = app.list_projects(None).await.map_err(|refusal| unavailable(&refusal))?;
        let chosen = request.params.get("context").map(|context| &context["arguments"]["namespace"]);
        values = match argument["name"].as_str() {
            Some("namespace") => projects.into_iter().map(|project| project.namespace).collect(),
            Some("name") => projects
                .into_iter()
                .filter(|project| {
                    chosen.and_then(Value::as_str).is_none_or(|chosen| project.namespace == chosen)
                })
                .map(|project| project.name)
                .collect(),
            _ => Vec::new(),
        };
        values.retain(|value| value.starts_with(begun));
        values.sort();
        values.dedup();
    }
    let total = values.len();
    values.truncate(MOST_VALUES);
    Ok(json!({"completion": {"values": values, "total": total, "hasMore": total > MOST_VALUES}}))
}
