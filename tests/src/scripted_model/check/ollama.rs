//! Ollama's own chat. Results answer the calls before them by place and name.

use serde_json::Value;

use super::{chat, declarations, list, text};
use crate::scripted_model::asked::{Asked, Called, Said};

pub(super) fn read(request: &Value, problems: &mut Vec<String>) -> Asked {
    // The API ignores what it does not know, so nothing else would tell.
    for key in ["temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "tool_choice"]
    {
        if request.get(key).is_some() {
            problems.push(format!("`{key}` is not a field of the request"));
        }
    }
    let mut asked = Asked {
        model: text(&request["model"]),
        // streamed unless told otherwise
        stream: request["stream"] != false,
        tools: declarations(request, problems).iter().map(|tool| chat::declared(tool, problems)).collect(),
        ..Asked::default()
    };
    let mut open: Vec<Called> = Vec::new();
    for (number, message) in list(&request["messages"]).iter().enumerate() {
        let absent = message["content"].is_null() && message["tool_calls"].is_array();
        if !absent && !message["content"].is_string() {
            problems.push(format!("message {number}: the content is no text: {}", message["content"]));
        }
        let content = text(&message["content"]);
        let role = message["role"].as_str().unwrap_or_default();
        asked.history.push(match role {
            "system" => {
                asked.system.push_str(&content);
                Said::System(content)
            }
            "user" => Said::User(content),
            "tool" => Said::Result { id: answered(number, message, &mut open, problems), text: content },
            _ => {
                if role != "assistant" {
                    problems.push(format!("message {number} has the role `{role}`"));
                }
                open = calls(number, message);
                Said::Assistant { text: content, calls: open.clone() }
            }
        });
    }
    asked
}

fn calls(number: usize, message: &Value) -> Vec<Called> {
    let calls = list(&message["tool_calls"]).iter().enumerate();
    calls
        .map(|(place, call)| Called {
            id: format!("{number}.{place}"),
            name: text(&call["function"]["name"]),
            arguments: call["function"]["arguments"].clone(),
            seal: None,
        })
        .collect()
}

/// The call a result answers: the first that is still open.
fn answered(number: usize, message: &Value, open: &mut Vec<Called>, problems: &mut Vec<String>) -> String {
    if open.is_empty() {
        return format!("message {number}");
    }
    let call = open.remove(0);
    if message["tool_name"] != call.name.as_str() {
        problems.push(format!(
            "message {number} answers {} where `{}` was called",
            message["tool_name"], call.name
        ));
    }
    call.id
}
