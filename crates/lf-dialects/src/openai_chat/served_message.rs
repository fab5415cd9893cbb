//! Reads the messages of our clients' requests.

use lf_core::{Arguments, AssistantMessage, Content, Message, Part, Prose, ToolCall, ToolResult};
use serde_json::{Map, Value};

use super::served::RequestError;

pub(super) fn messages(list: Vec<Value>) -> Result<Vec<Message>, RequestError> {
    list.into_iter().enumerate().map(|(at, value)| message(&format!("messages[{at}]"), value)).collect()
}

fn message(path: &str, value: Value) -> Result<Message, RequestError> {
    const ROLES: &str = "use `system`, `developer`, `user`, `assistant` or `tool`";
    let Value::Object(mut fields) = value else {
        return Err(RequestError::expected(path, "an object", &value));
    };
    let role_path = format!("{path}.role");
    let role = match fields.shift_remove("role") {
        Some(Value::String(role)) => role,
        Some(other) => return Err(RequestError::expected(&role_path, "a string", &other)),
        None => return Err(RequestError::missing(&role_path, ROLES)),
    };
    let content_path = format!("{path}.content");
    let content = content(&content_path, fields.shift_remove("content"))?;
    match role.as_str() {
        "system" | "developer" | "user" => {
            let content = content.ok_or_else(|| {
                RequestError::missing(&content_path, "only an assistant's message may do without")
            })?;
            let mut prose = Prose { content, rest: fields };
            if role == "user" {
                return Ok(Message::User(prose));
            }
            if role == "developer" {
                // Kept, so that the upstream gets the role the client chose.
                prose.rest.insert("role".to_owned(), role.into());
            }
            Ok(Message::System(prose))
        }
        "assistant" => assistant(path, content, fields).map(Message::Assistant),
        "tool" => tool(path, content, fields).map(Message::Tool),
        "function" => {
            let message = format!("`{role_path}` is `function`, the form of 2023");
            Err(RequestError::value(&role_path, message, "use `tool` with `tool_call_id`"))
        }
        other => Err(RequestError::value(&role_path, format!("`{role_path}` is `{other}`"), ROLES)),
    }
}

fn assistant(
    path: &str,
    content: Option<Content>,
    mut fields: Map<String, Value>,
) -> Result<AssistantMessage, RequestError> {
    if fields.get("function_call").is_some_and(|call| !call.is_null()) {
        let at = format!("{path}.function_call");
        let message = format!("`{at}` is the form of 2023 and not supported");
        return Err(RequestError::unsupported(&at, &message, "use `tool_calls`"));
    }
    let calls_path = format!("{path}.tool_calls");
    let calls = match fields.shift_remove("tool_calls") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(calls)) => calls
            .into_iter()
            .enumerate()
            .map(|(at, value)| call(&format!("{calls_path}[{at}]"), value))
            .collect::<Result<_, _>>()?,
        Some(other) => return Err(RequestError::expected(&calls_path, "an array", &other)),
    };
    // Clients send back what we told them; `reasoning` is the other spelling.
    let reasoning = ["reasoning_content", "reasoning"].into_iter().find_map(|key| match fields.get(key) {
        Some(Value::String(_)) => match fields.shift_remove(key) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        },
        _ => None,
    });
    Ok(AssistantMessage { content: content.unwrap_or_default(), reasoning, calls, rest: fields })
}

