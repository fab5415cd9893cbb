//! What holds for every answer.

use std::time::Duration;

use lf_core::{ChatEvent, ToolResult};
use proptest::prelude::*;

use super::telling::{call, finished, native, started, told, whole};
use super::*;
use crate::any_turn::any_turn;
use crate::openai_chat::LfEvents;

fn event() -> impl Strategy<Value = ChatEvent> {
    prop_oneof![
        "[ab \n]{0,4}".prop_map(ChatEvent::Text),
        "[ab]{0,3}".prop_map(ChatEvent::Reasoning),
        Just(ChatEvent::CallStarted { call: call("s", "{}"), tool: None }),
        Just(ChatEvent::CallFinished {
            result: ToolResult::error(&call("s", "{}"), "no"),
            elapsed: Duration::ZERO
        }),
        Just(ChatEvent::Notice("n".to_owned())),
        Just(ChatEvent::Answering { model: "n".to_owned() }),
        prop::collection::vec(Just(call("c", r#"{"q":1}"#)), 0..3).prop_map(ChatEvent::ClientCalls),
        prop_oneof![Just("rs_1"), Just("rs_2"), Just("")].prop_map(|id| native(
            Dialect::OpenaiResponses,
            json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "x"})
        )),
        Just(native(Dialect::OpenaiResponses, json!("odd"))),
    ]
}

/// A client that believes nothing: it puts the items together from deltas, and gives them with the name of the end.
#[derive(Default)]
struct Client {
    items: Vec<Value>,
    open: Option<Value>,
    ids: Vec<String>,
    end: Option<&'static str>,
}

impl Client {
    fn read(&mut self, at: usize, name: &'static str, event: &Value) {
        assert_eq!(event["type"], name);
        assert_eq!(event["sequence_number"], at);
        assert_eq!(self.end, None, "`{name}` after the end");
        assert_eq!(at == 0, name == "response.created");
        if let Some(index) = event.get("output_index") {
            assert_eq!(*index, self.items.len(), "{event}");
        }
        if let (Some(id), Some(open)) = (event.get("item_id"), &self.open) {
            assert_eq!(*id, open["id"]);
        }
        match name {
            "response.created" | "response.in_progress" => {
                assert_eq!(event["response"]["status"], "in_progress");
                let known = self.items.len() + usize::from(self.open.is_some());
                assert_eq!(event["response"]["output"].as_array().unwrap().len(), known);
            }
            "response.output_item.added" => {
                assert_eq!(self.open, None, "an item in an item");
                self.ids.push(event["item"]["id"].as_str().unwrap().to_owned());
                self.open = Some(event["item"].clone());
            }
            "response.output_item.done" => self.done(&event["item"]),
            "response.completed" | "response.incomplete" | "response.failed" => {
                assert_eq!(self.open, None);
                self.end = Some(name);
            }
            _ => part(self.open.as_mut().unwrap(), name, event),
        }
    }

    fn done(&mut self, item: &Value) {
        let mut open = self.open.take().unwrap();
        if open.get("status").is_some() {
            assert_ne!(item["status"], "in_progress");
            open["status"] = item["status"].clone();
        }
        // that the server's own work follows is known at the end alone
        let mut told = item.clone();
        let phase = told.as_object_mut().unwrap().shift_remove("phase");
        assert!(phase.is_none_or(|phase| phase == "commentary"));
        assert_eq!(open, told);
        self.items.push(item.clone());
    }
}

fn part(item: &mut Value, name: &str, event: &Value) {
    let (list, field) = if name.contains("summary") { ("summary", "text") } else { ("content", "text") };
    match name {
        "response.content_part.added" | "response.reasoning_summary_part.added" => {
            item[list].as_array_mut().unwrap().push(event["part"].clone());
        }
        "response.output_text.delta" | "response.reasoning_summary_text.delta" => {
            assert_ne!(event["delta"], "");
            let said = item[list][0][field].as_str().unwrap().to_owned();
            item[list][0][field] = (said + event["delta"].as_str().unwrap()).into();
        }
        "response.output_text.done" | "response.reasoning_summary_text.done" => {
            assert_eq!(event["text"], item[list][0][field]);
        }
        "response.content_part.done" | "response.reasoning_summary_part.done" => {
            assert_eq!(event["part"], item[list][0]);
        }
        "response.function_call_arguments.delta" => item["arguments"] = event["delta"].clone(),
        "response.function_call_arguments.done" => assert_eq!(item["arguments"], event["arguments"]),
        other => panic!("unknown event `{other}`"),
    }
}

proptest! {
    #[test]
    fn any_turn_keeps_the_protocol_and_says_the_same_streamed_and_whole(
        (events, ending) in any_turn(event, finished),
        shown in prop_oneof![Just(LfEvents::Told), Just(LfEvents::Hidden)],
    ) {
        let cut = ending.is_none();
        let events: Vec<ChatEvent> = [started()].into_iter().chain(events).collect();
        let (told, response) = told(&events, shown);
        let mut client = Client::default();
        let mut last = Value::Null;
        for (at, (name, data)) in told.into_iter().enumerate() {
            last = serde_json::from_str(&data).unwrap();
            client.read(at, name, &last);
        }
        let completion = whole(&events, LfEvents::Hidden);
        prop_assert_eq!(&completion.response(), &response);
        let mut ids = client.ids.clone();
        ids.sort();
        ids.dedup();
        prop_assert_eq!(ids.len(), client.ids.len());
        if cut {
            prop_assert_eq!(client.end, None);
            prop_assert!(completion.finish().is_err());
            return Ok(());
        }
        prop_assert_eq!(&last["response"], &response);
        prop_assert_eq!(&response["output"], &Value::from(client.items));
        match completion.finish() {
            Ok(body) => prop_assert_eq!(&body, &response),
            Err(_) => prop_assert_eq!(client.end, Some("response.failed")),
        }
    }
}
