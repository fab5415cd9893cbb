//! `text`: a model's output to calls and shown text.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use lf_core::model::ToolSpec;
use lf_core::text_calls::{self, DEFAULT, Piece, TextCall, TextEnd, TextScanner, Utf8Joiner};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::pieces;

pub(super) fn run(case: &Value, split: usize) -> Result<String> {
    let output = case["model_output"].as_str().context("the case has no `model_output`")?;
    let format = case["format"].as_str();
    let formats = format.and_then(|name| text_calls::named(name).or_else(|| text_calls::for_model(name)));
    let end = match case["finish_reason"].as_str() {
        Some("length") => TextEnd::Cut,
        _ => TextEnd::Clean,
    };
    // the two safe formats are read together, as the daemon does
    let formats = formats.filter(|formats| !DEFAULT.iter().any(|format| format.name == formats[0].name));
    let mut scanner = TextScanner::new(formats.unwrap_or(DEFAULT)).with_tools(tools(case));
    let mut joiner = Utf8Joiner::new();
    let mut found = Vec::new();
    for bytes in pieces(output.as_bytes(), split) {
        found.extend(scanner.push(&joiner.push(bytes)));
    }
    found.extend(scanner.push(&joiner.finish()));
    found.extend(scanner.finish(end));

    let calls = found.iter().filter_map(call_of).map(call_json).collect::<Result<Vec<_>>>()?;
    Ok(format!(
        r#"{{"id":{},"calls":[{}],"text":{}}}"#,
        case["id"],
        calls.join(","),
        Value::from(shown(&found, end))
    ))
}

fn tools(case: &Value) -> Arc<[ToolSpec]> {
    let tools = case["tools"].as_array().into_iter().flatten();
    tools
        .filter_map(|tool| {
            Some(ToolSpec {
                name: tool["name"].as_str()?.to_owned(),
                description: None,
                schema: Arc::new(tool["parameters"].clone()),
                rest: Map::new(),
            })
        })
        .collect()
}

fn call_of(piece: &Piece) -> Option<&TextCall> {
    match piece {
        Piece::Call(call) => Some(call),
        _ => None,
    }
}

/// The arguments as they were written, so that a number is compared as written too.
fn call_json(call: &TextCall) -> Result<String> {
    let raw = call.arguments.for_replay();
    let arguments: &RawValue = serde_json::from_str(&raw)?;
    // in JSON a line break is only white space
    let arguments = arguments.get().replace(['\n', '\r'], " ");
    let mut members = vec![format!(r#""name":{}"#, json!(call.name)), format!(r#""arguments":{arguments}"#)];
    members.extend(call.server.as_ref().map(|server| format!(r#""server":{}"#, json!(server))));
    members.extend(call.id.as_ref().map(|id| format!(r#""id":{}"#, json!(id))));
    Ok(format!("{{{}}}", members.join(",")))
}

/// The shown text. A call that could not be read is part of it here, since nobody is told about it otherwise; not so
/// what the limit cut, which was told by the finish reason.
fn shown(found: &[Piece], end: TextEnd) -> String {
    let mut text = String::new();
    for piece in found {
        match piece {
            Piece::Text(part) => text.push_str(part),
            Piece::Malformed { raw, .. } if end == TextEnd::Clean => {
                text.push('\n');
                text.push_str(raw);
                text.push('\n');
            }
            Piece::Malformed { .. } | Piece::Reasoning(_) | Piece::Call(_) => {}
        }
    }
    text
}
