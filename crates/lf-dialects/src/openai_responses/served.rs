//! Reads our clients' requests.

use std::sync::Arc;

use lf_core::model::{ChatRequest, ToolSpec};
use lf_core::{Content, Message, Prose, ToolChoice};
use serde_json::{Map, Value, json};

use super::items::{self, Before};
use super::parts::string;
use super::view::ResponsesView;
use super::{RESPONSES_ONLY, fields};
use crate::openai_chat::{RequestError, body_object};
use crate::schema;

/// Reads the body of `POST …/responses`. The values are those of every dialect: parameters in the spelling of OpenAI
/// Chat Completions, one message for each turn of the assistant, results directly after its calls. Fields that only
/// this API knows are kept for a Responses upstream; what OpenAI's own servers would have to run or look up is refused,
/// not dropped. The size of the body is the caller's concern.
///
/// # Errors
/// What is wrong, and where. A reference to a stored item always is: see [`decode_request_with`].
pub fn decode_request(body: &[u8]) -> Result<(ChatRequest, ResponsesView), RequestError> {
    decode_request_with(body, &|_| None)
}

/// The same, for callers that can look up the output items of earlier responses by their ids, as the client was told
/// them. [`super::response_of_item`] tells which response an id is from.
///
/// # Errors
/// What is wrong, and where.
pub fn decode_request_with(
    body: &[u8],
    item: &dyn Fn(&str) -> Option<Value>,
) -> Result<(ChatRequest, ResponsesView), RequestError> {
    let mut fields = body_object(body)?;
    // clients spell out what they leave open
    fields.retain(|_, value| !value.is_null());
    let tools = tools(fields.get("tools"))?;
    let view = ResponsesView::read(&fields, &tools)?;
    let before = if view.previous_response_id.is_some() || view.conversation.is_some() {
        Before::Stored
    } else {
        Before::Nothing
    };
    for key in ["stream", "background", "previous_response_id", "conversation", "tools"] {
        fields.shift_remove(key);
    }
    let model = match fields.shift_remove("model") {
        None => None,
        Some(Value::String(model)) => Some(model),
        Some(other) => return Err(RequestError::expected("model", "a string", &other)),
    };
    let mut messages = Vec::new();
    match fields.shift_remove("instructions") {
        None => {}
        Some(Value::String(text)) => {
            messages.push(Message::System(Prose { content: text.into(), ..Prose::default() }));
        }
        Some(other) => return Err(RequestError::expected("instructions", "a string", &other)),
    }
    messages.extend(input(fields.shift_remove("input"), before, item)?);
    let mut tools: Vec<ToolSpec> = tools.into_iter().map(|tool| tool.spec).collect();
    let tool_choice =
        fields.shift_remove("tool_choice").map(|choice| tool_choice(&choice, &mut tools)).transpose()?;
    let variables = match fields.shift_remove("variables") {
        None => Map::new(),
        Some(Value::Object(variables)) => variables,
        Some(other) => return Err(RequestError::expected("variables", "an object", &other)),
    };
    let parameters = fields::parameters(fields)?;
    let request =
        ChatRequest { model, messages, tools, tool_choice, parameters, variables, stream: view.stream };
    Ok((request, view))
}

fn input(
    value: Option<Value>,
    before: Before,
    item: &dyn Fn(&str) -> Option<Value>,
) -> Result<Vec<Message>, RequestError> {
    match value {
        Some(Value::String(text)) => {
            Ok(vec![Message::User(Prose { content: Content::Text(text), ..Prose::default() })])
        }
        None if before == Before::Stored => Ok(Vec::new()),
        None => Err(RequestError::missing("input", "a text, or the items of the conversation so far")),
        Some(Value::Array(list)) if list.is_empty() && before == Before::Nothing => {
            Err(RequestError::value("input", "`input` is empty".to_owned(), "send at least one item"))
        }
        Some(Value::Array(list)) => items::messages(list, before, item),
        Some(other) => Err(RequestError::expected("input", "a string or an array of items", &other)),
    }
}

/// A tool that the client runs.
pub(super) struct Tool {
    pub(super) spec: ToolSpec,
    /// As the response tells it back: every field that the API has.
    pub(super) told: Value,
}

fn tools(value: Option<&Value>) -> Result<Vec<Tool>, RequestError> {
    match value {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => {
            list.iter().enumerate().map(|(at, tool)| self::tool(&format!("tools[{at}]"), tool)).collect()
        }
        Some(other) => Err(RequestError::expected("tools", "an array", other)),
    }
}

