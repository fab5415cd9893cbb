//! Fields that one upstream model does not take although its API has them: left out from the first refusal on.
//!
//! Compatible endpoints and older models refuse fields by name, and a coding assistant sends an effort with every
//! request, whatever the model. What an answer depends on, and the client wrote itself, is never left out: that refusal
//! goes to the client.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use lf_core::ModelError;
use lf_core::model::Dialect;
use serde_json::{Map, Value};

/// Models remembered; a daemon has a few dozen.
const MODELS: usize = 1024;

/// Fields that change nothing in what is answered.
const HINTS: [&str; 9] = [
    "stream_options",
    "user",
    "metadata",
    "store",
    "service_tier",
    "prompt_cache_key",
    "safety_identifier",
    "parallel_tool_calls",
    "include",
];

/// How much to think, in each API's word: the client may have said it in another one's.
const EFFORTS: [&str; 3] = ["reasoning_effort", "reasoning", "think"];

/// Ways to say that a field is not taken, of OpenAI, vLLM, pydantic, Ollama and others.
const REFUSALS: [&str; 8] = [
    "unsupported",
    "not support",
    "unrecognized",
    "unknown",
    "not permitted",
    "not allowed",
    "unexpected",
    "extra inputs",
];

/// What each model has refused.
#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<HashMap<String, BTreeSet<&'static str>>>);

/// One field that a model did not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field(&'static str);

impl Refused {
    /// Leaves out what this model has refused before, and gives the names.
    pub(crate) fn leave_out(&self, model: &str, fields: &mut Map<String, Value>) -> Vec<Field> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = known.get(model).into_iter().flatten();
        refused.map(|name| Field(name)).filter(|field| apply(*field, fields)).collect()
    }

    pub(crate) fn remember(&self, model: &str, field: Field) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < MODELS || known.contains_key(model) {
            known.entry(model.to_owned()).or_default().insert(field.0);
        }
    }
}

/// The field that this refusal is about, where the request can do without it. `translated`: the client speaks another
/// dialect than the upstream, so that the efforts are not its own words.
pub(crate) fn dispensable(
    error: &ModelError,
    fields: &Map<String, Value>,
    dialect: Dialect,
    translated: bool,
) -> Option<Field> {
    let ModelError::Rejected { status: 400 | 422, message, body, .. } = error else { return None };
    let said = message.to_lowercase();
    let param = body.as_ref().and_then(|body| body["param"].as_str()).unwrap_or_default();
    if !REFUSALS.iter().any(|words| said.contains(words)) {
        return None;
    }
    let names = |name: &str| param == name || is_named(&said, name);
    if fields.contains_key("max_tokens") && names("max_tokens") && said.contains("max_completion_tokens") {
        return Some(Field("max_tokens"));
    }
    if dialect == Dialect::Ollama && fields.contains_key("think") && said.contains("thinking") {
        return translated.then_some(Field("think"));
    }
    let efforts = EFFORTS.iter().filter(|_| translated);
    HINTS
        .iter()
        .chain(efforts)
        .find(|name| fields.contains_key(**name) && names(name))
        .map(|name| Field(name))
}

/// Whether a text says this word as such and not as a part of another one.
fn is_named(text: &str, name: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

/// Changes a request so that it has not the field; false where it had not.
pub(crate) fn apply(field: Field, fields: &mut Map<String, Value>) -> bool {
    let Some(value) = fields.shift_remove(field.0) else { return false };
    if field.0 == "max_tokens" {
        fields.entry("max_completion_tokens").or_insert(value);
    }
    true
}

impl Field {
    /// For the client to be told; `None` where the same is said in another word.
    pub(crate) fn left_out(self) -> Option<&'static str> {
        (!matches!(self.0, "max_tokens" | "stream_options")).then_some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(message: &str, param: Option<&str>) -> ModelError {
        ModelError::Rejected {
            url: "u".to_owned(),
            status: 400,
            message: message.to_owned(),
            body: Some(Box::new(json!({"message": message, "param": param}))),
        }
    }

    fn fields() -> Map<String, Value> {
        let body = json!({"max_tokens": 5, "reasoning_effort": "high", "user": "u", "temperature": 1, "think": "low"});
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn the_field_is_found_in_the_words_of_many_servers() {
        let found = |message: &str, param| {
            dispensable(&refusal(message, param), &fields(), Dialect::OpenaiChat, true).map(|field| field.0)
        };
        for (message, param, field) in [
            ("Unrecognized request argument supplied: reasoning_effort", None, "reasoning_effort"),
            (
                "Unsupported parameter: 'reasoning_effort' is not supported with this model.",
                None,
                "reasoning_effort",
            ),
            ("This parameter is unsupported", Some("user"), "user"),
            ("body.user: Extra inputs are not permitted", None, "user"),
            (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
                None,
                "max_tokens",
            ),
        ] {
            assert_eq!(found(message, param), Some(field), "{message}");
        }
        assert_eq!(
            found("temperature is not supported with this model", None),
            None,
            "the answer depends on it"
        );
        assert_eq!(found("unsupported users are welcome", None), None, "part of another word");
        assert_eq!(found("the user is blocked", None), None);
        let ollama = refusal("\"llama3\" does not support thinking", None);
        let think =
            |translated| dispensable(&ollama, &fields(), Dialect::Ollama, translated).map(|field| field.0);
        assert_eq!((think(true), think(false)), (Some("think"), None), "a client's own word stays");
    }

    #[test]
    fn what_was_refused_once_is_left_out_from_then_on() {
        let refused = Refused::default();
        refused.remember("m", Field("user"));
        refused.remember("m", Field("max_tokens"));
        let mut request = fields();
        assert_eq!(refused.leave_out("m", &mut request), [Field("max_tokens"), Field("user")]);
        assert_eq!(request["max_completion_tokens"], 5);
        assert!(!request.contains_key("user") && !request.contains_key("max_tokens"));
        assert!(refused.leave_out("other", &mut fields()).is_empty());
    }
}
