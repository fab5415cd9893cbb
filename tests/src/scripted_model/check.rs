//! What every request to a model must keep to, whatever the test is about: the rules of all APIs here, those of one
//! API in its own file.

pub(super) mod chat;
mod gemini;
mod messages;
mod ollama;
mod responses;

use std::collections::HashSet;

use axum::http::HeaderMap;
use serde_json::Value;

use super::asked::{Asked, Called, Said, Tool};
use super::wire::Wire;

/// A request as it came in.
pub(super) struct Raw<'a> {
    /// With the query.
    pub path: &'a str,
    pub headers: &'a HeaderMap,
    pub body: &'a Value,
}

/// Reads a request, and everything that is wrong with it.
pub(super) fn read(wire: Wire, raw: &Raw<'_>) -> (Asked, Vec<String>) {
    let mut problems = Vec::new();
    let asked = match wire {
        Wire::Chat => chat::read(raw.body, &mut problems),
        Wire::Responses => responses::read(raw.body, &mut problems),
        Wire::Messages => messages::read(raw, &mut problems),
        Wire::Gemini => gemini::read(raw, &mut problems),
        Wire::Ollama => ollama::read(raw.body, &mut problems),
    };
    if asked.history.is_empty() {
        problems.push(format!("no messages: {}", raw.body));
    }
    history_in_order(&asked.history, &mut problems);
    tools_are_well_formed(wire, &asked.tools, &mut problems);
    if asked.model.is_empty() {
        problems.push("no model".to_owned());
    }
    (asked, problems)
}

/// Each result answers exactly one call of the answer before it; each call has one result.
fn history_in_order(history: &[Said], problems: &mut Vec<String>) {
    let mut open: Vec<&str> = Vec::new();
    let mut seen: HashSet<&str> = HashSet::new();
    for (number, said) in history.iter().enumerate() {
        if let Said::Result { id, .. } = said {
            match open.iter().position(|call| call == id) {
                Some(at) => {
                    open.remove(at);
                }
                None => problems.push(format!("message {number} answers `{id}`, which is not an open call")),
            }
            continue;
        }
        if !open.is_empty() {
            problems.push(format!("message {number} comes before the results of {open:?}"));
            open.clear();
        }
        let Said::Assistant { calls, .. } = said else { continue };
        for call in calls {
            call_is_well_formed(number, call, problems);
            if call.id.is_empty() || !seen.insert(&call.id) {
                problems.push(format!("message {number}: the call id `{}` is empty or taken", call.id));
            }
            open.push(&call.id);
        }
    }
    if !open.is_empty() {
        problems.push(format!("the calls {open:?} have no result"));
    }
}

fn call_is_well_formed(number: usize, call: &Called, problems: &mut Vec<String>) {
    let Called { name, arguments, .. } = call;
    if !is_name(name) {
        problems.push(format!("message {number} calls `{name}`, which is no name for a tool"));
    }
    if !arguments.is_object() {
        problems.push(format!("message {number}: the arguments of `{name}` are no object: {arguments}"));
    }
}

fn tools_are_well_formed(wire: Wire, tools: &[Tool], problems: &mut Vec<String>) {
    let mut names = HashSet::new();
    for Tool { name, schema } in tools {
        if !is_name(name) {
            problems.push(format!("this is no tool: `{name}`"));
        }
        if !names.insert(name) {
            problems.push(format!("two tools are named `{name}`"));
        }
        // Gemini wants no schema at all rather than that of an object without members.
        let absent = wire == Wire::Gemini && schema.is_null();
        if !absent && (schema["type"] != "object" || !schema["properties"].is_object()) {
            problems.push(format!("the parameters of `{name}` are no schema of an object: {schema}"));
        }
    }
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// A text field; empty where there is none.
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The elements of a list; none where there is no list.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Content as text: a string, the texts of its parts, or the JSON of what is neither.
fn content_text(content: &Value) -> String {
    match content {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) if parts.iter().all(|part| part["text"].is_string()) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect()
        }
        other => other.to_string(),
    }
}

/// Arguments that are sent as text.
fn parsed(arguments: &Value) -> Value {
    let text = arguments.as_str().unwrap_or_default();
    serde_json::from_str(text).unwrap_or_else(|_| arguments.clone())
}

/// The declarations in `tools`, which is either absent or not empty.
fn declarations<'a>(request: &'a Value, problems: &mut Vec<String>) -> &'a [Value] {
    match &request["tools"] {
        Value::Null => {
            if !request["tool_choice"].is_null() {
                problems.push("`tool_choice` without `tools`".to_owned());
            }
            &[]
        }
        Value::Array(tools) if !tools.is_empty() => tools,
        other => {
            problems.push(format!("`tools` is {other}"));
            &[]
        }
    }
}
