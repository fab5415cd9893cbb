//! One answer, told in every dialect.

use lf_core::{FinishReason, Usage};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[derive(Debug, Clone)]
pub(super) enum Said {
    Text(String),
    Reasoning(String),
    /// The arguments, and where their text is cut into fragments.
    Call(Value, Vec<usize>),
}

#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) said: Vec<Said>,
    pub(super) reason: FinishReason,
    pub(super) usage: Usage,
}

fn said() -> impl Strategy<Value = Said> {
    let words = r#"[a-zé😀 \n"\\{}<]{1,8}"#;
    let value = prop_oneof![
        words.prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!([null, true, {"é": {}}])),
    ];
    let arguments = prop::collection::vec((words, value), 1..3);
    let arguments = arguments.prop_map(|members| Value::Object(members.into_iter().collect()));
    prop_oneof![
        3 => words.prop_map(Said::Text),
        2 => words.prop_map(Said::Reasoning),
        2 => (arguments, prop::collection::vec(0..60_usize, 0..4)).prop_map(|(arguments, cuts)| Said::Call(arguments, cuts)),
    ]
}

pub(super) fn script() -> impl Strategy<Value = Script> {
    let reason =
        prop::sample::select(vec![FinishReason::Stop, FinishReason::Length, FinishReason::ContentFilter]);
    (prop::collection::vec(said(), 1..9), reason, 1..99_u64, 0..9_u64).prop_map(
        |(said, reason, input, output)| Script {
            said,
            reason,
            usage: Usage { input, output, ..Usage::default() },
        },
    )
}

pub(super) const DIALECTS: [Dialect; 6] = [
    Dialect::OpenaiChat,
    Dialect::OpenaiResponses,
    Dialect::Anthropic,
    Dialect::Gemini,
    Dialect::Ollama,
    Dialect::AiSdk,
];

pub(super) fn dialects() -> impl Strategy<Value = Dialect> {
    prop::sample::select(DIALECTS.to_vec())
}

/// The events of an answer as an upstream frames them, and how many of them come before its end.
pub(super) fn rendered(dialect: Dialect, script: &Script) -> (Vec<String>, usize) {
    let (body, end) = match dialect {
        Dialect::OpenaiChat => chat(script),
        Dialect::OpenaiResponses => responses(script),
        Dialect::Anthropic => anthropic(script),
        Dialect::Gemini => gemini(script),
        Dialect::Ollama => ollama(script),
        Dialect::AiSdk => ai_sdk(script),
    };
    let before = body.len();
    let events = body.iter().chain(&end).map(|event| framed(dialect, event)).collect();
    (events, before)
}

fn framed(dialect: Dialect, event: &Value) -> String {
    match (dialect, event) {
        (Dialect::Ollama, event) => format!("{event}\n"),
        (_, Value::String(mark)) => format!("data: {mark}\n\n"),
        (Dialect::OpenaiResponses | Dialect::Anthropic, event) => {
            format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())
        }
        (_, event) => format!("data: {event}\n\n"),
    }
}

/// The text of an object in fragments, some of them empty.
fn fragments(arguments: &Value, cuts: &[usize]) -> Vec<String> {
    let text = arguments.to_string();
    let mut places: Vec<usize> =
        cuts.iter().map(|cut| text.floor_char_boundary((*cut).min(text.len()))).collect();
    places.extend([0, text.len()]);
    places.sort_unstable();
    places.windows(2).map(|window| text[window[0]..window[1]].to_owned()).collect()
}

pub(super) fn id(at: usize) -> String {
    format!("call_{at}")
}

pub(super) fn name(at: usize) -> &'static str {
    ["f", "g"][at % 2]
}

