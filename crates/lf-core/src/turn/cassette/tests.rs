use crate::policy::Labels;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::message::{Arguments, Message, Prose, ToolCall};
use crate::model::{FinishReason, ToolChoice};
use crate::tool::{Catalogue, ToolContent};
use crate::tool_set::ToolSet;

fn setup() -> Setup {
    let id = ToolRef { server: "sky".into(), name: "look".into() };
    let schema = json!({"type": "object", "properties": {"at": {"type": "string"}}});
    let tool = Tool::new(id, Some("Looks up.".into()), Arc::new(schema));
    Setup::new(
        "0123456789abcdef0123456789abcdef",
        "m",
        ModelRequest {
            messages: vec![Message::User(Prose { content: "what is up?".into(), rest: Map::new() })],
            stream: true,
            ..ModelRequest::default()
        },
        ToolSet::new(&Catalogue { tools: vec![tool], ..Catalogue::default() }, &[], &[]),
    )
}

fn text(text: &str) -> Entry {
    Entry::Delta(ModelDelta::Text(text.to_owned()))
}

fn call(id: &str, name: &str, arguments: &Value) -> Entry {
    let arguments = Arguments::parse(arguments.to_string());
    Entry::Delta(ModelDelta::Call(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments,
        rest: Map::new(),
    }))
}

fn settled(call: usize, text: &str) -> Entry {
    let content = vec![ToolContent::Text(text.to_owned())];
    let outcome = Ok(ToolOutput { content, ..ToolOutput::default() });
    Entry::Settled { call, outcome, labels: Labels::default(), elapsed: Duration::from_millis(20) }
}

/// A round of two calls, and an answer.
fn entries() -> Vec<Entry> {
    vec![
        text("Let me see."),
        call("a", "sky__look", &json!({"at": "sun"})),
        call("b", "sky__look", &json!({"at": "moon"})),
        Entry::Answered,
        Entry::Running { call: 0 },
        Entry::Running { call: 1 },
        settled(1, "round"),
        settled(0, "bright"),
        Entry::Ran,
        text("Bright and round."),
        Entry::Answered,
    ]
}

fn written(entries: &[Entry]) -> String {
    let begun = Entry::Begun(Box::new(setup()));
    let lines = std::iter::once(&begun).chain(entries).map(|entry| line(entry) + "\n");
    label(&setup()) + "\n" + &lines.collect::<String>()
}

fn cassette(entries: &[Entry]) -> Cassette {
    Cassette::parse(&written(entries)).unwrap()
}

fn wrong(text: &str) -> String {
    Cassette::parse(text).unwrap_err().to_string()
}

