use proptest::prelude::*;
use serde_json::json;

use super::*;

mod growth;
mod other_dialects;
mod scripts;
mod served;
mod stopped;

/// What is said up to the end or to an error, and who read it.
pub(crate) fn read(
    dialect: Dialect,
    stops: &[&str],
    reads: &[&[u8]],
) -> (Vec<ModelDelta>, Option<ModelError>, AnswerDecoder) {
    let stops = stops.iter().map(|stop| (*stop).to_owned()).collect();
    let mut decoder = AnswerDecoder::new(dialect, "http://up").cut_at(stops);
    let mut deltas = Vec::new();
    let mut result = Ok(());
    for read in reads {
        result = result.and_then(|()| decoder.push(read, &mut deltas));
    }
    let result = result.and_then(|()| decoder.finish(&mut deltas));
    (deltas, result.err(), decoder)
}

/// What is told, each thing with its kind.
fn told(dialect: Dialect, reads: &[&[u8]]) -> Vec<(&'static str, String)> {
    told_until(dialect, &[], reads)
}

/// The same, cut at these texts.
fn told_until(dialect: Dialect, stops: &[&str], reads: &[&[u8]]) -> Vec<(&'static str, String)> {
    let (deltas, error, mut decoder) = read(dialect, stops, reads);
    let mut lines = Vec::new();
    for delta in deltas {
        lines.push(match delta {
            ModelDelta::Text(text) => ("text", text),
            ModelDelta::Reasoning(text) => ("reasoning", text),
            ModelDelta::Call(call) => {
                let rest =
                    if call.rest.is_empty() { String::new() } else { format!(" {}", json!(call.rest)) };
                let bad = if call.arguments.value().is_err() { " UNUSABLE" } else { "" };
                ("call", format!("{} {} {}{bad}{rest}", call.id, call.name, call.arguments.raw()))
            }
            ModelDelta::Usage(usage) => (
                "usage",
                format!(
                    "{}+{} cached {} reasoning {}",
                    usage.input, usage.output, usage.cached, usage.reasoning
                ),
            ),
            ModelDelta::Notice(text) => ("notice", text),
            ModelDelta::Native(native) => ("native", native.item.to_string()),
            ModelDelta::State(state) => ("state", json!(state).to_string()),
            ModelDelta::Finish { reason, raw, .. } => {
                ("finish", format!("{} ({})", reason.name(), raw.unwrap_or_else(|| "-".to_owned())))
            }
        });
    }
    if let Some(error) = error {
        lines.push(("error", error.to_string()));
        let abandoned = decoder.abandoned_calls();
        lines.extend(abandoned.into_iter().map(|call| ("abandoned", format!("{} {}", call.id, call.name))));
    }
    lines
}

