//! A form that a server asks a person to fill in (MCP 2025-11-25, elicitation): a flat object of simple fields.

use serde_json::{Map, Value, json};

/// Fields that are looked at; a form with more is none that a person fills in.
const MAX_FIELDS: usize = 64;
/// What is checked of a field's schema. Patterns are not: the specification has none, and they can take forever.
const CHECKED: [&str; 7] = ["type", "minLength", "maxLength", "format", "minimum", "maximum", "enum"];

#[derive(Debug, Clone, PartialEq)]
pub struct Form {
    /// In the server's order.
    pub fields: Vec<Field>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub required: bool,
    /// One that fits the field.
    pub default: Option<Value>,
    pub kind: FieldKind,
    checked: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub enum FieldKind {
    /// `format` is one of `email`, `uri`, `date`, `date-time`, or a word that nobody knows.
    Text {
        format: Option<String>,
    },
    Number,
    Integer,
    Boolean,
    /// One of these.
    Choice(Vec<Choice>),
    /// Some of these.
    Choices {
        choices: Vec<Choice>,
        at_least: u64,
        at_most: Option<u64>,
    },
}

/// What is sent, and what a person is shown for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub value: String,
    pub title: String,
}

impl Form {
    /// Reads the parameters of `elicitation/create`. `None` when they are no form, or one with fields of a kind that the
    /// protocol does not have.
    pub fn read(params: &Value) -> Option<Self> {
        if params.get("mode").and_then(Value::as_str).is_some_and(|mode| mode != "form") {
            return None;
        }
        let schema = params.get("requestedSchema")?;
        let properties = match schema.get("properties") {
            None => return Some(Self { fields: Vec::new() }),
            Some(properties) => properties.as_object().filter(|fields| fields.len() <= MAX_FIELDS)?,
        };
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let fields = properties.iter().map(|(name, schema)| Field::read(name, schema, &required));
        Some(Self { fields: fields.collect::<Option<_>>()? })
    }

    /// The defaults of all fields that have one, if these are enough: there is one at least, and every required field
    /// has one. A form without any default is a question that only a person can decide.
    pub fn defaults(&self) -> Option<Map<String, Value>> {
        let known = self.fields.iter().filter_map(|field| Some((field.name.clone(), field.default.clone()?)));
        let content: Map<String, Value> = known.collect();
        let enough = self.fields.iter().all(|field| !field.required || field.default.is_some());
        (enough && !content.is_empty()).then_some(content)
    }
}

impl Field {
    fn read(name: &str, schema: &Value, required: &[&str]) -> Option<Self> {
        let text = |key: &str| schema.get(key).and_then(Value::as_str).map(str::to_owned);
        let mut checked = Map::new();
        for key in CHECKED {
            if let Some(value) = schema.get(key) {
                checked.insert(key.to_owned(), value.clone());
            }
        }
        let kind = match schema.get("type").and_then(Value::as_str) {
            Some("string") | None if choices(schema).is_some() => FieldKind::Choice(choices(schema)?),
            Some("string") => FieldKind::Text { format: text("format") },
            Some("number") => FieldKind::Number,
            Some("integer") => FieldKind::Integer,
            Some("boolean") => FieldKind::Boolean,
            Some("array") => FieldKind::Choices {
                choices: choices(schema.get("items")?)?,
                at_least: schema["minItems"].as_u64().unwrap_or(0),
                at_most: schema["maxItems"].as_u64(),
            },
            _ => return None,
        };
        let mut field = Self {
            name: name.to_owned(),
            title: text("title").filter(|title| title != name),
            description: text("description"),
            required: required.contains(&name),
            default: None,
            kind,
            checked: checked.into(),
        };
        // one that the server itself would refuse is none
        field.default = schema.get("default").filter(|value| field.check(value).is_ok()).cloned();
        Some(field)
    }

