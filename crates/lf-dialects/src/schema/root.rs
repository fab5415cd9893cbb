//! The root of a tool's schema: an object with properties and without unions, which OpenAI and Anthropic demand.
//! What is below the root stays as it is, except for what both refuse.

use serde_json::{Map, Value, json};

use super::{Holds, for_each_subschema, resolve};

/// References and unions followed at the root before giving up on a schema that refers to itself.
const MAX_DEPTH: usize = 16;

pub(crate) fn object_schema(schema: &Value) -> Value {
    let mut root = object_root(schema, schema, 0);
    fix_below(&mut root, schema);
    root.into()
}

/// `document` is what references are looked up in.
pub(super) fn object_root(schema: &Value, document: &Value, depth: usize) -> Map<String, Value> {
    let mut out = match schema {
        Value::Object(object) if depth < MAX_DEPTH => object.clone(),
        _ => Map::new(),
    };
    if let Some(target) = referred(&out, document) {
        out.shift_remove("$ref");
        let target = object_root(target, document, depth + 1);
        absorb(&mut out, target);
    }
    for (keyword, combine) in [("allOf", Union::All), ("anyOf", Union::Any), ("oneOf", Union::Any)] {
        if let Some(Value::Array(variants)) = out.shift_remove(keyword) {
            flatten(&mut out, &variants, combine, document, depth);
        }
    }
    for keyword in ["enum", "const", "not"] {
        out.shift_remove(keyword);
    }
    if out.get("type") != Some(&Value::from("object")) {
        out.insert("type".to_owned(), "object".into());
    }
    if !out.get("properties").is_some_and(Value::is_object) {
        out.insert("properties".to_owned(), json!({}));
    }
    if !out.get("required").is_none_or(Value::is_array) {
        out.shift_remove("required");
    }
    out
}

fn referred<'a>(schema: &Map<String, Value>, document: &'a Value) -> Option<&'a Value> {
    resolve(document, schema.get("$ref")?.as_str()?)
}

/// Takes over what the referring schema does not say itself; properties and required names add up.
fn absorb(out: &mut Map<String, Value>, target: Map<String, Value>) {
    let properties = target.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    add_properties(out, properties, Union::All);
    add_required(out, required(&target));
    for (key, value) in target {
        out.entry(key).or_insert(value);
    }
}

#[derive(Debug, Clone, Copy)]
enum Union {
    /// Every variant holds.
    All,
    /// One of them does.
    Any,
}

fn flatten(out: &mut Map<String, Value>, variants: &[Value], union: Union, document: &Value, depth: usize) {
    let mut needed: Option<Vec<Value>> = None;
    for variant in variants {
        let variant = object_root(variant, document, depth + 1);
        let names = required(&variant);
        needed = Some(match (needed, union) {
            (None, _) => names,
            (Some(mut earlier), Union::All) => {
                earlier.extend(names);
                earlier
            }
            (Some(earlier), Union::Any) => earlier.into_iter().filter(|name| names.contains(name)).collect(),
        });
        if let Some(Value::Object(properties)) = variant.get("properties") {
            add_properties(out, properties.clone(), union);
        }
    }
    add_required(out, needed.unwrap_or_default());
}

fn required(schema: &Map<String, Value>) -> Vec<Value> {
    schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default()
}

fn add_required(out: &mut Map<String, Value>, names: Vec<Value>) {
    if names.is_empty() {
        return;
    }
    let mut all = required(out);
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    out.insert("required".to_owned(), all.into());
}

/// A property that two sides describe differently is what both, or either, of them say.
fn add_properties(out: &mut Map<String, Value>, properties: Map<String, Value>, union: Union) {
    let keyword = match union {
        Union::All => "allOf",
        Union::Any => "anyOf",
    };
    if !out.get("properties").is_some_and(Value::is_object) {
        out.insert("properties".to_owned(), json!({}));
    }
    let Some(Value::Object(known)) = out.get_mut("properties") else { return };
    for (name, schema) in properties {
        let merged = match known.get(&name) {
            None => schema,
            Some(earlier) if *earlier == schema => continue,
            Some(earlier) => match earlier.get(keyword).and_then(Value::as_array) {
                Some(list) if list.contains(&schema) => continue,
                Some(list) if earlier.as_object().is_some_and(|object| object.len() == 1) => {
                    let variants = [list.as_slice(), &[schema]].concat();
                    json!({ keyword: variants })
                }
                _ => json!({ keyword: [earlier, &schema] }),
            },
        };
        known.insert(name, merged);
    }
}

