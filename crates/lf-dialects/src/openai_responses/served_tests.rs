use lf_core::model::ChatRequest;
use lf_core::{Message, ModelRequest};
use serde_json::{Value, json};

use super::*;
use crate::Dialect;
use crate::openai_chat::RequestError;
use crate::upstream::{UpstreamOptions, encode_whole};

mod decoding;
mod protocol;
mod telling;
mod tools;

#[expect(clippy::needless_pass_by_value, reason = "reads better at the many calls")]
fn decoded(body: Value) -> Result<(ChatRequest, ResponsesView), RequestError> {
    decode_request(body.to_string().as_bytes())
}

fn decode(body: Value) -> ChatRequest {
    decoded(body).unwrap().0
}

fn view(body: Value) -> ResponsesView {
    decoded(body).unwrap().1
}

fn refused(body: Value) -> String {
    let reply = request_error_reply(&decoded(body).unwrap_err());
    let error = &reply.body["error"];
    format!("{} {} {}", reply.status, error["param"], error["message"].as_str().unwrap())
}

pub(super) fn to_upstream(dialect: Dialect, request: ChatRequest) -> Value {
    encode_whole(dialect, "gpt", &request.into(), &UpstreamOptions::default()).unwrap()
}

/// What a Chat Completions upstream gets, one message a line, then the other fields.
fn sent(body: Value) -> String {
    let mut sent = to_upstream(Dialect::OpenaiChat, decode(body));
    let messages = sent["messages"].take();
    let mut lines: Vec<String> = messages.as_array().unwrap().iter().map(Value::to_string).collect();
    let fields = sent.as_object().unwrap().iter();
    let fields = fields.filter(|(key, _)| !["model", "messages"].contains(&key.as_str()));
    lines.extend(fields.map(|(key, value)| format!("{key}: {value}")));
    lines.join("\n")
}

fn messages(request: &ChatRequest) -> String {
    let lines = request.messages.iter().map(|message| match message {
        Message::System(prose) => format!("system {:?}", prose.content.text()),
        Message::User(prose) => format!("user {:?}", prose.content.text()),
        Message::Assistant(said) => {
            let calls: Vec<&str> = said.calls.iter().map(|call| call.id.as_str()).collect();
            let kept = said.rest.get(RESPONSES_ONLY).map(Value::to_string).unwrap_or_default();
            format!("assistant {:?} {:?} {calls:?} {kept}", said.content.text(), said.reasoning)
        }
        Message::Tool(result) => {
            format!("tool {} {:?} {:?}", result.call_id, result.name, result.content.text())
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[expect(clippy::needless_pass_by_value, reason = "reads better at the many calls")]
fn ask(input: Value) -> Value {
    json!({"model": "m", "input": input})
}

#[expect(clippy::needless_pass_by_value, reason = "reads better at the many calls")]
fn ask_with(fields: Value) -> Value {
    let mut body = ask(json!("hi"));
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}