/// Calls that follow one another come interleaved, fragment by fragment.
fn chat(script: &Script) -> (Vec<Value>, Vec<Value>) {
    let chunk = |delta: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    let mut body = vec![chunk(json!({"role": "assistant", "content": ""}))];
    let mut waiting: Vec<(usize, Vec<String>)> = Vec::new();
    let mut calls = 0;
    let told = |waiting: &mut Vec<(usize, Vec<String>)>, body: &mut Vec<Value>| {
        let longest = waiting.iter().map(|(_, pieces)| pieces.len()).max().unwrap_or(0);
        for at in 0..longest {
            let pieces = waiting.iter().filter_map(|(index, pieces)| Some((index, pieces.get(at)?)));
            let entries =
                pieces.map(|(index, piece)| json!({"index": index, "function": {"arguments": piece}}));
            body.push(chunk(json!({"tool_calls": entries.collect::<Vec<_>>()})));
        }
        waiting.clear();
    };
    for said in &script.said {
        match said {
            Said::Call(arguments, cuts) => {
                let function = json!({"name": name(calls), "arguments": ""});
                let entry =
                    json!({"index": calls, "id": id(calls), "type": "function", "function": function});
                body.push(chunk(json!({"tool_calls": [entry]})));
                waiting.push((calls, fragments(arguments, cuts)));
                calls += 1;
                continue;
            }
            Said::Text(text) => {
                told(&mut waiting, &mut body);
                body.push(chunk(json!({"content": text})));
            }
            Said::Reasoning(text) => {
                told(&mut waiting, &mut body);
                body.push(chunk(json!({"reasoning_content": text})));
            }
        }
    }
    told(&mut waiting, &mut body);
    let usage = json!({"prompt_tokens": script.usage.input, "completion_tokens": script.usage.output});
    let end = vec![
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": script.reason.name()}]}),
        json!({"choices": [], "usage": usage}),
        "[DONE]".into(),
    ];
    (body, end)
}

/// Each thing that is said is an item of its own, told in deltas, once more at its end, and once more at the very end.
fn responses(script: &Script) -> (Vec<Value>, Vec<Value>) {
    let mut body =
        vec![json!({"type": "response.created", "response": {"status": "in_progress", "output": []}})];
    let mut output = Vec::new();
    let mut calls = 0;
    for said in &script.said {
        let at = output.len();
        let mut tell = |kind: &str, piece: &str| {
            let item = format!("item_{at}");
            body.push(json!({"type": kind, "output_index": at, "item_id": item, "content_index": 0, "summary_index": 0, "delta": piece}));
        };
        let item = match said {
            Said::Text(text) => {
                tell("response.output_text.delta", text);
                json!({"type": "message", "id": format!("item_{at}"), "role": "assistant", "content": [{"type": "output_text", "text": text}]})
            }
            Said::Reasoning(text) => {
                tell("response.reasoning_summary_text.delta", text);
                json!({"type": "reasoning", "id": format!("item_{at}"), "summary": [{"type": "summary_text", "text": text}]})
            }
            Said::Call(arguments, cuts) => {
                let item = json!({"type": "function_call", "id": format!("item_{at}"), "call_id": id(calls), "name": name(calls), "arguments": arguments.to_string()});
                let mut begun = item.clone();
                begun["arguments"] = "".into();
                body.push(json!({"type": "response.output_item.added", "output_index": at, "item": begun}));
                for piece in fragments(arguments, cuts) {
                    body.push(json!({"type": "response.function_call_arguments.delta", "output_index": at, "item_id": item["id"], "delta": piece}));
                }
                calls += 1;
                item
            }
        };
        body.push(json!({"type": "response.output_item.done", "output_index": at, "item": item}));
        output.push(item);
    }
    let (status, details) = match script.reason {
        FinishReason::Length => ("incomplete", json!({"reason": "max_output_tokens"})),
        FinishReason::ContentFilter => ("incomplete", json!({"reason": "content_filter"})),
        _ => ("completed", Value::Null),
    };
    let usage = json!({"input_tokens": script.usage.input, "output_tokens": script.usage.output});
    let response = json!({"status": status, "incomplete_details": details, "output": output, "usage": usage});
    (body, vec![json!({"type": format!("response.{status}"), "response": response})])
}

fn anthropic(script: &Script) -> (Vec<Value>, Vec<Value>) {
    let usage = json!({"input_tokens": script.usage.input, "output_tokens": 1});
    let mut body = vec![json!({"type": "message_start", "message": {"content": [], "usage": usage}})];
    let mut calls = 0;
    for (index, said) in script.said.iter().enumerate() {
        let (block, deltas) = match said {
            Said::Text(text) => {
                (json!({"type": "text", "text": ""}), vec![json!({"type": "text_delta", "text": text})])
            }
            Said::Reasoning(text) => (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                vec![
                    json!({"type": "thinking_delta", "thinking": text}),
                    json!({"type": "signature_delta", "signature": "S"}),
                ],
            ),
            Said::Call(arguments, cuts) => {
                calls += 1;
                let block =
                    json!({"type": "tool_use", "id": id(calls - 1), "name": name(calls - 1), "input": {}});
                let pieces = fragments(arguments, cuts).into_iter();
                (
                    block,
                    pieces.map(|piece| json!({"type": "input_json_delta", "partial_json": piece})).collect(),
                )
            }
        };
        body.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        body.push(json!({"type": "ping"}));
        body.extend(
            deltas.iter().map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})),
        );
        body.push(json!({"type": "content_block_stop", "index": index}));
    }
    let reason = match script.reason {
        FinishReason::Length => "max_tokens",
        FinishReason::ContentFilter => "refusal",
        _ if calls > 0 => "tool_use",
        _ => "end_turn",
    };
    let usage = json!({"output_tokens": script.usage.output});
    let end = json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": usage});
    (body, vec![end, json!({"type": "message_stop"})])
}

