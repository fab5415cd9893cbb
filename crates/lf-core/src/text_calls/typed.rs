//! Values that a dialect writes as plain text, typed by the schema of their tool.

use serde_json::{Map, Number, Value};

use crate::json;
use crate::model::ToolSpec;

/// Steps through `$ref` and unions until a schema is given up.
const MAX_DEPTH: usize = 8;

/// The types a schema allows, each at most once, in the order in which a text is tried as them: what fewer texts can
/// be comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Types {
    null: bool,
    integer: bool,
    number: bool,
    boolean: bool,
    object: bool,
    array: bool,
    string: bool,
}

/// What is known about a value's type.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// What the tool's schema says.
    Schema,
    Text,
    Json,
    /// This type.
    Named(String),
}

impl Kind {
    /// The value of the parameter `key` of the tool `name`, from its text.
    pub(super) fn value(&self, tools: &[ToolSpec], name: &str, key: &str, text: &str) -> Value {
        match self {
            Self::Schema => value(tools, name, key, text),
            Self::Text => Value::String(text.to_owned()),
            Self::Json => json_or_text(text),
            Self::Named(kind) => of_type(kind, text),
        }
    }
}

/// Whether tools are declared and this is none of them. Without declarations no name is refused.
pub(super) fn is_undeclared(tools: &[ToolSpec], name: &str) -> bool {
    !tools.is_empty() && tools.iter().all(|tool| tool.name != name)
}

/// The value of the parameter `key` of the tool `name`, from its text.
pub(super) fn value(tools: &[ToolSpec], name: &str, key: &str, text: &str) -> Value {
    match parameter(tools, name, key) {
        Some((root, schema)) => typed(root, schema, text),
        None => Value::String(text.to_owned()),
    }
}

/// The value of `text` under the schema `schema`, whose `$ref`s point into `root`. A text that is of none of its types
/// stays a string: the tool's own check says what is wrong with it.
pub(super) fn typed(root: &Value, schema: &Value, text: &str) -> Value {
    let mut types = Types::default();
    types.collect(root, schema, 0);
    types.read(text).unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The value that an unquoted word stands for: what its schema says, and where that says nothing, what it looks like.
pub(super) fn word(tools: &[ToolSpec], name: &str, key: &str, text: &str) -> Value {
    if let Some((root, schema)) = parameter(tools, name, key) {
        let mut types = Types::default();
        types.collect(root, schema, 0);
        if types != Types::default() {
            return types.read(text).unwrap_or_else(|| Value::String(text.to_owned()));
        }
    }
    plain_word(text)
}

/// A literal, a number, or else a string.
fn plain_word(text: &str) -> Value {
    literal(text).or_else(|| number(text)).unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The value of a text whose dialect names the type itself. An unknown type is a string.
fn of_type(kind: &str, text: &str) -> Value {
    let mut types = Types::default();
    types.add(kind);
    types.read(text).unwrap_or_else(|| Value::String(text.to_owned()))
}

/// JSON, or where it is none, the text.
fn json_or_text(text: &str) -> Value {
    container(text)
        .or_else(|| literal(text.trim()))
        .or_else(|| number(text.trim()))
        .or_else(|| serde_json::from_str(text).ok())
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The schema of the tool `name`, and in it that of its parameter `key`.
pub(super) fn parameter<'a>(tools: &'a [ToolSpec], name: &str, key: &str) -> Option<(&'a Value, &'a Value)> {
    let root = schema(tools, name)?;
    Some((root, root.get("properties")?.get(key)?))
}

pub(super) fn schema<'a>(tools: &'a [ToolSpec], name: &str) -> Option<&'a Value> {
    tools.iter().find(|tool| tool.name == name).map(|tool| &*tool.schema)
}

impl Types {
    fn collect(&mut self, root: &Value, schema: &Value, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        let Some(schema) = schema.as_object() else { return };
        match schema.get("type") {
            Some(Value::String(kind)) => self.add(kind),
            Some(Value::Array(kinds)) => {
                kinds.iter().filter_map(Value::as_str).for_each(|kind| self.add(kind));
            }
            _ => self.imply(schema),
        }
        let reference = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix('#'));
        if let Some(target) = reference.and_then(|path| root.pointer(path)) {
            self.collect(root, target, depth + 1);
        }
        for union in ["anyOf", "oneOf", "allOf"] {
            for member in schema.get(union).and_then(Value::as_array).into_iter().flatten() {
                self.collect(root, member, depth + 1);
            }
        }
    }

    /// What a schema without `type` says about it.
    fn imply(&mut self, schema: &Map<String, Value>) {
        self.object |= schema.contains_key("properties");
        self.array |= schema.contains_key("items");
        let constants = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        for constant in constants.chain(schema.get("const")) {
            match constant {
                Value::Null => self.null = true,
                Value::Bool(_) => self.boolean = true,
                Value::Number(_) => self.number = true,
                Value::String(_) => self.string = true,
                Value::Array(_) => self.array = true,
                Value::Object(_) => self.object = true,
            }
        }
    }

    /// Names beyond JSON Schema's own are those of Python and SQL habits.
    fn add(&mut self, kind: &str) {
        match kind.to_ascii_lowercase().as_str() {
            "null" | "none" => self.null = true,
            "integer" | "int" | "long" | "int32" | "int64" => self.integer = true,
            "number" | "float" | "double" => self.number = true,
            "boolean" | "bool" => self.boolean = true,
            "object" | "dict" | "map" => self.object = true,
            "array" | "list" => self.array = true,
            "string" | "str" | "text" => self.string = true,
            _ => {}
        }
    }

    fn read(self, text: &str) -> Option<Value> {
        let word = text.trim();
        if self.null && (word.eq_ignore_ascii_case("null") || word == "None") {
            return Some(Value::Null);
        }
        if self.integer
            && let Some(value) = integer(word)
        {
            return Some(value);
        }
        if self.number
            && let Some(value) = number(word)
        {
            return Some(value);
        }
        if self.boolean
            && let Some(value @ Value::Bool(_)) = literal(&word.to_ascii_lowercase())
        {
            return Some(value);
        }
        match container(word) {
            Some(value) if self.object && value.is_object() || self.array && value.is_array() => Some(value),
            _ => None,
        }
    }
}

fn literal(word: &str) -> Option<Value> {
    match word {
        "true" | "True" => Some(Value::Bool(true)),
        "false" | "False" => Some(Value::Bool(false)),
        "null" | "None" => Some(Value::Null),
        _ => None,
    }
}

/// A number as it is written in JSON, in all its digits.
pub(super) fn number(word: &str) -> Option<Value> {
    serde_json::from_str::<Number>(word).ok().map(Value::Number)
}

fn integer(word: &str) -> Option<Value> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, "0"));
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_whole = fraction.bytes().all(|byte| byte == b'0');
    if all_digits(digits) && is_whole { number(whole) } else { None }
}

/// An object or an array that is the whole text, read with the repairs that JSON from models needs.
fn container(text: &str) -> Option<Value> {
    let text = text.trim();
    if !text.starts_with(['{', '[']) {
        return None;
    }
    if let Ok(value) = serde_json::from_str(text) {
        return Some(value);
    }
    let reading = json::read_value(text).ok()?;
    text[reading.end..].trim().is_empty().then_some(reading.value)
}
