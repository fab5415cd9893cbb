//! From a JSON value to the calls it means. Other spellings than `name` and `arguments` are taken because an explicit
//! tag stands around them; a name is never guessed.

use indexmap::IndexMap;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::TextCall;
use super::format::{Body, Place, TextFormat};
use crate::Arguments;
use crate::json;

/// A call, or why there is none.
pub(super) type Found = Result<TextCall, String>;

const ARGUMENTS: &[&str] = &["arguments", "parameters", "args", "params", "input", "tool_input"];
const NAMES: &[&str] = &["name", "tool", "tool_name", "function_name", "function"];
const IDS: &[&str] = &["id", "call_id", "tool_call_id"];
/// Members beside the arguments that are not arguments.
const OTHERS: &[&str] = &["type", "index", "server"];

/// What a format lets an object mean.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Style {
    /// `{"name": {arguments}}`
    keyed: bool,
    /// Only a name with arguments is a call, because nothing else says that it is one.
    strict: bool,
}

impl Style {
    pub(super) fn of(format: &TextFormat) -> Self {
        Self { keyed: matches!(format.body, Body::KeyedJson), strict: format.place == Place::Bare }
    }
}

/// All calls in a value. `raw` is its text where that is JSON as it stands, so that a call keeps its arguments as the
/// model wrote them (byte-stable history, numbers beyond 64 bits).
pub(super) fn calls(value: Value, raw: Option<&str>, style: Style) -> Vec<Found> {
    match value {
        Value::Array(elements) => {
            let raws: Vec<&RawValue> = raw.and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
            let raws = raws.into_iter().map(|raw| Some(raw.get())).chain(std::iter::repeat(None));
            elements
                .into_iter()
                .zip(raws)
                .flat_map(|(element, raw)| element_calls(element, raw, style))
                .collect()
        }
        Value::Object(mut object) => match object.get_mut("tool_calls") {
            Some(Value::Array(elements)) => {
                calls(Value::Array(std::mem::take(elements)), member(raw, "tool_calls"), style)
            }
            _ => object_calls(object, raw, style),
        },
        other => vec![Err(format!("a call is a JSON object, not {}", json::kind(&other)))],
    }
}

fn element_calls(value: Value, raw: Option<&str>, style: Style) -> Vec<Found> {
    match value {
        Value::Object(object) => object_calls(object, raw, style),
        other => vec![Err(format!("a call is a JSON object, not {}", json::kind(&other)))],
    }
}

fn object_calls(object: Map<String, Value>, raw: Option<&str>, style: Style) -> Vec<Found> {
    let named = NAMES.iter().any(|key| object.get(*key).is_some_and(|name| !name.is_null()));
    if style.keyed && !named && !object.is_empty() {
        let call = |(name, value): (String, Value)| {
            let arguments = arguments(&name, value, member(raw, &name))?;
            Ok(TextCall { name, server: None, id: None, arguments })
        };
        return object.into_iter().map(call).collect();
    }
    if style.strict && !is_plain_call(&object) {
        return vec![Err("the object is no call".to_owned())];
    }
    vec![call(object, raw)]
}

/// A name, arguments, and nothing that a call does not have.
fn is_plain_call(object: &Map<String, Value>) -> bool {
    if let Some(Value::Object(inner)) = object.get("function") {
        return is_plain_call(inner);
    }
    let known = |key: &str| {
        NAMES.contains(&key) || ARGUMENTS.contains(&key) || IDS.contains(&key) || OTHERS.contains(&key)
    };
    let arguments = ARGUMENTS.iter().filter_map(|key| object.get(*key)).next();
    object.keys().all(|key| known(key)) && matches!(arguments, Some(Value::Object(_) | Value::String(_)))
}

fn call(mut object: Map<String, Value>, raw: Option<&str>) -> Found {
    // the form of the OpenAI API: {"type": "function", "function": {"name": …, "arguments": …}}
    if let Some(Value::Object(inner)) = object.get_mut("function") {
        let inner = std::mem::take(inner);
        let id = text_member(&mut object, IDS);
        let found = call(inner, member(raw, "function"))?;
        return Ok(TextCall { id: found.id.or(id), ..found });
    }
    let name_key = NAMES.iter().find(|key| object.contains_key(**key)).copied();
    let Some(name) = name_key.and_then(|key| object.shift_remove(key)).and_then(nonempty_text) else {
        return Err("the call has no name: expected {\"name\": …, \"arguments\": {…}}".to_owned());
    };
    let id = text_member(&mut object, IDS);
    let server = text_member(&mut object, &["server"]);
    let arguments = match ARGUMENTS.iter().find_map(|key| Some((*key, object.shift_remove(*key)?))) {
        Some((key, value)) => arguments(&name, value, member(raw, key))?,
        None => {
            object.retain(|key, _| !OTHERS.contains(&key.as_str()));
            Arguments::from_object(object)
        }
    };
    Ok(TextCall { name, server, id, arguments })
}

/// The arguments of the call `name`: an object, the text of one, or nothing.
pub(super) fn arguments(name: &str, value: Value, raw: Option<&str>) -> Result<Arguments, String> {
    match value {
        Value::Object(object) => Ok(match raw {
            Some(raw) => Arguments::parse(raw),
            None => Arguments::from_object(object),
        }),
        Value::Null => Ok(Arguments::from_object(Map::new())),
        Value::Array(elements) if elements.is_empty() => Ok(Arguments::from_object(Map::new())),
        Value::String(text) => match json::read_object(&text) {
            Ok(object) if text.trim().is_empty() => Ok(Arguments::from_object(object)),
            Ok(_) => Ok(Arguments::parse(text)),
            Err(problem) => {
                Err(format!("the arguments of `{name}` are a string that holds no JSON object: {problem}"))
            }
        },
        other => Err(format!("the arguments of `{name}` must be a JSON object, not {}", json::kind(&other))),
    }
}

fn nonempty_text(value: Value) -> Option<String> {
    match value {
        Value::String(text) if text.trim().len() == text.len() => Some(text).filter(|text| !text.is_empty()),
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        _ => None,
    }
}

fn text_member(object: &mut Map<String, Value>, keys: &[&str]) -> Option<String> {
    let key = keys.iter().find(|key| object.get(**key).is_some_and(Value::is_string))?;
    object.shift_remove(*key).and_then(nonempty_text)
}

fn member<'a>(raw: Option<&'a str>, key: &str) -> Option<&'a str> {
    let members: IndexMap<String, &'a RawValue> = serde_json::from_str(raw?).ok()?;
    members.get(key).map(|raw| raw.get())
}
