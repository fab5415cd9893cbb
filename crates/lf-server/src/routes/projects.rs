//! Stored projects: listed, shown, made, changed, removed.

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Shared, Who};
use crate::app::{EditRefusal, StoredProject, Wanted};
use crate::guard::{json_body, whole_body};

/// The one template there is: what `lf init` writes.
pub(crate) const TEMPLATES: [&str; 1] = ["default"];

pub(super) async fn all(State(shared): State<Shared>, Who(who): Who) -> Response {
    listed(shared.app.list_projects(&who, None).await)
}

pub(super) async fn list(
    State(shared): State<Shared>,
    Who(who): Who,
    Path(namespace): Path<String>,
) -> Response {
    listed(shared.app.list_projects(&who, Some(namespace)).await)
}

fn listed(projects: Result<Vec<StoredProject>, EditRefusal>) -> Response {
    match projects {
        Ok(projects) => {
            let projects: Vec<Value> = projects.iter().map(shown).collect();
            Json(json!({"total": projects.len(), "projects": projects})).into_response()
        }
        Err(refusal) => refused(refusal),
    }
}

type Scope = Path<(String, String)>;

pub(super) async fn get(
    State(shared): State<Shared>,
    Who(who): Who,
    Path((namespace, name)): Scope,
) -> Response {
    answer(shared.app.show_project(&who, namespace, name).await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    name: String,
    #[serde(default)]
    config_template: Option<String>,
    #[serde(default)]
    config: Option<Value>,
}

pub(super) async fn create(
    State(shared): State<Shared>,
    Who(who): Who,
    Path(namespace): Path<String>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let body = match json_body(&parts, body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let create: Create = match object(&body) {
        Ok(create) => create,
        Err(error) => {
            return bad(format!("the body is not `{{\"name\", \"config_template\", \"config\"}}`: {error}"));
        }
    };
    if let Some(template) = create.config_template.filter(|name| !TEMPLATES.contains(&name.as_str())) {
        let what = format!("the template `{template}` does not exist; there is: {}", TEMPLATES.join(", "));
        return error(StatusCode::NOT_FOUND, "ConfigTemplateNotFound", &what, Value::Null);
    }
    let config = create.config.map(Wanted::Value);
    answer(shared.app.create_project(&who, namespace, create.name, config).await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Put {
    config: Value,
    /// Of the file that was read, as `If-Match`.
    #[serde(default)]
    revision: Option<String>,
}

/// `{"config": …}` as JSON, or the file itself as YAML.
pub(super) async fn put(
    State(shared): State<Shared>,
    Who(who): Who,
    Path((namespace, name)): Scope,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let given = if is_yaml(&parts) {
        match whole_body(&parts, body).await.map(|bytes| String::from_utf8(bytes.to_vec())) {
            Ok(Ok(text)) => (Wanted::Text(text), None),
            Ok(Err(_)) => return bad("the body is not UTF-8 text".to_owned()),
            Err(refusal) => return refusal,
        }
    } else {
        let body = match json_body(&parts, body).await {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        match object::<Put>(&body) {
            Ok(put) => (Wanted::Value(put.config), put.revision),
            Err(error) => return bad(format!("the body is not `{{\"config\": {{…}}}}`: {error}")),
        }
    };
    let (wanted, revision) = given;
    let revision = revision.or_else(|| if_match(&parts));
    answer(shared.app.replace_project(&who, namespace, name, wanted, revision).await)
}

pub(super) async fn delete(
    State(shared): State<Shared>,
    Who(who): Who,
    Path((namespace, name)): Scope,
) -> Response {
    let gone = json!({"project": {"namespace": namespace, "name": name}});
    match shared.app.remove_project(&who, namespace, name).await {
        Ok(()) => Json(gone).into_response(),
        Err(refusal) => refused(refusal),
    }
}

/// serde would take an array for the fields in their order.
fn object<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, serde_json::Error> {
    let object = serde_json::from_slice::<Map<String, Value>>(body)?;
    serde_json::from_value(Value::Object(object))
}

fn is_yaml(parts: &Parts) -> bool {
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim().to_lowercase();
    ["application/yaml", "application/x-yaml", "text/yaml"].contains(&essence.as_str())
}

fn if_match(parts: &Parts) -> Option<String> {
    let given = parts.headers.get(header::IF_MATCH)?.to_str().ok()?.trim();
    let revision = given.trim_start_matches("W/").trim_matches('"');
    (revision != "*").then(|| revision.to_owned())
}

fn answer(project: Result<StoredProject, EditRefusal>) -> Response {
    match project {
        Ok(project) => {
            let mut response = Json(json!({"project": shown(&project)})).into_response();
            if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", project.revision)) {
                response.headers_mut().insert(header::ETAG, tag);
            }
            response
        }
        Err(refusal) => refused(refusal),
    }
}

pub(crate) fn shown(project: &StoredProject) -> Value {
    json!({
        "namespace": project.namespace,
        "name": project.name,
        "config": project.config,
        "validation_error": project.validation_error,
        "last_modified": project.modified.map(crate::timestamp::timestamp),
        "revision": project.revision,
    })
}

fn refused(refusal: EditRefusal) -> Response {
    let message = refusal.to_string();
    let (status, code, details) = match refusal {
        EditRefusal::NotFound(_) => (StatusCode::NOT_FOUND, "ProjectNotFound", Value::Null),
        EditRefusal::Exists(_) => (StatusCode::CONFLICT, "ProjectExists", Value::Null),
        EditRefusal::Changed(_) => (StatusCode::CONFLICT, "ProjectChanged", Value::Null),
        EditRefusal::Forbidden(_) => (StatusCode::FORBIDDEN, "Forbidden", Value::Null),
        EditRefusal::BadRequest(_) => (StatusCode::BAD_REQUEST, "BadRequest", Value::Null),
        EditRefusal::Invalid { details, .. } => {
            (StatusCode::UNPROCESSABLE_ENTITY, "ProjectConfigError", Value::Array(details))
        }
        EditRefusal::Failed(_) => (StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", Value::Null),
    };
    error(status, code, &message, details)
}

fn bad(message: String) -> Response {
    refused(EditRefusal::BadRequest(message))
}

fn error(status: StatusCode, code: &str, message: &str, details: Value) -> Response {
    let mut body = json!({"error": code, "message": message});
    body["details"] = details;
    (status, Json(body)).into_response()
}
