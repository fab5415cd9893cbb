//! Reads answers: streamed chunks and whole completions alike.

use lf_core::{ModelDelta, ModelError};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::errors::upstream_error;
use super::usage::read_usage;
use super::wire::{Choice, Chunk, Delta, Loose, without_lone_surrogates};
use crate::answer::{Answer, is_reason};
use crate::assemble::{Fragment, Piece};

/// Reads the data of one event, or a whole body.
pub(crate) fn read_chunk(
    answer: &mut Answer,
    data: &str,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    let data = data.trim();
    if data == "[DONE]" {
        return answer.end_mark(deltas);
    }
    match serde_json::from_str::<Chunk<'_>>(data) {
        Ok(chunk) => read(answer, &chunk, deltas),
        Err(error) => read_odd(answer, data, &error, deltas),
    }
}

/// What the strict reader refuses: a key given twice, half a surrogate pair, an error that is a bare string.
fn read_odd(
    answer: &mut Answer,
    data: &str,
    error: &serde_json::Error,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    let fixed = without_lone_surrogates(data);
    let value: Value =
        serde_json::from_str(fixed.as_deref().unwrap_or(data)).map_err(|_| answer.not_json(data, error))?;
    if !value.is_object() {
        return Err(answer.not_json(data, error));
    }
    let chunk = Chunk::deserialize(&value).map_err(|error| answer.not_json(data, &error))?;
    read(answer, &chunk, deltas)
}

fn read(answer: &mut Answer, chunk: &Chunk<'_>, deltas: &mut Vec<ModelDelta>) -> Result<(), ModelError> {
    let groq = chunk.x_groq.as_ref().and_then(|groq| groq.get("usage"));
    if let Some(usage) = chunk.usage.as_ref().or(groq).and_then(read_usage) {
        answer.usage = Some(usage);
    }
    let first = chunk.choices.iter().flatten().find(|choice| match &choice.index {
        Loose::Other(index) => index.as_u64().unwrap_or(0) == 0,
        Loose::Text(index) => index == "0",
    });
    if let Some(choice) = first {
        read_choice(answer, choice, deltas)?;
    }
    if let Some(error) = told_error(chunk, first) {
        return Err(upstream_error(&answer.url, &error));
    }
    // vLLM tells which stop string it was; a number there is a token
    let told = first.map(|choice| choice.stop_reason.text());
    if let Some(stop) = told.filter(|stop| !stop.is_empty() && !is_reason(stop)) {
        answer.stop_sequence = Some(stop.to_owned());
    }
    match first.map(|choice| choice.finish_reason.text()) {
        Some(reason) => answer.finish_reason(reason),
        None => Ok(()),
    }
}

/// An error told inside a 200: under `error`, in the choice, or as the whole object (vLLM, FastAPI).
fn told_error(chunk: &Chunk<'_>, choice: Option<&Choice<'_>>) -> Option<Value> {
    let given = |error: &&Value| !matches!(error, Value::Null | Value::Bool(false));
    let error = chunk.error.as_ref().filter(given);
    if let Some(error) = error.or_else(|| choice?.error.as_ref().filter(given)) {
        return Some(error.clone());
    }
    if chunk.choices.is_some() {
        return None;
    }
    if chunk.object.text() == "error" || chunk.detail.is_some() {
        let mut whole = Map::new();
        for (key, value) in [("message", &chunk.message), ("detail", &chunk.detail), ("code", &chunk.code)] {
            if let Some(value) = value {
                whole.insert(key.to_owned(), value.clone());
            }
        }
        return Some(whole.into());
    }
    None
}

fn read_choice(
    answer: &mut Answer,
    choice: &Choice<'_>,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    if let Some(delta) = &choice.delta {
        read_prose(answer, delta, deltas);
        answer.mark_streamed();
        read_calls(answer, delta, Form::Delta)?;
    }
    match &choice.message {
        Some(message) => {
            answer.whole_message();
            read_message(answer, message, deltas)
        }
        None => Ok(()),
    }
}

