//! What is served is read again by the decoder of the same dialect.

use lf_core::{Arguments, ChatEvent, FinishReason, ToolCall};
use proptest::prelude::*;
use serde_json::{Map, json};

use super::scripts::{Said, Script, cut, id, name, script, shared};
use super::*;
use crate::anthropic_messages::{self, MessagesView, ThinkingView};
use crate::openai_chat::{self, LfEvents, ViewOptions};
use crate::openai_responses::{self, ResponsesView};

const SERVED: [Dialect; 3] = [Dialect::OpenaiChat, Dialect::OpenaiResponses, Dialect::Anthropic];

/// Never blank: a block of white space alone is none.
fn words(text: &str) -> String {
    format!("x{text}")
}

/// The turn of a client that runs the calls.
fn turn(script: &Script) -> Vec<ChatEvent> {
    let mut events = vec![ChatEvent::Started { turn: "t".to_owned(), model: "m".to_owned() }];
    let mut calls = Vec::new();
    for said in &script.said {
        match said {
            Said::Text(text) => events.push(ChatEvent::Text(words(text))),
            Said::Reasoning(text) => events.push(ChatEvent::Reasoning(words(text))),
            Said::Call(arguments, _) => calls.push(ToolCall {
                id: id(calls.len()),
                name: name(calls.len()).to_owned(),
                arguments: Arguments::parse(arguments.to_string()),
                rest: Map::new(),
            }),
        }
    }
    let reason = if calls.is_empty() { script.reason } else { FinishReason::ToolCalls };
    events.extend((!calls.is_empty()).then_some(ChatEvent::ClientCalls(calls)));
    events.push(ChatEvent::Finished { reason, usage: script.usage, rounds: 1, stop_sequence: None });
    events
}

