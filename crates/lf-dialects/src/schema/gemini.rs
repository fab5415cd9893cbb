//! Gemini's `parameters`: a subset of OpenAPI 3.0 schemas. References are written out, unions become `anyOf`, `null`
//! becomes `nullable`, and keywords outside the subset go.

use lf_core::tool_set::fit_name;
use serde_json::{Map, Value, json};

use super::resolve;
use super::root::object_root;

/// Schemas nested or referred to deeper than this become any object: the API has a limit of its own, and a schema
/// may refer to itself.
const MAX_DEPTH: usize = 12;

const KEPT: [&str; 15] = [
    "title",
    "description",
    "nullable",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "default",
    "example",
    "propertyOrdering",
];

/// A name that begins with a letter or `_`, of one that every other API takes. [`own_name`] leads back, but for names
/// that have no room for a mark: those get a hash instead.
pub(super) fn name(fitted: String) -> String {
    if is_marked(&fitted) { fit_name(&format!("_{fitted}")) } else { fitted }
}

/// The name that was made into this one.
pub(crate) fn own_name(name: &str) -> &str {
    name.strip_prefix('_').filter(|own| is_marked(own)).unwrap_or(name)
}

/// Whether a name needs a mark, or looks as if it had one.
fn is_marked(name: &str) -> bool {
    name.trim_start_matches('_').starts_with(|first: char| first.is_ascii_digit() || first == '-')
}

pub(super) fn parameters(schema: &Value) -> Value {
    let root = Value::Object(object_root(schema, schema, 0));
    let mut walk = Walk { document: schema, within: Vec::new() };
    walk.schema(&root, 0)
}

/// A schema without references, unions other than `anyOf`, and constants. `document` is what references are looked up in.
pub(super) fn written_out(schema: &Value, document: &Value) -> Value {
    Walk { document, within: Vec::new() }.schema(schema, 0)
}

struct Walk<'a> {
    document: &'a Value,
    /// References being written out: one met again inside itself is a loop.
    within: Vec<String>,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &Value, depth: usize) -> Value {
        let Value::Object(source) = schema else { return json!({"type": "string"}) };
        if depth > MAX_DEPTH {
            return json!({"type": "object"});
        }
        if let Some(reference) = source.get("$ref").and_then(Value::as_str) {
            return self.reference(source, reference, depth);
        }
        if let Some(Value::Array(variants)) = source.get("allOf") {
            let merged = merge_all(source, variants, self.document);
            return self.schema(&merged, depth + 1);
        }
        let variants = ["anyOf", "oneOf"].iter().find_map(|key| source.get(*key).and_then(Value::as_array));
        if let Some(variants) = variants {
            return self.union(source, variants, depth);
        }
        if let Some(Value::Array(kinds)) = source.get("type") {
            let variants: Vec<Value> = kinds
                .iter()
                .map(|kind| {
                    let mut variant = source.clone();
                    variant.insert("type".to_owned(), kind.clone());
                    variant.shift_remove("description");
                    variant.into()
                })
                .collect();
            return self.union(source, &variants, depth);
        }
        self.plain(source, depth)
    }

    fn reference(&mut self, source: &Map<String, Value>, reference: &str, depth: usize) -> Value {
        let target = resolve(self.document, reference);
        let Some(target) = target.filter(|_| !self.within.iter().any(|outer| outer == reference)) else {
            return with_text(json!({"type": "object"}), source);
        };
        self.within.push(reference.to_owned());
        let written = self.schema(target, depth + 1);
        self.within.pop();
        with_text(written, source)
    }

    /// `null` among the variants makes the rest nullable; a single one that is left stands for itself.
    fn union(&mut self, source: &Map<String, Value>, variants: &[Value], depth: usize) -> Value {
        let is_null =
            |variant: &&Value| variant["type"] == "null" || variant.get("const") == Some(&Value::Null);
        let nullable = variants.iter().any(|variant| is_null(&variant));
        let mut written: Vec<Value> = Vec::new();
        for variant in variants.iter().filter(|variant| !is_null(variant)) {
            let variant = self.schema(variant, depth + 1);
            if !written.contains(&variant) {
                written.push(variant);
            }
        }
        let mut out = match written.len() {
            0 => json!({"type": "string"}),
            1 => written.swap_remove(0),
            _ => json!({ "anyOf": written }),
        };
        if nullable {
            out["nullable"] = true.into();
        }
        with_text(out, source)
    }

    fn plain(&mut self, source: &Map<String, Value>, depth: usize) -> Value {
        let mut out = Map::new();
        let kind = self.kind(source);
        out.insert("type".to_owned(), kind.into());
        for key in KEPT {
            if let Some(value) = source.get(key).filter(|value| fits(key, value)) {
                out.insert(key.to_owned(), value.clone());
            }
        }
        if source.get("type").is_some_and(|kind| kind == "null") {
            out.insert("nullable".to_owned(), true.into());
        }
        bounds(&mut out, source, kind);
        format(&mut out, source, kind);
        enumeration(&mut out, source, kind);
        match kind {
            "object" => self.properties(&mut out, source, depth),
            "array" => {
                let items = match (source.get("items"), source.get("prefixItems")) {
                    (Some(Value::Array(list)), _) | (None, Some(Value::Array(list))) if !list.is_empty() => {
                        self.union(&Map::new(), list, depth)
                    }
                    (Some(items @ Value::Object(_)), _) => self.schema(items, depth + 1),
                    _ => json!({"type": "string"}),
                };
                out.insert("items".to_owned(), items);
            }
            _ => {}
        }
        out.into()
    }

    fn kind(&self, source: &Map<String, Value>) -> &'static str {
        match source.get("type").and_then(Value::as_str).map(str::to_ascii_lowercase).as_deref() {
            Some("object") => return "object",
            Some("array") => return "array",
            Some("integer") => return "integer",
            Some("number") => return "number",
            Some("boolean") => return "boolean",
            Some(_) => return "string",
            None => {}
        }
        if source.contains_key("properties") || source.contains_key("additionalProperties") {
            return "object";
        }
        if source.contains_key("items") || source.contains_key("prefixItems") {
            return "array";
        }
        let values = source.get("enum").and_then(Value::as_array);
        match source.get("const").or_else(|| values?.first()) {
            Some(Value::Bool(_)) => "boolean",
            Some(Value::Number(number)) if number.is_f64() => "number",
            Some(Value::Number(_)) => "integer",
            _ => "string",
        }
    }

    /// An object without properties is one of any kind: an empty `properties` is refused.
    fn properties(&mut self, out: &mut Map<String, Value>, source: &Map<String, Value>, depth: usize) {
        let Some(Value::Object(properties)) = source.get("properties") else { return };
        if properties.is_empty() {
            return;
        }
        let written: Map<String, Value> =
            properties.iter().map(|(name, schema)| (name.clone(), self.schema(schema, depth + 1))).collect();
        let required: Vec<Value> = source
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter(|name| name.as_str().is_some_and(|name| written.contains_key(name)))
            .cloned()
            .collect();
        out.insert("properties".to_owned(), written.into());
        if !required.is_empty() {
            out.insert("required".to_owned(), required.into());
        }
    }
}

