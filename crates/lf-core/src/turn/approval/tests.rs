use serde_json::{Map, json};

use crate::ToolSet;
use crate::message::{Arguments, Prose};
use crate::model::{ModelDelta, ModelRequest};
use crate::policy::Labels;
use crate::tool::{Catalogue, Tool, ToolOutput};
use crate::turn::{Course, Entry, Setup};

use super::*;

fn setup(waiting: Option<Waiting>, tools: &[(&str, Approval)]) -> Setup {
    let tools = tools.iter().map(|(name, approval)| {
        let id = ToolRef { server: "disk".into(), name: (*name).into() };
        Tool { approval: *approval, ..Tool::new(id, None, json!({"type": "object"}).into()) }
    });
    let catalogue = Catalogue { tools: tools.collect(), ..Catalogue::default() };
    Setup {
        waiting,
        ..Setup::new(
            "0123456789abcdef0123456789abcdef",
            "m",
            ModelRequest {
                messages: vec![Message::User(Prose { content: "hi".into(), rest: Map::new() })],
                ..ModelRequest::default()
            },
            ToolSet::new(&catalogue, &[], &[]),
        )
    }
}

const TOOLS: &[(&str, Approval)] = &[("read", Approval::Auto), ("write", Approval::Ask)];

fn call(id: &str, name: &str) -> Entry {
    let arguments = Arguments::parse(format!(r#"{{"id": "{id}"}}"#));
    Entry::Delta(ModelDelta::Call(ToolCall {
        id: id.to_owned(),
        name: format!("disk__{name}"),
        arguments,
        rest: Map::new(),
    }))
}

fn decided(approval: &str, verdict: Verdict) -> Entry {
    let decision = Decision { verdict, by: "Ada".to_owned(), reason: None, who: None };
    Entry::Decided { approval: approval.to_owned(), decision }
}

fn take(course: &mut Course, entries: impl IntoIterator<Item = Entry>) -> Vec<ChatEvent> {
    let mut events = Vec::new();
    for entry in entries {
        course.take(entry, &mut events).expect("it fits");
    }
    events
}

/// A course whose model has just made these calls.
fn asking(calls: &[(&str, &str)]) -> Course {
    let mut course = Course::new(setup(None, TOOLS), &mut Vec::new());
    take(&mut course, calls.iter().map(|(id, name)| call(id, name)).chain([Entry::Answered]));
    course
}

fn open(course: &Course) -> Vec<(String, String)> {
    let Step::AskPerson(asking) = course.step() else { panic!("{course:?}") };
    asking.open().map(|ask| (ask.id.clone(), ask.call.id.clone())).collect()
}

fn to_run(course: &Course) -> Vec<String> {
    let Step::RunTools(run) = course.step() else { panic!("{course:?}") };
    run.open().map(|(_, planned, _)| planned.call.id.clone()).collect()
}

fn settle_all(course: &mut Course) {
    let Step::RunTools(run) = course.step() else { panic!("{course:?}") };
    let open: Vec<usize> = run.open().map(|(index, ..)| index).collect();
    let settled = open.into_iter().flat_map(|call| {
        let outcome = Ok(ToolOutput::default());
        [
            Entry::Running { call },
            Entry::Settled { call, outcome, labels: Labels::default(), elapsed: std::time::Duration::ZERO },
        ]
    });
    take(course, settled.chain([Entry::Ran]));
}

#[test]
fn a_decision_names_whoever_took_it_whatever_that_says_of_itself() {
    let said = |by: &str| Decision { verdict: Verdict::Approved, by: by.to_owned(), reason: None, who: None };
    let key = Principal { id: "key:1".to_owned(), name: "ci".to_owned(), ..Principal::local() };
    let of_key = said("the owner\n").of(&key);
    assert_eq!((&*of_key.by, of_key.who.as_deref()), ("key ci for the owner ", Some("key:1")));
    assert_eq!(said("").of(&Principal::owner()).by, "the owner");
    assert_eq!(said("").of(&Principal::local()).who, None);
}

#[test]
fn nothing_of_a_round_runs_before_its_asks_are_decided() {
    let mut course = asking(&[("a", "read"), ("b", "write"), ("c", "write")]);
    let asks = open(&course);
    assert_eq!(asks.iter().map(|(_, call)| call.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    let error = course.take(Entry::Running { call: 0 }, &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "`running` cannot follow while a person is asked");
    take(&mut course, [decided(&asks[1].0, Verdict::Denied), decided("apr_of_nobody", Verdict::Approved)]);
    assert_eq!(open(&course), asks[..1]);
    let told = take(&mut course, [decided(&asks[0].0, Verdict::Approved)]);
    assert_eq!(to_run(&course), ["a", "b"]);
    let [ChatEvent::ApprovalDecided(_), ChatEvent::CallFinished { result, .. }] = &*told else {
        panic!("{told:?}")
    };
    assert!(result.is_error && result.call_id == "c");
    assert!(result.content.text().starts_with("this call was denied by Ada and was not run"));
}

#[test]
fn always_counts_for_the_round_and_for_those_that_follow() {
    let mut course = asking(&[("a", "write"), ("b", "write")]);
    let asks = open(&course);
    let told = take(&mut course, [decided(&asks[0].0, Verdict::Always)]);
    assert_eq!((told.len(), to_run(&course)), (2, vec!["a".to_owned(), "b".to_owned()]));
    settle_all(&mut course);
    take(&mut course, [call("c", "write"), Entry::Answered]);
    assert_eq!(to_run(&course), ["c"]);
}

#[test]
fn a_decision_stands() {
    let mut course = asking(&[("a", "write"), ("b", "write")]);
    let asks = open(&course);
    take(&mut course, [decided(&asks[0].0, Verdict::Denied), decided(&asks[0].0, Verdict::Approved)]);
    take(&mut course, [decided(&asks[1].0, Verdict::Always)]);
    assert_eq!(to_run(&course), ["b"]);
}

#[test]
fn a_turn_that_nobody_attends_ends_and_the_next_one_begins_with_its_calls() {
    let mut course = asking(&[("a", "read"), ("b", "write")]);
    let asks = open(&course);
    let told = take(&mut course, [Entry::Unanswered { words: "Please approve.".to_owned() }]);
    let texts: Vec<&ChatEvent> = told
        .iter()
        .filter(|event| matches!(event, ChatEvent::Text(text) if text == "Please approve."))
        .collect();
    assert_eq!(texts.len(), 1);
    assert!(matches!(told.last(), Some(ChatEvent::Finished { reason: FinishReason::Stop, .. })));
    let done = course.into_done().expect("over");
    let roles: Vec<&str> = done
        .said
        .iter()
        .map(|said| match said {
            Message::Assistant(said) if said.calls.len() == 2 => "calls",
            Message::Tool(result) if result.is_error => "not run",
            Message::Assistant(_) => "words",
            _ => "?",
        })
        .collect();
    assert_eq!(roles, ["calls", "not run", "not run", "words"]);
    let waiting = done.waiting.expect("waits");

    // still nobody has said anything: the same approval is asked again
    let mut events = Vec::new();
    let again = Course::new(setup(Some(waiting.clone()), TOOLS), &mut events);
    assert_eq!(open(&again)[0].0, asks[0].0);
    assert_ne!(open(&again)[0].1, "b", "ids of calls are never used twice");
    let needed = events.iter().filter(|event| matches!(event, ChatEvent::ApprovalNeeded(_))).count();
    assert_eq!(needed, 1);

    // meanwhile somebody has
    let mut decided = waiting;
    decided.asks[0].decision =
        Some(Decision { verdict: Verdict::Approved, by: "Ada".to_owned(), reason: None, who: None });
    let course = Course::new(setup(Some(decided.clone()), TOOLS), &mut events);
    assert_eq!(to_run(&course).len(), 2);

    // a model that may not use the tool any more runs nothing, whatever was approved
    let course = Course::new(setup(Some(decided), &[("read", Approval::Auto)]), &mut events);
    assert_eq!(to_run(&course).len(), 1);
}

/// What waits after a round with two calls of one tool, the first of them decided so and the second denied.
fn denied_beside(verdict: Option<Verdict>) -> Waiting {
    let mut course = asking(&[("a", "write"), ("b", "write")]);
    take(&mut course, [Entry::Unanswered { words: String::new() }]);
    let mut waiting = course.into_done().expect("over").waiting.expect("waits");
    let by_ada = |verdict| Decision { verdict, by: "Ada".to_owned(), reason: None, who: None };
    waiting.asks[0].decision = verdict.map(by_ada);
    waiting.asks[1].decision = Some(by_ada(Verdict::Denied));
    waiting
}

#[test]
fn a_call_that_was_denied_does_not_run_because_its_tool_may_always() {
    let mut events = Vec::new();
    let course = Course::new(setup(Some(denied_beside(Some(Verdict::Always))), TOOLS), &mut events);
    assert_eq!(to_run(&course).len(), 1);
    let results = events.iter().filter_map(|event| match event {
        ChatEvent::CallFinished { result, .. } => Some(result.content.text()),
        _ => None,
    });
    let results: Vec<String> = results.collect();
    assert!(matches!(&results[..], [one] if one.contains("denied by Ada")), "{results:?}");
}

#[test]
fn a_no_stands_where_the_tool_does_not_ask_any_more() {
    let milder = &[("read", Approval::Auto), ("write", Approval::Auto)];
    for verdict in [Verdict::Denied, Verdict::Expired] {
        let mut waiting = denied_beside(None);
        waiting.asks[1].decision = Some(Decision { verdict, by: "Ada".to_owned(), reason: None, who: None });
        let mut events = Vec::new();
        let course = Course::new(setup(Some(waiting), milder), &mut events);
        assert_eq!(to_run(&course).len(), 1, "{verdict:?}");
        let told = events.iter().filter(|event| matches!(event, ChatEvent::CallFinished { .. })).count();
        assert_eq!(told, 1, "{verdict:?}");
    }
}

#[test]
fn a_yes_for_one_tool_is_none_for_another() {
    let mut course = asking(&[("b", "write")]);
    take(&mut course, [Entry::Unanswered { words: String::new() }]);
    let mut waiting = course.into_done().expect("over").waiting.expect("waits");
    waiting.asks[0].tool.name = "other".into();
    waiting.asks[0].decision =
        Some(Decision { verdict: Verdict::Approved, by: "Ada".to_owned(), reason: None, who: None });
    let course = Course::new(setup(Some(waiting), TOOLS), &mut Vec::new());
    assert_eq!(open(&course).len(), 1);
}

#[test]
fn a_turn_that_is_stopped_while_a_person_is_asked_ran_nothing() {
    let mut course = asking(&[("a", "read"), ("b", "write")]);
    take(&mut course, [Entry::Stopped]);
    let done = course.into_done().expect("over");
    let results: Vec<&ToolResult> = done
        .said
        .iter()
        .filter_map(|said| match said {
            Message::Tool(result) => Some(result),
            _ => None,
        })
        .collect();
    assert_eq!(results.len(), 2);
    assert!(results.iter().all(|result| result.content.text().contains("before this call was run")));
}