fn call(path: &str, value: Value) -> Result<ToolCall, RequestError> {
    let Value::Object(mut fields) = value else {
        return Err(RequestError::expected(path, "an object", &value));
    };
    if let Some(kind) = fields.shift_remove("type").filter(|kind| kind != "function") {
        let message = format!("`{path}.type` is {kind}: only calls of functions can be passed on");
        return Err(RequestError::value(&format!("{path}.type"), message, "use `function`"));
    }
    let id = string(&format!("{path}.id"), fields.shift_remove("id"))?;
    let function_path = format!("{path}.function");
    let mut function = match fields.shift_remove("function") {
        Some(Value::Object(function)) => function,
        Some(other) => return Err(RequestError::expected(&function_path, "an object", &other)),
        None => return Err(RequestError::missing(&function_path, "the name and arguments of the call")),
    };
    let name = string(&format!("{function_path}.name"), function.shift_remove("name"))?;
    let arguments = match function.shift_remove("arguments") {
        None | Some(Value::Null) => Arguments::parse(""),
        Some(Value::String(raw)) => Arguments::parse(raw),
        Some(Value::Object(object)) => Arguments::from_object(object),
        Some(other) => {
            let what = "a string that holds a JSON object";
            return Err(RequestError::expected(&format!("{function_path}.arguments"), what, &other));
        }
    };
    if !function.is_empty() {
        fields.insert("function".to_owned(), function.into());
    }
    Ok(ToolCall { id, name, arguments, rest: fields })
}

fn tool(
    path: &str,
    content: Option<Content>,
    mut fields: Map<String, Value>,
) -> Result<ToolResult, RequestError> {
    let call_id = string(&format!("{path}.tool_call_id"), fields.shift_remove("tool_call_id"))?;
    let name = fields.get("name").and_then(Value::as_str).map(str::to_owned);
    Ok(ToolResult { name, rest: fields, ..ToolResult::new(call_id, content.unwrap_or_default()) })
}

/// A string that is there and not empty.
fn string(path: &str, value: Option<Value>) -> Result<String, RequestError> {
    match value {
        Some(Value::String(text)) if text.is_empty() => {
            Err(RequestError::value(path, format!("`{path}` is empty"), ""))
        }
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(RequestError::expected(path, "a string", &other)),
        None => Err(RequestError::missing(path, "a string is needed")),
    }
}

fn content(path: &str, value: Option<Value>) -> Result<Option<Content>, RequestError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(Content::Text(text))),
        Some(Value::Array(parts)) => {
            let parts =
                parts.into_iter().enumerate().map(|(at, value)| part(&format!("{path}[{at}]"), value));
            Ok(Some(Content::Parts(parts.collect::<Result<_, _>>()?)))
        }
        Some(other) => Err(RequestError::expected(path, "a string or an array of parts", &other)),
    }
}

/// Parts with fields beyond the plain form stay values, so that nothing of them is lost.
fn part(path: &str, value: Value) -> Result<Part, RequestError> {
    let kind_path = format!("{path}.type");
    let kind = match value.get("type") {
        _ if !value.is_object() => return Err(RequestError::expected(path, "an object", &value)),
        None => return Err(RequestError::missing(&kind_path, "such as `text` or `image_url`")),
        Some(Value::String(kind)) => kind.as_str(),
        Some(other) => return Err(RequestError::expected(&kind_path, "a string", other)),
    };
    match kind {
        "text" => match &value["text"] {
            Value::String(text) if plain(&value, 2) => Ok(Part::Text(text.clone())),
            Value::String(_) => Ok(Part::Other(value)),
            other => Err(RequestError::expected(&format!("{path}.text"), "a string", other)),
        },
        "image_url" => {
            let image = &value["image_url"];
            match (&image["url"], &image["detail"]) {
                (Value::String(url), Value::Null) if plain(&value, 2) && plain(image, 1) => {
                    Ok(Part::Image { url: url.clone(), detail: None })
                }
                (Value::String(url), Value::String(detail)) if plain(&value, 2) && plain(image, 2) => {
                    Ok(Part::Image { url: url.clone(), detail: Some(detail.clone()) })
                }
                _ => Ok(Part::Other(value)),
            }
        }
        _ => Ok(Part::Other(value)),
    }
}

fn plain(value: &Value, fields: usize) -> bool {
    value.as_object().is_some_and(|object| object.len() == fields)
}