    /// What is wrong with a value, as a lowercase fragment.
    ///
    /// # Errors
    /// When it does not fit the field.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        match &self.kind {
            FieldKind::Choice(choices) => {
                let known = value.as_str().is_some_and(|value| choices.iter().any(|one| one.value == value));
                known.then_some(()).ok_or_else(|| "not one of the choices".to_owned())
            }
            FieldKind::Choices { choices, at_least, at_most } => {
                let Some(chosen) = value.as_array() else { return Err("not a list".to_owned()) };
                let known = |value: &Value| choices.iter().any(|one| value == one.value.as_str());
                if !chosen.iter().all(known) {
                    return Err("not all are among the choices".to_owned());
                }
                let count = chosen.len() as u64;
                match at_most {
                    _ if count < *at_least => Err(format!("choose at least {at_least}")),
                    Some(at_most) if count > *at_most => Err(format!("choose at most {at_most}")),
                    _ => Ok(()),
                }
            }
            _ => {
                let checker = jsonschema::options().should_validate_formats(true).build(&self.checked);
                // a schema that says nothing sensible checks nothing: the server will
                let Ok(checker) = checker else { return Ok(()) };
                checker.iter_errors(value).next().map_or(Ok(()), |error| Err(error.to_string()))
            }
        }
    }

    /// Reads what a person typed.
    ///
    /// # Errors
    /// What is wrong with it, as a lowercase fragment.
    pub fn parse(&self, typed: &str) -> Result<Value, String> {
        let word = typed.trim();
        let value = match &self.kind {
            FieldKind::Text { .. } => typed.into(),
            FieldKind::Number => match word.parse::<serde_json::Number>() {
                Ok(number) => Value::Number(number),
                Err(_) => return Err("not a number".to_owned()),
            },
            FieldKind::Integer => match word.parse::<i64>() {
                Ok(number) => number.into(),
                Err(_) => return Err("not a whole number".to_owned()),
            },
            FieldKind::Boolean => match word.to_ascii_lowercase().as_str() {
                "y" | "yes" | "true" | "1" => true.into(),
                "n" | "no" | "false" | "0" => false.into(),
                _ => return Err("answer yes or no".to_owned()),
            },
            FieldKind::Choice(choices) => chosen(choices, word)?.into(),
            FieldKind::Choices { choices, .. } => {
                let words = word.split(',').map(str::trim).filter(|word| !word.is_empty());
                let chosen = words.map(|word| chosen(choices, word)).collect::<Result<Vec<_>, _>>()?;
                json!(chosen)
            }
        };
        self.check(&value)?;
        Ok(value)
    }
}

/// By its number from 1, its value or its title.
fn chosen<'a>(choices: &'a [Choice], word: &str) -> Result<&'a str, String> {
    let exact = choices.iter().find(|one| one.value == word);
    let found = exact
        .or_else(|| choices.iter().find(|one| one.title.eq_ignore_ascii_case(word)))
        .or_else(|| choices.get(word.parse::<usize>().ok()?.checked_sub(1)?));
    let found = found.ok_or_else(|| format!("`{word}` is not one of the choices"))?;
    Ok(&found.value)
}

/// The four spellings of the protocol: `enum`, `enum` with `enumNames`, and `oneOf` or `anyOf` of constants with titles.
fn choices(schema: &Value) -> Option<Vec<Choice>> {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let titles = schema.get("enumNames").and_then(Value::as_array);
        let choices = values.iter().enumerate().map(|(at, value)| {
            let value = value.as_str()?;
            let title = titles.and_then(|titles| titles.get(at)?.as_str()).unwrap_or(value);
            Some(Choice { value: value.to_owned(), title: title.to_owned() })
        });
        return choices.collect();
    }
    let options = schema.get("oneOf").or_else(|| schema.get("anyOf"))?.as_array()?;
    let choices = options.iter().map(|option| {
        let value = option.get("const")?.as_str()?;
        let title = option.get("title").and_then(Value::as_str).unwrap_or(value);
        Some(Choice { value: value.to_owned(), title: title.to_owned() })
    });
    choices.collect()
}

#[cfg(test)]
mod tests;
