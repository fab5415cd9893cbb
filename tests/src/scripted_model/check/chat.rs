//! OpenAI Chat Completions.

use serde_json::Value;

use super::{content_text, declarations, list, parsed, text};
use crate::scripted_model::asked::{Asked, Called, Said, Tool};

pub(in crate::scripted_model) fn read(request: &Value, problems: &mut Vec<String>) -> Asked {
    let mut asked = Asked {
        model: text(&request["model"]),
        stream: request["stream"] == true,
        tools: declarations(request, problems).iter().map(|tool| declared(tool, problems)).collect(),
        ..Asked::default()
    };
    for (number, message) in list(&request["messages"]).iter().enumerate() {
        asked.history.push(said(number, message, &mut asked.system, problems));
    }
    asked
}

/// A declaration, as Ollama writes it as well.
pub(super) fn declared(tool: &Value, problems: &mut Vec<String>) -> Tool {
    if tool["type"] != "function" {
        problems.push(format!("this is no tool: {tool}"));
    }
    let function = &tool["function"];
    Tool { name: text(&function["name"]), schema: function["parameters"].clone() }
}

fn said(number: usize, message: &Value, system: &mut String, problems: &mut Vec<String>) -> Said {
    let content = content_text(&message["content"]);
    match message["role"].as_str().unwrap_or_default() {
        "system" | "developer" => {
            system.push_str(&content);
            Said::System(content)
        }
        "user" => Said::User(content),
        "tool" => {
            if message["content"].is_null() {
                problems.push(format!("message {number}: a result without content"));
            }
            Said::Result { id: text(&message["tool_call_id"]), text: content }
        }
        role => {
            if role != "assistant" {
                problems.push(format!("message {number} has the role `{role}`"));
            }
            let calls = list(&message["tool_calls"]).iter().map(|call| called(number, call, problems));
            Said::Assistant { text: content, calls: calls.collect() }
        }
    }
}

fn called(number: usize, call: &Value, problems: &mut Vec<String>) -> Called {
    if call["type"] != "function" {
        problems.push(format!("message {number}: a call without its type"));
    }
    let function = &call["function"];
    if !function["arguments"].is_string() {
        problems.push(format!("message {number}: the arguments are no text: {}", function["arguments"]));
    }
    Called {
        id: text(&call["id"]),
        name: text(&function["name"]),
        arguments: parsed(&function["arguments"]),
        seal: None,
    }
}
