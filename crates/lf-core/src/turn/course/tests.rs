use crate::policy::Labels;
use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;
use crate::message::{Arguments, Prose, ToolCall};
use crate::model::{FinishReason, ModelRequest, ToolSpec, Usage};
use crate::project::{InlineTool, Limits, ToolCallStrategy};
use crate::tool::{Approval, Catalogue, Tool, ToolContent, ToolRef};
use crate::turn::cassette::{self, Cassette};
use crate::turn::{Planned, Verdict};
use crate::{Message, ToolSet};

fn setup() -> Setup {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let tool = |name: &str| {
        let id = ToolRef { server: "sky".into(), name: name.into() };
        Tool { shown_name: format!("the.{name}").into(), ..Tool::new(id, None, schema.clone().into()) }
    };
    let asks = Tool { approval: Approval::Ask, ..tool("rain") };
    let catalogue = Catalogue { tools: vec![asks, tool("time"), tool("weather")], ..Catalogue::default() };
    let inline =
        InlineTool { name: "a.b".into(), description: "x".into(), parameters: schema.clone().into() };
    let client = ToolSpec {
        name: "upload".into(),
        description: None,
        schema: schema.into(),
        rest: Map::from_iter([("strict".to_owned(), json!(true))]),
    };
    Setup {
        strategy: ToolCallStrategy::Auto,
        limits: Limits { rounds: 3, ..Limits::default() },
        calls_left: Some(5),
        ..Setup::new(
            "0123456789abcdef0123456789abcdef",
            "m",
            ModelRequest {
                messages: vec![Message::User(Prose { content: "hi".into(), rest: Map::new() })],
                stream: true,
                ..ModelRequest::default()
            },
            ToolSet::new(&catalogue, &[inline], &[client]),
        )
    }
}

/// The same where calls are held against rules.
fn judged() -> Setup {
    Setup { judged: true, ..setup() }
}

