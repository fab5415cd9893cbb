//! What holds for any history and any turn.

use lf_core::model::Native;
use proptest::prelude::*;

use super::*;
use crate::any_turn::any_turn;

/// A user's or an assistant's message with calls and results under any of three ids, in any order.
fn any_message() -> impl Strategy<Value = Value> {
    let id = prop::sample::select(vec!["a", "b", "c"]);
    let result = id.clone().prop_map(|id| json!({"type": "tool_result", "tool_use_id": id, "content": "r"}));
    let tool_use = id.prop_map(|id| json!({"type": "tool_use", "id": id, "name": "f", "input": {}}));
    let text = Just(json!({"type": "text", "text": "t"}));
    prop_oneof![
        prop::collection::vec(prop_oneof![result, text.clone()], 1..5)
            .prop_map(|content| json!({"role": "user", "content": content})),
        prop::collection::vec(prop_oneof![tool_use, text], 1..4)
            .prop_map(|content| json!({"role": "assistant", "content": content})),
        Just(json!({"role": "system", "content": [{"type": "text", "text": "s"}]})),
    ]
}

fn event() -> impl Strategy<Value = ChatEvent> {
    prop_oneof![
        prop_oneof!["[ab \n]{1,4}", Just(" ".to_owned())].prop_map(ChatEvent::Text),
        "[ab]{1,3}".prop_map(ChatEvent::Reasoning),
        Just(ChatEvent::CallStarted { call: call("s", "{}"), tool: None }),
        Just(ChatEvent::CallFinished {
            result: ToolResult::error(&call("s", "{}"), "no"),
            elapsed: Duration::ZERO
        }),
        Just(ChatEvent::Notice("n".to_owned())),
        prop::collection::vec(Just(call("c", r#"{"q":1}"#)), 0..3).prop_map(ChatEvent::ClientCalls),
        native().prop_map(ChatEvent::Native),
        Just(ChatEvent::Answering { model: "m".to_owned() }),
    ]
}

fn native() -> impl Strategy<Value = Native> {
    let items = vec![
        json!({"type": "signature_delta", "signature": "S"}),
        json!({"type": "citations_delta", "citation": {"type": "char_location", "cited_text": "a"}}),
        json!({"type": "content_block_stop"}),
        json!({"type": "message_delta", "delta": {"stop_reason": "pause_turn", "container": {"id": "c"}}, "context_management": {"applied_edits": []}}),
        json!({"type": "redacted_thinking", "data": "SEALED"}),
        json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "a"}}),
        json!({"type": "server_tool_use", "id": "s", "name": "tool_search", "input": {}}),
        json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "https://a"}]}),
        json!({"type": "block_of_tomorrow", "input": {"a": 1}}),
        json!("nothing"),
    ];
    let dialect = prop::sample::select(vec![Dialect::Anthropic, Dialect::OpenaiResponses]);
    (prop::sample::select(items), dialect).prop_map(|(item, dialect)| Native { dialect, item })
}

proptest! {
    #[test]
    fn any_history_has_one_result_for_each_call_directly_after_it(
        messages in prop::collection::vec(any_message(), 1..8),
    ) {
        let all: Vec<Value> = [json!({"role": "user", "content": "go"})].into_iter().chain(messages).collect();
        let request = decode(ask(all.into())).unwrap();
        prop_assert_eq!(&decode(anthropic(request.clone())).unwrap().messages, &request.messages);
        let sent = openai(request);
        let mut open: Vec<&str> = Vec::new();
        for message in sent["messages"].as_array().unwrap() {
            if message["role"] == "tool" {
                prop_assert!(!open.is_empty(), "a result of no call");
                prop_assert_eq!(open.remove(0), message["tool_call_id"].as_str().unwrap());
                continue;
            }
            prop_assert!(open.is_empty(), "a call without a result");
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            open = calls.map(|call| call["id"].as_str().unwrap()).collect();
            let mut ids = open.clone();
            ids.dedup();
            prop_assert_eq!(ids.len(), open.len());
        }
        prop_assert!(open.is_empty());
    }

    #[test]
    fn any_turn_keeps_the_protocol_and_says_the_same_streamed_and_whole(
        (events, ending) in any_turn(event, finished),
        hidden in any::<bool>(),
    ) {
        let thinking = if hidden { ThinkingView::Hidden } else { ThinkingView::Shown };
        let view = MessagesView { stream: true, thinking };
        let mut encoder = EventEncoder::new("msg_1", "m", view, LfEvents::Told);
        let mut completion = Completion::new("msg_1", "m", view, LfEvents::Told);
        let mut told = Vec::new();
        for event in &events {
            told.extend(encoder.event(event));
            told.extend(encoder.ping());
            completion.push(event);
        }
        let (blocks, mut ended, end) = protocol(&told);
        match completion.finish("req_1") {
            Ok(mut message) => {
                prop_assert_eq!(&end, "message_stop");
                prop_assert_eq!(&message["content"], &Value::from(blocks));
                // the rest of the message is what the end of the stream says
                let mut folded = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m"});
                let fields = folded.as_object_mut().unwrap();
                fields.extend(ended["delta"].take().as_object().unwrap().clone());
                let beside = ended.as_object().unwrap().clone().into_iter();
                fields.extend(beside.filter(|(key, _)| key != "type" && key != "delta"));
                let message = message.as_object_mut().unwrap();
                message.shift_remove("content");
                message.shift_remove("lf");
                prop_assert_eq!(&Value::from(message.clone()), &folded);
            }
            Err(_) if ending.is_none() => prop_assert_eq!(&end, ""),
            Err(_) => prop_assert_eq!(&end, "error"),
        }
    }
}
