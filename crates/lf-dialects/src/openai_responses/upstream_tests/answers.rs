//! Reading their answers, streamed and whole.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn transcript(reads: &[&[u8]]) -> String {
    tests::transcript(Dialect::OpenaiResponses, reads)
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
    let end = "a stream that ended without a finish reason\nabandoned: call_a look\nabandoned: call_b look";
    assert!(told.ends_with(end), "{told}");
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
