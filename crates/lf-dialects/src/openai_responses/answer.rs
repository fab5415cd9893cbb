//! Reads answers of the Responses API, streamed or whole.
//!
//! A streamed answer tells everything three times: in deltas, in the item that ends, and in the response that ends. What
//! was told once is not told again; what a server leaves out of one of them is taken from the next.

use lf_core::model::{Dialect, Native};
use lf_core::{ModelDelta, ModelError, Usage};
use serde_json::{Map, Value};

use super::answer_items::{Place, ReasoningPart, TooManyItems};
use super::{PARAGRAPH, RESPONSES_ONLY};
use crate::answer::{Answer, sanitised};
use crate::assemble::{Fragment, Piece};
use crate::openai_chat::upstream_error;

pub(crate) fn read_event(
    answer: &mut Answer,
    data: &str,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    // Some servers add the mark of Chat Completions; the end is an event of its own here.
    if data.trim() == "[DONE]" {
        return Ok(());
    }
    let event: Value = serde_json::from_str(data).map_err(|error| answer.not_json(data, &error))?;
    let Some(kind) = event["type"].as_str() else { return read_untyped(answer, &event, deltas) };
    let delta = event["delta"].as_str().unwrap_or_default();
    let place = Place::of(&event);
    match kind {
        "response.output_text.delta" => text(answer, &place, delta, deltas),
        "response.refusal.delta" => {
            answer.responses.refused = true;
            text(answer, &place, delta, deltas)
        }
        "response.reasoning_summary_text.delta" => {
            let index = event["summary_index"].as_u64().unwrap_or(0);
            reasoning(answer, ReasoningPart { place, list: "summary", index }, delta, deltas)
        }
        "response.reasoning_text.delta" => {
            let index = event["content_index"].as_u64().unwrap_or(0);
            reasoning(answer, ReasoningPart { place, list: "content", index }, delta, deltas)
        }
        "response.output_item.added" if event["item"]["type"] == "function_call" => {
            answer.calls.begin_delta();
            answer.call(Fragment { arguments: Piece::None, ..fragment(&place, &event["item"]) })
        }
        "response.function_call_arguments.delta" => {
            answer.responses.mark_arguments(&place);
            let arguments = Piece::Text(delta);
            answer.call(Fragment { index: place.index(), arguments, ..Fragment::default() })
        }
        "response.function_call_arguments.done" if !answer.responses.told_arguments_of(&place) => {
            answer.responses.mark_arguments(&place);
            let arguments = arguments(&event["arguments"], false);
            answer.call(Fragment { index: place.index(), arguments, ..Fragment::default() })
        }
        "response.output_item.done" => item(answer, &place, &event["item"], deltas),
        "response.completed"
        | "response.incomplete"
        | "response.failed"
        | "response.cancelled"
        | "response.done" => {
            let implied = kind.strip_prefix("response.").unwrap_or_default();
            response(answer, &event["response"], implied, deltas)
        }
        "error" => Err(failure(answer, if event["error"].is_null() { &event } else { &event["error"] })),
        _ if event["error"].is_object() => Err(failure(answer, &event["error"])),
        // Parts that begin and end, steps of hosted tools, and events of a later version of the API.
        _ => Ok(()),
    }
}

/// A whole response, or an error in the place of one.
fn read_untyped(answer: &mut Answer, event: &Value, deltas: &mut Vec<ModelDelta>) -> Result<(), ModelError> {
    let error = &event["error"];
    if event["object"] == "response" || (event["output"].is_array() && error.is_null()) {
        return response(answer, event, "completed", deltas);
    }
    if !matches!(error, Value::Null | Value::Bool(false)) {
        return Err(failure(answer, error));
    }
    if event["object"] == "error" || event.get("detail").is_some() {
        return Err(failure(answer, event));
    }
    Err(answer.garbled(sanitised(event.to_string().as_bytes())))
}

fn failure(answer: &Answer, error: &Value) -> ModelError {
    upstream_error(&answer.url, error)
}

fn text(
    answer: &mut Answer,
    place: &Place,
    text: &str,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    if text.is_empty() {
        return Ok(());
    }
    let behind = answer.responses.told_text() && !answer.responses.told_text_of(place);
    let between = if behind { PARAGRAPH } else { "" };
    let bytes = between.len() + text.len();
    answer.responses.add_text(place, bytes).map_err(|error| too_many(answer, error))?;
    answer.text(between, deltas);
    answer.text(text, deltas);
    Ok(())
}

fn reasoning(
    answer: &mut Answer,
    part: ReasoningPart,
    text: &str,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    if text.is_empty() {
        return Ok(());
    }
    let behind = answer.responses.begin_reasoning(part).map_err(|error| too_many(answer, error))?;
    answer.reasoning(if behind { PARAGRAPH } else { "" }, deltas);
    answer.reasoning(text, deltas);
    Ok(())
}

fn too_many(answer: &Answer, TooManyItems: TooManyItems) -> ModelError {
    answer.garbled("more items than any answer has".to_owned())
}