fn responses_view() -> ResponsesView {
    openai_responses::decode_request(br#"{"model": "m", "input": "hi"}"#).unwrap().1
}

const MESSAGES: MessagesView = MessagesView { stream: true, thinking: ThinkingView::Shown };

fn streamed(dialect: Dialect, events: &[ChatEvent]) -> String {
    let framed = |(name, data): (&str, String)| format!("event: {name}\ndata: {data}\n\n");
    match dialect {
        Dialect::OpenaiResponses => {
            let mut encoder =
                openai_responses::EventEncoder::new("resp_1", 7, "m", responses_view(), LfEvents::Told);
            events.iter().flat_map(|event| encoder.event(event)).map(framed).collect()
        }
        Dialect::Anthropic => {
            let mut encoder = anthropic_messages::EventEncoder::new("msg_1", "m", MESSAGES, LfEvents::Told);
            events.iter().flat_map(|event| encoder.event(event)).map(framed).collect()
        }
        _ => {
            let view = ViewOptions { stream: true, include_usage: true };
            let mut encoder = openai_chat::ChunkEncoder::new("c", 7, "m", view, LfEvents::Told);
            let chunks = events.iter().flat_map(|event| encoder.event(event));
            let chunks: String = chunks.map(|chunk| format!("data: {chunk}\n\n")).collect();
            chunks + "data: [DONE]\n\n"
        }
    }
}

fn whole(dialect: Dialect, events: &[ChatEvent]) -> String {
    let body = match dialect {
        Dialect::OpenaiResponses => {
            let mut completion =
                openai_responses::Completion::new("resp_1", 7, "m", responses_view(), LfEvents::Told);
            events.iter().for_each(|event| completion.push(event));
            completion.finish()
        }
        Dialect::Anthropic => {
            let mut completion = anthropic_messages::Completion::new("msg_1", "m", MESSAGES, LfEvents::Told);
            events.iter().for_each(|event| completion.push(event));
            completion.finish("req_1")
        }
        _ => {
            let mut completion = openai_chat::Completion::new("c", 7, "m", LfEvents::Told);
            events.iter().for_each(|event| completion.push(event));
            completion.finish()
        }
    };
    body.unwrap().to_string()
}

/// What the decoder has to tell, with all reasoning and all text together: a whole completion has no order of them.
fn expected(dialect: Dialect, events: &[ChatEvent]) -> Vec<(&'static str, String)> {
    let mut lines: Vec<(&str, String)> = Vec::new();
    let (mut reasoning, mut text) = (String::new(), String::new());
    let mut last = "";
    for event in events {
        let (kind, said, more) = match event {
            ChatEvent::Reasoning(more) => ("reasoning", &mut reasoning, more),
            ChatEvent::Text(more) => ("text", &mut text, more),
            ChatEvent::ClientCalls(calls) => {
                let call = |call: &ToolCall| format!("{} {} {}", call.id, call.name, call.arguments.raw());
                lines.extend(calls.iter().map(|one| ("call", call(one))));
                continue;
            }
            ChatEvent::Finished { reason, usage, .. } => {
                lines.push(("usage", format!("{}+{} cached 0 reasoning 0", usage.input, usage.output)));
                lines.push(("finish", reason.name().to_owned()));
                continue;
            }
            _ => continue,
        };
        // there, they are two items
        if dialect == Dialect::OpenaiResponses && kind != last && !said.is_empty() {
            said.push_str("\n\n");
        }
        said.push_str(more);
        last = kind;
    }
    let said = [("reasoning", reasoning), ("text", text)];
    said.into_iter().filter(|(_, said)| !said.is_empty()).chain(lines).collect()
}

/// All reasoning, all text, and the rest.
fn sorted(told: &[(&'static str, String)]) -> Vec<(&'static str, String)> {
    let all = |kind: &'static str| {
        let parts = told.iter().filter(move |(told, _)| *told == kind).map(|(_, text)| text.as_str());
        Some((kind, parts.collect::<String>())).filter(|(_, text)| !text.is_empty())
    };
    let said = [all("reasoning"), all("text")];
    let rest = told.iter().filter(|(kind, _)| !matches!(*kind, "reasoning" | "text")).cloned();
    said.into_iter().flatten().chain(rest).collect()
}

proptest! {
    #[test]
    fn what_is_served_is_read_again_as_it_was_said(
        script in script(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let events = turn(&script);
        for dialect in SERVED {
            let expected = expected(dialect, &events);
            for text in [streamed(dialect, &events), whole(dialect, &events)] {
                let told = sorted(&shared(dialect, &cut(text.as_bytes(), &cuts)));
                prop_assert_eq!(&told, &expected, "{:?}\n{}", dialect, text);
            }
        }
    }

    #[test]
    fn an_error_that_is_served_is_read_as_one(script in script(), at in any::<prop::sample::Index>()) {
        let mut events = turn(&script);
        // the calls and the end come last
        let before = events.iter().take_while(|event| !matches!(event, ChatEvent::ClientCalls(_) | ChatEvent::Finished { .. }));
        let at = 1 + at.index(before.count());
        events.truncate(at);
        events.push(ChatEvent::Failed(ModelError::Unsupported("it is closed".to_owned())));
        for dialect in SERVED {
            let told = shared(dialect, &[streamed(dialect, &events).as_bytes()]);
            prop_assert!(matches!(told.last(), Some(("error", text)) if text.contains("it is closed")), "{:?} {:?}", dialect, told);
            let over = told.iter().any(|(kind, _)| matches!(*kind, "call" | "finish"));
            prop_assert!(!over, "{:?} {:?}", dialect, told);
        }
    }
}

#[test]
fn a_served_stream_that_breaks_off_is_no_answer() {
    let script = Script {
        said: vec![Said::Text("a".to_owned()), Said::Call(json!({"q": 1}), Vec::new())],
        reason: FinishReason::Stop,
        usage: lf_core::Usage::default(),
    };
    let events = turn(&script);
    for dialect in SERVED {
        let text = streamed(dialect, &events[..events.len() - 1]).replace("data: [DONE]\n\n", "");
        let told = shared(dialect, &[text.as_bytes()]);
        assert!(told.iter().any(|(kind, _)| *kind == "error"), "{dialect:?} {told:?}");
        assert!(!told.iter().any(|(kind, _)| *kind == "call"), "{dialect:?} {told:?}");
    }
}
