//! Asking Responses upstreams and reading their answers. The events are those of OpenAI's API reference.

use lf_core::model::{Dialect, ToolSpec};
use lf_core::{
    Arguments, AssistantMessage, Content, Message, ModelDelta, ModelError, ModelRequest, Part, Prose,
    ToolCall, ToolChoice, ToolResult,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::AnswerDecoder;
use crate::upstream::{Encoded, UpstreamOptions, encode, encode_whole, tools};

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("no object: {other}"),
    }
}

// ---- reading

fn read(reads: &[&[u8]], stops: &[&str]) -> (Vec<ModelDelta>, Option<ModelError>) {
    let stops = stops.iter().map(|stop| (*stop).to_owned()).collect();
    let mut decoder = AnswerDecoder::new(Dialect::OpenaiResponses, "http://up").cut_at(stops);
    let mut deltas = Vec::new();
    let mut result = Ok(());
    for read in reads {
        result = result.and_then(|()| decoder.push(read, &mut deltas));
    }
    let result = result.and_then(|()| decoder.finish(&mut deltas));
    (deltas, result.err())
}

/// Where text was cut into deltas is no part of the answer.
fn transcript(reads: &[&[u8]]) -> String {
    let (deltas, error) = read(reads, &[]);
    let mut lines: Vec<(&str, String)> = Vec::new();
    for delta in deltas {
        let (kind, text) = match delta {
            ModelDelta::Text(text) => ("text", text),
            ModelDelta::Reasoning(text) => ("reasoning", text),
            ModelDelta::Call(call) => {
                let bad = if call.arguments.value().is_err() { " UNUSABLE" } else { "" };
                let rest =
                    if call.rest.is_empty() { String::new() } else { format!(" {}", json!(call.rest)) };
                ("call", format!("{} {} {}{bad}{rest}", call.id, call.name, call.arguments.raw()))
            }
            ModelDelta::Usage(usage) => (
                "usage",
                format!(
                    "{}+{} cached {} reasoning {}",
                    usage.input, usage.output, usage.cached, usage.reasoning
                ),
            ),
            ModelDelta::Native(native) => ("native", native.item.to_string()),
            ModelDelta::State(state) => ("state", json!(state).to_string()),
            ModelDelta::Finish { reason, raw, .. } => {
                ("finish", format!("{} ({})", reason.name(), raw.unwrap_or_else(|| "-".to_owned())))
            }
            other => ("other", format!("{other:?}")),
        };
        match lines.last_mut() {
            Some((last, joined)) if *last == kind && matches!(kind, "text" | "reasoning") => {
                joined.push_str(&text);
            }
            _ => lines.push((kind, text)),
        }
    }
    lines.extend(error.map(|error| ("error", error.to_string())));
    lines.iter().map(|(kind, text)| format!("{kind}: {text}")).collect::<Vec<_>>().join("\n")
}

fn sse(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
        .collect()
}

fn streamed(events: &[Value]) -> String {
    transcript(&[sse(events).as_bytes()])
}

fn whole(response: &Value) -> String {
    transcript(&[response.to_string().as_bytes()])
}

