//! Errors: what upstreams answer with, and what our clients are told.

use std::time::Duration;

use lf_core::ModelError;
use serde_json::{Map, Value, json};

use super::served::RequestError;
use crate::answer::sanitised;

/// What an upstream's HTTP failure means. `body` is read whatever its content type; `retry_after` is the parsed
/// header. The upstream's wording is kept: clients match on it ("maximum context length", …).
pub fn error_body(status: u16, body: &[u8], url: &str, retry_after: Option<Duration>) -> ModelError {
    let parsed = serde_json::from_slice::<Value>(body).ok();
    let (message, error) = match parsed {
        Some(value) => (message(&value), error_object(value)),
        None => (None, None),
    };
    let html = body.trim_ascii_start().starts_with(b"<");
    let message = message.unwrap_or_else(|| match sanitised(body) {
        shown if shown.is_empty() => "no reason given".to_owned(),
        shown if html => format!("HTML instead of JSON: {shown}"),
        shown => shown,
    });
    classify(status, url, message, error, retry_after)
}

/// An error told inside an answer that began with 200.
pub(crate) fn upstream_error(url: &str, error: &Value) -> ModelError {
    let message = message(error).unwrap_or_else(|| match error {
        Value::Object(_) | Value::Array(_) => sanitised(error.to_string().as_bytes()),
        _ => "no reason given".to_owned(),
    });
    let inner = error.get("error").filter(|inner| inner.is_object()).unwrap_or(error);
    let status = told_status(inner).unwrap_or(200);
    classify(status, url, message, error_object(error.clone()), None)
}

fn classify(
    status: u16,
    url: &str,
    message: String,
    body: Option<Value>,
    retry_after: Option<Duration>,
) -> ModelError {
    let url = url.to_owned();
    match status {
        401 | 403 => ModelError::Unauthorized { url, status, message },
        429 => ModelError::RateLimited { url, message, retry_after },
        400..=499 => ModelError::Rejected { url, status, message, body: body.map(Box::new) },
        200 | 500.. => ModelError::Failed { url, status, message, retry_after },
        _ => {
            let found = format!("HTTP status {status}: {message}");
            ModelError::Garbled { url, expected: "model answer".into(), found }
        }
    }
}

/// The upstream's wording, wherever it put it.
fn message(body: &Value) -> Option<String> {
    let candidates =
        ["/error/message", "/message", "/error", "/detail/0/msg", "/detail", "/errors/0/message", ""];
    candidates
        .iter()
        .filter_map(|pointer| body.pointer(pointer).or_else(|| body.pointer("/0")?.pointer(pointer)))
        .find_map(Value::as_str)
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

fn error_object(body: Value) -> Option<Value> {
    match body {
        Value::Object(mut object) => match object.shift_remove("error") {
            Some(error @ Value::Object(_)) => Some(error),
            _ if object.contains_key("message") => Some(object.into()),
            _ => None,
        },
        Value::Array(items) => error_object(items.into_iter().next()?),
        _ => None,
    }
}

/// The HTTP status that an error inside an answer names, by number or by the usual type names.
fn told_status(error: &Value) -> Option<u16> {
    let number = ["code", "status", "status_code"].iter().find_map(|key| match &error[*key] {
        Value::String(text) => text.parse().ok(),
        value => value.as_u64().and_then(|number| u16::try_from(number).ok()),
    });
    if let Some(number) = number.filter(|number| (400..600).contains(number)) {
        return Some(number);
    }
    ["type", "code", "status"].iter().find_map(|key| {
        Some(match error[*key].as_str()? {
            "invalid_request_error" | "context_length_exceeded" | "invalid_prompt" | "INVALID_ARGUMENT" => {
                400
            }
            "authentication_error" | "invalid_api_key" | "UNAUTHENTICATED" => 401,
            "permission_error" | "permission_denied" | "PERMISSION_DENIED" => 403,
            "not_found_error" | "model_not_found" | "NOT_FOUND" => 404,
            "request_too_large" => 413,
            "rate_limit_error" | "rate_limit_exceeded" | "insufficient_quota" | "RESOURCE_EXHAUSTED" => 429,
            "overloaded_error" => 529,
            _ => return None,
        })
    })
}

/// An answer that is an error, in the caller's dialect.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorReply {
    pub status: u16,
    /// OpenAI: `{"error": {"message", "type", "param", "code"}}`; Anthropic: `{"type": "error", "error": {"type", "message"}, "request_id"}`.
    pub body: Value,
    /// For the `Retry-After` header.
    pub retry_after: Option<Duration>,
}