fn gemini(script: &Script) -> (Vec<Value>, Vec<Value>) {
    let mut calls = 0;
    let parts = script.said.iter().map(|said| match said {
        Said::Text(text) => json!({"text": text}),
        Said::Reasoning(text) => json!({"text": text, "thought": true}),
        Said::Call(arguments, _) => {
            calls += 1;
            json!({"functionCall": {"id": id(calls - 1), "name": name(calls - 1), "args": arguments}})
        }
    });
    let chunk = |part| json!({"candidates": [{"content": {"role": "model", "parts": [part]}}]});
    let body = parts.map(chunk).collect();
    let reason = match script.reason {
        FinishReason::Length => "MAX_TOKENS",
        FinishReason::ContentFilter => "SAFETY",
        _ => "STOP",
    };
    let usage = json!({"promptTokenCount": script.usage.input, "candidatesTokenCount": script.usage.output});
    let candidate = json!({"content": {"parts": [{"text": ""}]}, "finishReason": reason});
    (body, vec![json!({"candidates": [candidate], "usageMetadata": usage})])
}

fn ollama(script: &Script) -> (Vec<Value>, Vec<Value>) {
    let mut calls = 0;
    let messages = script.said.iter().map(|said| match said {
        Said::Text(text) => json!({"content": text}),
        Said::Reasoning(text) => json!({"content": "", "thinking": text}),
        Said::Call(arguments, _) => {
            calls += 1;
            let function = json!({"index": 0, "name": name(calls - 1), "arguments": arguments});
            json!({"content": "", "tool_calls": [{"id": id(calls - 1), "function": function}]})
        }
    });
    let body = messages.map(|message| json!({"message": message, "done": false})).collect();
    let (input, output) = (script.usage.input, script.usage.output);
    let end = json!({"message": {"content": ""}, "done": true, "done_reason": script.reason.name(), "prompt_eval_count": input, "eval_count": output});
    (body, vec![end])
}

fn ai_sdk(script: &Script) -> (Vec<Value>, Vec<Value>) {
    let mut body = Vec::new();
    let mut calls = 0;
    for said in &script.said {
        match said {
            Said::Text(text) => body.push(json!({"type": "text-delta", "id": "t", "delta": text})),
            Said::Reasoning(text) => body.push(json!({"type": "reasoning-delta", "id": "r", "delta": text})),
            Said::Call(arguments, cuts) => {
                let (id, name) = (id(calls), name(calls));
                calls += 1;
                body.push(json!({"type": "tool-input-start", "toolCallId": id, "toolName": name}));
                for piece in fragments(arguments, cuts) {
                    body.push(json!({"type": "tool-input-delta", "toolCallId": id, "inputTextDelta": piece}));
                }
                body.push(
                    json!({"type": "tool-call", "toolCallId": id, "toolName": name, "input": arguments}),
                );
            }
        }
    }
    (body, vec![json!({"type": "finish", "finishReason": script.reason.name()}), "[DONE]".into()])
}

fn error(dialect: Dialect) -> String {
    let error = json!({"type": "overloaded_error", "message": "busy"});
    let event = match dialect {
        Dialect::Ollama => json!({"error": "busy"}),
        Dialect::OpenaiChat | Dialect::Gemini => json!({ "error": error }),
        _ => json!({"type": "error", "error": error}),
    };
    framed(dialect, &event)
}

