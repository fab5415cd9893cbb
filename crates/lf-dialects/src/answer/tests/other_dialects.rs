//! Answers of other APIs than Chat Completions.

use serde_json::json;

use super::*;

#[test]
fn anthropic_answers_are_read_streamed_and_whole() {
    let body = json!({"type": "message", "content": [
        {"type": "thinking", "thinking": "T", "signature": "s"},
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "t", "name": "look", "input": {"q": 1}},
    ], "stop_reason": "tool_use", "usage": {"input_tokens": 2, "cache_read_input_tokens": 5, "output_tokens": 3}});
    insta::assert_snapshot!(transcript(Dialect::Anthropic, &[body.to_string().as_bytes()]), @r#"
    reasoning: T
    native: {"type":"signature_delta","signature":"s"}
    text: Hi
    call: t look {"q":1}
    state: {"$anthropic":{"content":[{"type":"thinking","thinking":"T","signature":"s"},{"type":"text","text":"Hi"},{"type":"tool_use","id":"t","name":"look","input":{"q":1}}]}}
    usage: 7+3 cached 5 reasoning 0
    finish: tool_calls (tool_use)
    "#);
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    insta::assert_snapshot!(transcript(Dialect::Anthropic, &[error.as_bytes()]), @"error: http://up failed (529): Overloaded");
}

#[test]
fn gemini_keeps_signatures_with_their_calls_and_tells_malformed_calls_as_errors() {
    let chunks = [json!({"candidates": [{"content": {"parts": [
        {"text": "Hm", "thought": true},
        {"functionCall": {"name": "look", "args": {"q": 1}}, "thoughtSignature": "s"},
        {"functionCall": {"name": "look"}},
    ]}, "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2, "thoughtsTokenCount": 3}})];
    let array = json!(chunks).to_string();
    insta::assert_snapshot!(transcript(Dialect::Gemini, &[array.as_bytes()]), @r#"
    reasoning: Hm
    call:  look {"q":1} {"thoughtSignature":"s"}
    call:  look {}
    usage: 5+5 cached 0 reasoning 3
    finish: tool_calls (STOP)
    "#);
    let malformed =
        sse(&[json!({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "bad"}]})]);
    insta::assert_snapshot!(transcript(Dialect::Gemini, &[malformed.as_bytes()]), @"error: http://up failed (200): the answer ended with finish reason `MALFORMED_FUNCTION_CALL`: bad");
    let blocked = sse(&[json!({"promptFeedback": {"blockReason": "OTHER"}})]);
    insta::assert_snapshot!(transcript(Dialect::Gemini, &[blocked.as_bytes()]), @"finish: content_filter (SAFETY)");
}

#[test]
fn ollama_lines_are_read() {
    let lines = concat!(
        "{\"message\":{\"content\":\"Hi\",\"thinking\":\"T\"},\"done\":false}\n",
        "{\"message\":{\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"a\",\"arguments\":{\"x\":1}}},{\"function\":{\"name\":\"a\",\"arguments\":{\"x\":1}}}]},\"done\":false}\n",
        "{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":3,\"eval_count\":4}",
    );
    insta::assert_snapshot!(transcript(Dialect::Ollama, &[lines.as_bytes()]), @r#"
    reasoning: T
    text: Hi
    call:  a {"x":1}
    call:  a {"x":1}
    usage: 3+4 cached 0 reasoning 0
    finish: tool_calls (stop)
    "#);
    insta::assert_snapshot!(transcript(Dialect::Ollama, &[b"{\"error\":\"model crashed\"}\n"]), @"error: http://up failed (200): model crashed");
}

#[test]
fn ai_sdk_calls_count_once_and_the_whole_form_wins() {
    let events = |events: &[serde_json::Value]| transcript(Dialect::AiSdk, &[sse(events).as_bytes()]);
    let whole = [
        json!({"type": "tool-input-start", "id": "c", "toolName": "read"}),
        json!({"type": "tool-input-delta", "id": "c", "delta": "{\"p\":"}),
        json!({"type": "tool-input-end", "id": "c"}),
        json!({"type": "tool-call", "toolCallId": "c", "toolName": "read", "input": "{\"p\":1}"}),
        json!({"type": "finish", "finishReason": "tool-calls"}),
    ];
    insta::assert_snapshot!(events(&whole), @r#"
    call: c read {"p":1}
    finish: tool_calls (tool-calls)
    "#);
    insta::assert_snapshot!(events(&[json!({"type": "tool_call_delta", "id": "x", "delta": "{}"})]), @"error: http://up answered with something that is no model answer: an event about a tool call `x` that was never begun");
    insta::assert_snapshot!(events(&[json!({"type": "tool_call_start", "id": "c", "name": "A"})]), @r"
    error: http://up answered with something that is no whole answer: a stream that ended without a finish reason
    abandoned: c A
    ");
}