#[test]
fn what_was_asked_and_what_the_tools_said_is_known() {
    let cassette = cassette(&entries());
    assert!(cassette.is_over);
    let asked: Vec<usize> = cassette.asks.iter().map(|ask| ask.request.messages.len()).collect();
    assert_eq!(asked, [1, 4]);
    assert_eq!(cassette.asks[0].answer.len(), 3);
    assert!(cassette.asks.iter().all(|ask| ask.end == AskEnd::Whole));
    let called: Vec<String> =
        cassette.calls.iter().map(|call| Value::Object(call.arguments.clone()).to_string()).collect();
    assert_eq!(called, [r#"{"at":"moon"}"#, r#"{"at":"sun"}"#]);
    assert_eq!(cassette.tools().map(|tool| &*tool.id.name).collect::<Vec<_>>(), ["look"]);
}

#[test]
fn a_recording_that_ends_early_is_known_to() {
    let cassette = cassette(&entries()[..10]);
    assert!(!cassette.is_over);
    assert_eq!(cassette.asks.len(), 2);
    assert_eq!(cassette.asks[1].end, AskEnd::Cut);
}

#[test]
fn errors_of_the_model_are_played_once() {
    let error = ModelError::going_down();
    let refused = cassette(&[text("Hm"), Entry::Refused(error.clone()), Entry::Failed(error.clone())]);
    assert_eq!(refused.asks.len(), 1);
    assert_eq!(refused.asks[0].end, AskEnd::Failed(error.clone()));
    let failed = cassette(&[Entry::Failed(error.clone())]);
    assert_eq!(failed.asks.len(), 1);
    assert_eq!(failed.asks[0].end, AskEnd::Failed(error));
}

#[test]
fn what_is_no_cassette_is_told_with_its_line() {
    let whole = written(&entries());
    assert_eq!(wrong(""), "it is no cassette: its first line is not `{\"cassette\":1, …}`");
    assert_eq!(wrong("name: demo\n"), wrong(""));
    assert_eq!(
        wrong("{\"cassette\":2,\"turn\":\"x\"}\n{\"new\":1}\n"),
        "it is a cassette of version 2, and this program reads version 1"
    );
    assert_eq!(wrong(&(label(&setup()) + "\n")), "line 2 is not the beginning of a turn (`{\"begun\": …}`)");
    let cut = &whole[..whole.len() - 4];
    assert_eq!(wrong(cut), "line 13 is cut off");
    assert_eq!(wrong(&(cut.to_owned() + "\n")), "line 13 is cut off");
    assert!(
        wrong(&whole.replace("\"ran\"", "\"run\"")).starts_with("line 11 cannot be read: unknown variant")
    );
    assert_eq!(
        wrong(&(whole + "\"ran\"\n")),
        "line 14 does not belong there: `ran` cannot follow while the turn is over"
    );
}

#[test]
fn a_request_that_differs_is_told_by_its_first_difference() {
    let cassette = cassette(&entries());
    let request = |change: &dyn Fn(&mut ModelRequest)| {
        let mut request = cassette.asks[1].request.clone();
        change(&mut request);
        request_difference(&cassette.asks[1].request, &request).unwrap_or_default()
    };
    assert_eq!(request(&|request| request.stream = false), "");
    assert_eq!(request(&|request| request.tool_choice = Some(ToolChoice::Auto)), "");
    assert_eq!(
        request(&|request| request.tool_choice = Some(ToolChoice::Required)),
        "tool choice: recorded `auto`, now `required`"
    );
    let say = |at: usize, text: &'static str| {
        move |request: &mut ModelRequest| match &mut request.messages[at] {
            Message::User(said) => said.content = text.into(),
            Message::Tool(result) => result.content = text.into(),
            Message::Assistant(said) => said.calls[0].arguments = Arguments::parse(text),
            Message::System(_) => {}
        }
    };
    assert_eq!(request(&say(0, "what is?")), "message 1: recorded `what is up?`, now `what is?`");
    assert_eq!(
        request(&say(1, r#"{"at": "mars"}"#)),
        r#"message 2: call 1: `sky__look`, its arguments: recorded `{"at":"sun"}`, now `{"at": "mars"}`"#
    );
    assert_eq!(request(&say(3, "square")), "message 4: recorded `round`, now `square`");
    assert_eq!(request(&|request| drop(request.messages.pop())), "message 4: the tool result is missing");
    assert_eq!(request(&|request| request.tools = [].into()), "the tool `sky__look` is missing");
    let error = cassette.ask(1, &cassette.asks[0].request).unwrap_err();
    assert_eq!(error, "ask 2 is not the recorded one: message 2: the assistant message is missing");
    assert_eq!(
        cassette.ask(2, &cassette.asks[0].request).unwrap_err(),
        "ask 3 is one more than were recorded"
    );
    assert!(cassette.ask(0, &cassette.asks[1].request).is_ok(), "a turn that goes on after a restart");
}

#[test]
fn turns_are_compared_by_calls_then_text_then_end() {
    let recorded = cassette(&entries());
    let differs = |change: &dyn Fn(&mut Vec<Entry>)| {
        let mut entries = entries();
        change(&mut entries);
        let difference = first_difference(&recorded.events, &cassette(&entries).events);
        difference.map(|difference| format!("{}: {}", difference.round, difference.what)).unwrap_or_default()
    };
    assert_eq!(differs(&|_| {}), "");
    assert_eq!(
        differs(&|entries| entries[9] = text("Bright and square.")),
        "2: text: recorded `\n\nBright and round.`, now `\n\nBright and square.`"
    );
    assert_eq!(
        differs(&|entries| {
            entries[0] = text("Well.");
            entries[2] = call("b", "sky__look", &json!({"at": "mars"}));
        }),
        r#"1: call 2: `sky__look`, its arguments: recorded `{"at":"moon"}`, now `{"at":"mars"}`"#
    );
    assert_eq!(differs(&|entries| drop(entries.drain(1..9))), "1: call 1: recorded `sky__look`, now none");
    let cut = ModelDelta::Finish { reason: FinishReason::Length, raw: None, stop_sequence: None };
    assert_eq!(
        differs(&|entries| entries.insert(10, Entry::Delta(cut.clone()))),
        "2: the end: recorded `stop`, now `length`"
    );
}