/// Where text was cut into deltas is no part of the answer.
fn joined(told: Vec<(&'static str, String)>) -> Vec<(&'static str, String)> {
    let mut lines: Vec<(&str, String)> = Vec::new();
    for (kind, text) in told {
        match lines.last_mut() {
            Some((last, joined)) if *last == kind && matches!(kind, "text" | "reasoning") => {
                joined.push_str(&text);
            }
            _ => lines.push((kind, text)),
        }
    }
    lines
}

/// One thing a line.
pub(crate) fn transcript(dialect: Dialect, reads: &[&[u8]]) -> String {
    let lines = joined(told(dialect, reads));
    lines.iter().map(|(kind, text)| format!("{kind}: {text}")).collect::<Vec<_>>().join("\n")
}

fn sse(chunks: &[serde_json::Value]) -> String {
    chunks
        .iter()
        .map(|chunk| match chunk {
            serde_json::Value::String(text) => format!("data: {text}\n\n"),
            chunk => format!("data: {chunk}\n\n"),
        })
        .collect()
}

fn openai(chunks: &[serde_json::Value]) -> String {
    transcript(Dialect::OpenaiChat, &[sse(chunks).as_bytes()])
}

#[expect(clippy::needless_pass_by_value, reason = "reads better at the many calls")]
fn delta(delta: serde_json::Value) -> serde_json::Value {
    json!({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> serde_json::Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

#[test]
fn text_after_a_call_comes_out_after_it() {
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]});
    let chunks = [
        delta(json!({"content": "Before."})),
        delta(call),
        delta(json!({"content": "After"})),
        delta(json!({"content": " it."})),
        finish("tool_calls"),
        json!("[DONE]"),
    ];
    insta::assert_snapshot!(openai(&chunks), @"
    text: Before.
    call: a f {}
    text: After it.
    finish: tool_calls (tool_calls)
    ");
    insta::assert_snapshot!(openai(&chunks[..4]), @"
    text: Before.After it.
    error: http://up answered with something that is no whole answer: a stream that ended without a finish reason
    abandoned: a f
    ");
}

#[test]
fn a_whole_message_needs_no_finish_reason() {
    let message = json!({"choices": [{"message": {"content": "x"}, "finish_reason": null}]}).to_string();
    insta::assert_snapshot!(transcript(Dialect::OpenaiChat, &[message.as_bytes()]), @"
    text: x
    finish: stop (-)
    ");
}

fn cut(stops: &[&str], text: &str, size: usize) -> (String, Option<String>) {
    let mut decoder = AnswerDecoder::new(Dialect::OpenaiChat, "http://up")
        .cut_at(stops.iter().map(|stop| (*stop).to_owned()).collect());
    let pieces: Vec<char> = text.chars().collect();
    let mut chunks: Vec<_> = pieces
        .chunks(size)
        .map(|piece| delta(json!({"content": piece.iter().collect::<String>()})))
        .collect();
    chunks.push(finish("stop"));
    let mut deltas = Vec::new();
    decoder.push(sse(&chunks).as_bytes(), &mut deltas).unwrap();
    decoder.finish(&mut deltas).unwrap();
    let mut told = String::new();
    let mut stop = None;
    for delta in deltas {
        match delta {
            ModelDelta::Text(text) => told.push_str(&text),
            ModelDelta::Finish { stop_sequence, .. } => stop = stop_sequence,
            _ => {}
        }
    }
    (told, stop)
}

#[test]
fn a_stop_sequence_the_upstream_does_not_know_ends_the_text_wherever_it_is_cut() {
    for size in 1..8 {
        let found = |text| cut(&["END", "ENOUGH", "été"], text, size);
        assert_eq!(found("one EN END two ENOUGH"), ("one EN ".to_owned(), Some("END".to_owned())));
        assert_eq!(found("l'été là"), ("l'".to_owned(), Some("été".to_owned())));
        assert_eq!(found("at the EN"), ("at the EN".to_owned(), None));
        assert_eq!(found("END"), (String::new(), Some("END".to_owned())));
    }
}

#[test]
fn what_follows_a_cut_counts_no_more_however_the_bytes_come() {
    let call =
        json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"n\": 1"}}]});
    let chunks = [
        delta(call),
        delta(json!({"content": "one END two"})),
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "2}"}}]})),
        json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}),
        finish("stop"),
    ];
    let bytes = sse(&chunks).into_bytes();
    for size in [1, bytes.len()] {
        let mut decoder = AnswerDecoder::new(Dialect::OpenaiChat, "http://up").cut_at(vec!["END".to_owned()]);
        let mut deltas = Vec::new();
        bytes.chunks(size).try_for_each(|piece| decoder.push(piece, &mut deltas)).unwrap();
        let [ModelDelta::Call(call), ModelDelta::Text(text), ModelDelta::Finish { .. }] = deltas.as_slice()
        else {
            panic!("{deltas:?}")
        };
        assert_eq!(text, "one ");
        assert!(call.arguments.value().is_err(), "a call that had not ended: {call:?}");
    }
}

