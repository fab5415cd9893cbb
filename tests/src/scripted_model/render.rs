//! A reply as bytes.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::sync::Mutex;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::asked::Asked;
use super::memory::Memory;
use super::reply::{Answer, End, Reply, ReplyBody};
use super::wire::Wire;
use super::{Watch, chat, gemini, messages, ollama, responses};
use crate::wait::Gate;

/// A request to be answered.
pub(super) struct Asking<'a> {
    /// Its number, from 0: ids are made of it.
    pub number: usize,
    pub body: &'a Value,
    pub asked: &'a Asked,
}

pub(super) async fn respond(
    reply: Reply,
    wire: Wire,
    asking: &Asking<'_>,
    memory: &Mutex<Memory>,
    mut watch: Watch,
) -> Response {
    if let Some(gate) = &reply.hold {
        gate.passed().await;
    }
    match reply.body {
        ReplyBody::Silence => match pending::<Infallible>().await {},
        ReplyBody::Whole { status, headers, body } => {
            watch.done();
            whole(status, headers, body)
        }
        ReplyBody::Error { status, mut headers, message } => {
            watch.done();
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
            whole(status, headers, error(wire, status, &message).to_string().into_bytes())
        }
        ReplyBody::Stream { parts, end } => stream(parts, end, None, "text/event-stream", watch),
        ReplyBody::Answer(answer) => {
            let answer = in_this_request(answer, asking);
            memory.lock().unwrap().keep(wire, &answer);
            answered(&answer, wire, asking, watch)
        }
    }
}

fn whole(status: u16, headers: Vec<(String, String)>, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        response.headers_mut().append(name, HeaderValue::from_str(&value).unwrap());
    }
    response
}

/// Names resolved, and calls for a text-only model written into the text.
fn in_this_request(mut answer: Answer, asking: &Asking<'_>) -> Answer {
    for call in &mut answer.calls {
        call.name = asking.asked.resolve(&call.name);
    }
    for call in std::mem::take(&mut answer.tagged) {
        let name = Value::String(asking.asked.resolve(&call.name));
        let call = format!("{{\"name\": {name}, \"arguments\": {}}}", call.arguments);
        answer.text.push_str(&format!("<tool_call>\n{call}\n</tool_call>"));
    }
    answer
}

/// The answer in the request's API, streamed or whole.
fn answered(answer: &Answer, wire: Wire, asking: &Asking<'_>, watch: Watch) -> Response {
    let (parts, content_type) = if asking.asked.stream {
        let events = match wire {
            Wire::Chat => chat::events(answer, asking),
            Wire::Responses => responses::events(answer, asking),
            Wire::Messages => messages::events(answer, asking),
            Wire::Gemini => gemini::events(answer, asking),
            Wire::Ollama => ollama::events(answer, asking),
        };
        let content_type = if wire == Wire::Ollama { "application/x-ndjson" } else { "text/event-stream" };
        (events.into_iter().map(String::into_bytes).collect(), content_type)
    } else {
        let document = match wire {
            Wire::Chat => chat::document(answer, asking),
            Wire::Responses => responses::document(answer, asking),
            Wire::Messages => messages::document(answer, asking),
            Wire::Gemini => gemini::document(answer, asking),
            Wire::Ollama => ollama::document(answer, asking),
        };
        (vec![document.to_string().into_bytes()], "application/json")
    };
    let parts: Vec<Vec<u8>> = match answer.write {
        0 => parts,
        size => parts.concat().chunks(size).map(<[u8]>::to_vec).collect(),
    };
    stream(parts, answer.end, answer.hold.clone(), content_type, watch)
}

fn error(wire: Wire, status: u16, message: &str) -> Value {
    match wire {
        Wire::Chat | Wire::Responses => chat::error(message),
        Wire::Messages => messages::error(status, message),
        Wire::Gemini => gemini::error(status, message),
        Wire::Ollama => ollama::error(message),
    }
}

/// An event that is named after its type.
pub(super) fn event(value: &Value) -> String {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or_default())
}

/// Pieces of about `size` bytes that are whole characters; nothing for an empty text.
pub(super) fn split(text: &str, size: usize) -> impl Iterator<Item = &str> {
    let size = if size == 0 { usize::MAX } else { size };
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut at = size.min(rest.len());
        while !rest.is_char_boundary(at) {
            at += 1;
        }
        let (piece, tail) = rest.split_at(at);
        rest = tail;
        Some(piece)
    })
}

fn stream(
    parts: Vec<Vec<u8>>,
    end: End,
    hold: Option<(usize, Gate)>,
    content_type: &'static str,
    mut watch: Watch,
) -> Response {
    let body = async_stream::stream! {
        for (number, part) in parts.into_iter().enumerate() {
            if let Some((after, gate)) = &hold && *after == number {
                gate.passed().await;
            }
            match end {
                End::CutAfter(count) if count == number => {
                    watch.done();
                    // What has been written must leave before the connection is torn down.
                    tokio::task::yield_now().await;
                    yield Err(io::Error::other("cut by the script"));
                    return;
                }
                End::SilentAfter(count) if count == number => pending::<()>().await,
                _ => {}
            }
            yield Ok(Bytes::from(part));
            // Each write is a read of its own at the other side, as far as that can be had.
            tokio::task::yield_now().await;
        }
        watch.done();
    };
    ([(CONTENT_TYPE, content_type)], Body::from_stream(body)).into_response()
}
