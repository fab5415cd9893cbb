use axum::http::HeaderMap;
use serde_json::{Value, json};

use super::check::{Raw, read};
use super::memory::{Memory, call_seal, seal};
use super::{Answer, Asked, Call, End, Reply, ScriptedModel, Wire, rounds_so_far};
use crate::client::{assemble, chat, post, request, stream, streamed_chat};

fn problems(wire: Wire, request: &Value) -> Vec<String> {
    let raw = Raw { path: "", headers: &HeaderMap::new(), body: request };
    read(wire, &raw).1
}

#[test]
fn a_result_without_its_call_is_a_problem() {
    let request = json!({"model": "m", "messages": [
        {"role": "user", "content": "hi"},
        {"role": "tool", "tool_call_id": "a", "content": "x"},
    ]});
    assert_eq!(problems(Wire::Chat, &request), ["message 1 answers `a`, which is not an open call"]);
}

#[test]
fn a_call_without_its_result_is_a_problem() {
    let call = json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let request = json!({"model": "m", "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "user", "content": "so?"},
    ]});
    assert_eq!(problems(Wire::Chat, &request), [r#"message 2 comes before the results of ["a"]"#]);
}

#[test]
fn names_and_choices_are_held_to_the_rules_of_the_api() {
    let tool = json!({"type": "function", "function": {"name": "a.b", "parameters": {"type": "object"}}});
    let request = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [tool]});
    let problems = problems(Wire::Chat, &request);
    assert!(problems[0].starts_with("this is no tool"), "{problems:?}");
    assert!(problems[1].starts_with("the parameters of `a.b`"), "{problems:?}");
}

#[test]
fn a_suffix_stands_for_the_one_tool_that_ends_so() {
    let resolve = |name: &str, request: &Value| {
        read(Wire::Chat, &Raw { path: "", headers: &HeaderMap::new(), body: request }).0.resolve(name)
    };
    let tools = json!([{"function": {"name": "fs__read"}}, {"function": {"name": "fs__write"}}]);
    assert_eq!(resolve("~read", &json!({"tools": tools})), "fs__read");
    let prompt = "<tools>\n<tool>{\"function\": {\"name\": \"x.y\"}}</tool>\n</tools>";
    assert_eq!(resolve("~y", &json!({"messages": [{"role": "system", "content": prompt}]})), "x.y");
}

#[test]
fn rounds_are_counted_from_the_last_user_message() {
    let messages = json!([
        {"role": "user"}, {"role": "assistant"}, {"role": "user"}, {"role": "assistant"}, {"role": "tool"},
    ]);
    assert_eq!(rounds_so_far(&json!({"messages": messages})), 1);
}

