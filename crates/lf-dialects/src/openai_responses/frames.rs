//! The frames of WebSocket mode: JSON text both ways. A client's frame is a request, what is told of its response are the
//! events of a streamed one, and trouble without a response has an envelope of its own.

use serde_json::{Value, json};

use crate::openai_chat::{ErrorReply, RequestError, body_object};

/// A `response.create` that came over a connection.
#[derive(Debug, Clone, PartialEq)]
pub struct Create {
    /// What it would be as the body of `POST …/responses`, to be streamed.
    pub body: Vec<u8>,
    /// What it goes on from. Known before the rest is read, because a continuation that fails in any way takes that along.
    pub previous_response_id: Option<String>,
}

/// Reads a client's frame. Fields that belong to HTTP are refused where they ask for something else than what a connection
/// does, and let be where they do not (`stream`).
///
/// # Errors
/// What is wrong, and where.
pub fn read_create(frame: &[u8]) -> Result<Create, RequestError> {
    const KIND: &str = "response.create";
    let mut fields = body_object(frame, r#"{"type": "response.create", "input": [...]}"#)?;
    match fields.shift_remove("type") {
        Some(Value::String(kind)) if kind == KIND => {}
        None => return Err(RequestError::missing("type", "write `response.create`")),
        Some(Value::String(other)) => {
            let message = format!("`type` is `{other}`");
            return Err(RequestError::value(
                "type",
                message,
                "use `response.create`; to stop a response, close the connection",
            ));
        }
        Some(other) => return Err(RequestError::expected("type", "a string", &other)),
    }
    if fields.shift_remove("background") == Some(Value::Bool(true)) {
        let hint = "send it with `POST`, or leave `background` out";
        return Err(RequestError::unsupported(
            "background",
            "`background` has no meaning on a connection",
            hint,
        ));
    }
    fields.shift_remove("stream_options");
    fields.insert("stream".to_owned(), true.into());
    let previous_response_id = fields.get("previous_response_id").and_then(Value::as_str).map(str::to_owned);
    Ok(Create { body: Value::Object(fields).to_string().into_bytes(), previous_response_id })
}

/// Trouble that ends a request, or the connection. The envelope wants a code in every case.
pub fn error_frame(mut reply: ErrorReply) -> String {
    let mut error = reply.body["error"].take();
    if !error["code"].is_string() {
        error["code"] = if error["type"].is_string() { error["type"].clone() } else { "server_error".into() };
    }
    json!({"type": "error", "status": reply.status, "error": error}).to_string()
}

/// The same as an event of a stream that has no response yet (OpenAI API reference, Responses, streaming events, `error`).
pub fn error_event(mut reply: ErrorReply) -> String {
    let mut error = reply.body["error"].take();
    json!({
        "type": "error",
        "code": if error["code"].is_string() { error["code"].take() } else { error["type"].take() },
        "message": error["message"].take(),
        "param": error["param"].take(),
        "sequence_number": 0,
    })
    .to_string()
}

/// The connection has lasted as long as one may.
pub fn limit_frame() -> String {
    let message = "this connection has lasted for as long as one may: go on over a new one";
    refusal(400, "websocket_connection_limit_reached", message)
}

/// A frame was larger than `limit` bytes.
pub fn too_large_frame(limit: usize) -> String {
    refusal(413, "message_too_large", &format!("the message is larger than {limit} bytes"))
}

fn refusal(status: u16, code: &str, message: &str) -> String {
    let error = json!({"type": "invalid_request_error", "code": code, "message": message, "param": null});
    error_frame(ErrorReply { status, body: json!({"error": error}), retry_after: None })
}
