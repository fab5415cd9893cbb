//! Parameters of OpenAI Chat Completions that other APIs have no counterpart of.

use lf_core::model::ToolSpec;
use lf_core::{Message, ModelError, ModelRequest};
use serde_json::{Map, Value};

use crate::anthropic_messages::ANTHROPIC_ONLY;

/// What becomes of a parameter that the upstream's API cannot express.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is no parameter of the body, or asks for what happens anyway.
    Nothing,
    /// Left out, and the client is told: the answer does not depend on it, or hardly.
    LeftOut,
    /// The answer would not be what was asked for.
    Refused,
}

/// What becomes of a parameter without a counterpart; `None` for one that OpenAI does not document.
pub(crate) fn fate(key: &str, value: &Value) -> Option<Fate> {
    let refused_unless = |means_nothing: bool| match means_nothing {
        true => Fate::Nothing,
        false => Fate::Refused,
    };
    Some(match key {
        _ if value.is_null() || super::is_reserved(key) => Fate::Nothing,
        "model" | "messages" | "tools" | "tool_choice" | "stream" | "stream_options" => Fate::Nothing,
        "store" if *value == false => Fate::Nothing,
        "service_tier" if value == "auto" || value == "default" => Fate::Nothing,
        "verbosity" if value == "medium" => Fate::Nothing,
        "parallel_tool_calls" if *value == true => Fate::Nothing,
        // what a model does by itself, one after the other or at once, stays right
        "parallel_tool_calls" | "verbosity" => Fate::LeftOut,
        "user"
        | "metadata"
        | "store"
        | "service_tier"
        | "prompt_cache_key"
        | "prompt_cache_retention"
        | "safety_identifier"
        | "prediction" => Fate::LeftOut,
        "n" => refused_unless(value.as_u64() == Some(1)),
        "logit_bias" => refused_unless(value.as_object().is_some_and(Map::is_empty)),
        "modalities" => {
            refused_unless(value.as_array().is_some_and(|list| list.iter().all(|kind| kind == "text")))
        }
        "audio" | "web_search_options" | "functions" | "function_call" => Fate::Refused,
        _ => return None,
    })
}

/// `api` is the upstream's API as a person calls it.
pub(crate) fn refusal(key: &str, api: &str) -> ModelError {
    ModelError::Unsupported(format!(
        "`{key}` is nothing that {api} knows, so this model cannot answer as asked; leave it out, or use another model"
    ))
}

/// Fields of a Responses client that say how it wants to be told, and what to do when a context is full: no answer of
/// another API is a wrong one for them. Coding assistants send them with every request.
const ABOUT_FORM: [&str; 4] = ["include", "reasoning", "truncation", "client_metadata"];

/// What of a request no API has a place for but those of the client's own dialect or of OpenAI: fields kept for an
/// upstream that the request was not sent to, tools without a schema, names of speakers. Of what an Anthropic client
/// sent, [`crate::anthropic_messages::check_foreign`] tells.
pub(crate) fn out_of_place(request: &ModelRequest) -> Vec<String> {
    out_of_place_beside(request, "")
}

/// The same, for an upstream that takes what is kept under the key `own`.
pub(crate) fn out_of_place_beside(request: &ModelRequest, own: &str) -> Vec<String> {
    let mut left_out = kept_for_others(request, own);
    if request.messages.iter().any(has_name) {
        left_out.push("messages[].name".to_owned());
    }
    left_out
}

/// The fields and tools that are kept for an upstream of another dialect, for one that takes what is kept under `own`.
pub(crate) fn kept_for_others(request: &ModelRequest, own: &str) -> Vec<String> {
    let mut left_out = Vec::new();
    let others = request
        .parameters
        .iter()
        .filter(|(key, _)| super::is_reserved(key) && *key != own && *key != ANTHROPIC_ONLY);
    let mut leave_out = |name: String| {
        if !left_out.contains(&name) {
            left_out.push(name);
        }
    };
    for (key, value) in others.filter_map(|(_, kept)| kept.as_object()).flatten() {
        let empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        match (key.as_str(), value.as_array()) {
            _ if empty || super::is_reserved(key) || ABOUT_FORM.contains(&key.as_str()) => {}
            ("tools", Some(tools)) => {
                let kinds = tools.iter().filter_map(|tool| tool["type"].as_str());
                kinds.for_each(|kind| leave_out(format!("tools: {kind}")));
            }
            _ => leave_out(key.clone()),
        }
    }
    let native =
        request.tools.iter().filter(|spec| spec.is_native() && !spec.rest.contains_key(ANTHROPIC_ONLY));
    left_out.extend(native.map(|spec| spec.name.clone()));
    left_out
}

fn has_name(message: &Message) -> bool {
    let rest = match message {
        Message::System(prose) | Message::User(prose) => &prose.rest,
        Message::Assistant(said) => &said.rest,
        Message::Tool(_) => return false,
    };
    matches!(rest.get("name"), Some(Value::String(_)))
}

/// The tools that have a schema, which every API can be told of.
pub(crate) fn with_schema(specs: &[ToolSpec]) -> impl Iterator<Item = &ToolSpec> {
    specs.iter().filter(|spec| !spec.is_native())
}

/// The `thinking` object of an Anthropic client.
pub(crate) fn anthropic_thinking(parameters: &Map<String, Value>) -> Option<&Value> {
    parameters.get(ANTHROPIC_ONLY)?.get("thinking")
}

/// How much the model is asked to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    /// `xhigh` or `max`.
    Most,
}

impl Effort {
    /// `None` where nothing is said.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for a word that is no effort.
    pub(crate) fn of(parameters: &Map<String, Value>) -> Result<Option<Self>, ModelError> {
        let Some(said) = parameters.get("reasoning_effort").filter(|value| !value.is_null()) else {
            let off = anthropic_thinking(parameters).is_some_and(|thinking| thinking["type"] == "disabled");
            return Ok(off.then_some(Self::None));
        };
        Ok(Some(match said.as_str().unwrap_or_default() {
            "none" => Self::None,
            "minimal" => Self::Minimal,
            "low" => Self::Low,
            "medium" => Self::Medium,
            "high" => Self::High,
            "xhigh" | "max" => Self::Most,
            _ => {
                return Err(ModelError::Unsupported(format!(
                    "`reasoning_effort` is {said}; use `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`"
                )));
            }
        }))
    }
}

/// The form the answer's text must have.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AnswerForm {
    Text,
    Json,
    Schema(Value),
}

impl AnswerForm {
    /// # Errors
    /// [`ModelError::Unsupported`] for a form that is none of OpenAI's.
    pub(crate) fn of(response_format: &Value) -> Result<Self, ModelError> {
        match response_format["type"].as_str() {
            Some("text") => Ok(Self::Text),
            Some("json_object") => Ok(Self::Json),
            Some("json_schema") => match &response_format["json_schema"]["schema"] {
                Value::Null => Ok(Self::Json),
                schema => Ok(Self::Schema(schema.clone())),
            },
            _ => Err(ModelError::Unsupported(format!(
                "`response_format.type` is {}; use `text`, `json_object` or `json_schema`",
                response_format["type"]
            ))),
        }
    }
}

/// `stop` as a list.
pub(crate) fn stops(stop: &Value) -> Vec<String> {
    match stop {
        Value::String(stop) => vec![stop.clone()],
        Value::Array(list) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}
