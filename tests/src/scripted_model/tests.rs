use serde_json::json;

use super::check::{problems, resolve, rounds_so_far};
use super::{End, Reply, ScriptedModel};
use crate::client::{assemble, chat, post, stream, streamed_chat};

#[test]
fn a_result_without_its_call_is_a_problem() {
    let request = json!({"model": "m", "messages": [
        {"role": "user", "content": "hi"},
        {"role": "tool", "tool_call_id": "a", "content": "x"},
    ]});
    assert_eq!(problems(&request), ["message 1 answers `a`, which is not an open call"]);
}

#[test]
fn a_call_without_its_result_is_a_problem() {
    let call = json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let request = json!({"model": "m", "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "user", "content": "so?"},
    ]});
    assert_eq!(problems(&request), [r#"message 2 comes before the results of ["a"]"#]);
}

#[test]
fn names_and_choices_are_held_to_the_rules_of_the_api() {
    let tool = json!({"type": "function", "function": {"name": "a.b", "parameters": {"type": "object"}}});
    let request = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [tool]});
    let problems = problems(&request);
    assert!(problems[0].starts_with("this is no tool"), "{problems:?}");
    assert!(problems[1].starts_with("the parameters of `a.b`"), "{problems:?}");
}

#[test]
fn a_suffix_stands_for_the_one_tool_that_ends_so() {
    let tools = json!([{"function": {"name": "fs__read"}}, {"function": {"name": "fs__write"}}]);
    assert_eq!(resolve("~read", &json!({"tools": tools})), "fs__read");
    let prompt = "<tools>\n<tool>{\"function\": {\"name\": \"x.y\"}}</tool>\n</tools>";
    assert_eq!(resolve("~y", &json!({"messages": [{"role": "system", "content": prompt}]})), "x.y");
}

#[test]
fn rounds_are_counted_from_the_last_user_message() {
    let messages = json!([
        {"role": "user"}, {"role": "assistant"}, {"role": "user"}, {"role": "assistant"}, {"role": "tool"},
    ]);
    assert_eq!(rounds_so_far(&json!({"messages": messages})), 1);
}

#[test]
fn an_answer_comes_in_pieces_or_whole_as_it_is_asked_for() {
    let reply = || Reply::call("a", "f", json!({"n": 1})).pieces(2).usage(3, 4);
    let model = ScriptedModel::start([reply(), reply()]);
    let url = format!("{}/chat/completions", model.base_url());
    let streamed = assemble(&stream(&url, &streamed_chat("hi")).rest());
    assert_eq!(streamed.finish_reasons, ["tool_calls"]);
    let arguments: String =
        streamed.calls.iter().filter_map(|call| call["function"]["arguments"].as_str()).collect();
    assert_eq!(arguments, r#"{"n":1}"#);
    assert_eq!(streamed.usage.unwrap()["total_tokens"], 7);
    let whole = post(&url, &chat("hi")).ok();
    assert_eq!(whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], r#"{"n":1}"#);
    model.finish();
}

#[test]
fn a_cut_answer_has_no_end_and_a_client_that_leaves_is_noticed() {
    let model = ScriptedModel::start([
        Reply::text("never whole").pieces(5).end(End::CutAfter(2)),
        Reply::text("never whole").pieces(5).end(End::SilentAfter(2)),
    ]);
    let url = format!("{}/chat/completions", model.base_url());
    let cut = assemble(&stream(&url, &streamed_chat("hi")).rest());
    assert_eq!((cut.text.as_str(), cut.done), ("never", false));
    assert_eq!(model.aborted(), 0);
    let mut silent = stream(&url, &streamed_chat("hi"));
    silent.until("the first piece", |event| event["choices"][0]["delta"]["content"] == "never");
    drop(silent);
    model.wait_for_abort();
    model.finish();
}
