//! The JSON Schema of the file, for editors and for [`crate::check`].

use std::sync::LazyLock;

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use serde_json::{Value, json};

use crate::raw::RawProject;

static SCHEMA: LazyLock<Value> = LazyLock::new(generate);

/// JSON Schema, draft 2020-12.
pub fn schema() -> Value {
    SCHEMA.clone()
}

pub(crate) fn shared() -> &'static Value {
    &SCHEMA
}

fn generate() -> Value {
    let settings = SchemaSettings::draft2020_12();
    let generator = settings.with_transform(RecursiveTransform(Tidy)).for_deserialize().into_generator();
    let mut schema = generator.into_root_schema_for::<RawProject>().to_value();
    if let Some(root) = schema.as_object_mut() {
        // an unknown key at the root costs nothing but a warning
        root.insert("additionalProperties".to_owned(), json!(true));
        if let Some(Value::Object(definitions)) = root.remove("$defs") {
            let definitions = definitions.into_iter().map(|(name, schema)| (short(&name).to_owned(), schema));
            root.insert("$defs".to_owned(), Value::Object(definitions.collect()));
        }
    }
    schema
}

/// The name of a type as editors show it.
fn short(name: &str) -> &str {
    name.strip_prefix("Raw").unwrap_or(name)
}

/// An absent key is not `null`: the types say `Option`, the file may not.
#[derive(Clone)]
struct Tidy;

impl Transform for Tidy {
    fn transform(&mut self, schema: &mut Schema) {
        let Some(object) = schema.as_object_mut() else { return };
        if let Some(Value::Array(types)) = object.get_mut("type") {
            types.retain(|one| one != "null");
            if let [only] = types.as_slice() {
                let only = only.clone();
                object.insert("type".to_owned(), only);
            }
        }
        if let Some(Value::Array(branches)) = object.get_mut("anyOf") {
            branches.retain(|branch| branch.get("type") != Some(&json!("null")));
            if let [Value::Object(only)] = branches.as_slice() {
                let only = only.clone();
                object.remove("anyOf");
                for (key, value) in only {
                    object.entry(key).or_insert(value);
                }
            }
        }
        if let Some(Value::String(reference)) = object.get_mut("$ref") {
            *reference = reference.replace("#/$defs/Raw", "#/$defs/");
        }
        if object.get("default") == Some(&Value::Null) {
            object.remove("default");
        }
        // widths of Rust integers say nothing to a person
        object.remove("format");
    }
}
