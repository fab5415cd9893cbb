//! `cargo bench -p lf-dialects --bench assembly`: one streamed call whose arguments come in small fragments, as long as
//! a file that a model writes. The time for each byte stays the same where assembling is linear; it fails where the
//! slope is steeper.
#![expect(clippy::print_stdout, reason = "its result is what it prints")]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use lf_core::ModelDelta;
use lf_dialects::{AnswerDecoder, Dialect};
use serde_json::{Value, json};

const KILOBYTES: [usize; 5] = [25, 50, 100, 200, 400];
/// About three tokens.
const FRAGMENT: usize = 12;
/// What one read of a connection may give.
const READ: usize = 1400;
const RUNS: usize = 5;
/// Sixteen times the arguments may cost this much more for each byte: 16 where all is read again with each fragment.
const MOST: f64 = 4.0;

fn main() -> ExitCode {
    println!("ns per byte of arguments, best of {RUNS}; dialects without fragments get them whole");
    println!("{:<18}{}{:>14}", "", KILOBYTES.map(|size| format!("{size:>9} KB")).concat(), "400:25 KB");
    let mut steep = false;
    for dialect in Dialect::ASKED.into_iter().chain([Dialect::AiSdk]) {
        let row = KILOBYTES.map(|size| {
            let bytes = size * 1000;
            let stream = stream(dialect, &json!({"path": "notes.md", "text": "a \"b\"\n".repeat(bytes / 8)}));
            let best = (0..RUNS).map(|_| read(dialect, &stream)).min().unwrap_or_default();
            best.as_nanos() as f64 / bytes as f64
        });
        let slope = row[4] / row[0];
        steep |= slope > MOST;
        println!(
            "{:<18}{}{slope:>14.2}",
            format!("{dialect:?}"),
            row.map(|cost| format!("{cost:>12.2}")).concat()
        );
    }
    if steep { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn read(dialect: Dialect, stream: &[u8]) -> Duration {
    let mut decoder = AnswerDecoder::new(dialect, "http://up");
    let mut deltas = Vec::new();
    let started = Instant::now();
    let read = stream.chunks(READ).try_for_each(|piece| decoder.push(piece, &mut deltas));
    let read = read.and_then(|()| decoder.finish(&mut deltas));
    let elapsed = started.elapsed();
    let usable =
        |delta: &ModelDelta| matches!(delta, ModelDelta::Call(call) if call.arguments.value().is_ok());
    assert!(read.is_ok() && deltas.iter().any(usable), "{dialect:?} {read:?}");
    black_box(deltas);
    elapsed
}

fn stream(dialect: Dialect, arguments: &Value) -> Vec<u8> {
    let text = arguments.to_string();
    let fragments: Vec<&str> =
        text.as_bytes().chunks(FRAGMENT).filter_map(|piece| std::str::from_utf8(piece).ok()).collect();
    let events = match dialect {
        Dialect::OpenaiChat => chat(&fragments),
        Dialect::OpenaiResponses => responses(&fragments, &text),
        Dialect::Anthropic => anthropic(&fragments),
        Dialect::Gemini => vec![
            json!({"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": arguments}}]}, "finishReason": "STOP"}]}),
        ],
        Dialect::Ollama => vec![
            json!({"message": {"tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}, "done": false}),
            json!({"done": true, "done_reason": "stop"}),
        ],
        Dialect::AiSdk => ai_sdk(&fragments),
    };
    let framed = |event: &Value| match dialect {
        Dialect::Ollama => format!("{event}\n"),
        _ => format!("data: {event}\n\n"),
    };
    events.iter().map(framed).collect::<String>().into_bytes()
}

fn chat(fragments: &[&str]) -> Vec<Value> {
    let chunk = |call: Value, reason: Option<&str>| {
        let delta = json!({"tool_calls": [call]});
        json!({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
    };
    let begun =
        json!({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}});
    let grown = |piece: &&str| chunk(json!({"index": 0, "function": {"arguments": piece}}), None);
    let end = chunk(json!({"index": 0}), Some("tool_calls"));
    [chunk(begun, None)].into_iter().chain(fragments.iter().map(grown)).chain([end]).collect()
}

fn responses(fragments: &[&str], text: &str) -> Vec<Value> {
    let item = |arguments: &str| json!({"type": "function_call", "id": "fc", "call_id": "a", "name": "f", "arguments": arguments});
    let begun = json!({"type": "response.output_item.added", "output_index": 0, "item": item("")});
    let grown = |piece: &&str| json!({"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc", "delta": piece});
    let done = json!({"type": "response.output_item.done", "output_index": 0, "item": item(text)});
    let end =
        json!({"type": "response.completed", "response": {"status": "completed", "output": [item(text)]}});
    [begun].into_iter().chain(fragments.iter().map(grown)).chain([done, end]).collect()
}

fn anthropic(fragments: &[&str]) -> Vec<Value> {
    let begun = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "a", "name": "f", "input": {}}});
    let grown = |piece: &&str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}});
    let end = [
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}}),
        json!({"type": "message_stop"}),
    ];
    [begun].into_iter().chain(fragments.iter().map(grown)).chain(end).collect()
}

fn ai_sdk(fragments: &[&str]) -> Vec<Value> {
    let begun = json!({"type": "tool-input-start", "toolCallId": "a", "toolName": "f"});
    let grown =
        |piece: &&str| json!({"type": "tool-input-delta", "toolCallId": "a", "inputTextDelta": piece});
    let end = [
        json!({"type": "tool-input-end", "toolCallId": "a"}),
        json!({"type": "finish", "finishReason": "tool-calls"}),
    ];
    [begun].into_iter().chain(fragments.iter().map(grown)).chain(end).collect()
}
