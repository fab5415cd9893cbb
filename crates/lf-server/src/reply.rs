//! Errors as the caller's dialect has them.

use std::convert::Infallible;

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lf_core::ModelError;
use lf_core::quota::{Bound, OverQuota, whole_seconds};
use lf_dialects::anthropic_messages;
use lf_dialects::openai_chat::{self, ErrorReply, RequestError};
use serde_json::{Value, json};

use crate::app::Refusal;

/// Which API a route belongs to, and so how it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Face {
    /// OpenAI Chat Completions and its neighbours.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Messages,
    /// The Model Context Protocol.
    Mcp,
    /// Our own routes, in the shape of the projects that they come from.
    Own,
}

/// The id of a request, also in its response's headers.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub String);

/// Who asked, as far as errors need to know.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub face: Face,
    pub request_id: String,
}

impl Caller {
    pub(crate) fn of(parts: &Parts) -> Self {
        let id = parts.extensions.get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
        Self::at(parts.uri.path(), id)
    }

    pub(crate) fn at(path: &str, request_id: String) -> Self {
        let face = match path {
            path if ["/conversations", "/v1/conversations", "/v1/turns"]
                .iter()
                .any(|own| path.starts_with(own)) =>
            {
                Face::Own
            }
            "/mcp" => Face::Mcp,
            path if path.starts_with("/mcp/") => Face::Mcp,
            path if path.ends_with("/chat/completions") || path.contains("/models") => Face::Chat,
            path if path.ends_with("/responses") || path.contains("/responses/") => Face::Responses,
            path if path.strip_prefix("/v1/").is_some_and(is_openai_s) => Face::Chat,
            path if path.ends_with("/messages") || path.ends_with("/messages/count_tokens") => Face::Messages,
            _ => Face::Own,
        };
        Self { face, request_id }
    }

    /// Something that went wrong before there was a turn.
    pub(crate) fn refuse(&self, status: StatusCode, message: &str) -> Response {
        error_reply(self.trouble(status, message))
    }

    pub(crate) fn trouble(&self, status: StatusCode, message: &str) -> ErrorReply {
        self.refuse_with(status, own_code(status), message)
    }

    fn refuse_with(&self, status: StatusCode, code: &str, message: &str) -> ErrorReply {
        match self.face {
            Face::Chat | Face::Responses => openai(status, message, openai_code(status), None),
            Face::Mcp if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                reply(status, rpc_body(message))
            }
            Face::Messages => {
                anthropic_messages::internal_error_reply(status.as_u16(), message, &self.request_id)
            }
            Face::Mcp | Face::Own => reply(status, own_body(code, message)),
        }
    }

    /// A request whose body does not say what it must.
    pub(crate) fn unreadable(&self, error: &RequestError) -> ErrorReply {
        match self.face {
            Face::Messages => anthropic_messages::request_error_reply(error, &self.request_id),
            Face::Chat | Face::Responses | Face::Mcp | Face::Own => openai_chat::request_error_reply(error),
        }
    }

    /// Upstream trouble before anything was shown.
    pub(crate) fn model_error(&self, error: &ModelError) -> ErrorReply {
        match self.face {
            Face::Messages => anthropic_messages::error_reply(error, &self.request_id),
            Face::Chat | Face::Responses | Face::Mcp | Face::Own => openai_chat::error_reply(error),
        }
    }

    pub(crate) fn refusal(&self, refusal: &Refusal) -> Response {
        error_reply(self.refused(refusal))
    }

    /// What was asked for as it is shown, or why it is not.
    pub(crate) fn answer<T, R: IntoResponse>(
        &self,
        found: Result<T, Refusal>,
        shown: impl FnOnce(T) -> R,
    ) -> Response {
        match found {
            Ok(found) => shown(found).into_response(),
            Err(refusal) => self.refusal(&refusal),
        }
    }

    /// A request that cannot become a turn.
    pub(crate) fn refused(&self, refusal: &Refusal) -> ErrorReply {
        match (self.face, refusal) {
            (Face::Chat | Face::Responses | Face::Messages, Refusal::Model(error)) => self.model_error(error),
            (Face::Chat | Face::Responses, Refusal::UnknownModel { model, known }) => {
                openai_chat::unknown_model_reply(model, known.iter().map(String::as_str))
            }
            (Face::Messages, Refusal::UnknownModel { model, known }) => {
                let known = known.iter().map(String::as_str);
                anthropic_messages::unknown_model_reply(model, known, &self.request_id)
            }
            (face, Refusal::OverQuota(over)) => {
                let told = match face {
                    Face::Chat | Face::Responses => over_quota(over),
                    Face::Messages | Face::Mcp | Face::Own => {
                        self.refuse_with(StatusCode::TOO_MANY_REQUESTS, "RateLimited", &over.to_string())
                    }
                };
                ErrorReply { retry_after: Some(over.retry_after), ..told }
            }
            (Face::Chat | Face::Responses, _) => {
                let (status, _, code) = kind_of(refusal);
                let param = match refusal {
                    Refusal::BadRequest { param, .. } => param.as_deref(),
                    _ => None,
                };
                openai(status, &refusal.to_string(), code, param)
            }
            (Face::Own | Face::Mcp, Refusal::Model(error)) => {
                let (_, own, _) = kind_of(refusal);
                let told = self.model_error(error);
                ErrorReply { body: own_body(own, &refusal.to_string()), ..told }
            }
            (Face::Messages | Face::Mcp | Face::Own, _) => {
                let (status, own, _) = kind_of(refusal);
                self.refuse_with(status, own, &refusal.to_string())
            }
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(parts))
    }
}