/// A message, which some upstreams send once more after the deltas; what was told is not told again.
fn read_message(
    answer: &mut Answer,
    message: &Delta<'_>,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    if !answer.streamed_reasoning {
        read_reasoning(answer, message, deltas);
    }
    if !answer.streamed_text {
        read_content(answer, message, deltas);
    }
    read_calls(answer, message, Form::Message)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Delta,
    Message,
}

fn read_prose(answer: &mut Answer, delta: &Delta<'_>, deltas: &mut Vec<ModelDelta>) {
    read_reasoning(answer, delta, deltas);
    read_content(answer, delta, deltas);
}

fn read_calls(answer: &mut Answer, delta: &Delta<'_>, form: Form) -> Result<(), ModelError> {
    if let Some(function) = delta.function_call.as_ref().filter(|call| call.is_object()) {
        answer.calls.begin_delta();
        // The legacy form has one call and no ids.
        read_call(answer, 0, &json!({"index": 0, "function": function}), form)?;
    }
    let Some(Value::Array(calls)) = &delta.tool_calls else { return Ok(()) };
    answer.calls.begin_delta();
    for (place, call) in calls.iter().enumerate().filter(|(_, call)| call.is_object()) {
        read_call(answer, place, call, form)?;
    }
    Ok(())
}

/// The three spellings repeat one another where more than one is sent: the first that says something counts.
fn read_reasoning(answer: &mut Answer, delta: &Delta<'_>, deltas: &mut Vec<ModelDelta>) {
    for text in [&delta.reasoning_content, &delta.reasoning] {
        if !text.text().is_empty() {
            return answer.reasoning(text.text(), deltas);
        }
    }
    let Some(Value::Array(details)) = &delta.reasoning_details else { return };
    for detail in details {
        let text = detail.get("text").or_else(|| detail.get("summary")).and_then(Value::as_str);
        answer.reasoning(text.unwrap_or_default(), deltas);
    }
}

fn read_content(answer: &mut Answer, delta: &Delta<'_>, deltas: &mut Vec<ModelDelta>) {
    match &delta.content {
        Loose::Text(text) => answer.text(text.as_ref(), deltas),
        Loose::Other(Value::Array(parts)) => parts.iter().for_each(|part| read_part(answer, part, deltas)),
        Loose::Other(part @ Value::Object(_)) => read_part(answer, part, deltas),
        Loose::Other(_) => {}
    }
    answer.text(delta.refusal.text(), deltas);
}

fn read_part(answer: &mut Answer, part: &Value, deltas: &mut Vec<ModelDelta>) {
    if let Some(text) = part.as_str() {
        return answer.text(text, deltas);
    }
    match part.get("thinking") {
        Some(Value::String(text)) => return answer.reasoning(text.as_str(), deltas),
        // Mistral: the thinking is an array of text parts itself.
        Some(Value::Array(inner)) => {
            for text in inner.iter().filter_map(|part| part.get("text")).filter_map(Value::as_str) {
                answer.reasoning(text, deltas);
            }
            return;
        }
        _ => {}
    }
    let text = part.get("text").or_else(|| part.get("refusal")).and_then(Value::as_str).unwrap_or_default();
    match part.get("type").and_then(Value::as_str) {
        Some("thinking" | "reasoning") => answer.reasoning(text, deltas),
        _ => answer.text(text, deltas),
    }
}

fn read_call(answer: &mut Answer, place: usize, call: &Value, form: Form) -> Result<(), ModelError> {
    const READ: [&str; 4] = ["index", "id", "type", "function"];
    let function = &call["function"];
    let fragment = Fragment {
        index: match &call["index"] {
            Value::String(index) => index.parse().ok(),
            index => index.as_u64(),
        },
        id: call["id"].as_str().unwrap_or_default(),
        name: function["name"].as_str().unwrap_or_default(),
        arguments: match &function["arguments"] {
            Value::Null => Piece::None,
            Value::String(text) => Piece::Text(text),
            value => Piece::Whole(value.to_string()),
        },
        rest: call
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, _)| !READ.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    };
    match form {
        Form::Delta => answer.call(fragment),
        Form::Message => answer.whole_call(place, fragment),
    }
}
