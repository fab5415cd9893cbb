//! What clients are told.

use super::*;
use crate::any_turn;

fn streamed(events: &[ChatEvent], view: MessagesView, lf_events: LfEvents) -> String {
    let mut encoder = EventEncoder::new("msg_1", "m", view, lf_events);
    let told = events.iter().flat_map(|event| encoder.event(event));
    told.map(|(name, data)| format!("{name} {data}")).collect::<Vec<_>>().join("\n")
}

fn a_turn() -> Vec<ChatEvent> {
    let mut turn = any_turn::a_turn(call, " ", finished);
    // white space before a text begins no block of its own
    turn.insert(3, ChatEvent::Text("\n".to_owned()));
    turn
}

#[test]
fn a_turn_becomes_blocks_one_after_the_other() {
    insta::assert_snapshot!(streamed(&a_turn(), MessagesView::default(), LfEvents::Told), @r#"
    message_start {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}}
    content_block_start {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}
    content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm"}}
    content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m."}}
    content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"lf-unsigned"}}
    content_block_stop {"type":"content_block_stop","index":0}
    content_block_start {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}
    content_block_delta {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"\nLet me"}}
    content_block_delta {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":" see."}}
    ping {"type":"ping","lf":{"event":"tool_call","call_id":"s1","name":"f","server":null,"tool":null,"arguments":"{}"}}
    ping {"type":"ping","lf":{"event":"tool_result","call_id":"s1","name":"f","is_error":true,"elapsed_ms":7,"text":"there is no tool `f`","truncated":false}}
    content_block_delta {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":" "}}
    content_block_stop {"type":"content_block_stop","index":1}
    content_block_start {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}
    content_block_delta {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"q\": 1}"}}
    content_block_stop {"type":"content_block_stop","index":2}
    content_block_start {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"b","name":"f","input":{}}}
    content_block_delta {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{}"}}
    content_block_stop {"type":"content_block_stop","index":3}
    message_delta {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":5,"cache_creation_input_tokens":1,"cache_read_input_tokens":4,"output_tokens":3}}
    message_stop {"type":"message_stop"}
    "#);
}

#[test]
fn thinking_that_was_switched_off_is_not_shown() {
    let body = ask_with(json!({"thinking": {"type": "disabled"}, "stream": true}));
    let (_, view) = decode_request(body.to_string().as_bytes()).unwrap();
    assert_eq!(view, MessagesView { stream: true, thinking: ThinkingView::Hidden });
    let told = streamed(&a_turn(), view, LfEvents::Hidden);
    assert!(!told.contains("thinking") && !told.contains("ping"), "{told}");
}

#[test]
fn an_error_ends_the_stream_and_nothing_says_that_all_is_well() {
    let error = ModelError::Failed {
        url: "http://up".to_owned(),
        status: 529,
        message: "busy".to_owned(),
        retry_after: None,
    };
    let events = [
        ChatEvent::Started { turn: "t".to_owned(), model: "m".to_owned() },
        ChatEvent::Text("Half".to_owned()),
        ChatEvent::Failed(error),
        finished(FinishReason::Stop),
    ];
    insta::assert_snapshot!(streamed(&events[1..], MessagesView::default(), LfEvents::Told), @r#"
    message_start {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}}
    content_block_start {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}
    content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Half"}}
    error {"type":"error","error":{"type":"overloaded_error","message":"busy"}}
    "#);
    let mut completion = Completion::new("msg_1", "m", MessagesView::default(), LfEvents::Told);
    events.iter().for_each(|event| completion.push(event));
    let reply = completion.finish("req_1").unwrap_err();
    insta::assert_snapshot!(format!("{} {}", reply.status, reply.body), @r#"529 {"type":"error","error":{"type":"overloaded_error","message":"busy"},"request_id":"req_1"}"#);
}

#[test]
fn a_whole_message_says_what_the_stream_says() {
    let mut completion = Completion::new("msg_1", "m", MessagesView::default(), LfEvents::Hidden);
    a_turn().iter().for_each(|event| completion.push(event));
    insta::assert_snapshot!(completion.finish("req_1").unwrap(), @r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"thinking","thinking":"Hmm.","signature":"lf-unsigned"},{"type":"text","text":"\nLet me see. "},{"type":"tool_use","id":"a","name":"f","input":{"q":1}},{"type":"tool_use","id":"b","name":"f","input":{}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":5,"cache_creation_input_tokens":1,"cache_read_input_tokens":4,"output_tokens":3}}"#);
}

#[test]
fn every_ending_has_its_stop_reason() {
    let ended = |reason, stop: Option<&str>| {
        let mut completion = Completion::new("msg_1", "m", MessagesView::default(), LfEvents::Hidden);
        completion.push(&ChatEvent::Finished {
            reason,
            usage: Usage::default(),
            rounds: 1,
            stop_sequence: stop.map(str::to_owned),
        });
        let message = completion.finish("r").unwrap();
        format!("{} {}", message["stop_reason"], message["stop_sequence"])
    };
    let told = [
        ended(FinishReason::Stop, None),
        ended(FinishReason::Stop, Some("END")),
        ended(FinishReason::Length, None),
        ended(FinishReason::ContentFilter, None),
        ended(FinishReason::ToolCalls, None),
    ];
    insta::assert_snapshot!(told.join(", "), @r#""end_turn" null, "stop_sequence" "END", "max_tokens" null, "refusal" null, "end_turn" null"#);
}

#[test]
fn a_daemon_that_goes_down_is_no_upstream_that_failed() {
    let reply = error_reply(&ModelError::going_down(), "req_1");
    assert_eq!(reply.status, 503);
    assert_eq!(
        reply.body["error"],
        json!({"type": "overloaded_error", "message": "the daemon is shutting down"})
    );
}

#[test]
fn errors_keep_the_upstreams_status_and_wording() {
    let told = |status: u16, body: &str| {
        let error = crate::openai_chat::error_body(status, body.as_bytes(), "http://up", None);
        let reply = error_reply(&error, "req_1");
        format!("{} {}", reply.status, reply.body)
    };
    let long = r#"{"error": {"message": "maximum context length is 8192 tokens", "code": "context_length_exceeded"}}"#;
    let lines = [
        told(400, long),
        told(401, r#"{"error": {"message": "who?"}}"#),
        told(402, r#"{"error": {"message": "pay"}}"#),
        told(403, "no"),
        told(404, "no"),
        told(413, "no"),
        told(422, "no"),
        told(429, "no"),
        told(500, "no"),
        told(503, "<html>busy</html>"),
        told(504, "no"),
        told(302, "no"),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r#"
    400 {"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: maximum context length is 8192 tokens"},"request_id":"req_1"}
    401 {"type":"error","error":{"type":"authentication_error","message":"who?"},"request_id":"req_1"}
    402 {"type":"error","error":{"type":"billing_error","message":"pay"},"request_id":"req_1"}
    403 {"type":"error","error":{"type":"permission_error","message":"no"},"request_id":"req_1"}
    404 {"type":"error","error":{"type":"not_found_error","message":"no"},"request_id":"req_1"}
    413 {"type":"error","error":{"type":"request_too_large","message":"no"},"request_id":"req_1"}
    422 {"type":"error","error":{"type":"invalid_request_error","message":"no"},"request_id":"req_1"}
    429 {"type":"error","error":{"type":"rate_limit_error","message":"no"},"request_id":"req_1"}
    500 {"type":"error","error":{"type":"api_error","message":"no"},"request_id":"req_1"}
    503 {"type":"error","error":{"type":"overloaded_error","message":"HTML instead of JSON: <html>busy</html>"},"request_id":"req_1"}
    504 {"type":"error","error":{"type":"timeout_error","message":"no"},"request_id":"req_1"}
    502 {"type":"error","error":{"type":"api_error","message":"http://up answered with something that is no model answer: HTTP status 302: no"},"request_id":"req_1"}
    "#);
}
