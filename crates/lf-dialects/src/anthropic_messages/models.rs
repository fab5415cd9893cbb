//! The list of models as Anthropic's clients read it.

use serde_json::{Value, json};

/// Nobody knows when a model behind an endpoint was made; clients demand a date.
const CREATED: &str = "1970-01-01T00:00:00Z";

pub fn model(name: &str) -> Value {
    json!({"type": "model", "id": name, "display_name": name, "created_at": CREATED})
}

/// The body of `GET …/models`, all on one page.
pub fn models<'a>(names: impl IntoIterator<Item = &'a str>) -> Value {
    let data: Vec<Value> = names.into_iter().map(model).collect();
    let edge = |model: Option<&Value>| model.map_or(Value::Null, |model| model["id"].clone());
    let (first, last) = (edge(data.first()), edge(data.last()));
    json!({"data": data, "has_more": false, "first_id": first, "last_id": last})
}
