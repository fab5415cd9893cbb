//! Reads answers: one JSON object a line, or one object.

use lf_core::{ModelDelta, ModelError, Usage};
use serde_json::{Map, Value, json};

use crate::answer::Answer;
use crate::assemble::{Fragment, Piece};
use crate::openai_chat::upstream_error;

pub(crate) fn read_line(
    answer: &mut Answer,
    line: &str,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    let line: Value = serde_json::from_str(line).map_err(|error| answer.not_json(line, &error))?;
    if !line["error"].is_null() {
        return Err(upstream_error(&answer.url, &told_error(&line)));
    }
    let message = &line["message"];
    answer.reasoning(message["thinking"].as_str().unwrap_or_default(), deltas);
    answer.text(message["content"].as_str().unwrap_or_default(), deltas);
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        read_call(answer, call)?;
    }
    if line["done"] == Value::Bool(true) {
        // a count of 0 is left out
        let count = |key: &str| line[key].as_u64();
        if let (Some(_), _) | (_, Some(_)) = (count("prompt_eval_count"), count("eval_count")) {
            let input = count("prompt_eval_count").unwrap_or(0);
            let output = count("eval_count").unwrap_or(0);
            answer.usage = Some(Usage { input, output, ..Usage::default() });
        }
        answer.finish_reason(line["done_reason"].as_str().unwrap_or("stop"))?;
        return answer.end_mark(deltas);
    }
    Ok(())
}

/// The error with the status that may stand beside it.
fn told_error(line: &Value) -> Value {
    let status = ["status", "StatusCode"].iter().find_map(|key| line[*key].as_u64());
    match (&line["error"], status) {
        (Value::String(message), Some(status)) => json!({"message": message, "code": status}),
        (error, _) => error.clone(),
    }
}

/// Calls come whole, one entry each; the same index may be used again, an id names the same call.
fn read_call(answer: &mut Answer, call: &Value) -> Result<(), ModelError> {
    let function = &call["function"];
    let arguments = match &function["arguments"] {
        Value::Null => Piece::Whole("{}".to_owned()),
        Value::String(text) => Piece::Whole(text.clone()),
        value => Piece::Whole(value.to_string()),
    };
    let id = call["id"].as_str().unwrap_or_default();
    if answer.calls.knows(id) {
        return Ok(());
    }
    answer.calls.begin_delta();
    answer.call(Fragment {
        index: Some(answer.calls.next_index()),
        id,
        name: function["name"].as_str().unwrap_or_default(),
        arguments,
        rest: Map::new(),
    })
}
