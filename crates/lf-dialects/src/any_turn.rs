//! For tests: turns as the client of a served API may be told them.

use std::time::Duration;

use lf_core::{ChatEvent, FinishReason, ModelError, ToolCall, ToolResult};
use proptest::prelude::*;

/// Reasoning, text, a call of ours, one more text, two calls of the client's, the end, and something after it. `call`
/// makes one of an id and arguments.
pub(crate) fn a_turn(
    call: impl Fn(&str, &str) -> ToolCall,
    last_words: &str,
    finished: impl Fn(FinishReason) -> ChatEvent,
) -> Vec<ChatEvent> {
    vec![
        ChatEvent::Started { turn: "t".to_owned(), model: "m".to_owned() },
        ChatEvent::Reasoning("Hm".to_owned()),
        ChatEvent::Reasoning("m.".to_owned()),
        ChatEvent::Text("Let me".to_owned()),
        ChatEvent::Text(" see.".to_owned()),
        ChatEvent::CallStarted { call: call("s1", "{}"), tool: None },
        ChatEvent::CallFinished {
            result: ToolResult::error(&call("s1", "{}"), "there is no tool `f`"),
            elapsed: Duration::from_millis(7),
        },
        ChatEvent::Text(last_words.to_owned()),
        ChatEvent::ClientCalls(vec![call("a", r#"{"q": 1}"#), call("b", "")]),
        finished(FinishReason::ToolCalls),
        ChatEvent::Text("too late".to_owned()),
    ]
}

/// The events of a turn, and its end among them: none where the turn was cut. After an end there may be more, which
/// nobody is to be told.
pub(crate) fn any_turn<E: Strategy<Value = ChatEvent>>(
    event: impl Fn() -> E,
    finished: impl Fn(FinishReason) -> ChatEvent,
) -> impl Strategy<Value = (Vec<ChatEvent>, Option<ChatEvent>)> {
    let failed = ChatEvent::Failed(ModelError::Unsupported("no".to_owned()));
    let end = prop_oneof![
        Just(Some(finished(FinishReason::Stop))),
        Just(Some(finished(FinishReason::Length))),
        Just(Some(failed)),
        Just(None),
    ];
    let said = prop::collection::vec(event(), 0..12);
    (said, end, prop::collection::vec(event(), 0..3)).prop_map(|(mut events, end, after)| {
        if let Some(end) = &end {
            events.push(end.clone());
            events.extend(after);
        }
        (events, end)
    })
}
