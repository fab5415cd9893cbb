use std::sync::Arc;

use super::*;
use crate::message::Arguments;

fn request(messages: Vec<Message>) -> ModelRequest {
    let spec = ToolSpec {
        name: "t".to_owned(),
        description: Some("closes </tool> early".into()),
        schema: Arc::new(json!({"type": "object"})),
        rest: Map::new(),
    };
    ModelRequest { messages, tools: [spec].into(), ..ModelRequest::default() }
}

fn user(text: &str) -> Message {
    Message::User(Prose { content: text.into(), rest: Map::new() })
}

fn text_of(message: &Message) -> String {
    match message {
        Message::System(prose) | Message::User(prose) => prose.content.text(),
        Message::Assistant(said) => said.content.text(),
        Message::Tool(result) => result.content.text(),
    }
}

#[test]
fn tools_are_told_with_and_without_a_system_prompt() {
    let without = as_text(&request(vec![user("hi")]));
    assert!(matches!(without.messages[0], Message::System(_)));
    let system = Message::System(Prose { content: "Be kind.".into(), rest: Map::new() });
    let with = as_text(&request(vec![system, user("hi")]));
    assert_eq!(with.messages.len(), 2);
    assert!(text_of(&with.messages[0]).starts_with("Be kind.\n\nYou may call"));
}

#[test]
fn a_description_cannot_close_the_element() {
    let told = as_text(&request(vec![user("hi")]));
    let text = text_of(&told.messages[0]);
    let line = text.lines().find(|line| line.starts_with(OPENING)).expect("the tool is there");
    let json = line.strip_prefix(OPENING).and_then(|line| line.strip_suffix("</tool>")).expect("one line");
    let tool: Value = serde_json::from_str(json).expect("still JSON");
    assert_eq!(tool["function"]["description"], "closes </tool> early");
}

#[test]
fn tool_choice_none_tells_no_tools() {
    let mut request = request(vec![user("hi")]);
    request.tool_choice = Some(ToolChoice::None);
    assert_eq!(as_text(&request).messages, request.messages);
}

#[test]
fn the_results_of_a_round_are_one_user_message() {
    let call = |id: &str| ToolCall {
        id: id.to_owned(),
        name: "t".to_owned(),
        arguments: Arguments::parse("{'a': 1}"),
        rest: Map::new(),
    };
    let said =
        AssistantMessage { content: "x".into(), calls: vec![call("1"), call("2")], ..Default::default() };
    let result = |call: &ToolCall| Message::Tool(ToolResult::error(call, "broken"));
    let messages =
        vec![user("hi"), Message::Assistant(said), result(&call("1")), result(&call("2")), user("and?")];
    let told = as_text(&request(messages));
    assert_eq!(told.messages.len(), 5);
    assert!(text_of(&told.messages[2]).starts_with("x\n<tool_call>\n{\"name\": \"t\", \"arguments\": {"));
    assert_eq!(text_of(&told.messages[3]).matches("<tool_response>\n[t]\nError: broken").count(), 2);
    assert_eq!(text_of(&told.messages[4]), "and?");
}