#[test]
fn an_answer_comes_in_pieces_or_whole_as_it_is_asked_for() {
    let reply = || Reply::call("a", "f", json!({"n": 1})).pieces(2).usage(3, 4);
    let model = ScriptedModel::start([reply(), reply()]);
    let url = format!("{}/chat/completions", model.base_url());
    let streamed = assemble(&stream(&url, &streamed_chat("hi")).rest());
    assert_eq!(streamed.finish_reasons, ["tool_calls"]);
    let arguments: String =
        streamed.calls.iter().filter_map(|call| call["function"]["arguments"].as_str()).collect();
    assert_eq!(arguments, r#"{"n":1}"#);
    assert_eq!(streamed.usage.unwrap()["total_tokens"], 7);
    let whole = post(&url, &chat("hi")).ok();
    assert_eq!(whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], r#"{"n":1}"#);
    model.finish();
}

#[test]
fn a_cut_answer_has_no_end_and_a_client_that_leaves_is_noticed() {
    let model = ScriptedModel::start([
        Reply::text("never whole").pieces(5).end(End::CutAfter(2)),
        Reply::text("never whole").pieces(5).end(End::SilentAfter(2)),
    ]);
    let url = format!("{}/chat/completions", model.base_url());
    let cut = assemble(&stream(&url, &streamed_chat("hi")).rest());
    assert_eq!((cut.text.as_str(), cut.done), ("never", false));
    assert_eq!(model.aborted(), 0);
    let mut silent = stream(&url, &streamed_chat("hi"));
    silent.until("the first piece", |event| event["choices"][0]["delta"]["content"] == "never");
    drop(silent);
    model.wait_for_abort();
    model.finish();
}

/// A turn in the middle, as each API tells it: two calls with sealed reasoning where the API has it, both answered.
fn history_of(wire: Wire) -> (&'static str, Value) {
    let sealed = seal("hm");
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    match wire {
        Wire::Chat => unreachable!("it has its own tests"),
        Wire::Messages => (
            "/v1/messages",
            json!({
                "model": "m",
                "max_tokens": 10,
                "system": "Be kind.",
                "tools": [{"name": "f", "input_schema": schema}],
                "messages": [
                    {"role": "user", "content": "hi"},
                    {"role": "assistant", "content": [
                        {"type": "thinking", "thinking": "hm", "signature": sealed},
                        {"type": "tool_use", "id": "a", "name": "f", "input": {"n": 1}},
                        {"type": "tool_use", "id": "b", "name": "f", "input": {"n": 2}},
                    ]},
                    {"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": "a", "content": "one"},
                        {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "two"}]},
                    ]},
                ],
            }),
        ),
        Wire::Responses => (
            "/v1/responses",
            json!({
                "model": "m",
                "instructions": "Be kind.",
                "tools": [{"type": "function", "name": "f", "parameters": schema, "strict": false}],
                "input": [
                    {"role": "user", "content": "hi"},
                    {"type": "reasoning", "id": "rs_1", "encrypted_content": sealed,
                     "summary": [{"type": "summary_text", "text": "hm"}]},
                    {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{\"n\":1}"},
                    {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{\"n\":2}"},
                    {"type": "function_call_output", "call_id": "a", "output": "one"},
                    {"type": "function_call_output", "call_id": "b", "output": "two"},
                ],
            }),
        ),
        Wire::Gemini => (
            "/v1beta/models/m:generateContent",
            json!({
                "systemInstruction": {"parts": [{"text": "Be kind."}]},
                "tools": [{"functionDeclarations": [{"name": "f", "parameters": schema}]}],
                "contents": [
                    {"role": "user", "parts": [{"text": "hi"}]},
                    {"role": "model", "parts": [
                        {"functionCall": {"name": "f", "args": {"n": 1}}, "thoughtSignature": call_seal("f", "{\"n\":1}")},
                        {"functionCall": {"name": "f", "args": {"n": 2}}},
                    ]},
                    {"role": "user", "parts": [
                        {"functionResponse": {"name": "f", "response": {"result": "one"}}},
                        {"functionResponse": {"name": "f", "response": {"result": "two"}}},
                    ]},
                ],
            }),
        ),
        Wire::Ollama => (
            "/api/chat",
            json!({
                "model": "m",
                "stream": false,
                "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
                "messages": [
                    {"role": "system", "content": "Be kind."},
                    {"role": "user", "content": "hi"},
                    {"role": "assistant", "content": "", "tool_calls": [
                        {"function": {"name": "f", "arguments": {"n": 1}}},
                        {"function": {"name": "f", "arguments": {"n": 2}}},
                    ]},
                    {"role": "tool", "tool_name": "f", "content": "one"},
                    {"role": "tool", "tool_name": "f", "content": "two"},
                ],
            }),
        ),
    }
}

const OTHERS: [Wire; 4] = [Wire::Messages, Wire::Responses, Wire::Gemini, Wire::Ollama];

/// What is wrong with a request to a model that gave the two calls of [`history_of`] before.
fn found(wire: Wire, path: &str, body: &Value) -> (Asked, Vec<String>) {
    let mut headers = HeaderMap::new();
    for name in ["x-api-key", "anthropic-version", "x-goog-api-key"] {
        headers.insert(name, "x".parse().unwrap());
    }
    let (asked, mut problems) = read(wire, &Raw { path, headers: &headers, body });
    let mut memory = Memory::default();
    let calls = vec![Call::new("a", "f", json!({"n": 1})), Call::new("b", "f", json!({"n": 2}))];
    memory.keep(wire, &Answer { reasoning: "hm".to_owned(), calls, ..Answer::default() });
    problems.extend(memory.problems(wire, &asked));
    (asked, problems)
}

#[test]
fn every_api_tells_one_history() {
    for wire in OTHERS {
        let (path, body) = history_of(wire);
        assert_eq!(Wire::of(path), Some(wire));
        let (asked, problems) = found(wire, path, &body);
        assert_eq!(problems, [""; 0], "{wire:?}");
        assert_eq!((asked.model.as_str(), asked.system.as_str(), asked.stream), ("m", "Be kind.", false));
        assert_eq!(asked.offered_tools(), ["f"]);
        assert_eq!((asked.last_user_text(), asked.rounds_so_far()), ("hi", 1), "{wire:?}");
        let (one, two) = (json!({"n": 1}), json!({"n": 2}));
        assert_eq!(asked.answered_calls(), [("f", &one, "one"), ("f", &two, "two")], "{wire:?}");
    }
}

