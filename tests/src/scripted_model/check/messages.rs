//! Anthropic Messages.

use serde_json::Value;

use super::{Raw, content_text, declarations, list, text};
use crate::scripted_model::asked::{Asked, Called, Said, Tool};
use crate::scripted_model::memory::{is_ours, seal};

pub(super) fn read(raw: &Raw<'_>, problems: &mut Vec<String>) -> Asked {
    let request = raw.body;
    for header in ["x-api-key", "anthropic-version"] {
        if !raw.headers.contains_key(header) {
            problems.push(format!("no header `{header}`"));
        }
    }
    if request["max_tokens"].as_u64().is_none_or(|tokens| tokens == 0) {
        problems.push(format!("`max_tokens` is {}", request["max_tokens"]));
    }
    // Nothing is stored here: every request must tell the whole history.
    if request.get("thread").is_some() {
        problems.push(format!("`thread` is {}", request["thread"]));
    }
    let system = content_text(&request["system"]);
    let mut asked = Asked {
        model: text(&request["model"]),
        stream: request["stream"] == true,
        tools: declarations(request, problems).iter().map(|tool| declared(tool, problems)).collect(),
        system: system.clone(),
        ..Asked::default()
    };
    if !system.is_empty() {
        asked.history.push(Said::System(system));
    }
    let messages = list(&request["messages"]);
    if messages.first().is_some_and(|message| message["role"] != "user") {
        problems.push("the first message is not the user's".to_owned());
    }
    for (number, message) in messages.iter().enumerate() {
        blocks_are_well_formed(number, message, problems);
        match message["role"].as_str().unwrap_or_default() {
            "user" => user(number, message, &mut asked.history, problems),
            "assistant" => {
                let said = assistant(number, message, problems);
                if let Said::Assistant { calls, .. } = &said {
                    all_are_answered(number, calls, messages.get(number + 1), problems);
                }
                asked.history.push(said);
            }
            role => problems.push(format!("message {number} has the role `{role}`")),
        }
    }
    asked
}

fn declared(tool: &Value, problems: &mut Vec<String>) -> Tool {
    let schema = &tool["input_schema"];
    for key in ["anyOf", "oneOf", "allOf"] {
        if schema.get(key).is_some() {
            problems.push(format!("`{key}` at the root of the schema of {}", tool["name"]));
        }
    }
    if tool.get("function").is_some() || tool.get("parameters").is_some() {
        problems.push(format!("this is no tool: {tool}"));
    }
    Tool { name: text(&tool["name"]), schema: schema.clone() }
}

fn blocks_are_well_formed(number: usize, message: &Value, problems: &mut Vec<String>) {
    let content = &message["content"];
    match content {
        Value::String(text) if !text.is_empty() => return,
        Value::Array(blocks) if !blocks.is_empty() => {}
        other => problems.push(format!("message {number} has the content {other}")),
    }
    for block in list(content) {
        if block["type"] == "text" && block["text"].as_str().is_none_or(|text| text.trim().is_empty()) {
            problems.push(format!("message {number} has an empty text block"));
        }
    }
}

/// Results first, then what the person says.
fn user(number: usize, message: &Value, history: &mut Vec<Said>, problems: &mut Vec<String>) {
    let content = &message["content"];
    if content.is_string() {
        history.push(Said::User(text(content)));
        return;
    }
    let (results, others): (Vec<&Value>, Vec<&Value>) =
        list(content).iter().partition(|block| block["type"] == "tool_result");
    let leading = list(content).iter().take_while(|block| block["type"] == "tool_result").count();
    if leading < results.len() {
        problems.push(format!("message {number} has a result after other blocks"));
    }
    for block in results {
        if content_text(&block["content"]).is_empty() && block["is_error"] == true {
            problems.push(format!("message {number} has an error without content"));
        }
        history.push(Said::Result { id: text(&block["tool_use_id"]), text: content_text(&block["content"]) });
    }
    if !others.is_empty() {
        let texts: String = others.iter().filter_map(|block| block["text"].as_str()).collect();
        history.push(Said::User(texts));
    }
}

fn assistant(number: usize, message: &Value, problems: &mut Vec<String>) -> Said {
    let mut said = String::new();
    let mut calls = Vec::new();
    let mut sealed = None;
    if let Value::String(text) = &message["content"] {
        said.clone_from(text);
    }
    for block in list(&message["content"]) {
        match block["type"].as_str().unwrap_or_default() {
            "text" => said.push_str(block["text"].as_str().unwrap_or_default()),
            "thinking" => {
                let signature = text(&block["signature"]);
                if is_ours(&signature) && signature != seal(block["thinking"].as_str().unwrap_or_default()) {
                    problems.push(format!("message {number} has thinking that was changed: {block}"));
                }
                if signature.is_empty() {
                    problems.push(format!("message {number} has thinking without a signature"));
                }
                sealed = Some(signature);
            }
            "tool_use" => calls.push(Called {
                id: text(&block["id"]),
                name: text(&block["name"]),
                arguments: block["input"].clone(),
                seal: sealed.clone(),
            }),
            "redacted_thinking" => {}
            other => problems.push(format!("message {number} has a block of the type `{other}`")),
        }
    }
    for call in &calls {
        let taken = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if !call.id.bytes().all(taken) {
            problems.push(format!("message {number}: `{}` is no id for a call", call.id));
        }
    }
    Said::Assistant { text: said, calls }
}

/// The results of all calls of a message are in the one after it.
fn all_are_answered(number: usize, calls: &[Called], next: Option<&Value>, problems: &mut Vec<String>) {
    let next = next.unwrap_or(&Value::Null);
    for call in calls {
        let answers =
            |block: &&Value| block["type"] == "tool_result" && block["tool_use_id"] == call.id.as_str();
        if next["role"] != "user" || list(&next["content"]).iter().filter(answers).count() != 1 {
            problems.push(format!("message {number}: `{}` is not answered in the next message", call.id));
        }
    }
}
