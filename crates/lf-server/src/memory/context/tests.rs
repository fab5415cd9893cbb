use lf_core::message::{Arguments, ToolCall};
use lf_store::Kind;
use serde_json::Map;

use super::*;

fn user(text: &str) -> Message {
    Message::User(Prose { content: text.into(), ..Prose::default() })
}

fn assistant(text: &str) -> Message {
    Message::Assistant(AssistantMessage { content: text.into(), ..AssistantMessage::default() })
}

fn calling(text: &str, ids: &[&str]) -> Message {
    let calls = ids.iter().map(|id| ToolCall {
        id: (*id).to_owned(),
        name: "look".to_owned(),
        arguments: Arguments::parse("{}"),
        rest: Map::new(),
    });
    let content = text.into();
    Message::Assistant(AssistantMessage { content, calls: calls.collect(), ..AssistantMessage::default() })
}

fn result(id: &str) -> Message {
    Message::Tool(ToolResult::new(id, "seen"))
}

fn kept(messages: &[Message]) -> Vec<Kept> {
    let kept = messages.iter().zip(1..).map(|(message, seq)| Kept {
        id: format!("msg-{seq}"),
        seq,
        created: 0,
        turn: None,
        message: message.clone(),
    });
    kept.collect()
}

fn conversation(system: Option<&str>) -> Conversation {
    Conversation {
        id: "c".to_owned(),
        scope: "a/b".to_owned(),
        kind: Kind::Conversation,
        title: None,
        system: system.map(str::to_owned),
        model: None,
        created: 0,
        updated: 0,
    }
}

#[test]
fn a_client_that_sends_all_that_was_said_does_not_double_it() {
    let before = kept(&[
        user("hi"),
        calling("", &["a"]),
        result("a"),
        assistant("hello"),
        user("and?"),
        assistant("so"),
    ]);
    let transcript = [user("hi"), assistant("hello"), user("and?"), assistant("so"), user("more")];
    assert_eq!(unsaid(&before, transcript.to_vec()), [user("more")]);
    assert_eq!(unsaid(&before, vec![user("more")]), [user("more")]);
    assert_eq!(unsaid(&before, vec![user("hi")]), [user("hi")], "said again on purpose");
    let edited = [user("hi!"), assistant("hello"), user("more")];
    assert_eq!(unsaid(&before, edited.to_vec()), [user("more")]);
    assert_eq!(unsaid(&[], transcript.to_vec()), transcript);
}

#[test]
fn an_answer_of_several_rounds_is_one_message_for_its_client() {
    let before = kept(&[user("hi"), calling("Let me look.", &["a"]), result("a"), assistant("It is red.")]);
    let transcript = vec![user("hi"), assistant("Let me look.\n\nIt is red."), user("thanks")];
    assert_eq!(unsaid(&before, transcript), [user("thanks")]);
}

#[test]
fn the_oldest_exchanges_are_left_out_whole() {
    let long = "x".repeat(1000);
    let said = [
        user(&format!("one {long}")),
        calling("", &["a"]),
        result("a"),
        assistant("1"),
        user(&format!("two {long}")),
        assistant("2"),
        user("three"),
        calling("", &["b"]),
        result("b"),
        assistant("3"),
    ];
    let shown = |budget| {
        let shown = window(&conversation(Some("Be kind.")), &[], &kept(&said), &[user("four")], budget);
        assert!(matches!(&shown[0], Message::System(system) if system.content.text() == "Be kind."));
        lf_core::turn::check_answers(&shown).unwrap();
        assert_eq!(shown.last(), Some(&user("four")));
        shown.len() - 2
    };
    assert_eq!(shown(1_000_000), 10);
    assert_eq!(shown(5_000), 6);
    assert_eq!(shown(3_000), 4);
    assert_eq!(shown(0), 0);
}

#[test]
fn a_call_without_its_result_and_a_result_without_its_call_are_not_shown() {
    let said = [
        user("hi"),
        calling("Looking.", &["a", "b"]),
        result("b"),
        result("c"),
        calling("", &["d"]),
        user("and?"),
    ];
    let shown = window(&conversation(None), &[], &kept(&said), &[], 1_000_000);
    assert_eq!(shown, [user("hi"), calling("Looking.", &["b"]), result("b"), user("and?")]);
}

#[test]
fn the_results_of_a_clients_own_calls_join_what_the_server_did() {
    let before = kept(&[user("hi"), calling("", &["mine", "yours"]), result("mine")]);
    let transcript = vec![user("hi"), calling("", &["yours"]), result("yours"), user("quick")];
    let new = unsaid(&before, transcript);
    assert_eq!(new, [result("yours"), user("quick")]);
    let shown = window(&conversation(None), &[], &before, &new, 0);
    lf_core::turn::check_answers(&shown).unwrap();
    assert_eq!(shown.len(), 5, "the round is shown, however small the room: {shown:?}");
}

#[test]
fn calls_and_results_that_are_sent_again_are_not_doubled() {
    let request = vec![user("hi"), calling("", &["a"]), result("a")];
    // the turn with the result failed, at once or after a round of the server's
    let mut before = kept(&request);
    assert_eq!(unsaid(&before, request.clone()), []);
    assert_eq!(unsaid(&before, request[2..].to_vec()), []);
    let with_more = [&request[..], &[user("quick")]].concat();
    assert_eq!(unsaid(&before, with_more), [user("quick")]);
    let shown = window(&conversation(None), &[], &before, &[], 0);
    assert_eq!(shown, request, "it goes on from there, however small the room");
    before.extend(kept(&[calling("", &["own"]), result("own")]));
    assert_eq!(unsaid(&before, request.clone()), []);
    // the answer was lost on its way: the question is asked again, and what was done for it is known
    before.extend(kept(&[assistant("so")]));
    assert_eq!(unsaid(&before, request), [user("hi")]);
}

#[test]
fn an_id_that_an_upstream_uses_again_is_of_its_last_call() {
    let before = [user("hi"), calling("", &["0"]), result("0"), calling("", &["0"])];
    let transcript = [&before[..], &[result("0")]].concat();
    assert_eq!(unsaid(&kept(&before), transcript), [result("0")]);
    assert_eq!(unsaid(&kept(&before), vec![result("0")]), [result("0")]);
}

#[test]
fn what_was_not_answered_and_is_said_again_is_meant_once() {
    let said = |words: &str| -> Vec<Message> { words.split_whitespace().map(user).collect() };
    let repeats = |before: &str, now: &str| repeated(&kept(&said(before)), &said(now));
    assert_eq!(repeats("one", "one"), 1);
    assert_eq!(repeats("one two", "two"), 1);
    assert_eq!(repeats("one two", "one two"), 2);
    assert_eq!(repeats("one", "two"), 0);
    assert_eq!(repeats("", "one"), 0);
    let answered = kept(&[user("one"), assistant("yes")]);
    assert_eq!(repeated(&answered, &said("one")), 0);
}
