//! The definitions of tools: what clients and models stumble over, and the least arguments that a schema takes.

use std::sync::Arc;

use lf_core::ToolRef;
use lf_core::tool::Tool;
use serde_json::{Map, Value, json};

/// How deep schemas are followed.
const DEPTH: usize = 16;
/// Problems told of one tool.
const MOST: usize = 20;

/// What is wrong with the definition of a tool, or will not work everywhere; each with its place.
pub(super) fn problems(tool: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let name = tool["name"].as_str().unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
    if name.is_empty() {
        found.push("it has no name".to_owned());
    } else if name.len() > 64 || !name.bytes().all(is_plain) {
        found.push("its name is not 1 to 64 of `A-Za-z0-9_-./`, which many clients want".to_owned());
    }
    if tool["description"].as_str().is_none_or(|text| text.trim().is_empty()) {
        found.push("it has no description: a model does not know what it is for".to_owned());
    }
    let schema = &tool["inputSchema"];
    match schema {
        Value::Null => found.push("it has no `inputSchema`".to_owned()),
        Value::Object(_) => {
            if schema["type"] != "object" {
                found.push("`inputSchema` is not of type `object`".to_owned());
            } else if !schema["properties"].is_object() {
                found.push("`inputSchema` has no `properties`: some model APIs refuse that".to_owned());
            }
            let id = ToolRef { server: "".into(), name: name.into() };
            if let Some(error) = Tool::new(id, None, Arc::new(schema.clone())).schema_error() {
                found.push(format!("`inputSchema` cannot be used to check arguments: {error}"));
            }
            walk(schema, "inputSchema", DEPTH, &mut found);
        }
        _ => found.push("`inputSchema` is not an object".to_owned()),
    }
    found.truncate(MOST);
    found
}

fn walk(schema: &Value, place: &str, depth: usize, found: &mut Vec<String>) {
    let (Value::Object(map), Some(depth)) = (schema, depth.checked_sub(1)) else {
        if !schema.is_object() {
            let what = if schema.is_boolean() { "a bare `true` or `false`" } else { "not a schema" };
            found.push(format!("{place} is {what}: some model APIs refuse that"));
        }
        return;
    };
    if let Some(reference) = map.get("$ref").and_then(Value::as_str).filter(|text| !text.starts_with('#')) {
        found.push(format!("{place} refers to `{reference}`, which clients do not fetch"));
    }
    if map.get("type").is_some_and(|kind| kind == "array")
        && !map.contains_key("items")
        && !map.contains_key("prefixItems")
    {
        found.push(format!("{place} is an array without `items`: some model APIs refuse that"));
    }
    for (name, inner) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
        walk(inner, &format!("{place}.{name}"), depth, found);
    }
    if let Some(items) = map.get("items").filter(|items| items.is_object()) {
        walk(items, &format!("{place}[]"), depth, found);
    }
}

/// Arguments with a value for each required property and for those with a default.
pub(super) fn least(schema: &Value) -> Map<String, Value> {
    match value(schema, schema, DEPTH) {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn value(schema: &Value, root: &Value, depth: usize) -> Value {
    let Some(depth) = depth.checked_sub(1) else { return Value::Null };
    for key in ["const", "default"] {
        if let Some(value) = schema.get(key) {
            return value.clone();
        }
    }
    let first = |key: &str| schema.get(key).and_then(Value::as_array).and_then(|list| list.first());
    if let Some(value) = first("enum").or_else(|| first("examples")) {
        return value.clone();
    }
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str)
        && let Some(target) = reference.strip_prefix('#').and_then(|path| root.pointer(path))
    {
        return value(target, root, depth);
    }
    if let Some(one) = ["anyOf", "oneOf", "allOf"].into_iter().find_map(first)
        && schema.get("type").is_none()
    {
        return value(one, root, depth);
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.first().and_then(Value::as_str),
        kind => kind.as_str(),
    };
    match kind {
        Some("string") => Value::String(text(schema)),
        Some("integer") => json!(schema["minimum"].as_i64().unwrap_or(1)),
        Some("number") => json!(schema["minimum"].as_f64().unwrap_or(1.0)),
        Some("boolean") => Value::Bool(true),
        Some("array") => {
            /// A schema may want any number.
            const MOST_ITEMS: u64 = 16;
            let wanted = schema["minItems"].as_u64().unwrap_or(0).min(MOST_ITEMS);
            Value::Array((0..wanted).map(|_| value(&schema["items"], root, depth)).collect())
        }
        Some("null") => Value::Null,
        Some("object") => object(schema, root, depth),
        _ if schema["properties"].is_object() => object(schema, root, depth),
        _ => Value::String("text".to_owned()),
    }
}

fn object(schema: &Value, root: &Value, depth: usize) -> Value {
    let properties = schema["properties"].as_object();
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let wanted = properties
        .into_iter()
        .flatten()
        .filter(|(name, inner)| required.contains(&name.as_str()) || inner.get("default").is_some());
    Value::Object(wanted.map(|(name, inner)| (name.clone(), value(inner, root, depth))).collect())
}

/// A text of the format and the length that the schema asks for.
fn text(schema: &Value) -> String {
    /// A schema may want any number.
    const LONGEST: u64 = 1_024;
    let text = match schema["format"].as_str() {
        Some("uri" | "url") => "https://example.com/",
        Some("email") => "someone@example.com",
        Some("date") => "2026-01-31",
        Some("date-time") => "2026-01-31T12:00:00Z",
        Some("uuid") => "00000000-0000-4000-8000-000000000000",
        _ => "text",
    };
    let length = schema["minLength"].as_u64().unwrap_or(0).min(LONGEST);
    let missing = usize::try_from(length).unwrap_or(0).saturating_sub(text.len());
    format!("{text}{}", "x".repeat(missing))
}

#[cfg(test)]
mod tests;
