//! What a server is told that asks a person something in the middle of a call, as long as nobody can be asked.

use serde_json::{Map, Value, json};

/// What is answered.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    /// With these values for the form.
    Accept(Map<String, Value>),
    Decline,
}

impl Reply {
    pub(super) fn action(&self) -> &'static str {
        match self {
            Self::Accept(_) => "accept",
            Self::Decline => "decline",
        }
    }

    /// As MCP writes it (schema 2025-11-25, `ElicitResult`).
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Accept(content) => json!({"action": "accept", "content": content}),
            Self::Decline => json!({"action": "decline"}),
        }
    }
}

/// Answers the parameters of `elicitation/create` with the defaults of the form, where these are enough: every required
/// field has one. A form without any default is a question that only a person can decide, as is a visit to a URL.
pub(super) fn answer(question: &Value) -> Reply {
    if question.get("mode").and_then(Value::as_str).is_some_and(|mode| mode != "form") {
        return Reply::Decline;
    }
    let schema = &question["requestedSchema"];
    let fields = schema["properties"].as_object().into_iter().flatten();
    let content: Map<String, Value> = fields
        .filter_map(|(name, field)| Some((name.clone(), field.get("default")?.clone())))
        .filter(|(_, default)| !default.is_null())
        .collect();
    let mut required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    match !content.is_empty() && required.all(|name| content.contains_key(name)) {
        true => Reply::Accept(content),
        false => Reply::Decline,
    }
}

#[cfg(test)]
mod tests;
