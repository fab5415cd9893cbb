//! The prompt-based strategy: tools told in the system prompt, calls and results told as text.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::message::{AssistantMessage, Content, Message, Part, Prose, ToolCall, ToolResult};
use crate::model::{ModelRequest, ToolChoice, ToolSpec};

/// Starts the line of each tool in the system prompt.
pub const OPENING: &str = "<tool>";

/// The request as a model without native tool calling understands it. Nothing of `request` is changed but what
/// concerns tools: the first system message (or a new one) gets the tools, calls and results become text.
pub fn as_text(request: &ModelRequest) -> ModelRequest {
    let mut messages = messages_as_text(&request.messages);
    let offered =
        request.tool_choice != Some(ToolChoice::None) && !request.tools.iter().all(ToolSpec::is_native);
    if offered {
        add_to_system(&mut messages, &instructions(&request.tools, request.tool_choice.as_ref()));
    }
    let mut parameters = request.parameters.clone();
    parameters.remove("parallel_tool_calls");
    ModelRequest { messages, tools: [].into(), tool_choice: None, parameters, stream: request.stream }
}

/// What the system prompt says about the tools.
fn instructions(tools: &[ToolSpec], choice: Option<&ToolChoice>) -> String {
    let mut text = String::from(
        "You may call one or more tools to assist with the user query.\n\
         You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n",
    );
    for tool in tools.iter().filter(|tool| !tool.is_native()) {
        let function = json!({
            "name": tool.name,
            "description": tool.description.as_deref().unwrap_or_default(),
            "parameters": &*tool.schema,
        });
        let line = json!({"type": "function", "function": function}).to_string();
        // `<\/` is the same JSON string, and a description cannot close the element
        let _ = writeln!(text, "{OPENING}{}</tool>", line.replace("</", "<\\/"));
    }
    text.push_str(
        "</tools>\nFor each tool call, return a json object with function name and arguments within \
         <tool_call></tool_call> XML tags:\n<tool_call>\n\
         {\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>\n\
         If a tool does not exist in the provided list of tools, tell the user that you cannot do it.",
    );
    match choice {
        Some(ToolChoice::Required) => text.push_str("\nAnswer this message with at least one tool call."),
        Some(ToolChoice::Tool(name)) => {
            let _ = write!(text, "\nAnswer this message with a call of the tool `{name}`.");
        }
        _ => {}
    }
    text
}

fn add_to_system(messages: &mut Vec<Message>, instructions: &str) {
    let first = messages.iter_mut().find_map(|message| match message {
        Message::System(prose) => Some(prose),
        _ => None,
    });
    match first.map(|prose| &mut prose.content) {
        Some(Content::Text(text)) => {
            if !text.is_empty() {
                text.push_str("\n\n");
            }
            text.push_str(instructions);
        }
        Some(Content::Parts(parts)) => parts.push(Part::Text(format!("\n\n{instructions}"))),
        None => messages.insert(0, Message::System(Prose { content: instructions.into(), rest: Map::new() })),
    }
}

fn messages_as_text(messages: &[Message]) -> Vec<Message> {
    let mut told: Vec<Message> = Vec::with_capacity(messages.len());
    let mut answering = false;
    for message in messages {
        match message {
            Message::Tool(result) => {
                let text = result_as_text(result);
                match told.last_mut() {
                    // the results of one round are one user message: templates want the roles to alternate
                    Some(Message::User(prose)) if answering => append(&mut prose.content, text),
                    _ => told.push(Message::User(Prose { content: text, rest: Map::new() })),
                }
                answering = true;
                continue;
            }
            Message::Assistant(message) if !message.calls.is_empty() => told.push(calls_as_text(message)),
            other => told.push(other.clone()),
        }
        answering = false;
    }
    told
}

fn append(content: &mut Content, more: Content) {
    match (content, more) {
        (Content::Text(text), Content::Text(more)) => {
            text.push('\n');
            text.push_str(&more);
        }
        (content, more) => {
            let mut parts = into_parts(std::mem::take(content));
            parts.extend(into_parts(more));
            *content = Content::Parts(parts);
        }
    }
}

fn into_parts(content: Content) -> Vec<Part> {
    match content {
        Content::Text(text) => vec![Part::Text(text)],
        Content::Parts(parts) => parts,
    }
}

fn calls_as_text(message: &AssistantMessage) -> Message {
    let mut text = message.content.text();
    for call in &message.calls {
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = write!(text, "<tool_call>\n{}\n</tool_call>", call_as_json(call));
    }
    Message::Assistant(AssistantMessage {
        content: text.into(),
        reasoning: message.reasoning.clone(),
        calls: Vec::new(),
        rest: message.rest.clone(),
    })
}

fn call_as_json(call: &ToolCall) -> String {
    let name = Value::String(call.name.clone());
    format!("{{\"name\": {name}, \"arguments\": {}}}", call.arguments.for_replay())
}

fn result_as_text(result: &ToolResult) -> Content {
    let mut head = String::from("<tool_response>\n");
    if let Some(name) = &result.name {
        let _ = writeln!(head, "[{name}]");
    }
    if result.is_error {
        head.push_str("Error: ");
    }
    match &result.content {
        Content::Text(text) => Content::Text(format!("{head}{text}\n</tool_response>")),
        Content::Parts(parts) => {
            let mut told = vec![Part::Text(head)];
            told.extend(parts.iter().cloned());
            told.push(Part::Text("\n</tool_response>".to_owned()));
            Content::Parts(told)
        }
    }
}

#[cfg(test)]
mod tests;
