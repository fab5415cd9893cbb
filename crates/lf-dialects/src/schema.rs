//! Tool declarations as each model API takes them.

mod gemini;
mod root;
mod strict;

use lf_core::model::ToolSpec;
use lf_core::tool_set::fit_name;
use serde_json::{Map, Value};

use crate::anthropic_messages::ANTHROPIC_ONLY;

pub(crate) use gemini::own_name as own_name_at_gemini;
pub(crate) use root::object_schema;

/// Whose rules a declaration must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaTarget {
    /// OpenAI and all that follow its rules: Azure, DeepSeek, Groq, Mistral, Together, xAI, and local servers, which
    /// take more.
    Openai,
    Anthropic,
    /// A subset of OpenAPI 3.0.
    Gemini,
}

impl SchemaTarget {
    /// The most tools one request may carry, where the API has such a limit.
    pub fn max_tools(self) -> Option<usize> {
        match self {
            Self::Openai => Some(128),
            Self::Anthropic => None,
            Self::Gemini => Some(512),
        }
    }

    /// A name this API takes, made of the name alone.
    pub fn name(self, name: &str) -> String {
        let name = fit_name(name);
        if self == Self::Gemini { gemini::name(name) } else { name }
    }
}

/// `name`, `description`, and `parameters` (Anthropic: `input_schema`), with the declaration's further fields.
pub fn tool_for(target: SchemaTarget, spec: &ToolSpec) -> Value {
    let mut tool = Map::new();
    tool.insert("name".to_owned(), target.name(&spec.name).into());
    if let Some(description) = &spec.description {
        tool.insert("description".to_owned(), description.as_ref().into());
    }
    let (key, schema) = match target {
        SchemaTarget::Openai => ("parameters", openai_parameters(spec)),
        SchemaTarget::Anthropic => ("input_schema", object_schema(&spec.schema)),
        SchemaTarget::Gemini => ("parameters", gemini::parameters(&spec.schema)),
    };
    tool.insert(key.to_owned(), schema);
    if target != SchemaTarget::Gemini {
        tool.extend(
            spec.rest
                .iter()
                .filter(|(key, _)| *key != ANTHROPIC_ONLY)
                .map(|(key, value)| (key.clone(), value.clone())),
        );
    }
    tool.into()
}

/// The schema for OpenAI's `parameters`; with `strict: true` it is brought into the form that mode demands.
pub(crate) fn openai_parameters(spec: &ToolSpec) -> Value {
    let schema = object_schema(&spec.schema);
    if spec.rest.get("strict") == Some(&Value::Bool(true)) { strict::strict(schema) } else { schema }
}

/// The schema for Ollama's `parameters`. Ollama reads it into a structure of its own and forgets references, `oneOf`,
/// `allOf` and `const` below the root, and refuses the request where a schema is `true`: those are written out.
pub(crate) fn ollama_parameters(schema: &Value) -> Value {
    let root = object_schema(schema);
    let mut written = for_ollama(&root, &root);
    if written != root
        && let Value::Object(written) = &mut written
    {
        // nothing refers to them any more
        written.shift_remove("$defs");
        written.shift_remove("definitions");
    }
    written
}

fn for_ollama(schema: &Value, document: &Value) -> Value {
    let Value::Object(object) = schema else { return Map::new().into() };
    if ["$ref", "oneOf", "allOf", "const"].iter().any(|key| object.contains_key(*key)) {
        return gemini::written_out(schema, document);
    }
    let mut out = object.clone();
    for (key, value) in &mut out {
        match (key.as_str(), value) {
            ("properties", Value::Object(named)) => {
                named.values_mut().for_each(|below| *below = for_ollama(below, document));
            }
            ("anyOf", Value::Array(list)) => {
                list.iter_mut().for_each(|below| *below = for_ollama(below, document));
            }
            ("items", items) => *items = for_ollama(items, document),
            _ => {}
        }
    }
    out.into()
}

/// Whether a schema is already in the form that strict mode demands, so that asking for it changes nothing.
pub(crate) fn is_strict(schema: &Value) -> bool {
    schema["type"] == "object" && strict::strict(schema.clone()) == *schema
}

/// A local reference (`#/$defs/x`) looked up in the document it stands in. It is the fragment of a URI (RFC 6901, section
/// 6); some programs do not encode what they put there.
fn resolve<'a>(document: &'a Value, reference: &str) -> Option<&'a Value> {
    let path = reference.strip_prefix('#')?;
    document.pointer(path).or_else(|| document.pointer(&percent_decoded(path)?))
}

/// `None` where nothing is encoded, or what comes of it is no text.
fn percent_decoded(text: &str) -> Option<String> {
    let (first, rest) = text.split_once('%')?;
    let mut bytes = first.as_bytes().to_vec();
    for part in rest.split('%') {
        let code = part.get(..2).filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// How the value of a keyword holds further schemas (JSON Schema 2020-12, core, section 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    One,
    List,
    /// By names that are no keywords.
    Named,
}

impl Holds {
    fn of(keyword: &str) -> Option<Self> {
        match keyword {
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                Some(Self::Named)
            }
            "anyOf" | "oneOf" | "allOf" | "prefixItems" => Some(Self::List),
            "items"
            | "additionalProperties"
            | "not"
            | "if"
            | "then"
            | "else"
            | "contains"
            | "propertyNames"
            | "unevaluatedProperties"
            | "unevaluatedItems" => Some(Self::One),
            _ => None,
        }
    }
}

/// Applies `change` to the schemas directly below this one.
fn for_each_subschema(schema: &mut Map<String, Value>, change: &mut dyn FnMut(&mut Value)) {
    for (keyword, value) in schema.iter_mut() {
        match (Holds::of(keyword), value) {
            (Some(Holds::Named), Value::Object(named)) => named.values_mut().for_each(&mut *change),
            (Some(Holds::List), Value::Array(list)) => list.iter_mut().for_each(&mut *change),
            // one for each place of an array, up to draft 2019-09
            (Some(Holds::One), Value::Array(list)) if keyword == "items" => {
                list.iter_mut().for_each(&mut *change);
            }
            (Some(Holds::One), value @ Value::Object(_)) => change(value),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
