//! Errors: those of every OpenAI API, and the one that a response itself carries.

use lf_core::ModelError;
use serde_json::{Value, json};

pub use crate::openai_chat::{error_reply, internal_error_reply, request_error_reply, unknown_model_reply};

/// The `error` of a response that failed. The codes are those that OpenAI's SDKs list; a request that the upstream
/// rejected keeps the upstream's own, which clients match on (`context_length_exceeded`, …).
pub(super) fn failure(error: &ModelError) -> Value {
    let mut told = error_reply(error).body["error"].take();
    let code = match error {
        ModelError::RateLimited { .. } => "rate_limit_exceeded".into(),
        ModelError::Rejected { .. } if told["code"].is_string() => told["code"].take(),
        ModelError::Rejected { .. } | ModelError::Unsupported(_) => "invalid_prompt".into(),
        ModelError::Unreachable { .. }
        | ModelError::Unauthorized { .. }
        | ModelError::Failed { .. }
        | ModelError::Timeout { .. }
        | ModelError::Garbled { .. } => Value::from("server_error"),
    };
    json!({"code": code, "message": told["message"].take()})
}
