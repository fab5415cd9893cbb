use std::sync::Arc;

use lf_core::message::Prose;
use lf_core::model::ToolSpec;
use lf_core::{AssistantMessage, ToolResult};
use serde_json::json;

use super::wishes::{Wish, wishes};
use super::*;

fn spec(name: &str, properties: &Value, required: &Value) -> ToolSpec {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    ToolSpec { name: name.to_owned(), description: None, schema: Arc::new(schema), rest: Map::new() }
}

fn files() -> Vec<ToolSpec> {
    let path = json!({"path": {"type": "string"}});
    vec![
        spec("fs__list_allowed_directories", &json!({}), &json!([])),
        spec("fs__list_directory", &path, &json!(["path"])),
        spec("fs__read_text_file", &path, &json!(["path"])),
        spec("fs__search_files", &json!({"path": {}, "pattern": {}}), &json!(["path", "pattern"])),
        spec("ev__get-sum", &json!({"a": {"type": "number"}, "b": {"type": "number"}}), &json!(["a", "b"])),
    ]
}

fn user(text: &str) -> Message {
    Message::User(Prose { content: text.into(), rest: Map::new() })
}

fn said(messages: Vec<Message>, tools: Vec<ToolSpec>) -> (String, Vec<String>, FinishReason) {
    let request = ModelRequest { messages, tools: tools.into(), ..ModelRequest::default() };
    let mut text = String::new();
    let mut calls = Vec::new();
    let mut reason = None;
    for delta in answer(&request) {
        match delta {
            ModelDelta::Text(more) => text.push_str(&more),
            ModelDelta::Call(call) => calls.push(format!("{} {}", call.name, call.arguments.raw())),
            ModelDelta::Finish { reason: end, .. } => reason = Some(end),
            _ => {}
        }
    }
    (text, calls, reason.expect("every answer ends"))
}

#[test]
fn simple_requests_become_real_calls() {
    let cases = [
        ("What files are in my documents folder?", "fs__list_directory {\"path\":\".\"}"),
        ("list ./docs", "fs__list_directory {\"path\":\"./docs\"}"),
        ("read notes/a.txt", "fs__read_text_file {\"path\":\"notes/a.txt\"}"),
        ("What is in prices.txt?", "fs__read_text_file {\"path\":\"prices.txt\"}"),
        ("what is in docs", "fs__list_directory {\"path\":\"docs\"}"),
        ("search for llama in ./docs", "fs__search_files {\"pattern\":\"llama\",\"path\":\"./docs\"}"),
        ("search the files for \"two words\"", "fs__search_files {\"pattern\":\"two words\",\"path\":\".\"}"),
        ("what is 2 plus 3?", "ev__get-sum {\"a\":2.0,\"b\":3.0}"),
    ];
    for (question, call) in cases {
        let (_, calls, reason) = said(vec![user(question)], files());
        assert_eq!(calls, [call], "{question}");
        assert_eq!(reason, FinishReason::ToolCalls);
    }
}

#[test]
fn several_wishes_are_calls_of_one_round() {
    let (_, calls, _) = said(vec![user("list the files and read a.txt, then search for wool")], files());
    assert_eq!(calls.len(), 3, "{calls:?}");
}

#[test]
fn results_are_passed_on_with_the_sums_that_were_asked_for() {
    let call = ToolCall {
        id: "1".to_owned(),
        name: "fs__read_text_file".to_owned(),
        arguments: Arguments::parse("{}"),
        rest: Map::new(),
    };
    let mut result = ToolResult::error(&call, "one\ntwo");
    result.is_error = false;
    let history = vec![
        user("read a.txt and 12 * (3 + 4)"),
        Message::Assistant(AssistantMessage { calls: vec![call], ..Default::default() }),
        Message::Tool(result),
    ];
    let (text, calls, _) = said(history, files());
    assert!(calls.is_empty());
    assert!(text.contains("`fs__read_text_file` answered:\n\none\ntwo"), "{text}");
    assert!(text.contains("12 * (3 + 4) = 84"), "{text}");
}

#[test]
fn it_says_once_that_it_is_no_language_model() {
    let (first, _, _) = said(vec![user("hello")], Vec::new());
    assert!(first.contains("not a language model"), "{first}");
    let before = AssistantMessage { content: first.into(), ..Default::default() };
    let (second, _, _) = said(vec![user("hello"), Message::Assistant(before), user("1 + 1")], Vec::new());
    assert_eq!(second, "1 + 1 = 2");
}

#[test]
fn in_the_prompt_strategy_calls_are_written_as_text() {
    let mut request = ModelRequest {
        messages: vec![user("list the files")],
        tools: files().into(),
        ..ModelRequest::default()
    };
    request = lf_core::prompting::as_text(&request);
    let (text, calls, _) = said(request.messages, Vec::new());
    assert!(calls.is_empty());
    assert_eq!(
        text,
        "<tool_call>\n{\"name\":\"fs__list_directory\",\"arguments\":{\"path\":\".\"}}\n</tool_call>\n"
    );
}

#[test]
fn prose_is_no_sum_and_no_wish() {
    for text in ["I have 3 llamas", "meet me 10-12", "tell me a joke", "version 1.2 is out"] {
        assert_eq!(wishes(text).iter().filter(|wish| matches!(wish, Wish::Sum(_))).count(), 0, "{text}");
    }
}

#[test]
fn a_request_that_allows_no_tools_gets_words() {
    let request = ModelRequest {
        messages: vec![user("read a.txt")],
        tools: files().into(),
        tool_choice: Some(lf_core::ToolChoice::None),
        ..ModelRequest::default()
    };
    let deltas = answer(&request);
    assert!(deltas.iter().any(|delta| matches!(delta, ModelDelta::Text(_))), "{deltas:?}");
    assert!(!deltas.iter().any(|delta| matches!(delta, ModelDelta::Call(_))), "{deltas:?}");
}
