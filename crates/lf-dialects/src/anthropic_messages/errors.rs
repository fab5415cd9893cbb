//! Errors, in Anthropic's envelope.

use lf_core::ModelError;
use serde_json::{Value, json};

use super::request::THREAD_REFUSED;
use crate::openai_chat::{self, ErrorReply, RequestError};

/// How Anthropic begins this error. Coding assistants compact the conversation when they read it.
const TOO_LONG: &str = "prompt is too long";

fn reply(status: u16, kind: &str, message: &str, request_id: &str) -> ErrorReply {
    let body = json!({
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": request_id,
    });
    ErrorReply { status, body, retry_after: None }
}

/// The type for a status, from Anthropic's list of errors.
fn kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        504 => "timeout_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

/// Upstream trouble, with the upstream's status class and wording: clients decide by the wording whether to try again.
pub fn error_reply(error: &ModelError, request_id: &str) -> ErrorReply {
    // status and wording are the same for all our clients
    let shared = openai_chat::error_reply(error);
    let message = shared.body["error"]["message"].as_str().unwrap_or_default();
    let code = &shared.body["error"]["code"];
    let message = if is_too_long(code, message) && !message.to_lowercase().contains(TOO_LONG) {
        format!("{TOO_LONG}: {message}")
    } else {
        message.to_owned()
    };
    ErrorReply {
        retry_after: shared.retry_after,
        ..reply(shared.status, kind(shared.status), &message, request_id)
    }
}

fn is_too_long(code: &Value, message: &str) -> bool {
    let message = message.to_lowercase();
    code == "context_length_exceeded"
        || message.contains("maximum context length")
        || message.contains("exceeds the available context size")
}

/// A request that cannot be read.
pub fn request_error_reply(error: &RequestError, request_id: &str) -> ErrorReply {
    let message = match &error.hint {
        Some(hint) => format!("{}; {hint}", error.message),
        None => error.message.clone(),
    };
    let mut reply = reply(400, kind(400), &message, request_id);
    if error.code == Some(THREAD_REFUSED) {
        reply.body["error"]["details"] = json!({"error_code": THREAD_REFUSED, "unsupported": [error.param]});
    }
    reply
}

/// A model that does not exist, with the names that do.
pub fn unknown_model_reply<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
    request_id: &str,
) -> ErrorReply {
    let shared = openai_chat::unknown_model_reply(name, known);
    let message = shared.body["error"]["message"].as_str().unwrap_or_default();
    reply(404, kind(404), message, request_id)
}

/// Trouble that is neither the upstream's nor in the request's form: shutting down, no access, a body that is too
/// large, …
pub fn internal_error_reply(status: u16, message: &str, request_id: &str) -> ErrorReply {
    reply(status, kind(status), message, request_id)
}
