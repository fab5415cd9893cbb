use lf_core::FinishReason;

use super::*;

#[test]
fn what_is_told_is_read_back() {
    let result =
        ToolResult { name: Some("m__look".to_owned()), is_error: true, ..ToolResult::new("a", "seen") };
    let progress = ToolProgress { progress: 1.0, total: Some(2.0), message: Some("half".to_owned()) };
    let tool = ToolRef { server: "m".into(), name: "look".into() };
    let usage = Usage { input: 1, output: 2, cached: 3, ..Usage::default() };
    let made = |arguments: &str| call("a".to_owned(), "m__look".to_owned(), arguments.to_owned());
    let events = [
        ChatEvent::Started { turn: "t".to_owned(), model: "m".to_owned() },
        ChatEvent::Text("hello".to_owned()),
        ChatEvent::Reasoning("hm".to_owned()),
        ChatEvent::Answering { model: "other".to_owned() },
        ChatEvent::CallStarted { call: made(r#"{"n":1}"#), tool: Some(tool) },
        ChatEvent::CallStarted { call: made("{broken"), tool: None },
        ChatEvent::CallProgress { call_id: "a".to_owned(), progress },
        ChatEvent::CallFinished { result, elapsed: Duration::from_millis(12) },
        ChatEvent::ClientCalls(vec![made("{}")]),
        ChatEvent::Notice("look".to_owned()),
        ChatEvent::Finished { reason: FinishReason::ToolCalls, usage, rounds: 2, stop_sequence: None },
    ];
    for event in events {
        assert_eq!(read_event(&lf_server::view::event(&event)), Some(event));
    }
    assert_eq!(read_event(&json!({"event": "of a later version"})), None);
}
