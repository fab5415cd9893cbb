//! A reply as bytes.

use std::convert::Infallible;
use std::future::pending;
use std::io;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::Watch;
use super::check::resolve;
use super::reply::{Answer, Call, End, Reply, ReplyBody};
use crate::wait::Gate;

pub(super) async fn respond(reply: Reply, request: &Value, mut watch: Watch) -> Response {
    if let Some(gate) = &reply.hold {
        gate.passed().await;
    }
    match reply.body {
        ReplyBody::Silence => match pending::<Infallible>().await {},
        ReplyBody::Whole { status, headers, body } => {
            watch.done();
            let mut response = Response::new(Body::from(body));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            for (name, value) in headers {
                let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
                response.headers_mut().append(name, HeaderValue::from_str(&value).unwrap());
            }
            response
        }
        ReplyBody::Stream { parts, end } => stream(parts, end, None, "text/event-stream", watch),
        ReplyBody::Answer(answer) => {
            let answer = in_this_request(answer, request);
            if request["stream"] == true {
                let parts = events(&answer, request);
                stream(parts, answer.end, answer.hold, "text/event-stream", watch)
            } else {
                document(answer, request, watch)
            }
        }
    }
}

/// Names resolved, and calls for a text-only model written into the text.
fn in_this_request(mut answer: Answer, request: &Value) -> Answer {
    for call in &mut answer.calls {
        call.name = resolve(&call.name, request);
    }
    for call in std::mem::take(&mut answer.tagged) {
        let name = Value::String(resolve(&call.name, request));
        let call = format!("{{\"name\": {name}, \"arguments\": {}}}", call.arguments);
        answer.text.push_str(&format!("<tool_call>\n{call}\n</tool_call>"));
    }
    answer
}

fn finish_reason(answer: &Answer) -> &str {
    match &answer.finish_reason {
        Some(reason) => reason,
        None if answer.calls.is_empty() => "stop",
        None => "tool_calls",
    }
}

fn usage(answer: &Answer) -> Option<Value> {
    let (prompt, completion) = answer.usage?;
    Some(
        json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}),
    )
}

fn document(answer: Answer, request: &Value, watch: Watch) -> Response {
    let mut message = Map::new();
    message.insert("role".to_owned(), json!("assistant"));
    let content = if answer.text.is_empty() { Value::Null } else { json!(answer.text) };
    message.insert("content".to_owned(), content);
    if !answer.reasoning.is_empty() {
        message.insert("reasoning_content".to_owned(), json!(answer.reasoning));
    }
    if !answer.calls.is_empty() {
        let calls: Vec<Value> = answer.calls.iter().map(whole_call).collect();
        message.insert("tool_calls".to_owned(), json!(calls));
    }
    let mut document = json!({
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(&answer)}],
    });
    if let Some(usage) = usage(&answer) {
        document["usage"] = usage;
    }
    let text = document.to_string().into_bytes();
    let parts = match answer.write {
        0 => vec![text],
        size => text.chunks(size).map(<[u8]>::to_vec).collect(),
    };
    stream(parts, answer.end, answer.hold, "application/json", watch)
}

fn whole_call(call: &Call) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    })
}

/// The writes of a streamed answer.
fn events(answer: &Answer, request: &Value) -> Vec<Vec<u8>> {
    let mut deltas = vec![json!({"role": "assistant", "content": ""})];
    deltas.extend(split(&answer.reasoning, answer.piece).map(|text| json!({"reasoning_content": text})));
    deltas.extend(split(&answer.text, answer.piece).map(|text| json!({"content": text})));
    for (index, call) in answer.calls.iter().enumerate() {
        let function = json!({"name": call.name, "arguments": ""});
        deltas.push(json!({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]}));
        deltas.extend(
            split(&call.arguments, answer.piece)
                .map(|text| json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]})),
        );
    }
    let chunk = |choices: Value| {
        json!({
            "id": "chatcmpl-scripted",
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": request["model"],
            "choices": choices,
        })
    };
    let mut chunks: Vec<Value> = deltas
        .into_iter()
        .map(|delta| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}])))
        .collect();
    chunks.push(chunk(json!([{"index": 0, "delta": {}, "finish_reason": finish_reason(answer)}])));
    // As the API does it: usage only for those who ask.
    if request["stream_options"]["include_usage"] == true
        && let Some(usage) = usage(answer)
    {
        let mut last = chunk(json!([]));
        last["usage"] = usage;
        chunks.push(last);
    }
    let mut parts: Vec<Vec<u8>> =
        chunks.iter().map(|chunk| format!("data: {chunk}\n\n").into_bytes()).collect();
    parts.push(b"data: [DONE]\n\n".to_vec());
    match answer.write {
        0 => parts,
        size => parts.concat().chunks(size).map(<[u8]>::to_vec).collect(),
    }
}

/// Pieces of about `size` bytes that are whole characters; nothing for an empty text.
fn split(text: &str, size: usize) -> impl Iterator<Item = &str> {
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
