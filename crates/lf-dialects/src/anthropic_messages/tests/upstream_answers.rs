//! From an Anthropic upstream back to it, and on to an Anthropic client.

use lf_core::model::Native;
use lf_core::{
    AssistantMessage, ChatEvent, Content, Message, ModelDelta, ModelRequest, ToolCall, ToolResult, Usage,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::{Completion, EventEncoder, MessagesView, ThinkingView};
use super::protocol;
use crate::openai_chat::LfEvents;
use crate::upstream::{UpstreamOptions, encode_whole};
use crate::{AnswerDecoder, Dialect};

/// The events that the API tells these blocks with.
fn stream(blocks: &[Value], ending: &Value) -> String {
    let mut events = vec![json!({"type": "message_start", "message": {"usage": {
        "input_tokens": 2, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 5, "output_tokens": 1,
    }}})];
    for (index, block) in blocks.iter().enumerate() {
        let (begun, deltas) = in_deltas(block);
        events.push(json!({"type": "content_block_start", "index": index, "content_block": begun}));
        events.push(json!({"type": "ping"}));
        for delta in deltas {
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(ending.clone());
    events.push(json!({"type": "message_stop"}));
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(event).collect()
}

fn in_deltas(block: &Value) -> (Value, Vec<Value>) {
    let mut begun = block.clone();
    let mut deltas = Vec::new();
    let halves = |text: &str| {
        let middle = text.floor_char_boundary(text.len() / 2);
        [text[..middle].to_owned(), text[middle..].to_owned()]
    };
    match block["type"].as_str().unwrap() {
        "text" => {
            begun["text"] = "".into();
            deltas.extend(
                halves(block["text"].as_str().unwrap())
                    .map(|text| json!({"type": "text_delta", "text": text})),
            );
            if let Some(citations) = begun.get_mut("citations") {
                let citations = citations.take();
                begun["citations"] = json!([]);
                let citations = citations.as_array().unwrap().clone().into_iter();
                deltas.extend(
                    citations.map(|citation| json!({"type": "citations_delta", "citation": citation})),
                );
            }
        }
        "thinking" => {
            begun["thinking"] = "".into();
            begun["signature"] = "".into();
            let text = block["thinking"].as_str().unwrap();
            deltas.extend(halves(text).map(|text| json!({"type": "thinking_delta", "thinking": text})));
            deltas.push(json!({"type": "signature_delta", "signature": block["signature"]}));
        }
        kind if kind.ends_with("tool_use") => {
            begun["input"] = json!({});
            let input = block["input"].to_string();
            deltas
                .extend(halves(&input).map(|text| json!({"type": "input_json_delta", "partial_json": text})));
        }
        "compaction" => {
            begun["content"] = Value::Null;
            deltas.push(json!({"type": "compaction_delta", "content": "so"}));
            deltas.push(json!({"type": "compaction_delta", "content": " far"}));
        }
        _ => {}
    }
    (begun, deltas)
}

fn read(bytes: &[u8], piece: usize) -> Vec<ModelDelta> {
    let mut decoder = AnswerDecoder::new(Dialect::Anthropic, "http://up");
    let mut deltas = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.push(piece, &mut deltas).unwrap();
    }
    decoder.finish(&mut deltas).unwrap();
    deltas
}

fn ended(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": {"output_tokens": 7}})
}

fn state(deltas: &[ModelDelta]) -> Option<&Map<String, Value>> {
    deltas.iter().find_map(|delta| match delta {
        ModelDelta::State(state) => Some(state),
        _ => None,
    })
}

fn calls(deltas: &[ModelDelta]) -> Vec<ToolCall> {
    deltas
        .iter()
        .filter_map(|delta| match delta {
            ModelDelta::Call(call) => Some(call.clone()),
            _ => None,
        })
        .collect()
}

/// What the client of a turn without tools of the server's own sees.
fn events(deltas: &[ModelDelta]) -> Vec<ChatEvent> {
    let mut usage = Usage::default();
    let mut out = Vec::new();
    for delta in deltas {
        match delta.clone() {
            ModelDelta::Text(text) => out.push(ChatEvent::Text(text)),
            ModelDelta::Reasoning(text) => out.push(ChatEvent::Reasoning(text)),
            ModelDelta::Native(native) => out.push(ChatEvent::Native(native)),
            ModelDelta::Usage(told) => usage = told,
            ModelDelta::Finish { reason, stop_sequence, .. } => {
                let calls = calls(deltas);
                out.extend((!calls.is_empty()).then_some(ChatEvent::ClientCalls(calls)));
                out.push(ChatEvent::Finished { reason, usage, rounds: 1, stop_sequence });
            }
            ModelDelta::Call(_) | ModelDelta::State(_) | ModelDelta::Notice(_) => {}
        }
    }
    out
}

fn shown(deltas: &[ModelDelta], thinking: ThinkingView) -> (Vec<Value>, Value) {
    let view = MessagesView { stream: true, thinking };
    let mut encoder = EventEncoder::new("msg_1", "m", view, LfEvents::Told);
    let mut completion = Completion::new("msg_1", "m", view, LfEvents::Told);
    let mut told = Vec::new();
    for event in events(deltas) {
        told.extend(encoder.event(&event));
        completion.push(&event);
    }
    let (blocks, ended, _) = protocol(&told);
    let message = completion.finish("req_1").unwrap();
    assert_eq!(message["content"], Value::from(blocks.clone()));
    (blocks, ended)
}

/// The assistant's message as it goes back.
fn sent_back(state: Option<&Map<String, Value>>, text: &str, calls: Vec<ToolCall>) -> Vec<Value> {
    let answers = calls.iter().map(|call| Message::Tool(ToolResult::error(call, "r"))).collect::<Vec<_>>();
    let rest = state.cloned().unwrap_or_default();
    let said = AssistantMessage { content: text.into(), calls, rest, ..AssistantMessage::default() };
    let mut messages = vec![
        Message::User(lf_core::Prose { content: Content::from("q"), rest: Map::new() }),
        Message::Assistant(said),
    ];
    messages.extend(answers);
    let request = ModelRequest { messages, ..ModelRequest::default() };
    let sent = encode_whole(Dialect::Anthropic, "m", &request, &UpstreamOptions::default()).unwrap();
    sent["messages"][1]["content"].as_array().unwrap().clone()
}

fn blocks_of_all_kinds() -> Vec<Value> {
    vec![
        json!({"type": "thinking", "thinking": "Hm, so.", "signature": "SIG"}),
        json!({"type": "redacted_thinking", "data": "SEALED"}),
        json!({"type": "text", "text": "I look it up."}),
        json!({"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "q"}}),
        json!({"type": "web_search_tool_result", "tool_use_id": "srv", "content": [{"type": "web_search_result", "encrypted_content": "XX"}]}),
        json!({"type": "text", "text": "Found: "}),
        json!({"type": "text", "text": "this", "citations": [{"type": "web_search_result_location", "cited_text": "t"}]}),
        json!({"type": "text", "text": ", that."}),
        json!({"type": "compaction", "content": "so far"}),
        json!({"type": "block_of_tomorrow", "x": {"y": 1}}),
        json!({"type": "tool_use", "id": "a", "name": "f", "input": {"q": "w"}, "caller": {"type": "code_execution_20250825", "tool_id": "srv"}}),
        json!({"type": "tool_use", "id": "b", "name": "f", "input": {}}),
    ]
}

#[test]
fn what_the_core_has_no_word_for_is_told_in_place_and_kept_for_the_next_request() {
    let deltas = read(stream(&blocks_of_all_kinds(), &ended("tool_use")).as_bytes(), 1 << 20);
    let lines = deltas.iter().map(|delta| match delta {
        ModelDelta::Native(Native { item, .. }) => format!("native {item}"),
        ModelDelta::State(state) => {
            format!("state {}", state["$anthropic"]["content"].as_array().unwrap().len())
        }
        ModelDelta::Call(call) => {
            format!("call {} {} {}", call.id, call.arguments.raw(), Value::from(call.rest.clone()))
        }
        other => format!("{other:?}"),
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r#"
    Reasoning("Hm,")
    Reasoning(" so.")
    native {"type":"signature_delta","signature":"SIG"}
    native {"type":"redacted_thinking","data":"SEALED"}
    Text("I look")
    Text(" it up.")
    native {"type":"server_tool_use","id":"srv","name":"web_search","input":{"query":"q"}}
    native {"type":"web_search_tool_result","tool_use_id":"srv","content":[{"type":"web_search_result","encrypted_content":"XX"}]}
    Text("Fou")
    Text("nd: ")
    native {"type":"content_block_stop"}
    Text("th")
    Text("is")
    native {"type":"citations_delta","citation":{"type":"web_search_result_location","cited_text":"t"}}
    native {"type":"content_block_stop"}
    Text(", t")
    Text("hat.")
    native {"type":"compaction","content":"so far"}
    native {"type":"block_of_tomorrow","x":{"y":1}}
    call a {"q":"w"} {"$anthropic":{"caller":{"type":"code_execution_20250825","tool_id":"srv"}}}
    call b {} {}
    state 12
    Usage(Usage { input: 10, output: 7, cached: 5, cache_written: 3, reasoning: 0 })
    Finish { reason: ToolCalls, raw: Some("tool_use"), stop_sequence: None }
    "#);
    assert_eq!(state(&deltas).unwrap()["$anthropic"]["content"], Value::from(blocks_of_all_kinds()));
}

#[test]
fn a_client_of_the_same_dialect_sees_the_upstreams_blocks() {
    let deltas = read(stream(&blocks_of_all_kinds(), &ended("tool_use")).as_bytes(), 1 << 20);
    let (blocks, end) = shown(&deltas, ThinkingView::Shown);
    assert_eq!(blocks, blocks_of_all_kinds());
    assert_eq!(end["delta"]["stop_reason"], "tool_use");
    assert_eq!(
        end["usage"],
        json!({"input_tokens": 2, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 5, "output_tokens": 7})
    );
}

#[test]
fn thinking_that_is_not_to_be_seen_keeps_its_signature() {
    let thought = json!({"type": "thinking", "thinking": "Hm.", "signature": "SIG"});
    let deltas =
        read(stream(&[thought, json!({"type": "text", "text": "Yes."})], &ended("end_turn")).as_bytes(), 64);
    let (blocks, _) = shown(&deltas, ThinkingView::Hidden);
    let empty = json!({"type": "thinking", "thinking": "", "signature": "SIG"});
    assert_eq!(blocks, [empty.clone(), json!({"type": "text", "text": "Yes."})]);
    // as the upstream itself leaves it out
    let deltas = read(stream(std::slice::from_ref(&empty), &ended("end_turn")).as_bytes(), 64);
    assert_eq!(shown(&deltas, ThinkingView::Hidden).0, [empty]);
}

#[test]
fn how_the_upstream_ended_reaches_a_client_of_the_same_dialect() {
    let text = [json!({"type": "text", "text": "x"})];
    let mut ending = ended("pause_turn");
    ending["delta"]["container"] = json!({"id": "c"});
    ending["context_management"] = json!({"applied_edits": []});
    let (_, end) = shown(&read(stream(&text, &ending).as_bytes(), 64), ThinkingView::Shown);
    assert_eq!(
        end["delta"],
        json!({"stop_reason": "pause_turn", "stop_sequence": null, "container": {"id": "c"}})
    );
    assert_eq!(end["context_management"], json!({"applied_edits": []}));

    let whole = json!({
        "id": "msg", "type": "message", "role": "assistant", "model": "c", "content": text, "stop_reason": "pause_turn",
        "stop_sequence": null, "container": {"id": "c"}, "context_management": {"applied_edits": []}, "usage": {"output_tokens": 7},
    });
    let (_, same) = shown(&read(whole.to_string().as_bytes(), 64), ThinkingView::Shown);
    assert_eq!((&same["delta"], &same["context_management"]), (&end["delta"], &end["context_management"]));

    for (reason, told) in [
        ("model_context_window_exceeded", "model_context_window_exceeded"),
        ("refusal", "refusal"),
        ("max_tokens", "max_tokens"),
        ("end_turn", "end_turn"),
    ] {
        let (_, end) = shown(&read(stream(&text, &ended(reason)).as_bytes(), 64), ThinkingView::Shown);
        assert_eq!(end["delta"]["stop_reason"], told);
    }
}

#[test]
fn text_and_calls_alone_need_no_state() {
    let blocks = [
        json!({"type": "text", "text": "x \n", "citations": []}),
        json!({"type": "tool_use", "id": "a", "name": "f", "input": {"q": 1}, "caller": {"type": "direct"}}),
    ];
    let deltas = read(stream(&blocks, &ended("tool_use")).as_bytes(), 64);
    assert!(state(&deltas).is_none());
    assert!(!deltas.iter().any(|delta| matches!(delta, ModelDelta::Native(_))));
    assert!(calls(&deltas)[0].rest.is_empty());
}

#[test]
fn an_answer_that_is_cut_here_keeps_nothing() {
    let blocks = [
        json!({"type": "thinking", "thinking": "Hm.", "signature": "SIG"}),
        json!({"type": "text", "text": "one END two"}),
        json!({"type": "redacted_thinking", "data": "SEALED"}),
    ];
    let whole = json!({"type": "message", "content": blocks, "stop_reason": "end_turn"}).to_string();
    for body in [stream(&blocks, &ended("end_turn")), whole] {
        let mut decoder = AnswerDecoder::new(Dialect::Anthropic, "http://up").cut_at(vec!["END".to_owned()]);
        let mut deltas = Vec::new();
        decoder.push(body.as_bytes(), &mut deltas).unwrap();
        decoder.finish(&mut deltas).unwrap();
        assert!(state(&deltas).is_none());
        let natives = deltas.iter().filter(|delta| matches!(delta, ModelDelta::Native(_))).count();
        assert_eq!(natives, 1, "the signature comes before the cut");
        assert!(matches!(deltas.last(), Some(ModelDelta::Finish { .. })));
    }
}

#[test]
fn blocks_go_back_under_the_ids_that_the_turn_gave_its_calls() {
    let deltas = read(stream(&blocks_of_all_kinds(), &ended("tool_use")).as_bytes(), 1 << 20);
    let mut calls = calls(&deltas);
    calls[0].id = "call_1".to_owned();
    let mut expected = blocks_of_all_kinds();
    expected[10]["id"] = "call_1".into();
    assert_eq!(sent_back(state(&deltas), "t", calls.clone()), expected);
    // a message with other calls is told without its thinking
    calls[0].id = "call_1".to_owned();
    calls[0].name = "g".to_owned();
    let fallback = sent_back(state(&deltas), "t", calls.clone());
    let kinds: Vec<&str> = fallback.iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "tool_use", "tool_use"]);
    assert_eq!(sent_back(state(&deltas), "t", calls[..1].to_vec()).len(), 2);
}

#[test]
fn more_blocks_than_any_answer_has_are_an_error() {
    let blocks = vec![json!({"type": "text", "text": ""}); 5000];
    let whole = json!({"type": "message", "content": blocks, "stop_reason": "end_turn"}).to_string();
    for body in [stream(&blocks, &ended("end_turn")), whole] {
        let mut decoder = AnswerDecoder::new(Dialect::Anthropic, "http://up");
        let read = decoder.push(body.as_bytes(), &mut Vec::new());
        let read = read.and_then(|()| decoder.finish(&mut Vec::new()));
        assert!(read.unwrap_err().to_string().contains("more blocks"));
    }
}

#[test]
fn thinking_that_nobody_signed_stays_here() {
    let content = json!([
        {"type": "thinking", "thinking": "ours", "signature": "lf-unsigned"},
        {"type": "thinking", "thinking": "theirs", "signature": "S"},
        {"type": "text", "text": "t"},
    ]);
    let mut state = Map::new();
    state.insert("$anthropic".to_owned(), json!({"content": content}));
    let sent = sent_back(Some(&state), "t", Vec::new());
    assert_eq!(Value::from(sent), json!([content[1], content[2]]));
}

fn block() -> impl Strategy<Value = Value> {
    prop_oneof![
        "[a-z ]{1,6}x".prop_map(|text| json!({"type": "text", "text": text})),
        "[a-z ]{1,6}x"
            .prop_map(|text| json!({"type": "text", "text": text, "citations": [{"cited_text": "c"}]})),
        "[a-zä ]{0,6}".prop_map(|text| json!({"type": "thinking", "thinking": text, "signature": "S"})),
        Just(json!({"type": "redacted_thinking", "data": "D"})),
        Just(json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "ä"}})),
        Just(json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": []})),
        Just(json!({"type": "block_of_tomorrow", "x": 1})),
    ]
}

proptest! {
    #[test]
    fn any_content_comes_through_streamed_or_whole_and_goes_back_as_it_came(
        mut blocks in prop::collection::vec(block(), 1..7),
        inputs in prop::collection::vec(prop_oneof![Just(json!({})), Just(json!({"q": [1, "ä"]}))], 0..3),
        piece in 1..200_usize,
    ) {
        for (at, input) in inputs.iter().enumerate() {
            blocks.push(json!({"type": "tool_use", "id": format!("t{at}"), "name": "f", "input": input}));
        }
        let reason = if inputs.is_empty() { "end_turn" } else { "tool_use" };
        let streamed = read(stream(&blocks, &ended(reason)).as_bytes(), piece);
        let whole = json!({"type": "message", "content": blocks, "stop_reason": reason, "usage": {"output_tokens": 7}});
        let whole = read(whole.to_string().as_bytes(), piece);
        prop_assert_eq!(state(&streamed), state(&whole));
        for deltas in [&streamed, &whole] {
            prop_assert_eq!(&shown(deltas, ThinkingView::Shown).0, &blocks);
            let text: String = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
            prop_assert_eq!(&sent_back(state(deltas), &text, calls(deltas)), &blocks);
        }
    }
}
