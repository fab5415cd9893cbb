use std::time::Duration;

use crate::policy::Labels;
use serde_json::{Map, json};

use super::*;
use crate::event::ChatEvent;
use crate::message::{Arguments, Prose, ToolCall};
use crate::model::{FinishReason, ModelDelta, ModelRequest, ToolSpec};
use crate::results::{MAX_KEPT, tools};
use crate::tool::{Catalogue, Tool, ToolContent, ToolOutput, ToolRef};
use crate::tool_set::{ToolSet, empty_schema};
use crate::turn::{Entry, Setup};

fn set(client: &[ToolSpec]) -> ToolSet {
    let id = ToolRef { server: "disk".into(), name: "read".into() };
    let catalogue = Catalogue { tools: vec![Tool::new(id, None, empty_schema())], ..Catalogue::default() };
    ToolSet::new(&catalogue, &[], client)
}

fn setup(messages: Vec<Message>, client: &[ToolSpec]) -> Setup {
    let request = ModelRequest { messages, ..ModelRequest::default() };
    Setup::new("0123456789abcdef0123456789abcdef", "m", request, set(client))
}

fn user() -> Message {
    Message::User(Prose { content: "read it".into(), rest: Map::new() })
}

fn call(name: &str, arguments: &str) -> ModelDelta {
    let arguments = Arguments::parse(arguments);
    ModelDelta::Call(ToolCall { id: name.to_owned(), name: name.to_owned(), arguments, rest: Map::new() })
}

/// One round of a call that returns a text of so many bytes.
fn round(course: &mut Course, n: usize, size: usize) -> Vec<KeptResult> {
    let mut events: Vec<ChatEvent> = Vec::new();
    let output = ToolOutput { content: vec![ToolContent::Text("x".repeat(size))], ..ToolOutput::default() };
    for entry in [
        Entry::Delta(call("disk__read", &json!({"n": n}).to_string())),
        Entry::Delta(ModelDelta::Finish { reason: FinishReason::ToolCalls, raw: None, stop_sequence: None }),
        Entry::Answered,
        Entry::Running { call: 0 },
        Entry::Settled { call: 0, outcome: Ok(output), labels: Labels::default(), elapsed: Duration::ZERO },
    ] {
        course.take(entry, &mut events).unwrap();
    }
    let cut = course.take_cut();
    course.take(Entry::Ran, &mut events).unwrap();
    cut
}

fn offered(course: &Course) -> Vec<String> {
    let Step::AskModel(ask) = course.step() else { panic!("the model is asked") };
    ask.request().tools.iter().map(|tool| tool.name.clone()).collect()
}

fn last_result(course: &Course) -> ToolResult {
    let Step::AskModel(ask) = course.step() else { panic!("the model is asked") };
    match ask.request().messages.last() {
        Some(Message::Tool(result)) => result.clone(),
        other => panic!("no result: {other:?}"),
    }
}

#[test]
fn a_result_at_the_limit_is_whole_and_one_byte_more_is_kept_under_a_handle() {
    let mut course = Course::new(setup(vec![user()], &[]), &mut Vec::new());
    assert!(round(&mut course, 1, 100_000).is_empty());
    assert_eq!(offered(&course), ["disk__read"], "nothing was cut yet");
    let cut = round(&mut course, 2, 100_001);
    assert_eq!(offered(&course), ["disk__read", READ, SEARCH]);
    let [kept] = &*cut else { panic!("{} are kept", cut.len()) };
    assert_eq!((kept.id.handle.as_str(), kept.text.len()), ("result-1", 100_001));
    let result = last_result(&course);
    assert_eq!(result.kept.as_ref(), Some(&kept.id));
    let text = result.content.text();
    let note = "\n\n[cut: the first 100000 of 100001 bytes. All of it is kept as `result-1`: read on with \
                result_read(handle: \"result-1\", offset: 100000), or find places in it with result_search.]";
    assert_eq!(&text[100_000..], note);
    let cut = round(&mut course, 3, 100 * 100_000);
    let [kept] = &*cut else { panic!("{} are kept", cut.len()) };
    assert_eq!((kept.id.handle.as_str(), kept.text.len()), ("result-2", MAX_KEPT));
    let text = last_result(&course).content.text();
    assert!(
        text.contains("of 10000000 bytes. Its beginning (8388608 bytes) is kept as `result-2`"),
        "{}",
        &text[100_000..]
    );
}

#[test]
fn told_the_same_again_a_turn_cuts_the_same() {
    let cut = |_| round(&mut Course::new(setup(vec![user()], &[]), &mut Vec::new()), 1, 200_000);
    assert_eq!(cut(0), cut(1));
}

#[test]
fn a_conversation_with_a_handle_in_it_goes_on_counting_and_can_look() {
    let kept = ResultRef { turn: "earlier".to_owned(), handle: "result-7".to_owned() };
    let mut result = ToolResult::error(
        &ToolCall {
            id: "a".to_owned(),
            name: "t".to_owned(),
            arguments: Arguments::parse("{}"),
            rest: Map::new(),
        },
        "x",
    );
    result.kept = Some(kept);
    let mut course = Course::new(setup(vec![Message::Tool(result), user()], &[]), &mut Vec::new());
    assert_eq!(offered(&course), ["disk__read", READ, SEARCH]);
    let cut = round(&mut course, 1, 200_000);
    assert_eq!(cut[0].id.handle, "result-8");
}

#[test]
fn a_tool_of_the_same_name_keeps_it() {
    let client =
        ToolSpec { name: READ.to_owned(), description: None, schema: empty_schema(), rest: Map::new() };
    let mut course = Course::new(setup(vec![user()], &[client]), &mut Vec::new());
    round(&mut course, 1, 200_000);
    let names = offered(&course);
    assert_eq!(names.len(), 4, "{names:?}");
    let ours = set(&[]).with_results().with_results();
    assert_eq!(ours.len(), 1 + tools().len(), "offered once");
    let text = last_result(&course).content.text();
    assert!(text.contains(&format!("read on with {}(", names[2])) && names[2] != READ, "{names:?}");
}
