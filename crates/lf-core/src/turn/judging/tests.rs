use std::time::Duration;

use crate::policy::Labels;
use serde_json::json;

use super::*;
use crate::ToolSet;
use crate::message::{Arguments, Prose};
use crate::model::{ModelDelta, ModelRequest};
use crate::policy::Label;
use crate::tool::{Catalogue, ToolContent, ToolError, ToolOutput};
use crate::turn::{Course, Decision, Entry, Setup, Verdict, Waiting};

fn setup(messages: Vec<Message>) -> Setup {
    let tools = [("read", Label::Private), ("browse", Label::Untrusted), ("send", Label::Egress)];
    let tools = tools.map(|(name, label)| {
        let id = ToolRef { server: "disk".into(), name: name.into() };
        Tool {
            labels: [label].into_iter().collect(),
            ..Tool::new(id, None, json!({"type": "object"}).into())
        }
    });
    let catalogue = Catalogue { tools: tools.to_vec(), ..Catalogue::default() };
    let request = ModelRequest { messages, ..ModelRequest::default() };
    let set = ToolSet::new(&catalogue, &[], &[]);
    Setup { judged: true, ..Setup::new("0123456789abcdef0123456789abcdef", "m", request, set) }
}

fn begun(messages: Vec<Message>) -> Course {
    Course::new(setup(messages), &mut Vec::new())
}

fn hi() -> Vec<Message> {
    vec![Message::User(Prose { content: "hi".into(), rest: Map::new() })]
}

fn take(course: &mut Course, entries: impl IntoIterator<Item = Entry>) -> Vec<ChatEvent> {
    let mut events = Vec::new();
    for entry in entries {
        course.take(entry, &mut events).expect("it fits");
    }
    events
}

