//! KINDs `areq`, `astr`, `ares` and `errors`: Anthropic's clients in front of an OpenAI upstream, each way through a turn
//! without tools of the server's own.

use anyhow::{Context, Result, bail};
use lf_core::model::{ChatRequest, ToolSpec};
use lf_core::turn::{AskModel, Setup, Step, start};
use lf_core::{Catalogue, ChatEvent, ModelDelta, ModelRequest, ToolChoice, ToolSet};
use lf_dialects::anthropic_messages::{self, Completion, EventEncoder, MessagesView};
use lf_dialects::openai_chat::{LfEvents, error_body};
use lf_dialects::upstream::{UpstreamOptions, encode_whole};
use lf_dialects::{AnswerDecoder, Dialect};
use serde_json::{Map, Value, json};

use super::pieces;

const URL: &str = "http://upstream";
const REQUEST_ID: &str = "req_1";

/// The request as the upstream gets it.
pub(super) fn request(case: &Value) -> Result<Value> {
    let body = serde_json::to_vec(&case["anthropic_request"])?;
    let request = match anthropic_messages::decode_request(&body) {
        Ok((request, _)) => request,
        Err(error) => {
            let reply = anthropic_messages::request_error_reply(&error, REQUEST_ID);
            let kind = &reply.body["error"]["type"];
            return Ok(json!({"id": case["id"], "error": {"status": reply.status, "type": kind}}));
        }
    };
    let model = request.model.clone().unwrap_or_else(|| "default".to_owned());
    let ask = ask(request, &mut Vec::new());
    match encode_whole(Dialect::OpenaiChat, &model, &ask.request(), &UpstreamOptions::default()) {
        Ok(openai) => Ok(json!({"id": case["id"], "openai": openai})),
        Err(error) => {
            let reply = anthropic_messages::error_reply(&error, REQUEST_ID);
            let kind = &reply.body["error"]["type"];
            Ok(json!({"id": case["id"], "error": {"status": reply.status, "type": kind}}))
        }
    }
}

pub(super) fn stream(case: &Value, split: usize) -> Result<Value> {
    let chunks = case["openai_chunks"].as_array().context("a case without chunks")?;
    let sse: String = chunks
        .iter()
        .map(|chunk| match chunk {
            Value::String(text) => format!("data: {text}\n\n"),
            chunk => format!("data: {chunk}\n\n"),
        })
        .collect();
    let names = chunks.iter().flat_map(|chunk| names(&chunk["choices"], "delta"));
    let turn = turn(case, &names.collect::<Vec<_>>(), sse.as_bytes(), split)?;
    let mut encoder = EventEncoder::new("msg_1", "m", MessagesView::default(), LfEvents::Told);
    let mut events: Vec<Value> = Vec::new();
    for (name, data) in turn.iter().flat_map(|event| encoder.event(event)) {
        let data: Value = serde_json::from_str(&data)?;
        if data["type"] != name {
            bail!("the event `{name}` says that it is {}", data["type"]);
        }
        events.push(data);
    }
    Ok(json!({"id": case["id"], "events": events}))
}

pub(super) fn answer(case: &Value, split: usize) -> Result<Value> {
    let response = &case["openai_response"];
    let names = names(&response["choices"], "message");
    let turn = turn(case, &names, response.to_string().as_bytes(), split)?;
    let model = response["model"].as_str().unwrap_or("m");
    let mut completion = Completion::new("msg_1", model, MessagesView::default(), LfEvents::Told);
    turn.iter().for_each(|event| completion.push(event));
    let anthropic = completion.finish(REQUEST_ID).unwrap_or_else(|error| error.body);
    Ok(json!({"id": case["id"], "anthropic": anthropic}))
}

pub(super) fn error(case: &Value) -> Result<Value> {
    let status = case["upstream_status"].as_u64().and_then(|status| u16::try_from(status).ok());
    let body = match &case["upstream_body"] {
        Value::String(text) => text.clone(),
        body => body.to_string(),
    };
    let error = error_body(status.context("a case without a status")?, body.as_bytes(), URL, None);
    let reply = anthropic_messages::error_reply(&error, REQUEST_ID);
    let told = &reply.body["error"];
    Ok(json!({"id": case["id"], "status": reply.status, "type": told["type"], "message": told["message"]}))
}

/// The first ask of a turn that has only the client's tools.
fn ask(request: ChatRequest, events: &mut Vec<ChatEvent>) -> AskModel {
    let tools = ToolSet::new(&Catalogue::default(), &[], &request.tools);
    let tool_choice = request.tool_choice.map(|choice| match choice {
        ToolChoice::Tool(name) => match tools.resolve(&name, None) {
            Ok((exposed, _)) => ToolChoice::Tool(exposed.to_owned()),
            Err(_) => ToolChoice::Tool(name),
        },
        choice => choice,
    });
    let mut messages = request.messages;
    tools.expose_history(&mut messages);
    let setup = Setup::new(
        &"0".repeat(32),
        "m",
        ModelRequest {
            messages,
            tools: [].into(),
            tool_choice,
            parameters: request.parameters,
            stream: request.stream,
        },
        tools,
    );
    start(setup, events)
}

/// What a client sees of an answer. The client declared every tool that the model calls.
fn turn(case: &Value, names: &[&str], bytes: &[u8], split: usize) -> Result<Vec<ChatEvent>> {
    // the names the client gave to tools whose names no upstream takes
    let own = |name: &str| case["tool_name_map"][name].as_str().unwrap_or(name).to_owned();
    let tools = names
        .iter()
        .map(|name| ToolSpec {
            name: own(name),
            description: None,
            schema: json!({"type": "object"}).into(),
            rest: Map::new(),
        })
        .collect();
    let mut events = Vec::new();
    let mut ask = ask(ChatRequest { tools, ..ChatRequest::default() }, &mut events);
    let mut decoder = AnswerDecoder::new(Dialect::OpenaiChat, URL);
    let mut deltas = Vec::new();
    let mut read = Ok(());
    for piece in pieces(bytes, split) {
        read = read.and_then(|()| decoder.push(piece, &mut deltas));
    }
    read = read.and_then(|()| decoder.finish(&mut deltas));
    for mut delta in deltas {
        if let ModelDelta::Call(call) = &mut delta {
            // the case's spelling of the name in place of ours; the turn restores either
            call.name = own(&call.name);
        }
        ask.push(delta, &mut events);
    }
    match read {
        Err(error) => drop(ask.fail(error, &mut events)),
        Ok(()) => match ask.finish(&mut events) {
            Step::Done(_) => {}
            Step::AskModel(_) | Step::Judge(_) | Step::AskPerson(_) | Step::RunTools(_) => {
                bail!("the turn does not end with this answer")
            }
        },
    }
    Ok(events)
}

fn names<'a>(choices: &'a Value, key: &str) -> Vec<&'a str> {
    let messages = choices.as_array().into_iter().flatten().map(|choice| &choice[key]);
    messages
        .flat_map(|message| message["tool_calls"].as_array().into_iter().flatten())
        .filter_map(|call| call["function"]["name"].as_str())
        .filter(|name| !name.is_empty())
        .collect()
}