#[test]
fn what_breaks_a_rule_of_its_api_is_found() {
    let cases = [
        (
            Wire::Messages,
            "/messages/1/content/0",
            json!({"type": "text", "text": "hm"}),
            "without the reasoning",
        ),
        (Wire::Messages, "/messages/1/content/0/thinking", json!("no"), "thinking that was changed"),
        (Wire::Messages, "/messages/2/content/1/tool_use_id", json!("a"), "`b` is not answered"),
        (Wire::Messages, "/messages/2/content", json!([{"type": "text", "text": " "}]), "empty text block"),
        (Wire::Messages, "/max_tokens", Value::Null, "`max_tokens` is null"),
        (Wire::Messages, "/messages/0/role", json!("system"), "has the role `system`"),
        (Wire::Responses, "/input/1/encrypted_content", json!("other"), "without the reasoning"),
        (Wire::Responses, "/input/1/summary/0/text", json!("no"), "reasoning that was changed"),
        (Wire::Responses, "/input/5/call_id", json!("a"), "answers `a`, which is not an open call"),
        (Wire::Responses, "/input/5", json!({"type": "item_reference", "id": "x"}), "is a `item_reference`"),
        (Wire::Gemini, "/contents/1/parts/0/thoughtSignature", json!("other"), "without the reasoning"),
        (Wire::Gemini, "/contents/2/parts/1", json!({"text": "two"}), "has 1 results for 2 calls"),
        (Wire::Gemini, "/contents/2/parts/0/functionResponse/name", json!("g"), "where `f` was called"),
        (
            Wire::Gemini,
            "/tools/0/functionDeclarations/0/parameters/properties/n",
            json!({"type": "object", "additionalProperties": false}),
            "have `additionalProperties`",
        ),
        (Wire::Ollama, "/messages/3/tool_name", json!("g"), "where `f` was called"),
        (Wire::Ollama, "/messages/2/tool_calls/0/function/arguments", json!("{}"), "are no object"),
        (Wire::Ollama, "/messages/4/role", json!("user"), "comes before the results"),
    ];
    for (wire, pointer, value, expected) in cases {
        let (path, mut body) = history_of(wire);
        *body.pointer_mut(pointer).unwrap() = value;
        let (_, problems) = found(wire, path, &body);
        assert!(
            problems.iter().any(|problem| problem.contains(expected)),
            "{wire:?} {pointer}: {problems:?}"
        );
    }
}

#[test]
fn the_keys_of_the_apis_are_in_their_headers() {
    for (wire, header) in [
        (Wire::Messages, "x-api-key"),
        (Wire::Messages, "anthropic-version"),
        (Wire::Gemini, "x-goog-api-key"),
    ] {
        let (path, body) = history_of(wire);
        let (_, problems) = read(wire, &Raw { path, headers: &HeaderMap::new(), body: &body });
        assert!(problems.contains(&format!("no header `{header}`")), "{problems:?}");
    }
}

#[test]
fn every_api_answers_in_its_own_form() {
    let reply = || Reply::call("a", "f", json!({"n": 10})).pieces(3).usage(3, 4);
    let model = ScriptedModel::start_by(move |_| Some(reply()));
    let headers = [("x-api-key", "x"), ("anthropic-version", "x"), ("x-goog-api-key", "x")];
    let ask = |path: &str, body: &Value| {
        let response = request("POST", &model.url(path), &headers, Some(body.to_string()));
        assert_eq!(response.status, 200);
        (response.header("content-type").unwrap_or_default().to_owned(), response.text)
    };
    let whole = [
        (Wire::Messages, "/content/0/input/n"),
        (Wire::Gemini, "/candidates/0/content/parts/0/functionCall/args/n"),
        (Wire::Ollama, "/message/tool_calls/0/function/arguments/n"),
    ];
    for (wire, pointer) in whole {
        let (path, body) = history_of(wire);
        let document: Value = serde_json::from_str(&ask(path, &body).1).unwrap();
        assert_eq!(document.pointer(pointer), Some(&json!(10)), "{wire:?}: {document}");
    }
    let streamed = [
        (Wire::Messages, "text/event-stream", "event: message_stop\n"),
        (Wire::Responses, "text/event-stream", "event: response.completed\n"),
        (Wire::Gemini, "text/event-stream", "\"finishReason\":\"STOP\""),
        (Wire::Ollama, "application/x-ndjson", "\"done\":true"),
    ];
    for (wire, content_type, end) in streamed {
        let (path, mut body) = history_of(wire);
        let path = path.replace(":generateContent", ":streamGenerateContent?alt=sse");
        if wire != Wire::Gemini {
            body["stream"] = json!(true);
        }
        let (found, text) = ask(&path, &body);
        assert_eq!(found, content_type);
        assert!(text.contains(end), "{wire:?}: {text}");
    }
    drop(model);
}

#[test]
fn an_error_has_the_form_of_the_api_that_was_asked() {
    let model = ScriptedModel::start_by(|_| Some(Reply::error(429, "slow down").header("retry-after", "3")));
    let headers = [("x-api-key", "x"), ("anthropic-version", "x"), ("x-goog-api-key", "x")];
    for (wire, expected) in [
        (Wire::Messages, json!({"type": "rate_limit_error", "message": "slow down"})),
        (Wire::Gemini, json!({"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED"})),
        (Wire::Ollama, json!("slow down")),
    ] {
        let (path, body) = history_of(wire);
        let response = request("POST", &model.url(path), &headers, Some(body.to_string()));
        assert_eq!((response.status, response.header("retry-after")), (429, Some("3")));
        assert_eq!(response.json()["error"], expected);
    }
}