fn delta() -> impl Strategy<Value = ModelDelta> {
    let call = (
        "[a-c]?",
        prop_oneof![Just("sky__the_weather"), Just("sky__the_rain"), Just("a.b"), Just("no_such")],
        arguments(),
    );
    prop_oneof![
        "[a-z<>/_ \"{}]{0,12}".prop_map(ModelDelta::Text),
        Just(ModelDelta::Text(r#"<tool_call>{"name": "sky__the_time", "arguments": {}}</tool_call>"#.into())),
        "[a-z]{0,4}".prop_map(ModelDelta::Reasoning),
        call.prop_map(|(id, name, arguments)| {
            ModelDelta::Call(ToolCall { id, name: name.to_owned(), arguments, rest: Map::new() })
        }),
        Just(ModelDelta::Notice("n".to_owned())),
        Just(ModelDelta::State(Map::from_iter([("k".to_owned(), json!(1))]))),
        (0u64..9).prop_map(|input| ModelDelta::Usage(Usage { input, ..Usage::default() })),
    ]
}

fn arguments() -> impl Strategy<Value = Arguments> {
    prop_oneof![
        "[a-c]".prop_map(|city| Arguments::parse(format!(r#"{{"city": "{city}"}}"#))),
        Just(Arguments::parse("{'city': 'a',}")),
        Just(Arguments::incomplete("{\"ci", "it was cut off")),
        Just(Arguments::from_object(Map::from_iter([("city".to_owned(), json!("b"))]))),
    ]
}

/// How an ask goes.
#[derive(Debug, Clone)]
enum Ask {
    Answered(Vec<ModelDelta>, FinishReason),
    Interrupted(Vec<ModelDelta>),
    NoTools,
    Failed(Vec<ModelDelta>),
}

fn ask() -> impl Strategy<Value = Ask> {
    let deltas = || prop::collection::vec(delta(), 0..6);
    let reason = prop_oneof![4 => Just(FinishReason::ToolCalls), 1 => Just(FinishReason::Length)];
    prop_oneof![
        8 => (deltas(), reason).prop_map(|(deltas, reason)| Ask::Answered(deltas, reason)),
        2 => deltas().prop_map(Ask::Interrupted),
        1 => Just(Ask::NoTools),
        1 => deltas().prop_map(Ask::Failed),
    ]
}

/// Drives a turn by a script; what happened, what was told, and every request.
fn drive(script: Vec<Ask>) -> (Vec<Entry>, Vec<ChatEvent>, String) {
    let (mut entries, mut events) = (vec![Entry::Begun(Box::new(judged()))], Vec::new());
    let mut course = Course::new(judged(), &mut events);
    let mut script = script.into_iter();
    loop {
        let next: Vec<Entry> = match course.step() {
            Step::Done(_) => break,
            Step::AskModel(_) => match script.next() {
                Some(Ask::Answered(deltas, reason)) => {
                    let end = ModelDelta::Finish { reason, raw: None, stop_sequence: None };
                    let deltas = deltas.into_iter().chain([end]).map(Entry::Delta);
                    deltas.chain([Entry::Answered]).collect()
                }
                Some(Ask::Interrupted(deltas)) => {
                    deltas.into_iter().map(Entry::Delta).chain([Entry::Interrupted]).collect()
                }
                Some(Ask::NoTools) => vec![Entry::Refused(ModelError::Rejected {
                    url: "u".to_owned(),
                    status: 400,
                    message: "this model does not support tools".to_owned(),
                    body: None,
                })],
                Some(Ask::Failed(deltas)) => {
                    let failed = Entry::Failed(ModelError::going_down());
                    deltas.into_iter().map(Entry::Delta).chain([failed]).collect()
                }
                None => vec![Entry::Answered],
            },
            Step::Judge(judge) => {
                // any verdict, and the same for the same call
                let verdicts = [Approval::Auto, Approval::Ask, Approval::Deny];
                let calls = judge.standing().into_iter().map(|standing| Judged {
                    call: standing.index,
                    verdict: verdicts[standing.call.arguments.raw().len() % 3],
                    why: "a rule says so".to_owned(),
                });
                vec![Entry::Judged { calls: calls.collect() }]
            }
            Step::AskPerson(asking) => {
                let ask = asking.open().next().unwrap();
                // any verdict, and the same for the same call
                let verdicts = [Verdict::Approved, Verdict::Always, Verdict::Denied, Verdict::Expired];
                let decided = |verdict| Entry::Decided {
                    approval: ask.id.clone(),
                    decision: Decision { verdict, by: "p".to_owned(), reason: None, who: None },
                };
                let words = || Entry::Unanswered { words: format!("approve {}", ask.id) };
                vec![verdicts.get(ask.call.arguments.raw().len() % 5).map_or_else(words, |it| decided(*it))]
            }
            Step::RunTools(run) => {
                let open: Vec<usize> = run.open().map(|(index, ..)| index).collect();
                let settled = open.into_iter().rev().flat_map(|call| {
                    let content = vec![ToolContent::Text(format!("result {call}"))];
                    let outcome = match call % 2 {
                        0 => Ok(ToolOutput { content, ..ToolOutput::default() }),
                        _ => Err(ToolError::UnknownTool { server: "sky".into(), tool: "x".into() }),
                    };
                    let elapsed = Duration::from_millis(1234);
                    let again = Entry::again(call, &outcome, Duration::from_millis(700));
                    [
                        Entry::Running { call },
                        again,
                        Entry::Settled { call, outcome, labels: Labels::default(), elapsed },
                    ]
                });
                settled.chain([Entry::Ran]).collect()
            }
        };
        for entry in next {
            entries.push(entry.clone());
            course.take(entry, &mut events).unwrap();
        }
    }
    (entries, events, left(&course))
}

/// What decides how a turn goes on.
fn left(course: &Course) -> String {
    match course.step() {
        Step::AskModel(ask) => format!("{:?}", ask.request()),
        Step::Judge(judge) => format!("{:?}", judge.standing()),
        Step::AskPerson(asking) => format!("{:?}", asking.asks()),
        Step::RunTools(run) => format!("{:?}", run.open().collect::<Vec<_>>()),
        Step::Done(done) => format!("{done:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_turn_read_back_from_its_journal_is_the_same_turn(script in prop::collection::vec(ask(), 0..6)) {
        let (entries, events, end) = drive(script);
        let lines: Vec<String> = entries.iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
        let mut told = Vec::new();
        let mut course: Option<Course> = None;
        for line in &lines {
            let entry: Entry = serde_json::from_str(line).unwrap();
            prop_assert_eq!(&serde_json::to_string(&entry).unwrap(), line);
            match (entry, &mut course) {
                (Entry::Begun(setup), None) => course = Some(Course::new(*setup, &mut told)),
                (entry, Some(course)) => { course.take(entry, &mut told).unwrap(); }
                (entry, None) => panic!("{} comes first", entry.name()),
            }
        }
        prop_assert_eq!(told, events);
        prop_assert_eq!(left(&course.unwrap()), end);
    }

    #[test]
    fn a_cassette_is_the_turn_and_is_written_again_as_it_was(script in prop::collection::vec(ask(), 0..6)) {
        let (entries, events, _) = drive(script);
        let write = |setup: &Setup, entries: &[Entry]| {
            let lines = entries.iter().map(|entry| cassette::line(entry) + "\n");
            cassette::label(setup) + "\n" + &lines.collect::<String>()
        };
        let text = write(&setup(), &entries);
        let read = Cassette::parse(&text).unwrap();
        prop_assert!(read.is_over);
        prop_assert_eq!(&write(&read.setup, &read.entries), &text);
        prop_assert_eq!(&read.events, &events);
        prop_assert_eq!(cassette::first_difference(&read.events, &events), None);
        for (position, ask) in read.asks.iter().enumerate() {
            prop_assert!(std::ptr::eq(read.ask(position, &ask.request).unwrap(), ask));
        }
    }
}

fn call(id: &str, city: &str) -> Entry {
    Entry::Delta(ModelDelta::Call(ToolCall {
        id: id.to_owned(),
        name: "sky__the_weather".to_owned(),
        arguments: Arguments::parse(format!(r#"{{"city": "{city}"}}"#)),
        rest: Map::new(),
    }))
}

fn text(text: &str) -> Entry {
    Entry::Delta(ModelDelta::Text(text.to_owned()))
}

#[test]
fn what_cannot_happen_in_a_step_is_refused_and_changes_nothing() {
    let mut events = Vec::new();
    let mut course = Course::new(setup(), &mut events);
    let before = left(&course);
    let error = course.take(Entry::Ran, &mut events).unwrap_err();
    assert_eq!(error.to_string(), "`ran` cannot follow while the model is asked");
    let error = course.take(Entry::Begun(Box::new(setup())), &mut events).unwrap_err();
    assert_eq!(error.to_string(), "`begun` cannot follow while the model is asked");
    assert_eq!((events.len(), left(&course)), (1, before));
}

#[test]
fn a_call_that_was_begun_is_known_to_have_been() {
    let mut events = Vec::new();
    let mut course = Course::new(setup(), &mut events);
    for entry in [call("a", "x"), call("b", "y"), Entry::Answered, Entry::Running { call: 1 }] {
        course.take(entry, &mut events).unwrap();
    }
    let Step::RunTools(run) = course.step() else { panic!("{course:?}") };
    let open: Vec<(usize, bool)> = run.open().map(|(index, _, begun)| (index, begun)).collect();
    assert_eq!(open, [(0, false), (1, true)]);
    assert!(run.calls().iter().all(|planned| matches!(planned.plan, Planned::Run(_))));
}

#[test]
fn an_answer_that_was_interrupted_is_void_and_begins_again() {
    let mut events = Vec::new();
    let mut course = Course::new(setup(), &mut events);
    for entry in [text("Half"), Entry::Interrupted, text("Whole."), Entry::Answered] {
        course.take(entry, &mut events).unwrap();
    }
    let done = course.into_done().unwrap();
    let [Message::Assistant(said)] = &*done.said else { panic!("{done:?}") };
    assert_eq!(said.content.text(), "Whole.");
    let shown: Vec<String> = events
        .iter()
        .filter_map(|event| match event {
            ChatEvent::Text(text) | ChatEvent::Notice(text) => Some(text.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(shown, ["Half", "the answer was interrupted and begins again", "\n\nWhole."]);
}

#[test]
fn an_answer_that_was_interrupted_while_the_model_thought_is_told_to_begin_again() {
    let mut events = Vec::new();
    let mut course = Course::new(setup(), &mut events);
    let thought = || Entry::Delta(ModelDelta::Reasoning("Hm.".to_owned()));
    let text = Entry::Delta(ModelDelta::Text("Whole.".to_owned()));
    for entry in [thought(), Entry::Interrupted, thought(), text, Entry::Answered] {
        course.take(entry, &mut events).unwrap();
    }
    let told: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            ChatEvent::Text(text) | ChatEvent::Reasoning(text) | ChatEvent::Notice(text) => {
                Some(text.as_str())
            }
            _ => None,
        })
        .collect();
    assert_eq!(told, ["Hm.", "the answer was interrupted and begins again", "Hm.", "Whole."]);
}

#[test]
fn a_turn_that_is_stopped_leaves_a_conversation_that_can_go_on() {
    let mut events = Vec::new();
    let mut course = Course::new(setup(), &mut events);
    let round =
        [text("Looking."), call("a", "x"), call("b", "y"), Entry::Answered, Entry::Running { call: 0 }];
    for entry in round.into_iter().chain([Entry::Stopped]) {
        course.take(entry, &mut events).unwrap();
    }
    let done = course.into_done().unwrap();
    crate::turn::check_answers(&done.said).unwrap();
    let [Message::Assistant(_), Message::Tool(one), Message::Tool(other)] = &*done.said else {
        panic!("{done:?}")
    };
    assert_eq!(
        one.content.text(),
        "the turn was stopped while this call was running; its outcome is unknown"
    );
    assert_eq!(other.content.text(), "the turn was stopped before this call was run");
    assert!(matches!(events.last(), Some(ChatEvent::Finished { .. })), "{events:?}");

    let mut course = Course::new(setup(), &mut events);
    for entry in [text("Once upon"), text(" a time <tool_"), Entry::Stopped] {
        course.take(entry, &mut events).unwrap();
    }
    let done = course.into_done().unwrap();
    let [Message::Assistant(said)] = &*done.said else { panic!("{done:?}") };
    assert_eq!(said.content.text(), "Once upon a time <tool_");
}

fn rejected() -> ModelError {
    let (url, message) = ("u".to_owned(), "no".to_owned());
    ModelError::Rejected { url, status: 400, message, body: None }
}

#[test]
fn a_turn_that_fails_keeps_what_its_finished_rounds_did() {
    let mut events = Vec::new();
    let mut course = Course::new(setup(), &mut events);
    let content = vec![ToolContent::Text("sunny".to_owned())];
    let settled = Entry::Settled {
        call: 0,
        outcome: Ok(ToolOutput { content, ..ToolOutput::default() }),
        labels: Labels::default(),
        elapsed: Duration::ZERO,
    };
    let round =
        [text("Looking."), call("a", "x"), Entry::Answered, Entry::Running { call: 0 }, settled, Entry::Ran];
    for entry in round.into_iter().chain([text("It is"), Entry::Failed(rejected())]) {
        course.take(entry, &mut events).unwrap();
    }
    let done = course.into_done().unwrap();
    assert!(done.failed && done.resume.is_none());
    crate::turn::check_answers(&done.said).unwrap();
    let [Message::Assistant(said), Message::Tool(result)] = &*done.said else { panic!("{done:?}") };
    assert_eq!((said.content.text().as_str(), result.content.text().as_str()), ("Looking.", "sunny"));
    assert_eq!(events.last(), Some(&ChatEvent::Failed(rejected())));
}

#[test]
fn a_turn_that_fails_while_tools_run_says_that_their_outcome_is_unknown() {
    let mut events = Vec::new();
    let mut course = Course::new(setup(), &mut events);
    let round = [call("a", "x"), call("b", "y"), Entry::Answered, Entry::Running { call: 0 }];
    for entry in round.into_iter().chain([Entry::Failed(rejected())]) {
        course.take(entry, &mut events).unwrap();
    }
    let done = course.into_done().unwrap();
    assert!(done.failed);
    crate::turn::check_answers(&done.said).unwrap();
    let [Message::Assistant(_), Message::Tool(one), Message::Tool(other)] = &*done.said else {
        panic!("{done:?}")
    };
    assert_eq!(one.content.text(), "the turn failed while this call was running; its outcome is unknown");
    assert_eq!(other.content.text(), "the turn failed before this call was run");
    let ends = events.iter().filter(|event| matches!(event, ChatEvent::CallFinished { .. })).count();
    assert_eq!(ends, 2, "{events:?}");
    assert_eq!(events.last(), Some(&ChatEvent::Failed(rejected())));
}