/// The events that OpenAI streams for this response.
fn events(response: &Value) -> Vec<Value> {
    let mut begun = response.clone();
    begun["status"] = "in_progress".into();
    begun["output"] = json!([]);
    begun["usage"] = Value::Null;
    begun["incomplete_details"] = Value::Null;
    let mut out = vec![json!({"type": "response.created", "response": begun})];
    for (at, item) in response["output"].as_array().unwrap().iter().enumerate() {
        let about = |kind: &str, mut fields: Value| {
            fields["type"] = kind.into();
            fields["output_index"] = at.into();
            fields["item_id"] = item["id"].clone();
            fields
        };
        let pieces = |text: &Value| {
            let chars: Vec<char> = text.as_str().unwrap().chars().collect();
            chars.chunks(6).map(|piece| piece.iter().collect::<String>()).collect::<Vec<_>>()
        };
        let mut added = item.clone();
        added["status"] = "in_progress".into();
        for list in ["content", "summary"].iter().filter(|list| item[**list].is_array()) {
            added[*list] = json!([]);
        }
        if item["type"] == "function_call" {
            added["arguments"] = "".into();
        }
        out.push(about("response.output_item.added", json!({"item": added})));
        for (index, part) in item["summary"].as_array().into_iter().flatten().enumerate() {
            let kind = "response.reasoning_summary_part.added";
            out.push(about(
                kind,
                json!({"summary_index": index, "part": {"type": "summary_text", "text": ""}}),
            ));
            for piece in pieces(&part["text"]) {
                let kind = "response.reasoning_summary_text.delta";
                out.push(about(kind, json!({"summary_index": index, "delta": piece, "obfuscation": "x"})));
            }
            let kind = "response.reasoning_summary_text.done";
            out.push(about(kind, json!({"summary_index": index, "text": part["text"]})));
        }
        for (index, part) in item["content"].as_array().into_iter().flatten().enumerate() {
            let (kind, text) = match part["type"].as_str().unwrap() {
                "output_text" => ("output_text", &part["text"]),
                "reasoning_text" => ("reasoning_text", &part["text"]),
                "refusal" => ("refusal", &part["refusal"]),
                other => panic!("{other}"),
            };
            out.push(about("response.content_part.added", json!({"content_index": index, "part": part})));
            for piece in pieces(text) {
                let delta = json!({"content_index": index, "delta": piece, "logprobs": []});
                out.push(about(&format!("response.{kind}.delta"), delta));
            }
            let done = json!({"content_index": index, "text": text, "refusal": text});
            out.push(about(&format!("response.{kind}.done"), done));
            out.push(about("response.content_part.done", json!({"content_index": index, "part": part})));
        }
        if item["type"] == "function_call" {
            for piece in pieces(&item["arguments"]) {
                out.push(about("response.function_call_arguments.delta", json!({"delta": piece})));
            }
            let done = json!({"arguments": item["arguments"]});
            out.push(about("response.function_call_arguments.done", done));
        }
        if item["type"] == "web_search_call" {
            out.push(about("response.web_search_call.searching", json!({})));
        }
        out.push(about("response.output_item.done", json!({"item": item})));
    }
    let kind = format!("response.{}", response["status"].as_str().unwrap());
    out.push(json!({"type": kind, "response": response}));
    for (at, event) in out.iter_mut().enumerate() {
        event["sequence_number"] = at.into();
    }
    out
}

#[expect(clippy::needless_pass_by_value, reason = "reads better at the many calls")]
fn response(output: Value) -> Value {
    json!({
        "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "error": null,
        "incomplete_details": null, "model": "gpt-5", "output": output,
        "usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 3}, "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 14},
    })
}

fn message(text: &str) -> Value {
    json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn call(id: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": format!("fc_{id}"), "status": "completed", "call_id": id, "name": "look",
        "arguments": arguments})
}

#[expect(clippy::needless_pass_by_value, reason = "reads better at the many calls")]
fn thought(id: &str, sealed: Value, summary: &[&str]) -> Value {
    let summary: Vec<Value> =
        summary.iter().map(|text| json!({"type": "summary_text", "text": text})).collect();
    json!({"type": "reasoning", "id": id, "summary": summary, "encrypted_content": sealed, "status": null})
}

fn rich() -> Value {
    response(json!([
        thought("rs_1", json!("SEAL1"), &["**Plan** 天", "Look twice."]),
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "phase": "commentary",
            "content": [{"type": "output_text", "text": "Let me 😀 see.", "annotations": []}]},
        call("call_a", "{\"q\": \"é\"}"),
        thought("rs_2", json!("SEAL2"), &[]),
        call("call_b", "{}"),
    ]))
}

#[test]
fn reasoning_text_and_calls_come_out_with_what_must_come_back() {
    insta::assert_snapshot!(whole(&rich()), @r#"
    reasoning: **Plan** 天

    Look twice.
    native: {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"**Plan** 天"},{"type":"summary_text","text":"Look twice."}],"encrypted_content":"SEAL1","status":null}
    text: Let me 😀 see.
    native: {"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"SEAL2","status":null}
    call: call_a look {"q": "é"}
    call: call_b look {}
    state: {"$responses":{"items":[{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"**Plan** 天"},{"type":"summary_text","text":"Look twice."}],"encrypted_content":"SEAL1","status":null},{"type":"message","bytes":16,"phase":"commentary"},{"type":"function_call"},{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"SEAL2","status":null},{"type":"function_call"}]}}
    usage: 9+5 cached 3 reasoning 2
    finish: tool_calls (completed)
    "#);
}

