//! Errors as the caller's dialect has them: OpenAI's envelope on its routes, our own elsewhere.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use lf_dialects::openai_chat::{self, ErrorReply};
use serde_json::{Value, json};

use crate::app::Refusal;

/// Something that went wrong before there was a turn.
pub(crate) fn refusal(path: &str, status: StatusCode, message: &str) -> Response {
    let body = if is_openai(path) {
        let kind = if status.is_server_error() { "server_error" } else { "invalid_request_error" };
        openai(message, kind, None, None)
    } else {
        own(code(status), message)
    };
    (status, Json(body)).into_response()
}

/// The routes that OpenAI's SDKs call.
fn is_openai(path: &str) -> bool {
    path.ends_with("/chat/completions") || path.ends_with("/models")
}

fn openai(message: &str, kind: &str, code: Option<&str>, param: Option<&str>) -> Value {
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}

fn own(code: &str, message: &str) -> Value {
    json!({"error": code, "message": message, "details": null})
}

fn code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::BAD_GATEWAY => "ToolFailed",
        StatusCode::SERVICE_UNAVAILABLE => "Unavailable",
        status if status.is_client_error() => "BadRequest",
        _ => "InternalServerError",
    }
}

/// A refused chat, in OpenAI's envelope.
pub(crate) fn chat_refusal(refusal: &Refusal) -> Response {
    let message = refusal.to_string();
    let (status, code, param) = match refusal {
        Refusal::Model(error) => return error_reply(openai_chat::error_reply(error)),
        Refusal::UnknownModel { model, known } => {
            return error_reply(openai_chat::unknown_model_reply(model, known.iter().map(String::as_str)));
        }
        Refusal::UnknownProject(_) => (StatusCode::NOT_FOUND, Some("project_not_found"), None),
        Refusal::BadRequest { param, .. } => (StatusCode::BAD_REQUEST, None, param.as_deref()),
        Refusal::BrokenProject { .. } | Refusal::DisabledModel { .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, Some("configuration_error"), None)
        }
        Refusal::RequiredServerDown { .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, Some("mcp_server_down"), None)
        }
    };
    let kind = if status.is_server_error() { "server_error" } else { "invalid_request_error" };
    (status, Json(openai(&message, kind, code, param))).into_response()
}

/// The same refusals on our own routes.
pub(crate) fn own_refusal(refusal: &Refusal) -> Response {
    let (status, code) = match refusal {
        Refusal::UnknownProject(_) => (StatusCode::NOT_FOUND, "ProjectNotFound"),
        Refusal::UnknownModel { .. } => (StatusCode::NOT_FOUND, "ModelNotFound"),
        Refusal::BadRequest { .. } => (StatusCode::BAD_REQUEST, "BadRequest"),
        Refusal::BrokenProject { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "ProjectConfigError"),
        Refusal::DisabledModel { .. } | Refusal::RequiredServerDown { .. } | Refusal::Model(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "Unavailable")
        }
    };
    (status, Json(own(code, &refusal.to_string()))).into_response()
}

/// An error in OpenAI's envelope, with the upstream's wish for a pause.
pub(crate) fn error_reply(error: ErrorReply) -> Response {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut response = (status, Json(error.body)).into_response();
    if let Some(pause) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(pause.as_secs().max(1)));
    }
    response
}
