//! Reads answers, streamed or whole.

use lf_core::model::{Dialect, Native};
use lf_core::{ModelDelta, ModelError, Usage};
use serde_json::{Map, Value, json};

use super::{GEMINI_ONLY, SIGNATURE};
use crate::answer::Answer;
use crate::assemble::{Fragment, Piece};
use crate::openai_chat::upstream_error;
use crate::schema::own_name_at_gemini;

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
    if candidate["content"].is_object() {
        answer.whole_message();
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
    if part["functionCall"].is_object() {
        return read_call(answer, part);
    }
    if let Some(code) = part["executableCode"]["code"].as_str() {
        let language = part["executableCode"]["language"].as_str().unwrap_or_default();
        let language = match language {
            "LANGUAGE_UNSPECIFIED" => String::new(),
            language => language.to_ascii_lowercase(),
        };
        answer.text(fenced(&language, code), deltas);
        return Ok(());
    }
    if part["codeExecutionResult"].is_object() {
        let result = &part["codeExecutionResult"];
        let output = result["output"].as_str().unwrap_or_default();
        let outcome = result["outcome"].as_str().unwrap_or_default();
        if matches!(outcome, "OUTCOME_FAILED" | "OUTCOME_DEADLINE_EXCEEDED") {
            answer.text(format!("\n{outcome}\n"), deltas);
        }
        if !output.is_empty() {
            answer.text(fenced("", output), deltas);
        }
        return Ok(());
    }
    for key in ["inlineData", "fileData", "toolCall", "toolResponse"] {
        if part[key].is_object() {
            read_native(answer, key, part, deltas);
            return Ok(());
        }
    }
    let text = part["text"].as_str().unwrap_or_default();
    if part["thought"] == Value::Bool(true) {
        answer.reasoning(text, deltas);
    } else {
        answer.text(text, deltas);
    }
    Ok(())
}

fn read_call(answer: &mut Answer, part: &Value) -> Result<(), ModelError> {
    let call = &part["functionCall"];
    let mut rest = Map::new();
    if let Some(signature) = part.get(SIGNATURE) {
        rest.insert(SIGNATURE.to_owned(), signature.clone());
    }
    let id = call["id"].as_str().unwrap_or_default();
    if !id.is_empty() {
        // the call may get another id among those of its round, and only an id of the API's own goes back to it
        rest.insert(GEMINI_ONLY.to_owned(), json!({ "id": id }));
    }
    let arguments = match &call["args"] {
        Value::Null => Piece::Whole("{}".to_owned()),
        args => Piece::Whole(args.to_string()),
    };
    answer.calls.begin_delta();
    answer.call(Fragment {
        index: Some(answer.calls.next_index()),
        id,
        name: own_name_at_gemini(call["name"].as_str().unwrap_or_default()),
        arguments,
        rest,
    })
}

/// Code that the API's own interpreter ran, and its output, as a text shows it.
fn fenced(language: &str, code: &str) -> String {
    let code = code.trim_end_matches('\n');
    // longer than any fence within
    let longest = code.split(|char| char != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("\n{fence}{language}\n{code}\n{fence}\n")
}

/// What no text can say.
fn read_native(answer: &mut Answer, key: &str, part: &Value, deltas: &mut Vec<ModelDelta>) {
    if matches!(key, "inlineData" | "fileData") {
        let kind = part[key]["mimeType"].as_str().unwrap_or("unknown");
        deltas.push(ModelDelta::Notice(format!("the model answered with data of type `{kind}`")));
    }
    answer.native(Native { dialect: Dialect::Gemini, item: part.clone() }, deltas);
}

fn read_usage(answer: &mut Answer, usage: &Value) {
    let count = |key: &str| usage[key].as_u64().unwrap_or(0);
    if usage.is_object() {
        // Gemini counts thoughts apart from the answer, and what its own tools read apart from the prompt.
        let reasoning = count("thoughtsTokenCount");
        answer.usage = Some(Usage {
            input: count("promptTokenCount").saturating_add(count("toolUsePromptTokenCount")),
            output: count("candidatesTokenCount").saturating_add(reasoning),
            cached: count("cachedContentTokenCount"),
            reasoning,
            ..Usage::default()
        });
    }
}
