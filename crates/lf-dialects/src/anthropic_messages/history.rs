//! Reads messages, and puts every result where all dialects want it: directly after the calls, one for each.

use std::collections::HashSet;

use lf_core::{Arguments, AssistantMessage, Content, Message, Prose, ToolCall, ToolResult};
use serde_json::{Map, Value, json};

use super::blocks::{self, Parts};
use super::gather::is_plain;
use super::{ANTHROPIC_ONLY, OWN_SIGNATURE};
use crate::openai_chat::RequestError;

/// Key of what is kept with a user's message that came in one with the results before it.
pub(super) const WITH_RESULTS: &str = "with_results";
/// Key of what is kept with a result: its block's further fields.
pub(super) const FIELDS: &str = "fields";

/// A message as it came; a user's carries the results of the calls before it.
enum Said {
    System(Prose),
    User(UserSaid),
    Assistant(AssistantMessage),
}

#[derive(Default)]
struct UserSaid {
    results: Vec<ToolResult>,
    /// How many results there were; once they are taken out there may be nothing left to say.
    answered: usize,
    parts: Parts,
}

pub(super) fn messages(list: Vec<Value>) -> Result<Vec<Message>, RequestError> {
    let mut said = list
        .into_iter()
        .enumerate()
        .map(|(at, value)| message(&format!("messages[{at}]"), value))
        .collect::<Result<Vec<_>, _>>()?;
    let mut out = Vec::with_capacity(said.len() + 8);
    for at in 0..said.len() {
        match std::mem::replace(&mut said[at], Said::System(Prose::default())) {
            Said::System(prose) if prose.content.is_empty() => {}
            Said::System(prose) => out.push(Message::System(prose)),
            Said::User(said) => {
                let after_results = matches!(out.last(), Some(Message::Tool(_)));
                out.extend(user(said, after_results).map(Message::User));
            }
            Said::Assistant(mut message) => {
                let answers = answers(&mut message.calls, &mut said[at + 1..]);
                rename_kept(&mut message);
                out.push(Message::Assistant(message));
                out.extend(answers.into_iter().map(Message::Tool));
            }
        }
    }
    Ok(out)
}

/// The results that nobody asked for stay, as text. `after_results`: those that were asked for stand directly before.
fn user(said: UserSaid, after_results: bool) -> Option<Prose> {
    let UserSaid { results, answered, mut parts } = said;
    let with_results = after_results && results.len() < answered;
    let mut all = Parts::default();
    for result in results {
        let head = format!("[result of the call {}, which is not in this conversation]", result.call_id);
        match result.content {
            Content::Text(text) => all.text(format!("{head}\n{text}")),
            Content::Parts(parts) => {
                all.text(head);
                all.parts.extend(parts);
            }
        }
    }
    if !all.parts.is_empty() {
        all.parts.append(&mut parts.parts);
        parts = all;
    }
    if answered > 0 && parts.parts.is_empty() {
        return None;
    }
    let (content, mut rest) = parts.finish();
    if with_results {
        // for Anthropic they are one message
        keep(&mut rest, WITH_RESULTS, true.into());
    }
    Some(Prose { content, rest })
}

/// Takes the answers to these calls out of the messages up to the next assistant's. A call that was never answered was
/// interrupted; of several answers the first counts.
fn answers(calls: &mut [ToolCall], later: &mut [Said]) -> Vec<ToolResult> {
    if calls.is_empty() {
        return Vec::new();
    }
    let mut found: Vec<ToolResult> = Vec::new();
    let asked: HashSet<String> = calls.iter().map(|call| call.id.clone()).collect();
    for said in later.iter_mut().take_while(|said| !matches!(said, Said::Assistant(_))) {
        if let Said::User(said) = said {
            found.extend(said.results.extract_if(.., |result| asked.contains(&result.call_id)));
        }
    }
    let mut taken = HashSet::new();
    let mut answers = Vec::with_capacity(calls.len());
    for call in calls {
        let answer = found.iter().position(|result| result.call_id == call.id).map(|at| found.remove(at));
        let mut again = 1;
        let id = call.id.clone();
        while !taken.insert(call.id.clone()) {
            again += 1;
            call.id = format!("{id}_{again}");
        }
        let answer = match answer {
            Some(answer) => ToolResult { call_id: call.id.clone(), name: Some(call.name.clone()), ..answer },
            None => ToolResult::error(call, "this call was interrupted and has no result"),
        };
        answers.push(answer);
    }
    answers
}

/// Gives the kept blocks the ids of the calls that are made of them.
fn rename_kept(message: &mut AssistantMessage) {
    let kept = message.rest.get_mut(ANTHROPIC_ONLY).and_then(|kept| kept["content"].as_array_mut());
    let blocks = kept.into_iter().flatten().filter(|block| block["type"] == "tool_use");
    for (block, call) in blocks.zip(&message.calls) {
        if block["id"] != call.id.as_str() {
            block["id"] = call.id.as_str().into();
        }
    }
}

