//! Reads answers of Gemini's `generateContent` and `streamGenerateContent`.

use lf_core::{ModelDelta, ModelError, Usage};
use serde_json::{Map, Value};

use crate::answer::Answer;
use crate::assemble::{Fragment, Piece};
use crate::openai_chat::upstream_error;

/// Must come back on the part it came with, or the next request is refused.
const SIGNATURE: &str = "thoughtSignature";

pub(crate) fn read_chunk(
    answer: &mut Answer,
    data: &str,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    if data.trim() == "[DONE]" {
        return answer.end_mark(deltas);
    }
    let chunk: Value = serde_json::from_str(data).map_err(|error| answer.not_json(data, &error))?;
    if !chunk["error"].is_null() {
        return Err(upstream_error(&answer.url, &chunk["error"]));
    }
    read_usage(answer, &chunk["usageMetadata"]);
    let candidate = &chunk["candidates"][0];
    for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
        read_part(answer, part, deltas)?;
    }
    // A refused prompt has no candidates.
    if chunk["promptFeedback"]["blockReason"].is_string() {
        answer.finish_reason("SAFETY")?;
    }
    let reason = candidate["finishReason"].as_str().unwrap_or_default();
    if reason == "FINISH_REASON_UNSPECIFIED" {
        return Ok(());
    }
    answer.finish_reason(reason).map_err(|error| match (error, candidate["finishMessage"].as_str()) {
        (ModelError::Failed { url, status, message, retry_after }, Some(told)) => {
            ModelError::Failed { url, status, message: format!("{message}: {told}"), retry_after }
        }
        (error, _) => error,
    })
}

fn read_part(answer: &mut Answer, part: &Value, deltas: &mut Vec<ModelDelta>) -> Result<(), ModelError> {
    let call = &part["functionCall"];
    if call.is_object() {
        let mut rest = Map::new();
        if let Some(signature) = part.get(SIGNATURE) {
            rest.insert(SIGNATURE.to_owned(), signature.clone());
        }
        let arguments = match &call["args"] {
            Value::Null => Piece::Whole("{}".to_owned()),
            args => Piece::Whole(args.to_string()),
        };
        answer.calls.begin_delta();
        return answer.call(Fragment {
            index: Some(answer.calls.next_index()),
            id: call["id"].as_str().unwrap_or_default(),
            name: call["name"].as_str().unwrap_or_default(),
            arguments,
            rest,
        });
    }
    let text = part["text"].as_str().unwrap_or_default();
    if part["thought"] == Value::Bool(true) {
        answer.reasoning(text, deltas);
    } else {
        answer.text(text, deltas);
    }
    Ok(())
}

fn read_usage(answer: &mut Answer, usage: &Value) {
    let count = |key: &str| usage[key].as_u64().unwrap_or(0);
    if usage.is_object() {
        // Gemini counts thoughts apart from the answer.
        let reasoning = count("thoughtsTokenCount");
        answer.usage = Some(Usage {
            input: count("promptTokenCount"),
            output: count("candidatesTokenCount").saturating_add(reasoning),
            cached: count("cachedContentTokenCount"),
            reasoning,
        });
    }
}
