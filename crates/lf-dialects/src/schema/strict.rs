//! OpenAI's strict mode: objects are closed and name all their properties as required; what was optional may be
//! `null` instead. A schema that keeps these rules already comes out as it went in.

use serde_json::{Map, Value, json};

use super::for_each_subschema;

pub(super) fn strict(mut schema: Value) -> Value {
    close(&mut schema);
    schema
}

fn close(schema: &mut Value) {
    let Value::Object(object) = schema else { return };
    object.shift_remove("default");
    if let Some(variants) = object.shift_remove("oneOf") {
        object.entry("anyOf").or_insert(variants);
    }
    if object.get("type").is_some_and(is_object_type)
        || object.get("properties").is_some_and(Value::is_object)
    {
        require_all(object);
    }
    for_each_subschema(object, &mut close);
}

fn is_object_type(kind: &Value) -> bool {
    kind == "object" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "object"))
}

fn require_all(object: &mut Map<String, Value>) {
    let required = object.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut names = Vec::new();
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        for (name, schema) in properties {
            if !required.iter().any(|known| known == name) {
                make_nullable(schema);
            }
            names.push(Value::from(name.as_str()));
        }
    }
    let same = required.len() == names.len() && names.iter().all(|name| required.contains(name));
    if !same {
        object.insert("required".to_owned(), names.into());
    }
    object.insert("additionalProperties".to_owned(), false.into());
}

fn make_nullable(schema: &mut Value) {
    let null = Value::from("null");
    let Value::Object(object) = schema else {
        *schema = json!({"anyOf": [{}, {"type": "null"}]});
        return;
    };
    if let Some(Value::Array(values)) = object.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    let enumerated = object.contains_key("enum");
    match object.get_mut("type") {
        Some(Value::Array(kinds)) if !kinds.contains(&null) => return kinds.push(null),
        Some(kind @ Value::String(_)) if *kind != null => {
            *kind = Value::Array(vec![kind.take(), null]);
            return;
        }
        Some(_) => return,
        None => {}
    }
    match object.get_mut("anyOf") {
        Some(Value::Array(variants)) => {
            if !variants.iter().any(|variant| variant["type"] == null) {
                variants.push(json!({"type": "null"}));
            }
        }
        _ if enumerated => {}
        _ => *schema = json!({"anyOf": [schema.take(), {"type": "null"}]}),
    }
}