/// OpenAI refuses arrays without `items`, beside `prefixItems` too (`AnswerDotAI/fastcore#798`), Anthropic a `required`
/// that is no list; neither changes the meaning. And what is no schema of draft 2020-12 says nothing: sent as it is, one
/// tool with such a declaration costs the whole request.
fn fix_below(schema: &mut Map<String, Value>, document: &Value) {
    modernize(schema);
    schema.retain(|keyword, value| is_well_formed(keyword, value, document));
    let named = schema.iter_mut().filter(|(keyword, _)| Holds::of(keyword) == Some(Holds::Named));
    for (_, below) in named.filter_map(|(_, named)| named.as_object_mut()).flatten() {
        if !is_schema(below) {
            *below = json!({});
        }
    }
    let is_array = schema.get("type").is_some_and(|kind| match kind {
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "array"),
        kind => kind == "array",
    });
    if is_array && !schema.contains_key("items") {
        schema.insert("items".to_owned(), json!({}));
    }
    for_each_subschema(schema, &mut |below| {
        if let Value::Object(below) = below {
            fix_below(below, document);
        }
    });
}

/// Bounds that say of another whether it belongs to the range (draft 4), and `items` for each place of an array (up to
/// draft 2019-09), as they are written today.
fn modernize(schema: &mut Map<String, Value>) {
    for (exclusive, inclusive) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if schema.get(exclusive) == Some(&Value::Bool(true)) {
            schema.shift_remove(exclusive);
            let bound = schema.shift_remove(inclusive);
            schema.extend(bound.map(|bound| (exclusive.to_owned(), bound)));
        }
    }
    if schema.get("items").is_some_and(Value::is_array)
        && let Some(places) = schema.shift_remove("items")
    {
        schema.entry("prefixItems").or_insert(places);
        let others = schema.shift_remove("additionalItems");
        schema.extend(others.map(|others| ("items".to_owned(), others)));
    }
}

fn is_schema(value: &Value) -> bool {
    value.is_object() || value.is_boolean()
}

/// Whether a keyword has a value of the shape that JSON Schema gives it. References lead into the document: nothing is
/// fetched, by us or by whoever reads the declaration.
fn is_well_formed(keyword: &str, value: &Value, document: &Value) -> bool {
    const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];
    let is_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    match Holds::of(keyword) {
        Some(Holds::One) => return is_schema(value),
        Some(Holds::List) => {
            return value.as_array().is_some_and(|list| !list.is_empty() && list.iter().all(is_schema));
        }
        Some(Holds::Named) => return value.is_object(),
        None => {}
    }
    match keyword {
        "type" => match value {
            Value::Array(names) => !names.is_empty() && names.iter().all(is_type),
            name => is_type(name),
        },
        "$ref" | "$dynamicRef" => value.as_str().is_some_and(|reference| match reference.strip_prefix('#') {
            Some(path) if path.is_empty() || path.starts_with('/') => resolve(document, reference).is_some(),
            Some(_) => true,
            None => false,
        }),
        "required" => value.as_array().is_some_and(|names| names.iter().all(Value::is_string)),
        "enum" => value.as_array().is_some_and(|values| !values.is_empty()),
        "pattern" | "format" | "title" | "description" => value.is_string(),
        "uniqueItems" | "deprecated" | "readOnly" | "writeOnly" => value.is_boolean(),
        "examples" => value.is_array(),
        "minimum" | "maximum" | "multipleOf" | "exclusiveMinimum" | "exclusiveMaximum" => value.is_number(),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
            value.as_f64().is_some_and(|count| count >= 0.0 && count.fract() == 0.0)
        }
        _ => true,
    }
}
