//! Answers.

use lf_core::model::Native;
use lf_core::{Arguments, ChatEvent, FinishReason, ModelError, ToolCall, Usage};
use serde_json::Map;

use super::*;
use crate::any_turn;
use crate::openai_chat::LfEvents;

pub(super) fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: "f".to_owned(),
        arguments: Arguments::parse(arguments),
        rest: Map::new(),
    }
}

pub(super) fn finished(reason: FinishReason) -> ChatEvent {
    let usage = Usage { input: 10, output: 3, cached: 4, reasoning: 1, ..Usage::default() };
    ChatEvent::Finished { reason, usage, rounds: 1, stop_sequence: None }
}

pub(super) fn started() -> ChatEvent {
    ChatEvent::Started { turn: "t".to_owned(), model: "m".to_owned() }
}

pub(super) fn native(dialect: Dialect, item: Value) -> ChatEvent {
    ChatEvent::Native(Native { dialect, item })
}

/// The events and the response they end in.
pub(super) fn told(events: &[ChatEvent], lf_events: LfEvents) -> (Vec<(&'static str, String)>, Value) {
    let mut encoder = EventEncoder::new("resp_1", 7, "m", view(ask(json!("hi"))), lf_events);
    encoder.set_now(9);
    let told = events.iter().flat_map(|event| encoder.event(event)).collect();
    (told, encoder.response())
}

pub(super) fn whole(events: &[ChatEvent], lf_events: LfEvents) -> Completion {
    let mut completion = Completion::new("resp_1", 7, "m", view(ask(json!("hi"))), lf_events);
    completion.set_now(9);
    events.iter().for_each(|event| completion.push(event));
    completion
}

/// One event a line; of whole responses what changes.
fn transcript(events: &[ChatEvent], lf_events: LfEvents) -> String {
    let (told, _) = told(events, lf_events);
    let lines = told.iter().map(|(name, data)| {
        let mut event: Value = serde_json::from_str(data).unwrap();
        let fields = event.as_object_mut().unwrap();
        assert_eq!(fields.shift_remove("type").unwrap(), *name);
        if let Some(Value::Object(response)) = fields.get_mut("response") {
            response.retain(|key, value| {
                ["status", "model", "error", "incomplete_details"].contains(&key.as_str()) && !value.is_null()
            });
        }
        format!("{name} {event}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn a_turn() -> Vec<ChatEvent> {
    any_turn::a_turn(call, "Now you.", finished)
}

#[test]
fn a_turn_becomes_items_one_after_the_other() {
    insta::assert_snapshot!(transcript(&a_turn(), LfEvents::Told), @r#"
    response.created {"sequence_number":0,"response":{"status":"in_progress","model":"m"}}
    response.in_progress {"sequence_number":1,"response":{"status":"in_progress","model":"m"}}
    response.output_item.added {"sequence_number":2,"output_index":0,"item":{"id":"rs_lf_1_0","type":"reasoning","status":"in_progress","summary":[]}}
    response.reasoning_summary_part.added {"sequence_number":3,"item_id":"rs_lf_1_0","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}
    response.reasoning_summary_text.delta {"sequence_number":4,"item_id":"rs_lf_1_0","output_index":0,"summary_index":0,"delta":"Hm"}
    response.reasoning_summary_text.delta {"sequence_number":5,"item_id":"rs_lf_1_0","output_index":0,"summary_index":0,"delta":"m."}
    response.reasoning_summary_text.done {"sequence_number":6,"item_id":"rs_lf_1_0","output_index":0,"summary_index":0,"text":"Hmm."}
    response.reasoning_summary_part.done {"sequence_number":7,"item_id":"rs_lf_1_0","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":"Hmm."}}
    response.output_item.done {"sequence_number":8,"output_index":0,"item":{"id":"rs_lf_1_0","type":"reasoning","status":"completed","summary":[{"type":"summary_text","text":"Hmm."}]}}
    response.output_item.added {"sequence_number":9,"output_index":1,"item":{"id":"msg_lf_1_1","type":"message","status":"in_progress","role":"assistant","content":[]}}
    response.content_part.added {"sequence_number":10,"item_id":"msg_lf_1_1","output_index":1,"content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}}
    response.output_text.delta {"sequence_number":11,"item_id":"msg_lf_1_1","output_index":1,"content_index":0,"delta":"Let me","logprobs":[]}
    response.output_text.delta {"sequence_number":12,"item_id":"msg_lf_1_1","output_index":1,"content_index":0,"delta":" see.","logprobs":[]}
    response.output_text.done {"sequence_number":13,"item_id":"msg_lf_1_1","output_index":1,"content_index":0,"text":"Let me see.","logprobs":[]}
    response.content_part.done {"sequence_number":14,"item_id":"msg_lf_1_1","output_index":1,"content_index":0,"part":{"type":"output_text","text":"Let me see.","annotations":[],"logprobs":[]}}
    response.output_item.done {"sequence_number":15,"output_index":1,"item":{"id":"msg_lf_1_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Let me see.","annotations":[],"logprobs":[]}],"phase":"commentary"}}
    response.in_progress {"sequence_number":16,"response":{"status":"in_progress","model":"m"},"lf":{"event":"tool_call","call_id":"s1","name":"f","server":null,"tool":null,"arguments":"{}"}}
    response.in_progress {"sequence_number":17,"response":{"status":"in_progress","model":"m"},"lf":{"event":"tool_result","call_id":"s1","name":"f","is_error":true,"elapsed_ms":7,"text":"there is no tool `f`","truncated":false}}
    response.output_item.added {"sequence_number":18,"output_index":2,"item":{"id":"msg_lf_1_2","type":"message","status":"in_progress","role":"assistant","content":[]}}
    response.content_part.added {"sequence_number":19,"item_id":"msg_lf_1_2","output_index":2,"content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}}
    response.output_text.delta {"sequence_number":20,"item_id":"msg_lf_1_2","output_index":2,"content_index":0,"delta":"Now you.","logprobs":[]}
    response.output_text.done {"sequence_number":21,"item_id":"msg_lf_1_2","output_index":2,"content_index":0,"text":"Now you.","logprobs":[]}
    response.content_part.done {"sequence_number":22,"item_id":"msg_lf_1_2","output_index":2,"content_index":0,"part":{"type":"output_text","text":"Now you.","annotations":[],"logprobs":[]}}
    response.output_item.done {"sequence_number":23,"output_index":2,"item":{"id":"msg_lf_1_2","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Now you.","annotations":[],"logprobs":[]}]}}
    response.output_item.added {"sequence_number":24,"output_index":3,"item":{"id":"fc_lf_1_3","type":"function_call","status":"in_progress","call_id":"a","name":"f","arguments":""}}
    response.function_call_arguments.delta {"sequence_number":25,"item_id":"fc_lf_1_3","output_index":3,"delta":"{\"q\": 1}"}
    response.function_call_arguments.done {"sequence_number":26,"item_id":"fc_lf_1_3","output_index":3,"name":"f","arguments":"{\"q\": 1}"}
    response.output_item.done {"sequence_number":27,"output_index":3,"item":{"id":"fc_lf_1_3","type":"function_call","status":"completed","call_id":"a","name":"f","arguments":"{\"q\": 1}"}}
    response.output_item.added {"sequence_number":28,"output_index":4,"item":{"id":"fc_lf_1_4","type":"function_call","status":"in_progress","call_id":"b","name":"f","arguments":""}}
    response.function_call_arguments.delta {"sequence_number":29,"item_id":"fc_lf_1_4","output_index":4,"delta":"{}"}
    response.function_call_arguments.done {"sequence_number":30,"item_id":"fc_lf_1_4","output_index":4,"name":"f","arguments":"{}"}
    response.output_item.done {"sequence_number":31,"output_index":4,"item":{"id":"fc_lf_1_4","type":"function_call","status":"completed","call_id":"b","name":"f","arguments":"{}"}}
    response.completed {"sequence_number":32,"response":{"status":"completed","model":"m"}}
    "#);
}

#[test]
fn a_whole_response_has_every_field_and_is_what_the_stream_ends_with() {
    let (told, response) = told(&a_turn(), LfEvents::Hidden);
    insta::assert_snapshot!(serde_json::to_string_pretty(&response).unwrap(), @r#"
    {
      "id": "resp_1",
      "object": "response",
      "created_at": 7,
      "completed_at": 9,
      "status": "completed",
      "error": null,
      "incomplete_details": null,
      "model": "m",
      "output": [
        {
          "id": "rs_lf_1_0",
          "type": "reasoning",
          "status": "completed",
          "summary": [
            {
              "type": "summary_text",
              "text": "Hmm."
            }
          ]
        },
        {
          "id": "msg_lf_1_1",
          "type": "message",
          "status": "completed",
          "role": "assistant",
          "content": [
            {
              "type": "output_text",
              "text": "Let me see.",
              "annotations": [],
              "logprobs": []
            }
          ],
          "phase": "commentary"
        },
        {
          "id": "msg_lf_1_2",
          "type": "message",
          "status": "completed",
          "role": "assistant",
          "content": [
            {
              "type": "output_text",
              "text": "Now you.",
              "annotations": [],
              "logprobs": []
            }
          ]
        },
        {
          "id": "fc_lf_1_3",
          "type": "function_call",
          "status": "completed",
          "call_id": "a",
          "name": "f",
          "arguments": "{\"q\": 1}"
        },
        {
          "id": "fc_lf_1_4",
          "type": "function_call",
          "status": "completed",
          "call_id": "b",
          "name": "f",
          "arguments": "{}"
        }
      ],
      "usage": {
        "input_tokens": 10,
        "input_tokens_details": {
          "cached_tokens": 4,
          "cache_write_tokens": 0
        },
        "output_tokens": 3,
        "output_tokens_details": {
          "reasoning_tokens": 1
        },
        "total_tokens": 13
      },
      "instructions": null,
      "max_output_tokens": null,
      "max_tool_calls": null,
      "previous_response_id": null,
      "tools": [],
      "tool_choice": "auto",
      "parallel_tool_calls": true,
      "text": {
        "format": {
          "type": "text"
        }
      },
      "reasoning": {
        "effort": null,
        "summary": null
      },
      "temperature": 1.0,
      "top_p": 1.0,
      "presence_penalty": 0.0,
      "frequency_penalty": 0.0,
      "top_logprobs": 0,
      "truncation": "disabled",
      "metadata": {},
      "service_tier": "default",
      "safety_identifier": null,
      "prompt_cache_key": null,
      "user": null,
      "store": true,
      "background": false
    }
    "#);
    let (name, last) = told.last().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!((*name, &last["response"]), ("response.completed", &response));
    assert_eq!(whole(&a_turn(), LfEvents::Hidden).finish().unwrap(), response);
    let mut body = whole(&a_turn(), LfEvents::Told).finish().unwrap();
    let lf = body.as_object_mut().unwrap().shift_remove("lf").unwrap();
    assert_eq!(body, response);
    insta::assert_snapshot!(lf, @r#"{"events":[{"event":"tool_call","call_id":"s1","name":"f","server":null,"tool":null,"arguments":"{}"},{"event":"tool_result","call_id":"s1","name":"f","is_error":true,"elapsed_ms":7,"text":"there is no tool `f`","truncated":false}]}"#);
}

#[test]
fn the_response_tells_the_request_back() {
    let view = view(json!({
        "model": "m", "input": "hi", "instructions": "Be brief.", "temperature": 0.5, "top_p": 0.9,
        "max_output_tokens": 50, "max_tool_calls": 2, "parallel_tool_calls": false, "tool_choice": "none",
        "reasoning": {"effort": "low"}, "metadata": {"a": "b"}, "store": false, "background": true,
        "previous_response_id": "resp_0", "user": "u", "service_tier": "flex", "truncation": "auto",
        "safety_identifier": "s", "prompt_cache_key": "k",
        "text": {"verbosity": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
    }));
    let mut completion = Completion::new("resp_1", 7, "m", view, LfEvents::Hidden);
    completion.push(&finished(FinishReason::Stop));
    insta::assert_snapshot!(completion.finish().unwrap(), @r#"{"id":"resp_1","object":"response","created_at":7,"completed_at":null,"status":"completed","error":null,"incomplete_details":null,"model":"m","output":[],"usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":13},"instructions":"Be brief.","max_output_tokens":50,"max_tool_calls":2,"previous_response_id":"resp_0","tools":[],"tool_choice":"none","parallel_tool_calls":false,"text":{"format":{"type":"json_schema","name":"answer","description":null,"strict":false,"schema":{"type":"object"}},"verbosity":"low"},"reasoning":{"effort":"low","summary":null},"temperature":0.5,"top_p":0.9,"presence_penalty":0.0,"frequency_penalty":0.0,"top_logprobs":0,"truncation":"auto","metadata":{"a":"b"},"service_tier":"flex","safety_identifier":"s","prompt_cache_key":"k","user":"u","store":false,"background":true}"#);
}

#[test]
fn an_answer_that_was_cut_is_incomplete_and_so_is_its_last_item() {
    let cut = |reason| transcript(&[ChatEvent::Text("Half".to_owned()), finished(reason)], LfEvents::Told);
    let last = |transcript: String| {
        let lines: Vec<&str> = transcript.lines().rev().take(2).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(last(cut(FinishReason::Length)), @r#"
    response.output_item.done {"sequence_number":7,"output_index":0,"item":{"id":"msg_lf_1_0","type":"message","status":"incomplete","role":"assistant","content":[{"type":"output_text","text":"Half","annotations":[],"logprobs":[]}]}}
    response.incomplete {"sequence_number":8,"response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"model":"m"}}
    "#);
    insta::assert_snapshot!(last(cut(FinishReason::ContentFilter)), @r#"
    response.output_item.done {"sequence_number":7,"output_index":0,"item":{"id":"msg_lf_1_0","type":"message","status":"incomplete","role":"assistant","content":[{"type":"output_text","text":"Half","annotations":[],"logprobs":[]}]}}
    response.incomplete {"sequence_number":8,"response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"},"model":"m"}}
    "#);
}

#[test]
fn an_error_ends_the_stream_with_the_upstreams_wording() {
    let failed = |status: u16, body: &str| {
        let error = crate::openai_chat::error_body(status, body.as_bytes(), "http://up", None);
        let events = [
            started(),
            ChatEvent::Text("Half".to_owned()),
            ChatEvent::Failed(error),
            finished(FinishReason::Stop),
        ];
        let (told, response) = told(&events, LfEvents::Told);
        let reply = whole(&events, LfEvents::Told).finish().unwrap_err();
        let items: Vec<&Value> =
            response["output"].as_array().unwrap().iter().map(|item| &item["status"]).collect();
        format!("{} {} {items:?} | {}", told.last().unwrap().0, response["error"], reply.status)
    };
    let long = r#"{"error": {"message": "maximum context length is 8192 tokens", "code": "context_length_exceeded"}}"#;
    let lines = [
        failed(400, long),
        failed(422, r#"{"error": {"message": "no"}}"#),
        failed(401, r#"{"error": {"message": "who?"}}"#),
        failed(429, r#"{"error": {"message": "slow down"}}"#),
        failed(503, "<html>"),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r#"
    response.failed {"code":"context_length_exceeded","message":"maximum context length is 8192 tokens"} [String("incomplete")] | 400
    response.failed {"code":"invalid_prompt","message":"no"} [String("incomplete")] | 422
    response.failed {"code":"server_error","message":"who?"} [String("incomplete")] | 401
    response.failed {"code":"rate_limit_exceeded","message":"slow down"} [String("incomplete")] | 429
    response.failed {"code":"server_error","message":"HTML instead of JSON: <html>"} [String("incomplete")] | 503
    "#);
    let first = transcript(&[ChatEvent::Failed(ModelError::Unsupported("no".to_owned()))], LfEvents::Told);
    insta::assert_snapshot!(first, @r#"
    response.created {"sequence_number":0,"response":{"status":"in_progress","model":"m"}}
    response.in_progress {"sequence_number":1,"response":{"status":"in_progress","model":"m"}}
    response.failed {"sequence_number":2,"response":{"status":"failed","error":{"code":"invalid_prompt","message":"no"},"model":"m"}}
    "#);
    let reply = whole(&[started()], LfEvents::Told).finish().unwrap_err();
    assert_eq!(reply.status, 500);
}

#[test]
fn what_the_upstream_sealed_is_an_item_that_comes_back() {
    let sealed = json!({
        "id": "rs_9", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hmm."}], "encrypted_content": "SEALED",
    });
    let events = [
        ChatEvent::Reasoning("Hmm.".to_owned()),
        native(Dialect::OpenaiResponses, sealed.clone()),
        ChatEvent::Text("Yes.".to_owned()),
        native(Dialect::OpenaiResponses, json!({"type": "message", "id": "msg_9"})),
        native(Dialect::Anthropic, json!({"type": "redacted_thinking"})),
        native(
            Dialect::OpenaiResponses,
            json!({"type": "web_search_call", "id": "ws_9", "status": "completed"}),
        ),
        native(Dialect::OpenaiResponses, sealed),
        finished(FinishReason::Stop),
    ];
    let (_, response) = told(&events, LfEvents::Told);
    let items: Vec<String> = response["output"].as_array().unwrap().iter().map(Value::to_string).collect();
    insta::assert_snapshot!(items.join("\n"), @r#"
    {"id":"rs_lf_1_0","type":"reasoning","status":"completed","summary":[{"type":"summary_text","text":"Hmm."}]}
    {"id":"rs_9","type":"reasoning","summary":[],"encrypted_content":"SEALED"}
    {"id":"msg_lf_1_2","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Yes.","annotations":[],"logprobs":[]}]}
    {"type":"web_search_call","id":"ws_9","status":"completed"}
    {"id":"rs_lf_1_4","type":"reasoning","summary":[{"type":"summary_text","text":"Hmm."}],"encrypted_content":"SEALED"}
    "#);
    insta::assert_snapshot!(messages(&decode(ask(response["output"].clone()))), @r#"assistant "Yes." Some("Hmm.\n\nHmm.") [] {"items":[{"id":"rs_9","type":"reasoning","summary":[],"encrypted_content":"SEALED"},{"id":"msg_lf_1_2","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Yes.","annotations":[],"logprobs":[]}]},{"type":"web_search_call","id":"ws_9","status":"completed"}]}"#);
}

#[test]
fn what_the_upstream_sealed_for_the_servers_own_call_stays_here() {
    let sealed = |id: &str| {
        let item = json!({"id": id, "type": "reasoning", "summary": [], "encrypted_content": "SEALED"});
        native(Dialect::OpenaiResponses, item)
    };
    let events = [
        ChatEvent::Text("I look.".to_owned()),
        sealed("rs_1"),
        ChatEvent::CallStarted { call: call("s", "{}"), tool: None },
        sealed("rs_2"),
        ChatEvent::Text("I see.".to_owned()),
        sealed("rs_3"),
        ChatEvent::ClientCalls(vec![call("a", "{}")]),
        finished(FinishReason::ToolCalls),
    ];
    let (_, response) = told(&events, LfEvents::Hidden);
    let output = response["output"].as_array().unwrap().iter();
    let ids: Vec<&str> = output.map(|item| item["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["msg_lf_1_0", "rs_2", "msg_lf_1_2", "rs_3", "fc_lf_1_4"]);
}

#[test]
fn another_model_is_named_from_where_it_answers() {
    let events = [
        started(),
        ChatEvent::Answering { model: "n".to_owned() },
        ChatEvent::Text("a".to_owned()),
        finished(FinishReason::Stop),
    ];
    insta::assert_snapshot!(transcript(&events, LfEvents::Told), @r#"
    response.created {"sequence_number":0,"response":{"status":"in_progress","model":"m"}}
    response.in_progress {"sequence_number":1,"response":{"status":"in_progress","model":"m"}}
    response.in_progress {"sequence_number":2,"response":{"status":"in_progress","model":"n"},"lf":{"event":"model","model":"n"}}
    response.output_item.added {"sequence_number":3,"output_index":0,"item":{"id":"msg_lf_1_0","type":"message","status":"in_progress","role":"assistant","content":[]}}
    response.content_part.added {"sequence_number":4,"item_id":"msg_lf_1_0","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}}
    response.output_text.delta {"sequence_number":5,"item_id":"msg_lf_1_0","output_index":0,"content_index":0,"delta":"a","logprobs":[]}
    response.output_text.done {"sequence_number":6,"item_id":"msg_lf_1_0","output_index":0,"content_index":0,"text":"a","logprobs":[]}
    response.content_part.done {"sequence_number":7,"item_id":"msg_lf_1_0","output_index":0,"content_index":0,"part":{"type":"output_text","text":"a","annotations":[],"logprobs":[]}}
    response.output_item.done {"sequence_number":8,"output_index":0,"item":{"id":"msg_lf_1_0","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[],"logprobs":[]}]}}
    response.completed {"sequence_number":9,"response":{"status":"completed","model":"n"}}
    "#);
}