fn fits(key: &str, value: &Value) -> bool {
    match key {
        "title" | "description" | "pattern" => value.is_string(),
        "nullable" => value.is_boolean(),
        "minimum" | "maximum" => value.is_number(),
        "default" | "example" => !value.is_null(),
        "propertyOrdering" => value.is_array(),
        _ => value.is_u64(),
    }
}

/// Exclusive bounds become inclusive ones: exact for integers, a little wider for numbers.
fn bounds(out: &mut Map<String, Value>, source: &Map<String, Value>, kind: &str) {
    for (exclusive, inclusive, step) in
        [("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)]
    {
        let Some(bound) = source.get(exclusive).filter(|bound| bound.is_number()) else { continue };
        let moved = bound.as_i64().filter(|_| kind == "integer").and_then(|bound| bound.checked_add(step));
        out.entry(inclusive).or_insert(moved.map_or_else(|| bound.clone(), Value::from));
    }
}

fn format(out: &mut Map<String, Value>, source: &Map<String, Value>, kind: &str) {
    let known: &[&str] = match kind {
        "string" => &["date-time", "enum"],
        "integer" => &["int32", "int64"],
        "number" => &["float", "double"],
        _ => &[],
    };
    if let Some(format) = source.get("format").filter(|format| known.iter().any(|known| *format == known)) {
        out.insert("format".to_owned(), format.clone());
    }
}

/// Only strings can be enumerated; other values are told in the description.
fn enumeration(out: &mut Map<String, Value>, source: &Map<String, Value>, kind: &str) {
    let single = source.get("const").map(|value| vec![value.clone()]);
    let listed = source.get("enum").and_then(Value::as_array).cloned();
    let Some(values) = single.or(listed) else { return };
    if values.contains(&Value::Null) {
        out.insert("nullable".to_owned(), true.into());
    }
    let values: Vec<Value> = values.into_iter().filter(|value| !value.is_null()).collect();
    if values.is_empty() {
        return;
    }
    if kind == "string" && values.iter().all(Value::is_string) {
        // An empty string is refused as a value.
        let values: Vec<Value> = values.into_iter().filter(|value| *value != "").collect();
        out.insert("enum".to_owned(), values.into());
        return;
    }
    let listed = values.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
    let told = match out.get("description").and_then(Value::as_str) {
        Some(description) => format!("{description} (one of: {listed})"),
        None => format!("one of: {listed}"),
    };
    out.insert("description".to_owned(), told.into());
}

/// What the outer schema says beside a reference or union.
fn with_text(mut written: Value, source: &Map<String, Value>) -> Value {
    for key in ["title", "description", "default", "nullable"] {
        if let Some(value) = source.get(key).filter(|value| fits(key, value)) {
            written[key] = value.clone();
        }
    }
    written
}

/// The variants of an `allOf` as one schema; properties and required names add up, of other keywords the first
/// counts.
fn merge_all(source: &Map<String, Value>, variants: &[Value], document: &Value) -> Value {
    let mut merged = source.clone();
    merged.shift_remove("allOf");
    for variant in variants {
        let variant = match variant.get("$ref").and_then(Value::as_str) {
            Some(reference) => resolve(document, reference).unwrap_or(variant),
            None => variant,
        };
        for (key, value) in variant.as_object().into_iter().flatten() {
            match (merged.get_mut(key), value) {
                (None, value) => {
                    merged.insert(key.clone(), value.clone());
                }
                (Some(Value::Object(known)), Value::Object(more)) if key == "properties" => {
                    for (name, schema) in more {
                        known.entry(name.clone()).or_insert_with(|| schema.clone());
                    }
                }
                (Some(Value::Array(known)), Value::Array(more)) if key == "required" || key == "allOf" => {
                    known.extend(more.iter().cloned());
                }
                _ => {}
            }
        }
    }
    merged.into()
}
