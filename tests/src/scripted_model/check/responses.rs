//! OpenAI Responses. Nothing is stored here: every request must tell the whole history.

use std::collections::HashSet;

use serde_json::Value;

use super::{content_text, declarations, list, parsed, text};
use crate::scripted_model::asked::{Asked, Called, Said, Tool};
use crate::scripted_model::memory::{is_ours, seal};

/// Tools that the API runs itself: nothing of them is called here.
const HOSTED: [&str; 1] = ["web_search"];

pub(super) fn read(request: &Value, problems: &mut Vec<String>) -> Asked {
    for key in ["previous_response_id", "conversation", "messages"] {
        if !request[key].is_null() {
            problems.push(format!("`{key}` is {}", request[key]));
        }
    }
    let system = text(&request["instructions"]);
    let mut asked = Asked {
        model: text(&request["model"]),
        stream: request["stream"] == true,
        tools: declarations(request, problems)
            .iter()
            .filter(|tool| !HOSTED.iter().any(|kind| tool["type"] == *kind))
            .map(|tool| declared(tool, problems))
            .collect(),
        system: system.clone(),
        ..Asked::default()
    };
    if !system.is_empty() {
        asked.history.push(Said::System(system));
    }
    if let Value::String(text) = &request["input"] {
        asked.history.push(Said::User(text.clone()));
    }
    let items = list(&request["input"]);
    ids_are_unique(items, problems);
    let mut sealed = None;
    for (number, item) in items.iter().enumerate() {
        match item["type"].as_str().unwrap_or("message") {
            "message" => message(number, item, &mut asked, problems),
            "reasoning" => {
                sealed = Some(reasoning(number, item, items.get(number + 1), problems));
                answer(&mut asked.history);
            }
            "function_call" => {
                if !item["arguments"].is_string() {
                    problems.push(format!("item {number}: the arguments are no text"));
                }
                let call = Called {
                    id: text(&item["call_id"]),
                    name: text(&item["name"]),
                    arguments: parsed(&item["arguments"]),
                    seal: sealed.clone(),
                };
                answer(&mut asked.history).1.push(call);
            }
            "function_call_output" => {
                if item["output"].is_null() {
                    problems.push(format!("item {number}: a result without output"));
                }
                let output = content_text(&item["output"]);
                asked.history.push(Said::Result { id: text(&item["call_id"]), text: output });
            }
            other => problems.push(format!("item {number} is a `{other}`")),
        }
    }
    asked
}

fn declared(tool: &Value, problems: &mut Vec<String>) -> Tool {
    if tool["type"] != "function" {
        problems.push(format!("this is no tool: {tool}"));
    }
    // Absent means true here, other than in Chat Completions, and changes what the schema means.
    if tool.get("strict").is_none() {
        problems.push(format!("the tool {} does not say whether it is `strict`", tool["name"]));
    }
    if tool["strict"] == true && tool["parameters"]["additionalProperties"] != false {
        problems.push(format!("the tool {} is `strict`, its schema is not", tool["name"]));
    }
    Tool { name: text(&tool["name"]), schema: tool["parameters"].clone() }
}

/// Each item has an id of its own, where it has one.
fn ids_are_unique(items: &[Value], problems: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for id in items.iter().filter_map(|item| item["id"].as_str()) {
        if !seen.insert(id) {
            problems.push(format!("two items have the id `{id}`"));
        }
    }
}

fn message(number: usize, item: &Value, asked: &mut Asked, problems: &mut Vec<String>) {
    let content = content_text(&item["content"]);
    let role = item["role"].as_str().unwrap_or_default();
    let part = if role == "assistant" { "output_text" } else { "input_text" };
    for found in list(&item["content"]).iter().filter_map(|part| part["type"].as_str()) {
        if found.ends_with("_text") && found != part {
            problems.push(format!("item {number} of `{role}` has a part of the type `{found}`"));
        }
    }
    match role {
        "user" => asked.history.push(Said::User(content)),
        "assistant" => answer(&mut asked.history).0.push_str(&content),
        "system" | "developer" => {
            asked.system.push_str(&content);
            asked.history.push(Said::System(content));
        }
        _ => problems.push(format!("item {number} has the role `{role}`")),
    }
}

/// The seal of a reasoning item.
fn reasoning(number: usize, item: &Value, next: Option<&Value>, problems: &mut Vec<String>) -> String {
    let sealed = text(&item["encrypted_content"]);
    if sealed.is_empty() {
        problems.push(format!("item {number}: reasoning without `encrypted_content`, and nothing is stored"));
    }
    if !item["summary"].is_array() {
        problems.push(format!("item {number}: reasoning without `summary`"));
    }
    let summary = content_text(&item["summary"]);
    if is_ours(&sealed) && sealed != seal(&summary) {
        problems.push(format!("item {number} has reasoning that was changed: {item}"));
    }
    let follows = next.is_some_and(|next| next["type"] == "function_call" || next["role"] == "assistant");
    if !follows {
        problems.push(format!("item {number}: reasoning without the item that follows it"));
    }
    sealed
}

/// The answer that the history ends with, begun where there is none.
fn answer(history: &mut Vec<Said>) -> (&mut String, &mut Vec<Called>) {
    if !matches!(history.last(), Some(Said::Assistant { .. })) {
        history.push(Said::Assistant { text: String::new(), calls: Vec::new() });
    }
    match history.last_mut() {
        Some(Said::Assistant { text, calls }) => (text, calls),
        _ => unreachable!("pushed above"),
    }
}
