//! KIND `deltas`: an upstream's stream through the decoder the daemon uses.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lf_core::text_calls::{DEFAULT, Piece, TextEnd, TextScanner};
use lf_core::{FinishReason, ModelDelta, ToolCall};
use lf_dialects::{AnswerDecoder, Dialect};
use serde_json::{Map, Value, json};

/// `split` 0 feeds the stream as it was recorded, N cuts its bytes into pieces of N.
pub(super) fn run(case: &Value, split: usize) -> Result<Value> {
    let dialect = dialect(case);
    let reads = match case["sse_bytes_b64"].as_array() {
        Some(reads) => reads
            .iter()
            .map(|read| Ok(STANDARD.decode(read.as_str().context("a fragment that is no string")?)?))
            .collect::<Result<Vec<_>>>()?,
        None => vec![stream_text(case, dialect)?.into_bytes()],
    };
    let reads = match split {
        0 => reads,
        size => reads.concat().chunks(size).map(<[u8]>::to_vec).collect(),
    };

    let mut decoder = AnswerDecoder::new(dialect, "http://upstream");
    let mut deltas = Vec::new();
    let mut result = Ok(());
    for read in &reads {
        result = result.and_then(|()| decoder.push(read, &mut deltas));
    }
    result = result.and_then(|()| decoder.finish(&mut deltas));

    let mut outcome = Outcome::default();
    for delta in deltas {
        match delta {
            ModelDelta::Text(text) => outcome.text.push_str(&text),
            ModelDelta::Reasoning(text) => outcome.reasoning.push_str(&text),
            ModelDelta::Call(call) => outcome.calls.push(told(&call)),
            ModelDelta::Usage(_) | ModelDelta::Notice(_) | ModelDelta::Native(_) | ModelDelta::State(_) => {}
            ModelDelta::Finish { reason, .. } => outcome.reason = Some(reason),
        }
    }
    if case["strategy"] == "prompt" {
        outcome.scan(split);
    }
    if result.is_err() {
        outcome.calls.extend(decoder.abandoned_calls().iter().map(told));
    }
    let mut out = json!({
        "id": case["id"],
        "text": outcome.text,
        "reasoning": outcome.reasoning,
        "tool_calls": outcome.calls,
        "finish_reason": outcome.reason.map_or("error", FinishReason::name),
    });
    if let Err(error) = result {
        out["error"] = json!({"message": error.to_string()});
    }
    Ok(out)
}

fn dialect(case: &Value) -> Dialect {
    match case["provider"].as_str().unwrap_or_default() {
        "anthropic" => return Dialect::Anthropic,
        "gemini" => return Dialect::Gemini,
        "ollama" => return Dialect::Ollama,
        "ai-sdk" => return Dialect::AiSdk,
        _ => {}
    }
    // Recorded bytes carry no provider's name, but their shape tells.
    let has = |test: &dyn Fn(&Value) -> bool| {
        case["chunks"].as_array().is_some_and(|chunks| chunks.iter().any(test))
    };
    let kind =
        |chunk: &Value, prefix: &str| chunk["type"].as_str().is_some_and(|kind| kind.starts_with(prefix));
    match () {
        () if has(&|chunk| chunk["candidates"].is_array()) => Dialect::Gemini,
        () if has(&|chunk| kind(chunk, "message_")) => Dialect::Anthropic,
        () if has(&|chunk| chunk["done"].is_boolean()) => Dialect::Ollama,
        () if has(&|chunk| kind(chunk, "tool")) => Dialect::AiSdk,
        () => Dialect::OpenaiChat,
    }
}

/// The chunks as the upstream would send them.
fn stream_text(case: &Value, dialect: Dialect) -> Result<String> {
    let chunks = case["chunks"].as_array().context("a case without chunks")?;
    let mut text = String::new();
    for chunk in chunks {
        let data = match chunk {
            Value::String(text) => text.clone(),
            chunk => chunk.to_string(),
        };
        match dialect {
            Dialect::Ollama => text.push_str(&format!("{data}\n")),
            Dialect::Anthropic => {
                let event = chunk["type"].as_str().unwrap_or("message");
                text.push_str(&format!("event: {event}\ndata: {data}\n\n"));
            }
            _ => text.push_str(&format!("data: {data}\n\n")),
        }
    }
    Ok(text)
}

#[derive(Default)]
struct Outcome {
    text: String,
    reasoning: String,
    calls: Vec<Value>,
    reason: Option<FinishReason>,
}

impl Outcome {
    /// Calls written as text, read as a turn reads them.
    fn scan(&mut self, split: usize) {
        let text = std::mem::take(&mut self.text);
        let end = match self.reason {
            Some(FinishReason::Stop | FinishReason::ToolCalls) => TextEnd::Clean,
            _ => TextEnd::Cut,
        };
        let mut scanner = TextScanner::new(DEFAULT);
        let mut pieces = Vec::new();
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(if split == 0 { chars.len().max(1) } else { split }) {
            pieces.extend(scanner.push(&piece.iter().collect::<String>()));
        }
        pieces.extend(scanner.finish(end));
        for piece in pieces {
            match piece {
                Piece::Text(text) => self.text.push_str(&text),
                Piece::Reasoning(text) => self.reasoning.push_str(&text),
                Piece::Malformed { raw, .. } => self.text.push_str(&raw),
                Piece::Call(call) => self.calls.push(told(&ToolCall {
                    id: call.id.unwrap_or_default(),
                    name: call.name,
                    arguments: call.arguments,
                    rest: Map::new(),
                })),
            }
        }
        if !self.calls.is_empty() && self.reason == Some(FinishReason::Stop) {
            self.reason = Some(FinishReason::ToolCalls);
        }
    }
}

fn told(call: &ToolCall) -> Value {
    let mut out = json!({"id": call.id, "name": call.name, "arguments_raw": call.arguments.raw()});
    match call.arguments.value() {
        Ok(object) => out["arguments"] = object.clone().into(),
        Err(_) => out["incomplete"] = true.into(),
    }
    out
}