fn message(path: &str, value: Value) -> Result<Said, RequestError> {
    const ROLES: &str = "use `user`, `assistant` or `system`";
    let Value::Object(mut fields) = value else {
        return Err(RequestError::expected(path, "an object", &value));
    };
    let role_path = format!("{path}.role");
    let role = blocks::string(&role_path, fields.shift_remove("role"))?;
    let content_path = format!("{path}.content");
    let Some(content) = fields.shift_remove("content").filter(|content| !content.is_null()) else {
        return Err(RequestError::missing(&content_path, "a string or an array of blocks"));
    };
    match role.as_str() {
        "system" => {
            let mut prose = blocks::system(&content_path, content)?;
            // it stays where it is also with an Anthropic upstream
            keep(&mut prose.rest, "inline", true.into());
            Ok(Said::System(prose))
        }
        "user" => user_said(&content_path, content),
        "assistant" => assistant(&content_path, content).map(Said::Assistant),
        other => Err(RequestError::value(&role_path, format!("`{role_path}` is `{other}`"), ROLES)),
    }
}

fn user_said(path: &str, content: Value) -> Result<Said, RequestError> {
    let mut said = UserSaid::default();
    let Value::Array(list) = content else {
        said.parts = blocks::content(path, Some(content))?;
        return Ok(Said::User(said));
    };
    for (at, block) in list.into_iter().enumerate() {
        let path = format!("{path}[{at}]");
        match blocks::kind(&path, &block)? {
            "tool_result" => said.results.push(result(&path, block)?),
            _ => blocks::read(&path, &block, &mut said.parts)?,
        }
    }
    said.answered = said.results.len();
    Ok(Said::User(said))
}

fn result(path: &str, mut block: Value) -> Result<ToolResult, RequestError> {
    let call_id = blocks::string(&format!("{path}.tool_use_id"), block.get("tool_use_id").cloned())?;
    let parts = blocks::content(&format!("{path}.content"), block.get_mut("content").map(Value::take))?;
    let (content, mut rest) = parts.finish();
    let is_error = block["is_error"] == true;
    if let Some(fields) = block.as_object_mut() {
        fields.retain(|key, value| {
            !["type", "tool_use_id", "content", "is_error"].contains(&key.as_str()) && !value.is_null()
        });
        if !fields.is_empty() {
            keep(&mut rest, FIELDS, block);
        }
    }
    Ok(ToolResult { is_error, rest, ..ToolResult::new(call_id, content) })
}

/// Keeps something for an Anthropic upstream.
fn keep(rest: &mut Map<String, Value>, key: &str, value: Value) {
    let kept = rest.entry(ANTHROPIC_ONLY).or_insert_with(|| json!({}));
    kept[key] = value;
}

fn assistant(path: &str, content: Value) -> Result<AssistantMessage, RequestError> {
    let list = match content {
        Value::String(text) => {
            return Ok(AssistantMessage { content: text.into(), ..AssistantMessage::default() });
        }
        Value::Array(list) => list,
        other => return Err(RequestError::expected(path, "a string or an array of blocks", &other)),
    };
    let mut message = AssistantMessage::default();
    let (mut text, mut reasoning) = (String::new(), String::new());
    let mut apart = false;
    let mut after_words = false;
    for (at, block) in list.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let said = match blocks::kind(&path, block)? {
            "text" => block["text"].as_str().unwrap_or_default().to_owned(),
            "tool_use" => {
                message.calls.push(call(&path, block)?);
                String::new()
            }
            "thinking" => {
                reasoning.push_str(block["thinking"].as_str().unwrap_or_default());
                String::new()
            }
            "redacted_thinking" => String::new(),
            // calls that Anthropic's servers ran, with their results
            _ => {
                apart = !text.is_empty();
                after_words = true;
                blocks::in_words(block)
            }
        };
        if said.is_empty() {
            apart = !text.is_empty();
            continue;
        }
        if std::mem::take(&mut apart) {
            text.push_str("\n\n");
        }
        text.push_str(&said);
        apart = std::mem::take(&mut after_words);
    }
    message.content = text.into();
    message.reasoning = (!reasoning.is_empty()).then_some(reasoning);
    // the order of blocks and the signatures must come back to Anthropic unchanged
    let signed: Vec<Value> = list.into_iter().filter(|block| block["signature"] != OWN_SIGNATURE).collect();
    if !is_plain(&signed, Map::len) {
        message.rest.insert(ANTHROPIC_ONLY.to_owned(), json!({"content": signed}));
    }
    Ok(message)
}

fn call(path: &str, block: &Value) -> Result<ToolCall, RequestError> {
    let id = blocks::string(&format!("{path}.id"), block.get("id").cloned())?;
    let name = match &block["name"] {
        // a call that was interrupted before its name came
        Value::Null => String::new(),
        Value::String(name) => name.clone(),
        other => return Err(RequestError::expected(&format!("{path}.name"), "a string", other)),
    };
    let arguments = match &block["input"] {
        Value::Null => Arguments::parse(""),
        Value::Object(object) => Arguments::from_object(object.clone()),
        Value::String(raw) => Arguments::parse(raw.clone()),
        other => return Err(RequestError::expected(&format!("{path}.input"), "an object", other)),
    };
    Ok(ToolCall { id, name, arguments, rest: Map::new() })
}