#[test]
fn the_stop_string_that_vllm_tells_is_kept_and_other_words_for_the_end_are_not() {
    let told = |reason: serde_json::Value| {
        let chunks = [
            json!({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop", "stop_reason": reason}]}),
        ];
        let mut deltas = Vec::new();
        let mut decoder = AnswerDecoder::new(Dialect::OpenaiChat, "http://up");
        decoder.push(sse(&chunks).as_bytes(), &mut deltas).unwrap();
        decoder.finish(&mut deltas).unwrap();
        match deltas.pop() {
            Some(ModelDelta::Finish { stop_sequence, .. }) => stop_sequence,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(told(json!("END")).as_deref(), Some("END"));
    assert_eq!(told(json!(128_009)), None);
    assert_eq!(told(json!("end_turn")), None);
}

#[test]
fn text_reasoning_calls_usage_and_finish_come_out_in_order() {
    let chunks = [
        delta(json!({"role": "assistant", "content": null, "reasoning_content": "Hm"})),
        delta(
            json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "m."}]}, {"type": "text", "text": "Let"}]}),
        ),
        delta(json!({"content": " me."})),
        delta(
            json!({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "look", "arguments": ""}, "extra_content": {"google": {"thought_signature": "s"}}}]}),
        ),
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"q\":1}"}}]})),
        finish("stop"),
        json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 2}}}),
        json!("[DONE]"),
        json!({"error": {"message": "after the end"}}),
    ];
    insta::assert_snapshot!(openai(&chunks), @r#"
    reasoning: Hmm.
    text: Let me.
    call: a look {"q":1} {"extra_content":{"google":{"thought_signature":"s"}}}
    usage: 9+4 cached 3 reasoning 2
    finish: tool_calls (stop)
    "#);
}

#[test]
fn a_whole_completion_is_read_by_the_same_decoder() {
    let body = json!({
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": "Hi", "reasoning": "R",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "one", "arguments": "{}"}},
                {"id": "b", "type": "function", "function": {"name": "one", "arguments": {"x": 1}}}
            ],
        }}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    });
    let pretty = format!("\u{feff} {body:#}");
    insta::assert_snapshot!(transcript(Dialect::OpenaiChat, &[pretty.as_bytes()]), @r#"
    reasoning: R
    text: Hi
    call: a one {}
    call: b one {"x":1}
    usage: 1+2 cached 0 reasoning 0
    finish: tool_calls (tool_calls)
    "#);
}

#[test]
fn a_message_after_its_deltas_says_nothing_twice() {
    let message = json!({"choices": [{"finish_reason": "stop", "message": {
        "content": "Hi", "tool_calls": [{"id": "a", "function": {"name": "one", "arguments": "{\"x\":1}"}}]
    }}]});
    let call =
        json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "one", "arguments": "{\"x\""}}]});
    insta::assert_snapshot!(openai(&[delta(json!({"content": "Hi"})), delta(call), message]), @r#"
    text: Hi
    call: a one {"x":1}
    finish: tool_calls (stop)
    "#);
}

