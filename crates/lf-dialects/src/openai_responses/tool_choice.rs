//! Reads which of its tools a client wants to be called.

use lf_core::ToolChoice;
use serde_json::{Map, Value, json};

use super::parts::string;
use super::tools::{Tools, full_name};
use super::{NEEDED, RESPONSES_ONLY};
use crate::openai_chat::RequestError;

/// What a client chose.
#[derive(Debug, Default)]
pub(super) struct Choice {
    pub(super) core: Option<ToolChoice>,
    /// A choice of a tool that is none of the client's own, as it came.
    pub(super) hosted: Option<Value>,
    /// The type of a tool that no other API has, and that the request is about: it is chosen, or there are only such.
    pub(super) needed: Option<String>,
}

impl Choice {
    /// Keeps what only this API has with the request's parameters.
    pub(super) fn keep(&self, hosted: Vec<Value>, parameters: &mut Map<String, Value>) {
        let kept = [
            ("tools", (!hosted.is_empty()).then(|| Value::Array(hosted))),
            ("tool_choice", self.hosted.clone()),
            (NEEDED, self.needed.clone().map(Value::String)),
        ];
        for (key, value) in kept {
            let own = parameters.get_mut(RESPONSES_ONLY).and_then(Value::as_object_mut);
            match (value, own) {
                (Some(value), Some(own)) => {
                    own.insert(key.to_owned(), value);
                }
                (Some(value), None) => {
                    parameters.insert(RESPONSES_ONLY.to_owned(), json!({key: value}));
                }
                (None, Some(own)) => {
                    own.shift_remove(key);
                }
                (None, None) => {}
            }
        }
    }
}

/// Tools that may not be called are taken from `tools`.
pub(super) fn read(choice: Option<&Value>, tools: &mut Tools) -> Result<Choice, RequestError> {
    let mut choice = match choice {
        None => Choice::default(),
        Some(Value::String(word)) => self::word(word)?,
        Some(object @ Value::Object(_)) => chosen(object, tools)?,
        Some(other) => return Err(RequestError::expected("tool_choice", "a string or an object", other)),
    };
    if tools.specs.is_empty() && choice.core != Some(ToolChoice::None) && choice.needed.is_none() {
        choice.needed = tools.hosted.first().map(kind_of);
    }
    Ok(choice)
}

fn kind_of(tool: &Value) -> String {
    tool["type"].as_str().unwrap_or_default().to_owned()
}

impl From<ToolChoice> for Choice {
    fn from(choice: ToolChoice) -> Self {
        Self { core: Some(choice), ..Self::default() }
    }
}

fn word(word: &str) -> Result<Choice, RequestError> {
    const HINT: &str = "use \"auto\", \"none\", \"required\", {\"type\": \"function\", \"name\": \"...\"} or `allowed_tools`";
    match word {
        "auto" => Ok(ToolChoice::Auto.into()),
        "none" => Ok(ToolChoice::None.into()),
        "required" => Ok(ToolChoice::Required.into()),
        other => Err(RequestError::value("tool_choice", format!("`tool_choice` is `{other}`"), HINT)),
    }
}

fn chosen(choice: &Value, tools: &mut Tools) -> Result<Choice, RequestError> {
    match string("tool_choice", choice, "type")?.as_str() {
        "function" | "custom" => {
            let name = string("tool_choice", choice, "name")?;
            Ok(ToolChoice::Tool(own_name(choice, &name, tools).unwrap_or(name)).into())
        }
        "allowed_tools" => allowed_tools(choice, tools),
        kind => Ok(Choice { core: None, hosted: Some(choice.clone()), needed: Some(kind.to_owned()) }),
    }
}

/// The tool that is meant by a name: the choice may leave the namespace out where only one tool has the name.
fn own_name(choice: &Value, name: &str, tools: &Tools) -> Option<String> {
    let full = full_name(choice["namespace"].as_str(), name);
    if tools.specs.iter().any(|tool| tool.name == full) {
        return Some(full);
    }
    let mut namesakes = tools.forms.iter().filter(|(_, form)| form.name == name);
    match (namesakes.next(), namesakes.next()) {
        (Some((full, _)), None) => Some(full.clone()),
        _ => None,
    }
}

/// Of the client's tools only these are offered. The project's own stay: the client did not declare them.
fn allowed_tools(choice: &Value, tools: &mut Tools) -> Result<Choice, RequestError> {
    let Value::Array(list) = &choice["tools"] else {
        return Err(RequestError::expected("tool_choice.tools", "an array", &choice["tools"]));
    };
    let (mut names, mut kinds) = (Vec::with_capacity(list.len()), Vec::new());
    for (at, allowed) in list.iter().enumerate() {
        let path = format!("tool_choice.tools[{at}]");
        let undeclared = |key: &str, value: &str| {
            let path = format!("{path}.{key}");
            let message = format!("`{path}` is `{value}`, which neither `tools` declares nor a search found");
            RequestError::value(&path, message, "")
        };
        match string(&path, allowed, "type")?.as_str() {
            "function" | "custom" => {
                let name = string(&path, allowed, "name")?;
                names.push(own_name(allowed, &name, tools).ok_or_else(|| undeclared("name", &name))?);
            }
            "namespace" => {
                let name = string(&path, allowed, "name")?;
                let within = tools.forms.iter().filter(|(_, form)| form.namespace.as_ref() == Some(&name));
                let known = names.len();
                names.extend(within.map(|(full, _)| full.clone()));
                if names.len() == known {
                    return Err(undeclared("name", &name));
                }
            }
            kind if tools.hosted.iter().any(|tool| tool["type"] == kind) => kinds.push(kind.to_owned()),
            kind => return Err(undeclared("type", kind)),
        }
    }
    if names.is_empty() && kinds.is_empty() {
        let message = "`tool_choice.tools` is empty".to_owned();
        return Err(RequestError::value("tool_choice.tools", message, "use \"none\" to allow no tool"));
    }
    tools.specs.retain(|tool| names.contains(&tool.name));
    tools.hosted.retain(|tool| kinds.iter().any(|kind| tool["type"] == **kind));
    match (string("tool_choice", choice, "mode")?.as_str(), names.as_slice()) {
        ("auto", _) => Ok(ToolChoice::Auto.into()),
        ("required", [name]) if kinds.is_empty() => Ok(ToolChoice::Tool(name.clone()).into()),
        ("required", _) => Ok(ToolChoice::Required.into()),
        (other, _) => {
            let message = format!("`tool_choice.mode` is `{other}`");
            Err(RequestError::value("tool_choice.mode", message, "use `auto` or `required`"))
        }
    }
}