fn calls(tools: &[&str]) -> Vec<Entry> {
    let calls = tools.iter().enumerate().map(|(at, name)| {
        Entry::Delta(ModelDelta::Call(ToolCall {
            id: format!("{name}{at}"),
            name: format!("disk__{name}"),
            arguments: Arguments::parse(format!(r#"{{"at": {at}, "to": "{name}"}}"#)),
            rest: Map::new(),
        }))
    });
    calls.chain([Entry::Answered]).collect()
}

fn judged(verdicts: &[(usize, Approval)]) -> Entry {
    let calls = verdicts.iter().map(|(call, verdict)| Judged {
        call: *call,
        verdict: *verdict,
        why: "so".to_owned(),
    });
    Entry::Judged { calls: calls.collect() }
}

fn ran(call: usize) -> [Entry; 2] {
    let content = vec![ToolContent::Text("ok".to_owned())];
    let outcome = Ok(ToolOutput { content, ..ToolOutput::default() });
    [
        Entry::Running { call },
        Entry::Settled { call, outcome, labels: Labels::default(), elapsed: Duration::ZERO },
    ]
}

fn standing(course: &Course) -> Vec<(usize, usize, Labels, bool)> {
    let standing = match course.step() {
        Step::Judge(judge) => judge.standing(),
        Step::RunTools(run) => run.standing(),
        _ => panic!("nothing is to run"),
    };
    standing.iter().map(|call| (call.index, call.earlier.len(), call.seen, call.is_approved)).collect()
}

fn of(labels: &[Label]) -> Labels {
    labels.iter().copied().collect()
}

#[test]
fn what_is_denied_is_answered_what_is_asked_waits_and_a_yes_is_remembered() {
    let mut course = begun(hi());
    take(&mut course, calls(&["read", "send", "browse"]));
    assert!(matches!(course.step(), Step::Judge(_)));
    let events = take(&mut course, [judged(&[(0, Approval::Deny), (1, Approval::Ask)])]);
    let Step::AskPerson(asking) = course.step() else { panic!("a person is asked") };
    let asks: Vec<_> =
        asking.asks().iter().map(|ask| (ask.call.id.clone(), ask.why.clone(), ask.id.clone())).collect();
    assert_eq!((asks.len(), asks[0].0.as_str(), asks[0].1.as_deref()), (1, "send1", Some("so")));
    assert_eq!(events.iter().filter(|event| matches!(event, ChatEvent::ApprovalNeeded(_))).count(), 1);
    let decision = Decision { verdict: Verdict::Approved, by: "Ada".to_owned(), reason: None, who: None };
    let events = take(&mut course, [Entry::Decided { approval: asks[0].2.clone(), decision }]);
    let denied = events.iter().find_map(|event| match event {
        ChatEvent::CallFinished { result, .. } => Some(result.content.text()),
        _ => None,
    });
    assert!(denied.is_some_and(|text| text.contains("was not run: so")));
    // the one that was denied is nothing that came before
    assert_eq!(standing(&course), [(1, 0, of(&[]), true), (2, 1, of(&[]), false)]);
}

#[test]
fn always_is_no_answer_to_a_rule() {
    let mut course = begun(hi());
    take(&mut course, calls(&["send", "send"]));
    take(&mut course, [judged(&[(0, Approval::Ask), (1, Approval::Ask)])]);
    let Step::AskPerson(asking) = course.step() else { panic!("a person is asked") };
    let first = asking.asks()[0].id.clone();
    let decision = Decision { verdict: Verdict::Always, by: "Ada".to_owned(), reason: None, who: None };
    take(&mut course, [Entry::Decided { approval: first, decision }]);
    let Step::AskPerson(asking) = course.step() else { panic!("the second one is asked about as well") };
    assert_eq!(asking.open().count(), 1);
}

#[test]
fn a_label_that_comes_while_a_call_runs_is_written_down_with_its_result() {
    let mut course = begun(hi());
    take(&mut course, calls(&["send"]));
    take(&mut course, [judged(&[])]);
    let labels = of(&[Label::Untrusted]);
    let settled = ran(0).into_iter().map(|entry| match entry {
        Entry::Settled { call, outcome, elapsed, .. } => Entry::Settled { call, outcome, labels, elapsed },
        entry => entry,
    });
    take(&mut course, settled.chain([Entry::Ran]));
    take(&mut course, [Entry::Delta(ModelDelta::Text("done".to_owned())), Entry::Answered]);
    let said = course.into_done().expect("it is over").said;
    assert_eq!(
        seen_in(said.iter()),
        of(&[Label::Untrusted, Label::Egress]),
        "besides those of its beginning"
    );
}

#[test]
fn a_turn_sees_what_its_finished_rounds_and_its_conversation_have_seen() {
    let mut course = begun(hi());
    take(&mut course, calls(&["read", "send"]));
    assert_eq!(
        standing(&course),
        [(0, 0, of(&[]), false), (1, 1, of(&[]), false)],
        "a round sees nothing of itself"
    );
    take(&mut course, [judged(&[])]);
    take(&mut course, ran(0).into_iter().chain(ran(1)).chain([Entry::Ran]));
    take(&mut course, calls(&["browse"]));
    assert_eq!(standing(&course), [(0, 2, of(&[Label::Private, Label::Egress]), false)]);
    take(&mut course, [judged(&[])]);
    take(&mut course, ran(0).into_iter().chain([Entry::Ran]));
    take(&mut course, [Entry::Delta(ModelDelta::Text("done".to_owned())), Entry::Answered]);
    let said = course.into_done().expect("it is over").said;
    assert_eq!(seen_in(said.iter()), of(&Label::ALL));

    let mut next = begun(hi().into_iter().chain(said.iter().cloned()).collect());
    take(&mut next, calls(&["send"]));
    assert_eq!(
        standing(&next),
        [(0, 0, of(&Label::ALL), false)],
        "calls of other turns are none of this one"
    );
    // what is kept of a message is what is known of it
    let kept = serde_json::to_string(&said).unwrap();
    let read: Vec<Message> = serde_json::from_str(&kept).unwrap();
    assert_eq!(seen_in(&read), of(&Label::ALL));
}

/// A turn that read mail and the web, whose `send` a rule wants asked, and that nobody attends.
fn left_unasked() -> (Waiting, String) {
    let mut course = begun(hi());
    take(&mut course, calls(&["read", "browse"]));
    take(&mut course, [judged(&[])]);
    take(&mut course, ran(0).into_iter().chain(ran(1)).chain([Entry::Ran]));
    take(&mut course, calls(&["send"]));
    take(&mut course, [judged(&[(0, Approval::Ask)])]);
    let Step::AskPerson(asking) = course.step() else { panic!("a person is asked") };
    let ask = asking.asks()[0].id.clone();
    take(&mut course, [Entry::Unanswered { words: "May it?".to_owned() }]);
    (course.into_done().expect("it is over").waiting.expect("it waits"), ask)
}

#[test]
fn what_a_rule_asked_and_nobody_decided_is_asked_though_the_rule_is_silent_now() {
    let (waiting, ask) = left_unasked();
    // the client keeps the conversation: nothing of what was seen is in it
    let mut next = Course::new(Setup { waiting: Some(waiting), ..setup(hi()) }, &mut Vec::new());
    take(&mut next, [judged(&[])]);
    let Step::AskPerson(asking) = next.step() else { panic!("a person is asked") };
    let asks: Vec<_> = asking.open().map(|ask| (ask.id.as_str(), ask.why.as_deref())).collect();
    assert_eq!(asks, [(ask.as_str(), Some("so"))]);
}

#[test]
fn what_was_seen_before_a_person_was_asked_counts_in_the_turn_that_goes_on() {
    let (mut waiting, _) = left_unasked();
    waiting = serde_json::from_str(&serde_json::to_string(&waiting).unwrap()).unwrap();
    waiting.asks[0].decision =
        Some(Decision { verdict: Verdict::Approved, by: "Ada".to_owned(), reason: None, who: None });
    let mut next = Course::new(Setup { waiting: Some(waiting), ..setup(hi()) }, &mut Vec::new());
    let both = of(&[Label::Private, Label::Untrusted]);
    assert_eq!(standing(&next), [(0, 0, both, false)]);
    take(&mut next, [judged(&[(0, Approval::Ask)])]);
    assert_eq!(standing(&next), [(0, 0, both, true)], "the yes of before counts");
    take(&mut next, ran(0).into_iter().chain([Entry::Ran]));
    take(&mut next, calls(&["send"]));
    assert_eq!(standing(&next), [(0, 1, of(&Label::ALL), false)], "and for no other call");
}

#[test]
fn a_call_whose_outcome_is_unknown_is_one_that_came_before() {
    let (server, tool) = ("disk".to_owned(), "send".to_owned());
    let reason = || "gone".to_owned();
    let outcomes = [
        (ToolError::Timeout { server: server.clone(), tool: tool.clone(), limit: Duration::ZERO }, 1),
        (ToolError::Lost { server: server.clone(), tool: tool.clone(), reason: reason() }, 1),
        (ToolError::TooLarge { tool: tool.clone(), limit: 1 }, 1),
        (ToolError::Refused { server: server.clone(), message: reason(), code: 1 }, 1),
        (ToolError::Denied { server: server.clone(), tool: tool.clone(), reason: reason() }, 0),
        (ToolError::Down { server: server.clone(), reason: reason() }, 0),
        (ToolError::UnknownTool { server, tool }, 0),
    ];
    for (error, before) in outcomes {
        let mut course = begun(hi());
        take(&mut course, calls(&["send"]));
        take(&mut course, [judged(&[])]);
        let told = error.to_string();
        let settled = Entry::Settled {
            call: 0,
            outcome: Err(error),
            labels: Labels::default(),
            elapsed: Duration::ZERO,
        };
        take(&mut course, [Entry::Running { call: 0 }, settled, Entry::Ran]);
        take(&mut course, calls(&["send"]));
        assert_eq!(standing(&course)[0].1, before, "{told}");
    }
}