/// What of OpenAI's API there is not here: whoever asks for it reads OpenAI's errors.
fn is_openai_s(path: &str) -> bool {
    const ABSENT: [&str; 12] = [
        "assistants",
        "audio",
        "batches",
        "completions",
        "embeddings",
        "files",
        "fine_tuning",
        "images",
        "moderations",
        "threads",
        "uploads",
        "vector_stores",
    ];
    path.split('/').next().is_some_and(|first| ABSENT.contains(&first))
}

/// Status, and the words for programs: ours and OpenAI's.
fn kind_of(refusal: &Refusal) -> (StatusCode, &'static str, Option<&'static str>) {
    match refusal {
        Refusal::UnknownProject(_) => (StatusCode::NOT_FOUND, "ProjectNotFound", Some("project_not_found")),
        Refusal::UnknownModel { .. } => (StatusCode::NOT_FOUND, "ModelNotFound", Some("model_not_found")),
        Refusal::UnknownServer { .. } => (StatusCode::NOT_FOUND, "ServerNotFound", None),
        Refusal::UnknownConversation(_) => {
            (StatusCode::NOT_FOUND, "ConversationNotFound", Some("conversation_not_found"))
        }
        Refusal::Lacking(_) => (StatusCode::FORBIDDEN, "Forbidden", Some("permission_denied")),
        Refusal::OverQuota(_) => (StatusCode::TOO_MANY_REQUESTS, "RateLimited", Some("rate_limit_exceeded")),
        Refusal::Busy(_) => (StatusCode::TOO_MANY_REQUESTS, "Busy", Some("conversation_busy")),
        Refusal::NoMemory { .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, "Unavailable", Some("store_unavailable"))
        }
        Refusal::NoRoom { .. } => (StatusCode::INSUFFICIENT_STORAGE, "StorageFull", Some("storage_full")),
        Refusal::BadRequest { .. } => (StatusCode::BAD_REQUEST, "BadRequest", None),
        Refusal::BrokenProject { .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, "ProjectConfigError", Some("configuration_error"))
        }
        Refusal::DisabledModel { .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, "Unavailable", Some("configuration_error"))
        }
        Refusal::RequiredServerDown { .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, "Unavailable", Some("mcp_server_down"))
        }
        Refusal::Model(_) => (StatusCode::BAD_GATEWAY, "Unavailable", None),
    }
}

fn openai(status: StatusCode, message: &str, code: Option<&str>, param: Option<&str>) -> ErrorReply {
    let kind = match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    };
    reply(status, json!({"error": {"message": message, "type": kind, "param": param, "code": code}}))
}

/// OpenAI's words for who may not ask.
fn openai_code(status: StatusCode) -> Option<&'static str> {
    match status {
        StatusCode::UNAUTHORIZED => Some("invalid_api_key"),
        StatusCode::FORBIDDEN => Some("permission_denied"),
        _ => None,
    }
}

/// A JSON-RPC error that answers no request of its own: the body was not looked at.
fn rpc_body(message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32_001, "message": message}})
}

/// In OpenAI's words: a minute that is full passes soon, what a day has is another kind of trouble.
fn over_quota(over: &OverQuota) -> ErrorReply {
    let (kind, code) = match over.bound {
        Bound::Requests(_) => ("requests", "rate_limit_exceeded"),
        Bound::Tokens(_) | Bound::Cost(_) => ("insufficient_quota", "insufficient_quota"),
    };
    let error = json!({"message": over.to_string(), "type": kind, "param": null, "code": code});
    reply(StatusCode::TOO_MANY_REQUESTS, json!({ "error": error }))
}

fn reply(status: StatusCode, body: Value) -> ErrorReply {
    ErrorReply { status: status.as_u16(), body, retry_after: None }
}

fn own_body(code: &str, message: &str) -> Value {
    json!({"error": code, "message": message, "details": null})
}

fn own_code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::BAD_GATEWAY => "ToolFailed",
        StatusCode::SERVICE_UNAVAILABLE => "Unavailable",
        status if status.is_client_error() => "BadRequest",
        _ => "InternalServerError",
    }
}

/// An error in its envelope, with the upstream's wish for a pause.
pub(crate) fn error_reply(error: ErrorReply) -> Response {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut response = (status, Json(error.body)).into_response();
    if let Some(pause) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(pause)));
    }
    response
}

#[cfg(test)]
mod tests;