fn other_answers() -> [Value; 4] {
    [
        response(json!([thought("rs_1", json!("S"), &["天"]), message("a😀"), call("a", "{\"é\":1}")])),
        response(json!([message("Hi"), message("there")])),
        response(json!([{"type": "web_search_call", "id": "ws_1", "status": "completed",
            "action": {"type": "search", "query": "x"}}, message("Found.")])),
        response(json!([{"type": "reasoning", "id": "rs_1", "summary": [],
            "content": [{"type": "reasoning_text", "text": "Hm"}, {"type": "reasoning_text", "text": "so"}]},
            message("Hi")])),
    ]
}

#[test]
fn a_streamed_answer_is_the_whole_one() {
    for response in other_answers().into_iter().chain([rich()]) {
        assert_eq!(streamed(&events(&response)), whole(&response));
    }
}

#[test]
fn where_the_bytes_of_a_stream_are_cut_changes_nothing() {
    let [response, ..] = other_answers();
    let expected = whole(&response);
    let text = sse(&events(&response));
    for at in 0..text.len() {
        let (before, after) = text.as_bytes().split_at(at);
        assert_eq!(transcript(&[before, after]), expected, "cut at byte {at}");
    }
}

fn cut<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % bytes.len()).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn any_split_of_the_bytes_gives_the_same_answer(cuts in prop::collection::vec(any::<usize>(), 0..8)) {
        let expected = whole(&rich());
        prop_assert_eq!(transcript(&cut(sse(&events(&rich())).as_bytes(), &cuts)), &*expected);
        prop_assert_eq!(transcript(&cut(format!("{:#}", rich()).as_bytes(), &cuts)), expected);
    }
}

