//! What holds for every answer to a client.

use lf_core::Usage;
use lf_core::model::Native;

use super::*;
use crate::any_turn::any_turn;

fn event() -> impl Strategy<Value = ChatEvent> {
    let progress = lf_core::tool::ToolProgress { progress: 1.0, total: None, message: None };
    let result = ToolResult::error(&call("s", "{}"), "no");
    let call = ("[ab]{1,3}", prop::sample::select(vec!["", "{\"x\": 1}", "{'x': 1}", "{\"x"]));
    let calls = prop::collection::vec(call, 0..3);
    prop_oneof![
        r#"[ab"é\\ \n]{0,4}"#.prop_map(ChatEvent::Text),
        "[ab]{0,3}".prop_map(ChatEvent::Reasoning),
        Just(ChatEvent::CallStarted { call: super::call("s", "{}"), tool: None }),
        Just(ChatEvent::CallProgress { call_id: "s".to_owned(), progress }),
        Just(ChatEvent::CallFinished { result, elapsed: Duration::ZERO }),
        Just(ChatEvent::Notice("n".to_owned())),
        Just(ChatEvent::Answering { model: "other".to_owned() }),
        Just(ChatEvent::Native(Native { dialect: Dialect::Anthropic, item: json!({"a": 1}) })),
        calls.prop_map(|calls| ChatEvent::ClientCalls(
            calls.iter().map(|(id, arguments)| super::call(id, arguments)).collect()
        )),
    ]
}

fn finished(reason: FinishReason) -> ChatEvent {
    let usage = Usage { input: 5, output: 2, cached: 1, ..Usage::default() };
    ChatEvent::Finished { reason, usage, rounds: 1, stop_sequence: None }
}

/// A client that believes nothing: it puts the completion together from the chunks.
#[derive(Debug, Default)]
struct Client {
    chunks: usize,
    model: Value,
    content: String,
    reasoning: String,
    calls: Vec<Value>,
    reason: Option<Value>,
    usage: Option<Value>,
    told: Vec<Value>,
    failure: Option<Value>,
}

impl Client {
    fn read(&mut self, chunk: &Value, view: ViewOptions) {
        assert_eq!(self.failure, None, "{chunk} after an error");
        if let Some(error) = chunk.get("error") {
            assert_eq!(self.reason, None, "an error after the end");
            self.failure = Some(error.clone());
            return;
        }
        assert_eq!((&chunk["id"], &chunk["created"]), (&json!("one"), &json!(7)));
        assert_eq!(chunk["object"], "chat.completion.chunk");
        self.model = chunk["model"].clone();
        self.told.extend(chunk.get("lf").cloned());
        if let Some([]) = chunk["choices"].as_array().map(Vec::as_slice) {
            assert!(view.include_usage && self.reason.is_some() && self.usage.is_none(), "{chunk}");
            self.usage = Some(chunk["usage"].clone());
            return;
        }
        assert_eq!(chunk.get("usage"), view.include_usage.then_some(&Value::Null));
        assert_eq!(self.reason, None, "{chunk} after the end");
        let choice = &chunk["choices"][0];
        assert_eq!(choice["index"], 0);
        let delta = choice["delta"].as_object().unwrap();
        assert_eq!(delta.contains_key("role"), self.chunks == 0, "the role comes once, and first");
        self.chunks += 1;
        for (key, value) in delta {
            match key.as_str() {
                "role" => assert_eq!(value, "assistant"),
                "content" => self.content.push_str(value.as_str().unwrap()),
                "reasoning_content" => self.reasoning.push_str(value.as_str().unwrap()),
                "tool_calls" => value.as_array().unwrap().iter().for_each(|call| self.call(call.clone())),
                other => panic!("unknown field `{other}`"),
            }
        }
        self.reason = Some(choice["finish_reason"].clone()).filter(|reason| !reason.is_null());
    }

    fn call(&mut self, mut call: Value) {
        let index = call.as_object_mut().unwrap().shift_remove("index");
        assert_eq!(index, Some(self.calls.len().into()));
        self.calls.push(call);
    }
}

proptest! {
    #[test]
    fn any_turn_keeps_the_protocol_and_says_the_same_streamed_and_whole(
        (events, ending) in any_turn(event, finished),
        include_usage in any::<bool>(),
        lf_events in prop_oneof![Just(LfEvents::Told), Just(LfEvents::Hidden)],
    ) {
        let view = ViewOptions { stream: true, include_usage };
        let mut encoder = ChunkEncoder::new("one", 7, "m", view, lf_events);
        let mut completion = Completion::new("one", 7, "m", lf_events);
        let mut client = Client::default();
        for event in &events {
            for chunk in encoder.event(event) {
                client.read(&serde_json::from_str(&chunk).unwrap(), view);
            }
            completion.push(event);
        }
        match (ending, completion.finish()) {
            (Some(ChatEvent::Finished { .. }), Ok(whole)) => {
                prop_assert_eq!(client.usage.as_ref(), include_usage.then_some(&whole["usage"]));
                prop_assert_eq!(&client.model, &whole["model"]);
                let choice = &whole["choices"][0];
                prop_assert_eq!(client.reason.as_ref(), Some(&choice["finish_reason"]));
                let message = &choice["message"];
                prop_assert_eq!(&client.content, message["content"].as_str().unwrap_or_default());
                prop_assert_eq!(&client.reasoning, message["reasoning_content"].as_str().unwrap_or_default());
                let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
                prop_assert_eq!(&client.calls, &calls);
                client.told.retain(|told| told["event"] != "tool_progress");
                let told = whole["lf"]["events"].as_array().cloned().unwrap_or_default();
                prop_assert_eq!(&client.told, &told);
            }
            (Some(ChatEvent::Failed(_)), Err(reply)) => {
                prop_assert_eq!(client.failure.as_ref(), Some(&reply.body["error"]));
            }
            (None, Err(_)) => prop_assert_eq!((client.reason, client.failure), (None, None)),
            (ending, whole) => prop_assert!(false, "{:?} {:?}", ending, whole),
        }
    }
}
