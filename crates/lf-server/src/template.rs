//! `{{name}}` and `{{name | default}}` in prompts and inline tools.

use serde_json::{Map, Value};
use thiserror::Error;

/// Longest value that is filled in, in characters.
const VALUE_LIMIT: usize = 100_000;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum TemplateError {
    #[error(
        "template variable `{0}` has no value and no default; send it in `variables`, or write `{{{{{0} | default}}}}`"
    )]
    Missing(String),
    #[error("template variable `{0}` must be a string, number, boolean or null")]
    NotScalar(String),
    #[error("template variable `{0}` is longer than {VALUE_LIMIT} characters")]
    TooLong(String),
}

/// Fills in a text once: what a value contains is not filled in again. Anything between braces that is no name stays
/// as it is.
pub(crate) fn fill(text: &str, variables: &Map<String, Value>) -> Result<String, TemplateError> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        let Some(length) = rest[start + 2..].find("}}") else { break };
        let inner = &rest[start + 2..start + 2 + length];
        let (name, default) = match inner.split_once('|') {
            Some((name, default)) => (name.trim(), Some(default.trim())),
            None => (inner.trim(), None),
        };
        filled.push_str(&rest[..start]);
        if is_name(name) {
            filled.push_str(&value(name, default, variables)?);
        } else {
            filled.push_str(&rest[start..start + length + 4]);
        }
        rest = &rest[start + length + 4..];
    }
    filled.push_str(rest);
    Ok(filled)
}

/// The variables of a text, in order and as often as they stand there, and whether each has a default.
pub(crate) fn names(text: &str) -> Vec<(&str, bool)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        let Some(length) = rest[start + 2..].find("}}") else { break };
        let inner = &rest[start + 2..start + 2 + length];
        let (name, default) = inner.split_once('|').map_or((inner, None), |(name, rest)| (name, Some(rest)));
        if is_name(name.trim()) {
            found.push((name.trim(), default.is_some()));
        }
        rest = &rest[start + length + 4..];
    }
    found
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn value(name: &str, default: Option<&str>, variables: &Map<String, Value>) -> Result<String, TemplateError> {
    let text = match variables.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        // the spelling of the projects that these templates come from
        Some(Value::Bool(true)) => "True".to_owned(),
        Some(Value::Bool(false)) => "False".to_owned(),
        Some(Value::Null) => String::new(),
        Some(_) => return Err(TemplateError::NotScalar(name.to_owned())),
        None => match default {
            Some(default) => default.to_owned(),
            None => return Err(TemplateError::Missing(name.to_owned())),
        },
    };
    if text.chars().count() > VALUE_LIMIT {
        return Err(TemplateError::TooLong(name.to_owned()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn filled(text: &str, variables: Value) -> Result<String, TemplateError> {
        let Value::Object(variables) = variables else { panic!("an object") };
        fill(text, &variables)
    }

    #[test]
    fn names_are_replaced_and_other_braces_stay() {
        let variables = json!({"user": "Ada", "n": 3, "yes": true, "none": null});
        assert_eq!(
            filled("Hi {{user}} {{ n }}{{yes}}{{none}}!", variables.clone()).as_deref(),
            Ok("Hi Ada 3True!")
        );
        assert_eq!(filled("{{ 1x }} {a} {{", variables).as_deref(), Ok("{{ 1x }} {a} {{"));
    }

    #[test]
    fn a_default_stands_in_and_its_absence_is_an_error() {
        assert_eq!(filled("Hello {{user | guest}}", json!({})).as_deref(), Ok("Hello guest"));
        assert_eq!(filled("Hello {{user}}", json!({})), Err(TemplateError::Missing("user".to_owned())));
        assert_eq!(filled("{{user}}", json!({"user": []})), Err(TemplateError::NotScalar("user".to_owned())));
    }

    #[test]
    fn the_names_of_a_text_can_be_told() {
        assert_eq!(names("Hi {{user}}, {{ n | 3 }} {{1x}} {{"), [("user", false), ("n", true)]);
    }

    #[test]
    fn a_value_is_not_filled_in_again() {
        assert_eq!(filled("{{a}}", json!({"a": "{{b}}"})).as_deref(), Ok("{{b}}"));
    }
}
