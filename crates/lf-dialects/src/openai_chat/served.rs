//! Reads our clients' requests.

use std::sync::Arc;

use lf_core::ToolChoice;
use lf_core::model::{ChatRequest, ToolSpec};
use serde_json::{Map, Value};

use super::served_message::messages;

/// Key of [`ToolSpec::rest`] for fields that stood beside `function`, not in it.
pub(super) const OUTER: &str = "$tool";

/// How the client wants its answer shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ViewOptions {
    pub stream: bool,
    pub include_usage: bool,
}

/// What is wrong with a request: always status 400.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestError {
    /// Where, such as `messages[2].role`.
    pub param: Option<String>,
    pub message: String,
    /// What to try.
    pub hint: Option<String>,
    /// A word for programs.
    pub code: Option<&'static str>,
}

impl RequestError {
    /// `path` must be `what`, and is not.
    pub(crate) fn expected(path: &str, what: &str, found: &Value) -> Self {
        let found = match found {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        };
        Self {
            param: Some(path.to_owned()),
            message: format!("`{path}` must be {what}, not {found}"),
            hint: None,
            code: Some("invalid_type"),
        }
    }

    pub(crate) fn missing(path: &str, what: &str) -> Self {
        Self {
            param: Some(path.to_owned()),
            message: format!("`{path}` is missing: {what}"),
            hint: None,
            code: Some("missing_required_parameter"),
        }
    }

    pub fn value(path: &str, message: String, hint: &str) -> Self {
        let hint = (!hint.is_empty()).then(|| hint.to_owned());
        Self { param: Some(path.to_owned()), message, hint, code: Some("invalid_value") }
    }

    pub(crate) fn unsupported(path: &str, message: &str, hint: &str) -> Self {
        Self { code: Some("unsupported_parameter"), ..Self::value(path, message.to_owned(), hint) }
    }
}

/// Reads the body of `POST …/chat/completions`. Fields this program does not read are kept in
/// [`ChatRequest::parameters`]; what cannot be carried through a tool loop is refused, not dropped. The size of the
/// body is the caller's concern.
pub fn decode_request(body: &[u8]) -> Result<(ChatRequest, ViewOptions), RequestError> {
    let mut fields = body_object(body, EXAMPLE)?;
    refuse_unsupported(&fields)?;
    let stream = boolean("stream", fields.shift_remove("stream"))?;
    let view = ViewOptions { stream, include_usage: include_usage(fields.get("stream_options"))? };
    let model = match fields.shift_remove("model") {
        None | Some(Value::Null) => None,
        Some(Value::String(model)) => Some(model),
        Some(other) => return Err(RequestError::expected("model", "a string", &other)),
    };
    let messages = match fields.shift_remove("messages") {
        None => return Err(RequestError::missing("messages", "the conversation so far")),
        Some(Value::Array(list)) if list.is_empty() => {
            return Err(RequestError::value(
                "messages",
                "`messages` is empty".to_owned(),
                "send at least one",
            ));
        }
        Some(Value::Array(list)) => messages(list)?,
        Some(other) => return Err(RequestError::expected("messages", "an array", &other)),
    };
    let tools = match fields.shift_remove("tools") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(list)) => {
            list.into_iter().enumerate().map(|(at, tool)| self::tool(at, tool)).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(RequestError::expected("tools", "an array", &other)),
    };
    let tool_choice = fields.shift_remove("tool_choice").as_ref().map(tool_choice).transpose()?.flatten();
    let variables = match fields.shift_remove("variables") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(variables)) => variables,
        Some(other) => return Err(RequestError::expected("variables", "an object", &other)),
    };
    let request = ChatRequest {
        model,
        messages,
        tools,
        tool_choice,
        parameters: fields,
        variables,
        approvals: Vec::new(),
        stream,
    };
    Ok((request, view))
}

/// What a body looks like, for those who sent none.
pub(crate) const EXAMPLE: &str = r#"{"messages": [...]}"#;

/// The body as an object, which looks like `example`.
pub(crate) fn body_object(body: &[u8], example: &str) -> Result<Map<String, Value>, RequestError> {
    let value: Value = serde_json::from_slice(body).map_err(|error| RequestError {
        param: None,
        message: format!("the body is not JSON: {error}"),
        hint: None,
        code: Some("invalid_json"),
    })?;
    let Value::Object(fields) = value else {
        return Err(RequestError {
            param: None,
            message: "the body must be a JSON object".to_owned(),
            hint: Some(format!("send {example}")),
            code: Some("invalid_type"),
        });
    };
    Ok(fields)
}