/// An item that ended: what was not told of it before, and what must come back.
fn item(
    answer: &mut Answer,
    place: &Place,
    item: &Value,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    let kept = match item["type"].as_str().unwrap_or_default() {
        "" => return Ok(()),
        "message" => {
            message(answer, place, item, deltas)?;
            answer.responses.mark_message(place, item)
        }
        "function_call" => {
            call(answer, place, item)?;
            answer.responses.mark_call()
        }
        kind => {
            if kind == "reasoning" && !answer.responses.told_reasoning_of(place) {
                for list in ["summary", "content"] {
                    for (index, part) in (0..).zip(item[list].as_array().into_iter().flatten()) {
                        let text = part["text"].as_str().unwrap_or_default();
                        let part = ReasoningPart { place: place.clone(), list, index };
                        reasoning(answer, part, text, deltas)?;
                    }
                }
            }
            // What OpenAI's own servers run is no call for us.
            answer.native(Native { dialect: Dialect::OpenaiResponses, item: item.clone() }, deltas);
            answer.responses.keep(item.clone())
        }
    };
    kept.map_err(|error| too_many(answer, error))
}

fn message(
    answer: &mut Answer,
    place: &Place,
    item: &Value,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    let told = answer.responses.told_text_of(place);
    for part in item["content"].as_array().into_iter().flatten() {
        let refusal = part["type"] == "refusal";
        answer.responses.refused |= refusal;
        if !told {
            let words = if refusal { &part["refusal"] } else { &part["text"] };
            text(answer, place, words.as_str().unwrap_or_default(), deltas)?;
        }
    }
    Ok(())
}

fn call(answer: &mut Answer, place: &Place, item: &Value) -> Result<(), ModelError> {
    const TOLD: [&str; 6] = ["type", "id", "call_id", "name", "arguments", "status"];
    let told = answer.responses.told_arguments_of(place);
    let arguments = arguments(&item["arguments"], told);
    answer.responses.mark_arguments(place);
    let further = item.as_object().into_iter().flatten();
    let further: Map<String, Value> = further
        .filter(|(key, value)| !value.is_null() && !TOLD.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut rest = Map::new();
    if !further.is_empty() {
        rest.insert(RESPONSES_ONLY.to_owned(), further.into());
    }
    answer.calls.begin_delta();
    answer.call(Fragment { arguments, rest, ..fragment(place, item) })
}

fn fragment<'a>(place: &Place, item: &'a Value) -> Fragment<'a> {
    Fragment {
        index: place.index(),
        id: item["call_id"].as_str().or_else(|| item["id"].as_str()).unwrap_or_default(),
        name: item["name"].as_str().unwrap_or_default(),
        ..Fragment::default()
    }
}

/// Arguments of a call that ended. They take the place of the pieces only if they are an object as they stand: in an
/// answer that was cut they may be as incomplete as the pieces, and some servers leave them empty.
fn arguments(arguments: &Value, told: bool) -> Piece<'_> {
    match arguments {
        Value::String(text) if told && matches!(text.trim(), "" | "{}") => Piece::None,
        Value::String(text) if serde_json::from_str::<Map<String, Value>>(text).is_ok() => {
            Piece::Whole(text.clone())
        }
        Value::String(text) if !told => Piece::Text(text),
        Value::Object(object) if !told || !object.is_empty() => Piece::Whole(arguments.to_string()),
        _ => Piece::None,
    }
}

/// The response as it ended, after its events or without any.
fn response(
    answer: &mut Answer,
    response: &Value,
    implied: &str,
    deltas: &mut Vec<ModelDelta>,
) -> Result<(), ModelError> {
    let told_status = response["status"].as_str().filter(|status| !status.is_empty());
    let status = told_status.unwrap_or(if implied == "done" { "completed" } else { implied });
    read_usage(answer, &response["usage"]);
    if status == "failed" || !response["error"].is_null() {
        return Err(failure(answer, &response["error"]));
    }
    read_output(answer, &response["output"], deltas)?;
    let reason = match status {
        "completed" if answer.responses.refused => "refusal",
        "completed" => "completed",
        "incomplete" => response["incomplete_details"]["reason"]
            .as_str()
            .filter(|reason| matches!(*reason, "max_output_tokens" | "content_filter"))
            .unwrap_or("incomplete"),
        other => return Err(answer.garbled(format!("a response with status `{other}`"))),
    };
    answer.state.extend(answer.responses.finish());
    answer.finish_reason(reason)?;
    answer.end_mark(deltas)
}

/// What the events did not tell; of kinds they did tell, nothing is taken twice.
fn read_output(answer: &mut Answer, output: &Value, deltas: &mut Vec<ModelDelta>) -> Result<(), ModelError> {
    let Some(output) = output.as_array() else { return Ok(()) };
    let (texts, calls, items) =
        (answer.responses.told_text(), !answer.calls.is_empty(), answer.responses.has_items());
    for (index, item) in (0..).zip(output) {
        let told = match item["type"].as_str() {
            Some("message") => texts,
            Some("function_call") => calls,
            _ => items,
        };
        if !told {
            self::item(answer, &Place::Index(index), item, deltas)?;
        }
    }
    answer.responses.seal(output);
    Ok(())
}

fn read_usage(answer: &mut Answer, usage: &Value) {
    let count = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64);
    let (input, output) = (count("/input_tokens"), count("/output_tokens"));
    if input.is_none() && output.is_none() {
        return;
    }
    answer.usage = Some(Usage {
        input: input.unwrap_or(0),
        output: output.unwrap_or(0),
        cached: count("/input_tokens_details/cached_tokens").unwrap_or(0),
        cache_written: count("/input_tokens_details/cache_write_tokens").unwrap_or(0),
        reasoning: count("/output_tokens_details/reasoning_tokens").unwrap_or(0),
    });
}
