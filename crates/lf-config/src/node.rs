//! The file as a tree with positions, the same for YAML, JSON and TOML.

use serde_json::{Map, Number, Value as Json};

use crate::diagnostic::{Report, Span};

mod toml;
mod yaml;

/// What a person writes stays far below these; what is meant to exhaust memory does not.
const MAX_DEPTH: usize = 64;
const MAX_NODES: usize = 20_000;
const MAX_ALIASES: usize = 100;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) span: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// A scalar without quotes, as written: what it means depends on what is expected in its place.
    Plain(String),
    /// A scalar that can only be text.
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) node: Node,
}

/// Reads the text by the extension of its path. `None` when there is no tree; the report says why.
pub(crate) fn read(report: &mut Report<'_>) -> Option<Node> {
    let source = report.source;
    match source.path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => toml::read(&source.text, report),
        _ => yaml::read(&source.text, report),
    }
}

impl Node {
    pub(crate) fn text(text: impl Into<String>, span: Span) -> Self {
        Self { value: Value::Text(text.into()), span }
    }

    pub(crate) fn map(entries: Vec<Entry>, span: Span) -> Self {
        Self { value: Value::Map(entries), span }
    }

    pub(crate) fn list(items: Vec<Self>, span: Span) -> Self {
        Self { value: Value::List(items), span }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        match &mut self.value {
            Value::Map(entries) => {
                entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.node)
            }
            _ => None,
        }
    }

    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// Empty for what is no mapping.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Empty for what is no list.
    pub(crate) fn items(&self) -> &[Self] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// A scalar as text.
    pub(crate) fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Plain(text) | Value::Text(text) => Some(text),
            Value::List(_) | Value::Map(_) => None,
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Plain(text) if meaning(text).is_null())
    }

    /// Where the value of `key` is, or else where this mapping is.
    pub(crate) fn span_of(&self, key: &str) -> Span {
        self.get(key).map_or_else(|| self.span.clone(), |node| node.span.clone())
    }

    /// The value in the core schema of YAML 1.2: `no` and `on` are text.
    pub(crate) fn to_json(&self) -> Json {
        match &self.value {
            Value::Plain(text) => meaning(text),
            Value::Text(text) => Json::String(text.clone()),
            Value::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Map(entries) => Json::Object(
                entries.iter().map(|entry| (entry.key.clone(), entry.node.to_json())).collect::<Map<_, _>>(),
            ),
        }
    }

    /// What it is, for a message.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
            Value::Plain(text) => match meaning(text) {
                Json::Null => "empty",
                Json::Bool(_) => "true or false",
                Json::Number(_) => "a number",
                _ => "a string",
            },
        }
    }
}

/// A plain scalar by the core schema of YAML 1.2 (section 10.3.2).
pub(crate) fn meaning(text: &str) -> Json {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Json::Null,
        "true" | "True" | "TRUE" => return Json::Bool(true),
        "false" | "False" | "FALSE" => return Json::Bool(false),
        _ => {}
    }
    number(text).map_or_else(|| Json::String(text.to_owned()), Json::Number)
}

fn number(text: &str) -> Option<Number> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok().map(Number::from);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return u64::from_str_radix(digits, 8).ok().map(Number::from);
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        || !digits.contains(|c: char| c.is_ascii_digit())
    {
        return None;
    }
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let text = text.strip_prefix('+').unwrap_or(text);
        let whole = text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
        if let Ok(whole) = whole {
            return Some(whole);
        }
    }
    if !digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) {
        return None;
    }
    text.parse::<f64>().ok().and_then(Number::from_f64)
}