/// Fields whose effect would get lost between the rounds of a tool loop.
fn refuse_unsupported(fields: &Map<String, Value>) -> Result<(), RequestError> {
    let given = |key: &str| fields.get(key).filter(|value| !value.is_null());
    if let Some(n) = given("n")
        && n.as_u64() != Some(1)
    {
        let message = "`n` must be 1: an answer that may run tools has one choice";
        return Err(RequestError::unsupported("n", message, "send one request for each choice"));
    }
    let logprobs = "log probabilities cannot be carried through a tool loop";
    if given("logprobs").is_some_and(|value| *value != Value::Bool(false)) {
        return Err(RequestError::unsupported("logprobs", logprobs, "leave `logprobs` out"));
    }
    if given("top_logprobs").is_some_and(|value| value.as_u64() != Some(0)) {
        return Err(RequestError::unsupported("top_logprobs", logprobs, "leave `top_logprobs` out"));
    }
    for key in ["functions", "function_call"] {
        if given(key).is_some() {
            let message = format!("`{key}` is the form of 2023 and not supported");
            return Err(RequestError::unsupported(key, &message, "send `tools` and `tool_choice`"));
        }
    }
    let modalities = given("modalities").and_then(Value::as_array);
    if modalities.into_iter().flatten().any(|modality| modality != "text") {
        let message = "only text can be answered";
        return Err(RequestError::unsupported("modalities", message, "leave `modalities` out"));
    }
    Ok(())
}

pub(crate) fn boolean(path: &str, value: Option<Value>) -> Result<bool, RequestError> {
    match value {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(value),
        Some(other) => Err(RequestError::expected(path, "true or false", &other)),
    }
}

fn include_usage(options: Option<&Value>) -> Result<bool, RequestError> {
    match options {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Object(options)) => {
            boolean("stream_options.include_usage", options.get("include_usage").cloned())
        }
        Some(other) => Err(RequestError::expected("stream_options", "an object", other)),
    }
}

fn tool(at: usize, tool: Value) -> Result<ToolSpec, RequestError> {
    let path = format!("tools[{at}]");
    let Value::Object(mut outer) = tool else {
        return Err(RequestError::expected(&path, "an object", &tool));
    };
    match outer.shift_remove("type") {
        Some(Value::String(kind)) if kind == "function" => {}
        None => {}
        Some(Value::String(kind)) => {
            let message = format!("`{path}.type` is `{kind}`: only functions can be passed on");
            return Err(RequestError::value(&format!("{path}.type"), message, "declare it as a function"));
        }
        Some(other) => return Err(RequestError::expected(&format!("{path}.type"), "a string", &other)),
    }
    let mut function = match outer.shift_remove("function") {
        Some(Value::Object(function)) => function,
        Some(other) => return Err(RequestError::expected(&format!("{path}.function"), "an object", &other)),
        None => {
            return Err(RequestError::missing(&format!("{path}.function"), "the declaration of the tool"));
        }
    };
    let name_path = format!("{path}.function.name");
    let name = match function.shift_remove("name") {
        Some(Value::String(name)) if name.is_empty() => {
            return Err(RequestError::value(&name_path, format!("`{name_path}` is empty"), ""));
        }
        Some(Value::String(name)) => name,
        Some(other) => return Err(RequestError::expected(&name_path, "a string", &other)),
        None => return Err(RequestError::missing(&name_path, "a tool needs a name")),
    };
    let description = match function.shift_remove("description") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(Arc::from(text)),
        Some(other) => {
            return Err(RequestError::expected(&format!("{path}.function.description"), "a string", &other));
        }
    };
    let schema = match function.shift_remove("parameters") {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(schema @ (Value::Object(_) | Value::Bool(_))) => schema,
        Some(other) => {
            let what = "a JSON Schema (an object)";
            return Err(RequestError::expected(&format!("{path}.function.parameters"), what, &other));
        }
    };
    let mut rest = function;
    if !outer.is_empty() {
        rest.insert(OUTER.to_owned(), outer.into());
    }
    Ok(ToolSpec { name, description, schema: Arc::new(schema), rest })
}

fn tool_choice(choice: &Value) -> Result<Option<ToolChoice>, RequestError> {
    const HINT: &str =
        "use \"auto\", \"none\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": \"...\"}}";
    let choice = match choice {
        Value::Null => return Ok(None),
        Value::String(word) => match word.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            // `any` is Mistral's and Anthropic's word for it.
            "required" | "any" => ToolChoice::Required,
            other => {
                let message = format!("`tool_choice` is `{other}`");
                return Err(RequestError::value("tool_choice", message, HINT));
            }
        },
        Value::Object(object) => {
            let name =
                object.get("function").and_then(|function| function.get("name")).and_then(Value::as_str);
            match name {
                Some(name) => ToolChoice::Tool(name.to_owned()),
                None => {
                    let message = "`tool_choice` names no function".to_owned();
                    return Err(RequestError::value("tool_choice", message, HINT));
                }
            }
        }
        other => return Err(RequestError::expected("tool_choice", "a string or an object", other)),
    };
    Ok(Some(choice))
}