#[test]
fn the_legacy_function_call_is_a_call() {
    let chunks = [
        delta(json!({"function_call": {"name": "look", "arguments": ""}})),
        delta(json!({"function_call": {"arguments": "{\"q\":1}"}})),
        finish("function_call"),
    ];
    insta::assert_snapshot!(openai(&chunks), @r#"
    call:  look {"q":1}
    finish: tool_calls (function_call)
    "#);
}

#[test]
fn no_call_of_a_broken_answer_comes_out() {
    let call = delta(
        json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "rm", "arguments": "{}"}}]}),
    );
    insta::assert_snapshot!(openai(&[call.clone(), json!({"error": {"message": "overloaded", "code": 503}})]), @r"
    error: http://up failed (503): overloaded
    abandoned: a rm
    ");
    insta::assert_snapshot!(openai(std::slice::from_ref(&call)), @r"
    error: http://up answered with something that is no whole answer: a stream that ended without a finish reason
    abandoned: a rm
    ");
    insta::assert_snapshot!(openai(&[call, finish("error")]), @r"
    error: http://up failed (200): the answer ended with finish reason `error`
    abandoned: a rm
    ");
}

#[test]
fn every_place_an_error_hides_in_is_looked_at() {
    let error = |text: &str| transcript(Dialect::OpenaiChat, &[text.as_bytes()]);
    let told = [
        error("data: {\"choices\":[],\"error\":{\"code\":400,\"message\":\"too long\"}}\n\n"),
        error("data: {\"error\":\"out of memory\"}\n\n"),
        error(
            "event: error\ndata: {\"error\":{\"message\":\"slow down\",\"type\":\"rate_limit_error\"}}\n\n",
        ),
        error("event: error\ndata: boom\n\n"),
        error("{\"object\":\"error\",\"message\":\"no such model\",\"code\":404}"),
        error("{\"detail\":\"not found\"}"),
        error(
            "data: {\"choices\":[{\"finish_reason\":\"error\",\"error\":{\"message\":\"provider died\",\"code\":502}}]}\n\n",
        ),
        error("<html>\n<b>Bad\u{7} gateway</b></html>"),
        error("upstream connect error"),
        error(" \r\n"),
        error("data: [DONE]\n\n"),
    ];
    insta::assert_snapshot!(told.join("\n"), @r"
    error: http://up rejected the request (400): too long
    error: http://up failed (200): out of memory
    error: http://up is limiting requests (429): slow down
    error: http://up failed (200): boom
    error: http://up rejected the request (404): no such model
    error: http://up failed (200): not found
    error: http://up failed (502): provider died
    error: http://up answered with something that is no model answer: <html> <b>Bad gateway</b></html>
    error: http://up answered with something that is no model answer: upstream connect error
    error: http://up answered with something that is no model answer: an empty body
    error: http://up answered with something that is no model answer: an end mark without an answer
    ");
}

#[test]
fn a_cut_wins_over_other_finish_reasons_and_makes_open_calls_unusable() {
    let call = delta(
        json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "w", "arguments": "{\"x\":\"1"}}]}),
    );
    insta::assert_snapshot!(openai(&[call, finish("length"), finish("stop")]), @r#"
    call: a w {"x":"1 UNUSABLE
    finish: length (length)
    "#);
}

#[test]
fn odd_chunks_are_read_as_far_as_they_go() {
    let stream = concat!(
        "data: {\"choices\":[{\"index\":null,\"delta\":null}]}\n\n",
        "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"OTHER\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"role\":1,\"content\":\"a\",\"content\":\"b\",\"tool_calls\":null}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"\\ud83d|\\ud83d\\ude00|\\\\ud83d\"}}]}\n\n",
        "data: {\"choices\":null,\"error\":null,\"x_groq\":{\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}}\n\n",
        "data: {\"choices\":[{\"finish_reason\":\"\"}]}\n\ndata: {\"choices\":[{\"finish_reason\":\"eos\"}]}\n\n",
        "data:  [DONE] \n\n",
    );
    insta::assert_snapshot!(transcript(Dialect::OpenaiChat, &[stream.as_bytes()]), @r"
    text: b�|😀|\ud83d
    usage: 1+1 cached 0 reasoning 0
    finish: stop (eos)
    ");
}

#[test]
fn a_long_argument_stream_is_put_together_whole() {
    let mut stream = sse(&[delta(
        json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "w", "arguments": "{\"x\":\""}}]}),
    )]);
    let piece =
        sse(&[delta(json!({"tool_calls": [{"index": 0, "function": {"name": "w", "arguments": "xx"}}]}))]);
    for _ in 0..50_000 {
        stream.push_str(&piece);
    }
    stream.push_str(&sse(&[
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "\"}"}}]})),
        finish("tool_calls"),
    ]));
    let told = transcript(Dialect::OpenaiChat, &[stream.as_bytes()]);
    assert_eq!(told.lines().next().map(str::len), Some("call: a w ".len() + 8 + 100_000));
}

proptest! {
    #[test]
    fn any_split_of_the_bytes_gives_the_same_answer(
        cuts in prop::collection::vec(0usize..600, 0..8),
        crlf in any::<bool>(),
        mark in any::<bool>(),
    ) {
        let chunks = [
            delta(json!({"content": "天😀"})),
            delta(json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "w", "arguments": "{\"é\":"}}]})),
            delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]})),
            finish("tool_calls"),
            json!("[DONE]"),
        ];
        let mut text = sse(&chunks);
        if crlf {
            text = text.replace('\n', "\r\n");
        }
        if mark {
            text.insert(0, '\u{feff}');
        }
        let bytes = text.as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        prop_assert_eq!(
            transcript(Dialect::OpenaiChat, &pieces),
            "text: 天😀\ncall: a w {\"é\":1}\nfinish: tool_calls (tool_calls)"
        );
    }
}