/// What the script says, as a decoder tells it.
fn expected(dialect: Dialect, script: &Script) -> Vec<(&'static str, String)> {
    let (mut lines, mut calls, mut late) = (Vec::new(), Vec::new(), Vec::new());
    let mut told = Vec::new();
    for said in &script.said {
        let (kind, text) = match said {
            Said::Call(arguments, _) => {
                let at = calls.len();
                // there, an id goes back only where the API gave one
                let rest = match dialect {
                    Dialect::Gemini => format!(" {}", json!({"$gemini": {"id": id(at)}})),
                    _ => String::new(),
                };
                calls.push(("call", format!("{} {} {arguments}{rest}", id(at), name(at))));
                continue;
            }
            Said::Text(text) => ("text", text),
            Said::Reasoning(text) => ("reasoning", text),
        };
        // there, two of them are two items
        let between = if dialect == Dialect::OpenaiResponses && told.contains(&kind) { "\n\n" } else { "" };
        told.push(kind);
        let waits = kind == "text" && !calls.is_empty();
        let line = (kind, format!("{between}{text}"));
        if waits { late.push(line) } else { lines.push(line) }
    }
    let reason = match script.reason {
        FinishReason::Stop if !calls.is_empty() => FinishReason::ToolCalls,
        reason => reason,
    };
    lines.extend(calls);
    lines.extend(late);
    if dialect != Dialect::AiSdk {
        let (input, output) = (script.usage.input, script.usage.output);
        lines.push(("usage", format!("{input}+{output} cached 0 reasoning 0")));
    }
    lines.push(("finish", reason.name().to_owned()));
    joined(lines)
}

/// What every dialect has of it: without pieces of its own, what goes back, and its name for the end.
pub(super) fn shared(dialect: Dialect, reads: &[&[u8]]) -> Vec<(&'static str, String)> {
    let mut told = told(dialect, reads);
    told.retain(|(kind, _)| !matches!(*kind, "native" | "state"));
    if let Some(("finish", reason)) = told.last_mut() {
        reason.truncate(reason.find(' ').unwrap_or(reason.len()));
    }
    joined(told)
}

pub(super) fn cut<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    places.windows(2).map(|window| &bytes[window[0]..window[1]]).collect()
}

pub(super) fn all<'a>(kind: &str, told: &'a [(&str, String)]) -> Vec<&'a str> {
    told.iter().filter(|(told, _)| *told == kind).map(|(_, text)| text.as_str()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_answer_is_read_as_it_was_meant_in_every_dialect_and_however_it_is_cut(
        script in script(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        crlf in any::<bool>(),
    ) {
        for dialect in DIALECTS {
            let mut text = rendered(dialect, &script).0.concat();
            if crlf {
                text = text.replace('\n', "\r\n");
            }
            let expected = expected(dialect, &script);
            prop_assert_eq!(shared(dialect, &[text.as_bytes()]), &*expected, "{:?}\n{}", dialect, text);
            prop_assert_eq!(shared(dialect, &cut(text.as_bytes(), &cuts)), &*expected, "{:?}", dialect);
        }
    }

    #[test]
    fn no_call_of_an_answer_that_fails_is_ever_told(
        dialect in dialects(),
        script in script(),
        at in any::<prop::sample::Index>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let (mut events, before) = rendered(dialect, &script);
        events.insert(at.index(before + 1), error(dialect));
        let text = events.concat();
        let told = told(dialect, &cut(text.as_bytes(), &cuts));
        prop_assert_eq!(all("call", &told), Vec::<&str>::new());
        prop_assert_eq!(all("finish", &told), Vec::<&str>::new());
        prop_assert_eq!(all("error", &told).len(), 1);
        prop_assert!(all("error", &told)[0].contains("busy"), "{:?}", told);
    }

    #[test]
    fn an_answer_that_breaks_off_tells_no_call_that_it_does_not_tell_whole(
        dialect in dialects(),
        script in script(),
        at in any::<prop::sample::Index>(),
    ) {
        let (events, before) = rendered(dialect, &script);
        let text = events.concat();
        let end = events[..before].concat().len();
        let place = at.index(text.len());
        let (broken, whole) = (told(dialect, &[&text.as_bytes()[..place]]), told(dialect, &[text.as_bytes()]));
        prop_assert!(all("call", &whole).starts_with(&all("call", &broken)), "{:?} {:?}", broken, whole);
        // the AI SDK's stream may end wherever no call is open
        if place <= end && dialect != Dialect::AiSdk {
            prop_assert_eq!(all("error", &broken).len(), 1);
            prop_assert_eq!(all("call", &broken), Vec::<&str>::new());
        }
    }
}