impl ErrorReply {
    fn new(status: u16, message: &str, kind: &str, code: Option<&str>, param: Option<&str>) -> Self {
        let body = json!({"error": {"message": message, "type": kind, "param": param, "code": code}});
        Self { status, body, retry_after: None }
    }
}

/// Upstream trouble, with the upstream's status class and wording.
pub fn error_reply(error: &ModelError) -> ErrorReply {
    let whole = error.to_string();
    match error {
        ModelError::Unauthorized { status, message, .. } => {
            let (kind, code) = match status {
                403 => ("permission_error", "permission_denied"),
                _ => ("authentication_error", "invalid_api_key"),
            };
            ErrorReply::new(*status, message, kind, Some(code), None)
        }
        ModelError::RateLimited { message, retry_after, .. } => ErrorReply {
            retry_after: *retry_after,
            ..ErrorReply::new(429, message, "rate_limit_error", Some("rate_limit_exceeded"), None)
        },
        ModelError::Rejected { status, message, body, .. } => rejected(*status, message, body.as_deref()),
        ModelError::Failed { .. } if error.is_going_down() => {
            ErrorReply::new(503, "the daemon is shutting down", "server_error", Some("shutting_down"), None)
        }
        ModelError::Failed { status, message, retry_after, .. } => {
            let status = if (500..600).contains(status) { *status } else { 502 };
            ErrorReply {
                retry_after: *retry_after,
                ..ErrorReply::new(status, message, "server_error", Some("upstream_error"), None)
            }
        }
        ModelError::Timeout { .. } => {
            ErrorReply::new(504, &whole, "timeout_error", Some("upstream_timeout"), None)
        }
        ModelError::Unreachable { .. } => {
            ErrorReply::new(502, &whole, "server_error", Some("upstream_unreachable"), None)
        }
        ModelError::Garbled { .. } => {
            ErrorReply::new(502, &whole, "server_error", Some("upstream_invalid_answer"), None)
        }
        ModelError::Unsupported(message) => {
            ErrorReply::new(400, message, "invalid_request_error", Some("unsupported"), None)
        }
    }
}

/// The upstream's own error object, completed to OpenAI's shape.
fn rejected(status: u16, message: &str, body: Option<&Value>) -> ErrorReply {
    let mut error = match body {
        Some(Value::Object(object)) => object.clone(),
        _ => Map::new(),
    };
    error.insert("message".to_owned(), message.into());
    if !error.get("type").is_some_and(Value::is_string) {
        error.insert("type".to_owned(), "invalid_request_error".into());
    }
    for key in ["param", "code"] {
        error.entry(key).or_insert(Value::Null);
    }
    ErrorReply { status, body: json!({ "error": error }), retry_after: None }
}

/// A request that cannot be read.
pub fn request_error_reply(error: &RequestError) -> ErrorReply {
    let message = match &error.hint {
        Some(hint) => format!("{}; {hint}", error.message),
        None => error.message.clone(),
    };
    ErrorReply::new(400, &message, "invalid_request_error", error.code, error.param.as_deref())
}

/// A model that does not exist, with the names that do.
pub fn unknown_model_reply<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> ErrorReply {
    let known: Vec<String> = known.into_iter().map(|name| format!("`{name}`")).collect();
    let known = match known.as_slice() {
        [] => "there are no models".to_owned(),
        names => format!("the models are {}", names.join(", ")),
    };
    let message = format!("the model `{name}` does not exist; {known}");
    ErrorReply::new(404, &message, "invalid_request_error", Some("model_not_found"), Some("model"))
}

/// Trouble of our own, such as shutting down; `status` is 5xx.
pub fn internal_error_reply(status: u16, message: &str) -> ErrorReply {
    ErrorReply::new(status, message, "server_error", None, None)
}