fn tool(path: &str, value: &Value) -> Result<Tool, RequestError> {
    const READ: [&str; 5] = ["type", "name", "description", "parameters", "strict"];
    let Value::Object(fields) = value else {
        return Err(RequestError::expected(path, "an object", value));
    };
    let kind = string(path, value, "type")?;
    if kind != "function" {
        return Err(not_here(&format!("{path}.type"), &kind));
    }
    if fields.contains_key("function") && !fields.contains_key("name") {
        let message = format!("`{path}` is declared as in Chat Completions");
        let hint = "write `name`, `description` and `parameters` beside `type`, without `function`";
        return Err(RequestError::value(&format!("{path}.function"), message, hint));
    }
    let name = string(path, value, "name")?;
    let description = match &value["description"] {
        Value::Null => None,
        Value::String(text) => Some(Arc::from(text.as_str())),
        other => return Err(RequestError::expected(&format!("{path}.description"), "a string", other)),
    };
    let schema = match &value["parameters"] {
        Value::Null => Value::Object(Map::new()),
        schema @ (Value::Object(_) | Value::Bool(_)) => schema.clone(),
        other => {
            let what = "a JSON Schema (an object)";
            return Err(RequestError::expected(&format!("{path}.parameters"), what, other));
        }
    };
    let further = fields.iter().filter(|(key, value)| !READ.contains(&key.as_str()) && !value.is_null());
    let mut kept: Map<String, Value> = further.map(|(key, value)| (key.clone(), value.clone())).collect();
    let mut told = json!({
        "type": "function", "name": name, "description": value["description"], "parameters": value["parameters"],
    });
    for (key, value) in &kept {
        told[key.as_str()] = value.clone();
    }
    let mut rest = Map::new();
    let strict = match &value["strict"] {
        strict @ Value::Bool(_) => {
            rest.insert("strict".to_owned(), strict.clone());
            *strict == true
        }
        // Left open, a function is strict here as far as its schema allows; elsewhere it is not. A schema that keeps
        // the rules of strict mode already means the same either way.
        Value::Null if schema::is_strict(&schema) => {
            rest.insert("strict".to_owned(), true.into());
            true
        }
        Value::Null => {
            kept.insert("strict".to_owned(), Value::Null);
            false
        }
        other => return Err(RequestError::expected(&format!("{path}.strict"), "true or false", other)),
    };
    told["strict"] = strict.into();
    if !kept.is_empty() {
        rest.insert(RESPONSES_ONLY.to_owned(), kept.into());
    }
    Ok(Tool { spec: ToolSpec { name, description, schema: Arc::new(schema), rest }, told })
}

/// A tool that OpenAI's servers would run, or one with another form of calls.
fn not_here(path: &str, kind: &str) -> RequestError {
    let (message, hint) = match kind {
        "mcp" => (
            format!("`{path}` is `mcp`: that server would be reached from OpenAI's own servers"),
            "list it under `mcp.servers` in the project's llamafarm.yaml",
        ),
        "custom" => {
            (format!("`{path}` is `custom`: only functions can be passed on"), "declare it as a function")
        }
        _ => (
            format!("`{path}` is `{kind}`: such a tool is part of OpenAI's own API and not offered here"),
            "use a tool of an MCP server for it, or declare a function",
        ),
    };
    RequestError::unsupported(path, &message, hint)
}

fn tool_choice(choice: &Value, tools: &mut Vec<ToolSpec>) -> Result<ToolChoice, RequestError> {
    const HINT: &str = "use \"auto\", \"none\", \"required\", {\"type\": \"function\", \"name\": \"...\"} or `allowed_tools`";
    let word = match choice {
        Value::String(word) => word,
        Value::Object(_) => return chosen(choice, tools),
        other => return Err(RequestError::expected("tool_choice", "a string or an object", other)),
    };
    match word.as_str() {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" => Ok(ToolChoice::Required),
        other => Err(RequestError::value("tool_choice", format!("`tool_choice` is `{other}`"), HINT)),
    }
}

fn chosen(choice: &Value, tools: &mut Vec<ToolSpec>) -> Result<ToolChoice, RequestError> {
    match string("tool_choice", choice, "type")?.as_str() {
        "function" => Ok(ToolChoice::Tool(string("tool_choice", choice, "name")?)),
        "allowed_tools" => allowed_tools(choice, tools),
        other => Err(not_here("tool_choice.type", other)),
    }
}

/// Of the client's tools only these are offered. The project's own stay: the client did not declare them.
fn allowed_tools(choice: &Value, tools: &mut Vec<ToolSpec>) -> Result<ToolChoice, RequestError> {
    let Value::Array(list) = &choice["tools"] else {
        return Err(RequestError::expected("tool_choice.tools", "an array", &choice["tools"]));
    };
    let mut names = Vec::with_capacity(list.len());
    for (at, allowed) in list.iter().enumerate() {
        let path = format!("tool_choice.tools[{at}]");
        let kind = string(&path, allowed, "type")?;
        if kind != "function" {
            return Err(not_here(&format!("{path}.type"), &kind));
        }
        let name = string(&path, allowed, "name")?;
        if !tools.iter().any(|tool| tool.name == name) {
            let message = format!("`{path}.name` is `{name}`, which `tools` does not declare");
            return Err(RequestError::value(&format!("{path}.name"), message, ""));
        }
        names.push(name);
    }
    if names.is_empty() {
        let message = "`tool_choice.tools` is empty".to_owned();
        return Err(RequestError::value("tool_choice.tools", message, "use \"none\" to allow no tool"));
    }
    tools.retain(|tool| names.contains(&tool.name));
    match (string("tool_choice", choice, "mode")?.as_str(), names.as_slice()) {
        ("auto", _) => Ok(ToolChoice::Auto),
        ("required", [name]) => Ok(ToolChoice::Tool(name.clone())),
        ("required", _) => Ok(ToolChoice::Required),
        (other, _) => {
            let message = format!("`tool_choice.mode` is `{other}`");
            Err(RequestError::value("tool_choice.mode", message, "use `auto` or `required`"))
        }
    }
}