#[test]
fn text_alone_leaves_nothing_to_come_back() {
    insta::assert_snapshot!(whole(&response(json!([message("Hi")]))), @r"
    text: Hi
    usage: 9+5 cached 3 reasoning 2
    finish: stop (completed)
    ");
}

#[test]
fn a_refusal_is_text_that_ends_as_filtered() {
    let response =
        response(json!([{"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
        "content": [{"type": "refusal", "refusal": "I cannot do that."}]}]));
    let told = whole(&response);
    assert_eq!(streamed(&events(&response)), told);
    insta::assert_snapshot!(told, @r"
    text: I cannot do that.
    usage: 9+5 cached 3 reasoning 2
    finish: content_filter (refusal)
    ");
}

#[test]
fn an_answer_cut_at_a_limit_gives_no_call_that_may_be_incomplete() {
    let mut response = response(json!([call("a", "{\"x\":1}"), call("b", "{\"path\":\"/tm")]));
    response["status"] = "incomplete".into();
    response["incomplete_details"] = json!({"reason": "max_output_tokens"});
    response["output"][1]["status"] = "incomplete".into();
    let told = whole(&response);
    assert_eq!(streamed(&events(&response)), told);
    insta::assert_snapshot!(told, @r#"
    call: a look {"x":1}
    call: b look {"path":"/tm UNUSABLE
    usage: 9+5 cached 3 reasoning 2
    finish: length (max_output_tokens)
    "#);
    response["incomplete_details"] = json!({"reason": "content_filter"});
    assert!(whole(&response).ends_with("finish: content_filter (content_filter)"));
    response["incomplete_details"] = json!({"reason": "steered"});
    assert!(whole(&response).ends_with("finish: length (incomplete)"));
}

#[test]
fn every_way_to_fail_is_an_error() {
    let failed = |error: Value| {
        let mut response = response(json!([]));
        response["status"] = "failed".into();
        response["error"] = error;
        let told = whole(&response);
        assert_eq!(streamed(&events(&response)), told);
        told
    };
    let with_status = |status: &str| {
        let mut response = response(json!([]));
        response["status"] = status.into();
        whole(&response)
    };
    let told = [
        failed(json!({"code": "server_error", "message": "something broke"})),
        failed(json!({"code": "rate_limit_exceeded", "message": "slow down"})),
        failed(json!({"code": "invalid_prompt", "message": "not this one"})),
        failed(Value::Null),
        streamed(&[json!({"type": "error", "code": "server_error", "message": "broke", "param": null, "sequence_number": 3})]),
        transcript(&[b"data: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"bad\"}}\n\n"]),
        transcript(&[b"{\"error\":{\"message\":\"no such model\",\"code\":\"model_not_found\"}}"]),
        transcript(&[b"{\"detail\":\"Not Found\"}"]),
        transcript(&[b"{\"choices\":[]}"]),
        transcript(&[b"<html>Bad gateway</html>"]),
        transcript(&[b""]),
        with_status("queued"),
        with_status("cancelled"),
    ];
    insta::assert_snapshot!(told.join("\n"), @r#"
    error: http://up failed (200): something broke
    error: http://up is limiting requests (429): slow down
    error: http://up rejected the request (400): not this one
    error: http://up failed (200): no reason given
    error: http://up failed (200): broke
    error: http://up rejected the request (400): bad
    error: http://up rejected the request (404): no such model
    error: http://up failed (200): Not Found
    error: http://up answered with something that is no model answer: {"choices":[]}
    error: http://up answered with something that is no model answer: <html>Bad gateway</html>
    error: http://up answered with something that is no model answer: an empty body
    error: http://up answered with something that is no model answer: a response with status `queued`
    error: http://up answered with something that is no model answer: a response with status `cancelled`
    "#);
}

#[test]
fn a_stream_that_breaks_off_gives_no_call() {
    let mut events = events(&rich());
    events.pop();
    let told = streamed(&events);
    assert!(!told.contains("call:") && !told.contains("state:"), "{told}");
    assert!(told.ends_with("a stream that ended without a finish reason"), "{told}");
}

#[test]
fn what_a_server_leaves_out_of_its_events_is_taken_from_the_next() {
    let expected = whole(&rich());
    let all = events(&rich());
    let without = |left_out: &dyn Fn(&str) -> bool| {
        let rest: Vec<Value> =
            all.iter().filter(|event| !left_out(event["type"].as_str().unwrap())).cloned().collect();
        streamed(&rest)
    };
    assert_eq!(without(&|kind| kind.ends_with(".delta")), expected);
    assert_eq!(without(&|kind| kind.ends_with("arguments.done") || kind.ends_with("item.added")), expected);
    assert_eq!(without(&|kind| kind != "response.completed"), expected);
    let mut empty = all.clone();
    empty.last_mut().unwrap()["response"]["output"] = json!([]);
    assert_eq!(streamed(&empty), expected);
    let mut without_index = all.clone();
    for event in &mut without_index {
        event.as_object_mut().unwrap().shift_remove("output_index");
    }
    assert_eq!(streamed(&without_index), expected);
    let mut other_ids = all;
    for (at, event) in other_ids.iter_mut().enumerate().filter(|(_, event)| event["item_id"].is_string()) {
        event["item_id"] = format!("rotated_{at}").into();
    }
    assert_eq!(streamed(&other_ids), expected);
}

#[test]
fn reasoning_that_is_sealed_only_at_the_end_comes_back_sealed() {
    let mut events = events(&rich());
    for event in events.iter_mut().filter(|event| event["type"] == "response.output_item.done") {
        if event["item"]["type"] == "reasoning" {
            event["item"]["encrypted_content"] = Value::Null;
        }
    }
    let state = |told: &str| told.lines().find(|line| line.starts_with("state:")).unwrap().to_owned();
    assert_eq!(state(&streamed(&events)), state(&whole(&rich())));
}

#[test]
fn arguments_that_come_empty_at_the_end_do_not_undo_the_pieces() {
    let mut events = events(&response(json!([call("a", "{\"x\":1}")])));
    for event in &mut events {
        if event["type"] == "response.output_item.done" {
            event["item"]["arguments"] = "{}".into();
        }
    }
    assert!(streamed(&events).starts_with("call: a look {\"x\":1}\n"));
}

#[test]
fn a_stop_sequence_cuts_here_because_the_upstream_knows_none() {
    let text = sse(&events(&response(json!([message("one END two")]))));
    let (deltas, error) = read(&[text.as_bytes()], &["END"]);
    assert_eq!(error, None);
    let told: String = deltas
        .iter()
        .filter_map(|delta| match delta {
            ModelDelta::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(told, "one ");
    assert!(
        matches!(deltas.last(), Some(ModelDelta::Finish { stop_sequence: Some(stop), .. }) if stop == "END")
    );
}

// ---- asking

fn user(text: &str) -> Message {
    Message::User(Prose { content: text.into(), ..Prose::default() })
}

fn asked(id: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: "look".to_owned(),
        arguments: Arguments::parse(arguments),
        rest: Map::new(),
    }
}

fn result(id: &str, content: impl Into<Content>) -> Message {
    Message::Tool(ToolResult {
        call_id: id.to_owned(),
        name: Some("look".to_owned()),
        content: content.into(),
        is_error: false,
        rest: Map::new(),
    })
}

fn look() -> ToolSpec {
    ToolSpec {
        name: "look".to_owned(),
        description: Some("Looks.".into()),
        schema: json!({"type": "object", "properties": {"q": {"type": "string"}}}).into(),
        rest: Map::new(),
    }
}

fn with_parameters(parameters: Value) -> ModelRequest {
    ModelRequest { messages: vec![user("Hi")], parameters: object(parameters), ..ModelRequest::default() }
}

fn encoded(model: &str, request: &ModelRequest) -> Encoded {
    encode(Dialect::OpenaiResponses, model, request, &UpstreamOptions::default()).unwrap()
}

fn pretty(model: &str, request: &ModelRequest) -> String {
    let body = encode_whole(Dialect::OpenaiResponses, model, request, &UpstreamOptions::default()).unwrap();
    let mut lines = vec![];
    for (key, value) in body.as_object().unwrap() {
        match value {
            Value::Array(list) => {
                lines.push(format!("{key}:"));
                lines.extend(list.iter().map(|value| format!("  {value}")));
            }
            value => lines.push(format!("{key}: {value}")),
        }
    }
    lines.join("\n")
}

#[test]
fn a_conversation_becomes_items() {
    let developer = Prose { content: "Be brief.".into(), rest: object(json!({"role": "developer"})) };
    let seen = vec![
        Part::Text("See".to_owned()),
        Part::Image { url: "data:image/png;base64,AA==".to_owned(), detail: Some("low".to_owned()) },
        Part::Other(
            json!({"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}}),
        ),
    ];
    let mut failed = ToolResult::error(&asked("b", ""), "gone");
    failed.rest = Map::new();
    let request = ModelRequest {
        messages: vec![
            Message::System(Prose { content: "You look.".into(), ..Prose::default() }),
            Message::System(developer),
            Message::User(Prose { content: Content::Parts(seen), rest: object(json!({"name": "ann"})) }),
            Message::Assistant(AssistantMessage {
                content: "Wait.".into(),
                reasoning: Some("not to be sent".to_owned()),
                calls: vec![asked("a", "{\"q\": 1}"), asked("b", "")],
                rest: Map::new(),
            }),
            result(
                "a",
                Content::Parts(vec![
                    Part::Text("Shown:".to_owned()),
                    Part::Image { url: "https://x/y.png".to_owned(), detail: None },
                    Part::Other(json!({"type": "input_audio", "input_audio": {}})),
                ]),
            ),
            Message::Tool(failed),
            Message::Assistant(AssistantMessage {
                rest: object(json!({"refusal": "No.", "annotations": []})),
                ..AssistantMessage::default()
            }),
        ],
        tools: [look()].into(),
        tool_choice: Some(ToolChoice::Tool("look".to_owned())),
        parameters: object(json!({"parallel_tool_calls": false})),
        stream: true,
    };
    insta::assert_snapshot!(pretty("gpt-4.1", &request), @r#"
    model: "gpt-4.1"
    input:
      {"type":"message","role":"system","content":"You look."}
      {"type":"message","role":"developer","content":"Be brief."}
      {"type":"message","role":"user","content":[{"type":"input_text","text":"See"},{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"low"},{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,AA=="}]}
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Wait."}]}
      {"type":"function_call","call_id":"a","name":"look","arguments":"{\"q\": 1}"}
      {"type":"function_call","call_id":"b","name":"look","arguments":"{}"}
      {"type":"function_call_output","call_id":"a","output":[{"type":"input_text","text":"Shown:"},{"type":"input_image","image_url":"https://x/y.png","detail":"auto"},{"type":"input_text","text":"[content of type `input_audio`, which this model cannot be shown]"}]}
      {"type":"function_call_output","call_id":"b","output":"Error: gone"}
      {"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"No."}]}
    parallel_tool_calls: false
    tool_choice: {"type":"function","name":"look"}
    store: false
    stream: true
    tools:
      {"type":"function","name":"look","description":"Looks.","parameters":{"type":"object","properties":{"q":{"type":"string"}}},"strict":false}
    "#);
    assert_eq!(encoded("gpt-4.1", &request).left_out, ["messages[].name"]);
}

#[test]
fn the_items_of_each_round_go_back_to_their_places() {
    let (deltas, error) = read(&[rich().to_string().as_bytes()], &[]);
    assert_eq!(error, None);
    let mut said = AssistantMessage::default();
    let mut text = String::new();
    for delta in deltas {
        match delta {
            ModelDelta::Text(more) => text.push_str(&more),
            ModelDelta::Call(call) => said.calls.push(call),
            ModelDelta::State(state) => said.rest = state,
            _ => {}
        }
    }
    said.content = text.into();
    let long = "x".repeat(70);
    let bare = AssistantMessage {
        calls: vec![asked(&long, "{}")],
        rest: object(json!({"$responses": {"items": [thought("rs_9", Value::Null, &["never sealed"])]}})),
        ..AssistantMessage::default()
    };
    let cut = AssistantMessage {
        rest: object(json!({"$responses": {"items": [thought("rs_8", json!("SEAL"), &[])]}})),
        ..AssistantMessage::default()
    };
    let request = ModelRequest {
        messages: vec![
            user("Look"),
            Message::Assistant(said),
            result("call_a", "1"),
            result("call_b", "2"),
            Message::Assistant(bare),
            result(&long, "3"),
            Message::Assistant(cut),
        ],
        tools: [look()].into(),
        ..ModelRequest::default()
    };
    insta::assert_snapshot!(pretty("gpt-5", &request), @r#"
    model: "gpt-5"
    input:
      {"type":"message","role":"user","content":"Look"}
      {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"**Plan** 天"},{"type":"summary_text","text":"Look twice."}],"encrypted_content":"SEAL1"}
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me 😀 see."}],"phase":"commentary"}
      {"type":"function_call","call_id":"call_a","name":"look","arguments":"{\"q\": \"é\"}"}
      {"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"SEAL2"}
      {"type":"function_call","call_id":"call_b","name":"look","arguments":"{}"}
      {"type":"function_call_output","call_id":"call_a","output":"1"}
      {"type":"function_call_output","call_id":"call_b","output":"2"}
      {"type":"function_call","call_id":"call_c71bd109227e23434ecf71fd0a344a20","name":"look","arguments":"{}"}
      {"type":"function_call_output","call_id":"call_c71bd109227e23434ecf71fd0a344a20","output":"3"}
    include:
      "reasoning.encrypted_content"
    store: false
    tools:
      {"type":"function","name":"look","description":"Looks.","parameters":{"type":"object","properties":{"q":{"type":"string"}}},"strict":false}
    "#);
}

#[test]
fn several_messages_of_one_answer_stay_several() {
    let two = |first: &str, second: &str| {
        json!([
            {"type": "message", "role": "assistant", "phase": "commentary",
                "content": [{"type": "output_text", "text": first, "annotations": []}]},
            {"type": "message", "role": "assistant", "phase": "final_answer",
                "content": [{"type": "output_text", "text": second, "annotations": []}]},
        ])
    };
    let items_of = |content: &str, items: Value| {
        let said = AssistantMessage {
            content: content.into(),
            rest: object(json!({"$responses": {"items": items}})),
            ..AssistantMessage::default()
        };
        let request = ModelRequest { messages: vec![Message::Assistant(said)], ..ModelRequest::default() };
        Value::from(encoded("gpt-5", &request).fields)["input"].clone()
    };
    let (deltas, _) = read(&[response(two("One.", "Two.")).to_string().as_bytes()], &[]);
    let state = deltas.iter().find_map(|delta| match delta {
        ModelDelta::State(state) => Some(state["$responses"]["items"].clone()),
        _ => None,
    });
    let plain = |text: &str, phase: &str| json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], "phase": phase});
    let told = json!([plain("One.", "commentary"), plain("Two.", "final_answer")]);
    assert_eq!(items_of("One.\n\nTwo.", state.unwrap()), told);
    // as a client sends them back
    assert_eq!(items_of("One.\n\nTwo.", two("One.", "Two.")), two("One.", "Two."));
    // a text that is another one now is said in one message
    assert_eq!(items_of("Else.", two("One.", "Two.")), json!([plain("Else.", "final_answer")]));
}

#[test]
fn servers_that_want_ids_of_messages_get_the_same_ones_each_time() {
    let said = AssistantMessage { content: "Hi".into(), ..AssistantMessage::default() };
    let request =
        ModelRequest { messages: vec![user("Hi"), Message::Assistant(said)], ..ModelRequest::default() };
    let options = UpstreamOptions { message_ids: true, ..UpstreamOptions::default() };
    let body = encode_whole(Dialect::OpenaiResponses, "m", &request, &options).unwrap();
    insta::assert_snapshot!(body["input"][1], @r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hi","annotations":[]}],"id":"msg_1","status":"completed"}"#);
}

#[test]
fn parameters_of_chat_completions_are_said_in_this_apis_words() {
    let request = ModelRequest {
        stream: true,
        ..with_parameters(json!({
            "max_tokens": 100, "reasoning_effort": "low", "verbosity": "high", "temperature": 0.5, "top_p": 1,
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}, "strict": true}},
            "stop": ["END", "ENOUGH", "HALT", "QUIT", "DONE"], "n": 1, "seed": null, "logit_bias": {},
            "presence_penalty": 0, "frequency_penalty": 0.0, "logprobs": false, "parallel_tool_calls": true,
            "user": "u", "metadata": {"k": "v"}, "store": true, "service_tier": "flex", "prompt_cache_key": "p",
            "safety_identifier": "s", "prediction": {"type": "content", "content": "x"}, "top_k": 4,
            "stream_options": {"include_usage": true, "include_obfuscation": false},
            "$anthropic": {"metadata": {"user_id": "x"}, "context_management": {"edits": []}, "thinking": {}},
        }))
    };
    insta::assert_snapshot!(pretty("some-model", &request), @r#"
    model: "some-model"
    input:
      {"type":"message","role":"user","content":"Hi"}
    max_output_tokens: 100
    reasoning: {"effort":"low"}
    text: {"verbosity":"high","format":{"type":"json_schema","name":"a","schema":{"type":"object"},"strict":true}}
    temperature: 0.5
    top_p: 1
    user: "u"
    metadata: {"k":"v"}
    store: true
    service_tier: "flex"
    prompt_cache_key: "p"
    safety_identifier: "s"
    top_k: 4
    include:
      "reasoning.encrypted_content"
    stream: true
    stream_options: {"include_obfuscation":false}
    "#);
    let encoded = encoded("some-model", &request);
    assert_eq!(encoded.stops, ["END", "ENOUGH", "HALT", "QUIT", "DONE"]);
    assert_eq!(encoded.left_out, ["prediction", "context_management"]);
}

#[test]
fn a_parameter_that_cannot_be_said_is_refused_by_name() {
    for (key, value) in [
        ("seed", json!(0)),
        ("n", json!(2)),
        ("logprobs", json!(true)),
        ("logit_bias", json!({"1": 2})),
        ("presence_penalty", json!(0.5)),
        ("frequency_penalty", json!(-1)),
        ("modalities", json!(["text", "audio"])),
        ("audio", json!({"voice": "a"})),
    ] {
        let request = with_parameters(json!({ key: value }));
        match encode(Dialect::OpenaiResponses, "m", &request, &UpstreamOptions::default()) {
            Err(ModelError::Unsupported(message)) => {
                assert!(message.contains(&format!("`{key}`")), "{message}");
            }
            other => panic!("{key}: {other:?}"),
        }
    }
    let audio = Content::Parts(vec![Part::Other(json!({"type": "input_audio", "input_audio": {}}))]);
    let request = ModelRequest {
        messages: vec![Message::User(Prose { content: audio, ..Prose::default() })],
        ..ModelRequest::default()
    };
    let error = encode(Dialect::OpenaiResponses, "m", &request, &UpstreamOptions::default());
    insta::assert_snapshot!(error.unwrap_err(), @"a content part of type `input_audio` has no place in the OpenAI Responses API: leave it out, or use a model with another API");
}

#[test]
fn what_a_client_of_the_same_api_sent_is_sent_on() {
    let request = with_parameters(json!({
        "reasoning_effort": "high",
        "$responses": {
            "reasoning": {"effort": "high", "summary": "auto"}, "include": ["message.output_text.logprobs"],
            "truncation": "auto", "max_tool_calls": 3, "store": true, "previous_response_id": "resp_0",
            "input": "Hi", "instructions": "x", "stream": true, "background": false,
            "tools": [{"type": "web_search"}, {"type": "function", "name": "f"}],
            "tool_choice": {"type": "web_search"},
        },
    }));
    insta::assert_snapshot!(pretty("some-model", &request), @r#"
    model: "some-model"
    input:
      {"type":"message","role":"user","content":"Hi"}
    reasoning: {"effort":"high","summary":"auto"}
    truncation: "auto"
    max_tool_calls: 3
    tool_choice: {"type":"web_search"}
    include:
      "message.output_text.logprobs"
      "reasoning.encrypted_content"
    store: false
    tools:
      {"type":"web_search"}
    "#);
}

#[test]
fn sealed_reasoning_is_asked_only_of_models_that_reason() {
    let asks = |model: &str, parameters: Value| {
        let encoded = encoded(model, &with_parameters(parameters));
        encoded.fields.contains_key("include")
    };
    for model in ["gpt-5", "gpt-5.4-mini", "o3", "o4-mini", "openai/gpt-6", "codex-mini-latest", "grok-4"] {
        assert!(asks(model, json!({})), "{model}");
    }
    for model in ["gpt-4.1", "gpt-4o", "gpt-5-chat-latest", "gpt-oss-120b", "chatgpt-4o-latest", "qwen3"] {
        assert!(!asks(model, json!({})), "{model}");
    }
    assert!(asks("my-deployment", json!({"reasoning_effort": "medium"})));
    assert!(!asks("my-deployment", json!({"reasoning_effort": "none"})));
}

#[test]
fn declarations_say_whether_they_are_strict() {
    let mut strict = look();
    strict.rest = object(json!({"strict": true, "$anthropic": {"defer_loading": true}}));
    let mut own = look();
    own.rest = object(json!({"strict": null, "$responses": {"defer_loading": true}}));
    let told = tools(Dialect::OpenaiResponses, &[look(), strict, own]);
    insta::assert_snapshot!(told.replace("},{\"type\":\"function\"", "},\n{\"type\":\"function\""), @r#"
    {"type":"function","name":"look","description":"Looks.","parameters":{"type":"object","properties":{"q":{"type":"string"}}},"strict":false},
    {"type":"function","name":"look","description":"Looks.","parameters":{"type":"object","properties":{"q":{"type":["string","null"]}},"required":["q"],"additionalProperties":false},"strict":true},
    {"type":"function","name":"look","description":"Looks.","parameters":{"type":"object","properties":{"q":{"type":"string"}}},"strict":false,"defer_loading":true}
    "#);
}
