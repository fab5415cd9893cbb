//! What every request to a model must keep to, whatever the test is about.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// Everything that is wrong with a chat request.
pub(super) fn problems(request: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    match request["messages"].as_array() {
        Some(messages) if !messages.is_empty() => messages_in_order(messages, &mut problems),
        _ => problems.push(format!("no messages: {request}")),
    }
    tools_are_well_formed(request, &mut problems);
    if !request["model"].is_string() {
        problems.push("no model".to_owned());
    }
    problems
}

/// Each result answers exactly one call of the assistant message before it; each call has one result.
fn messages_in_order(messages: &[Value], problems: &mut Vec<String>) {
    let mut open: Vec<&str> = Vec::new();
    let mut seen: HashSet<&str> = HashSet::new();
    for (number, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            match open.iter().position(|call| *call == id) {
                Some(at) => {
                    open.remove(at);
                }
                None => problems.push(format!("message {number} answers `{id}`, which is not an open call")),
            }
            if message["content"].is_null() {
                problems.push(format!("message {number}: a result without content"));
            }
            continue;
        }
        if !open.is_empty() {
            problems.push(format!("message {number} comes before the results of {open:?}"));
            open.clear();
        }
        if !["system", "developer", "user", "assistant"].contains(&role) {
            problems.push(format!("message {number} has the role `{role}`"));
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            call_is_well_formed(number, call, problems);
            let id = call["id"].as_str().unwrap_or_default();
            if id.is_empty() || !seen.insert(id) {
                problems.push(format!("message {number}: the call id `{id}` is empty or taken"));
            }
            open.push(id);
        }
    }
    if !open.is_empty() {
        problems.push(format!("the calls {open:?} have no result"));
    }
}

fn call_is_well_formed(number: usize, call: &Value, problems: &mut Vec<String>) {
    let name = call["function"]["name"].as_str().unwrap_or_default();
    if !is_name(name) {
        problems.push(format!("message {number} calls `{name}`, which is no name for a tool"));
    }
    let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
    if serde_json::from_str::<Map<String, Value>>(arguments).is_err() {
        problems.push(format!("message {number}: the arguments of `{name}` are no object: {arguments}"));
    }
    if call["type"] != "function" {
        problems.push(format!("message {number}: a call without its type"));
    }
}

fn tools_are_well_formed(request: &Value, problems: &mut Vec<String>) {
    let tools = match &request["tools"] {
        Value::Null => {
            if !request["tool_choice"].is_null() {
                problems.push("`tool_choice` without `tools`".to_owned());
            }
            return;
        }
        Value::Array(tools) if !tools.is_empty() => tools,
        other => {
            problems.push(format!("`tools` is {other}"));
            return;
        }
    };
    let mut names = HashSet::new();
    for tool in tools {
        let name = tool["function"]["name"].as_str().unwrap_or_default();
        if tool["type"] != "function" || !is_name(name) {
            problems.push(format!("this is no tool: {tool}"));
        }
        if !names.insert(name) {
            problems.push(format!("two tools are named `{name}`"));
        }
        let parameters = &tool["function"]["parameters"];
        if parameters["type"] != "object" || !parameters["properties"].is_object() {
            problems.push(format!("the parameters of `{name}` are no schema of an object: {parameters}"));
        }
    }
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Names of the tools a request offers: through `tools`, or in `<tool>` tags of its system prompt.
pub fn offered_tools(request: &Value) -> Vec<String> {
    let native = request["tools"].as_array().map_or(&[][..], Vec::as_slice);
    let mut names: Vec<String> =
        native.iter().filter_map(|tool| tool["function"]["name"].as_str()).map(str::to_owned).collect();
    for message in request["messages"].as_array().map_or(&[][..], Vec::as_slice) {
        if message["role"] != "system" {
            continue;
        }
        let text = match &message["content"] {
            Value::String(text) => text.clone(),
            Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
            _ => continue,
        };
        for part in text.split("<tool>").skip(1) {
            let declaration = part.split("</tool>").next().unwrap_or_default();
            let tool: Value = serde_json::from_str(declaration.trim()).unwrap_or_default();
            names.extend(tool["function"]["name"].as_str().map(str::to_owned));
        }
    }
    names
}

/// Answers with calls since the last user message: which round of a turn this request asks for, from 0.
pub fn rounds_so_far(request: &Value) -> usize {
    let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let turn = messages.rsplit(|message| message["role"] == "user").next().unwrap_or_default();
    turn.iter().filter(|message| message["role"] == "assistant").count()
}

/// `~suffix` as the one offered tool that ends so; other names as they are.
pub(super) fn resolve(name: &str, request: &Value) -> String {
    let Some(suffix) = name.strip_prefix('~') else { return name.to_owned() };
    let offered = offered_tools(request);
    if offered.iter().any(|tool| tool == suffix) {
        return suffix.to_owned();
    }
    let matching: Vec<&String> = offered.iter().filter(|tool| tool.ends_with(suffix)).collect();
    match matching[..] {
        [tool] => tool.clone(),
        // Sent as written: the request that comes back with "unknown tool" says which names there were.
        _ => format!("no_single_tool_ends_with_{suffix}"),
    }
}
