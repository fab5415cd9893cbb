//! What a request asks of its response, beside the answer.

use std::collections::HashMap;

use lf_core::Message;
use lf_core::model::ChatRequest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::RESPONSES_ONLY;
use super::tool_choice;
use super::tools::{self, Form, Tools};
use crate::openai_chat::{RequestError, boolean};

/// How the client wants its answer, and what the response tells it back. It is kept with responses that are shown later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponsesView {
    pub stream: bool,
    /// Whether the client may ask for the response again, or go on from it: true where it did not say.
    pub store: bool,
    /// The client said itself whether it is to be stored.
    pub is_store_said: bool,
    pub background: bool,
    /// The response that this one goes on from.
    pub previous_response_id: Option<String>,
    /// The conversation that this response becomes part of.
    pub conversation: Option<String>,
    /// The most calls of the server's own tools.
    pub max_tool_calls: Option<u64>,
    /// `instructions` were given: the first message, which holds for this response and for none that goes on from it.
    pub has_instructions: bool,
    /// The fields of the response object that repeat the request, with the API's defaults for what it left open.
    pub(super) echo: Map<String, Value>,
    /// The client's tools that are no plain functions to it, by the names that they have in the core.
    pub(super) forms: HashMap<String, Form>,
    /// How many of the client's tools are in `tools`; the others came with items of the input.
    pub(super) declared: usize,
    /// The `tool_choice` of a request that goes on from something, until it is known which tools that brings.
    #[serde(skip)]
    pub(super) choice: Option<Later>,
}

/// What is still to be read, as it came; it may not be there.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Later(pub(super) Option<Value>);

impl ResponsesView {
    /// `fields` has no nulls.
    pub(super) fn read(fields: &Map<String, Value>, tools: &Tools) -> Result<Self, RequestError> {
        let flag = |key: &str| boolean(key, fields.get(key).cloned());
        let conversation = match fields.get("conversation") {
            None => None,
            Some(Value::String(id)) => Some(id.clone()),
            Some(object) if object["id"].is_string() => object["id"].as_str().map(str::to_owned),
            Some(other) => {
                let what = "an id, or an object with an `id`";
                return Err(RequestError::expected("conversation", what, other));
            }
        };
        let previous_response_id = text(fields, "previous_response_id")?;
        if previous_response_id.is_some() && conversation.is_some() {
            let message = "`previous_response_id` and `conversation` both say what came before".to_owned();
            return Err(RequestError::value("previous_response_id", message, "send only one of them"));
        }
        let max_tool_calls = match fields.get("max_tool_calls") {
            None => None,
            Some(value) if value.as_u64().is_some() => value.as_u64(),
            Some(other) => return Err(RequestError::expected("max_tool_calls", "a whole number", other)),
        };
        let store = !fields.contains_key("store") || flag("store")?;
        let (stream, background) = (flag("stream")?, flag("background")?);
        let mut echo = echo(fields, tools)?;
        echo.insert("store".to_owned(), store.into());
        echo.insert("background".to_owned(), background.into());
        if let Some(id) = &conversation {
            echo.insert("conversation".to_owned(), json!({"id": id}));
        }
        let has_instructions = fields.contains_key("instructions");
        Ok(Self {
            stream,
            store,
            is_store_said: fields.contains_key("store"),
            background,
            previous_response_id,
            conversation,
            max_tool_calls,
            has_instructions,
            echo,
            forms: tools.forms.clone(),
            declared: tools.declared,
            choice: None,
        })
    }

    /// The response is not stored after all, and says so.
    pub fn leave_unstored(&mut self) {
        self.store = false;
        self.echo.insert("store".to_owned(), false.into());
    }

    /// Puts the stored conversation before the request's input, behind its instructions.
    pub fn continue_from(&self, request: &mut ChatRequest, earlier: impl IntoIterator<Item = Message>) {
        let at = usize::from(self.has_instructions).min(request.messages.len());
        request.messages.splice(at..at, earlier);
    }

    /// Adds the tools that came with the input of earlier requests, which a search found or the client added: a client
    /// declares them once. Then it reads what the client says of which of all these may be called.
    ///
    /// # Errors
    /// What is wrong with the choice.
    pub fn recall_tools<'a>(
        &mut self,
        request: &mut ChatRequest,
        earlier: impl IntoIterator<Item = &'a Message>,
    ) -> Result<(), RequestError> {
        // one that goes on from nothing has said all
        let Some(Later(choice)) = self.choice.take() else { return Ok(()) };
        let mut found = tools::earlier(earlier);
        found.specs.retain(|spec| !request.tools.iter().any(|known| known.name == spec.name));
        for spec in &found.specs {
            self.forms.extend(found.forms.remove_entry(&spec.name));
        }
        // before those of this request's input, as in the request that brought them: equal beginnings are cached
        let at = self.declared.min(request.tools.len());
        request.tools.splice(at..at, found.specs);
        let own = request.parameters.get(RESPONSES_ONLY);
        let mut hosted = own.and_then(|own| own["tools"].as_array()).cloned().unwrap_or_default();
        found.hosted.retain(|tool| !hosted.contains(tool));
        hosted.append(&mut found.hosted);
        let (specs, forms) = (std::mem::take(&mut request.tools), std::mem::take(&mut self.forms));
        let mut all = Tools { specs, forms, hosted, ..Tools::default() };
        let choice = tool_choice::read(choice.as_ref(), &mut all)?;
        choice.keep(all.hosted, &mut request.parameters);
        request.tool_choice = choice.core;
        request.tools = all.specs;
        self.forms = all.forms;
        Ok(())
    }
}

fn text(fields: &Map<String, Value>, key: &str) -> Result<Option<String>, RequestError> {
    match fields.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(RequestError::expected(key, "a string", other)),
    }
}

/// The API demands all of these in every response; numbers that nobody gave are OpenAI's defaults.
fn echo(fields: &Map<String, Value>, tools: &Tools) -> Result<Map<String, Value>, RequestError> {
    let given = |key: &str, otherwise: Value| fields.get(key).cloned().unwrap_or(otherwise);
    for key in ["service_tier", "safety_identifier", "prompt_cache_key", "user"] {
        text(fields, key)?;
    }
    if let Some(other) = fields.get("metadata").filter(|metadata| !metadata.is_object()) {
        return Err(RequestError::expected("metadata", "an object", other));
    }
    match fields.get("truncation") {
        None => {}
        Some(truncation) if truncation == "auto" || truncation == "disabled" => {}
        Some(other) => {
            let message = format!("`truncation` is {other}");
            return Err(RequestError::value("truncation", message, "use \"auto\" or \"disabled\""));
        }
    }
    let mut echo = Map::new();
    let mut tell = |key: &str, value: Value| echo.insert(key.to_owned(), value);
    for key in ["instructions", "max_output_tokens", "max_tool_calls", "previous_response_id"] {
        tell(key, given(key, Value::Null));
    }
    tell("tools", tools.told.clone().into());
    tell("tool_choice", given("tool_choice", "auto".into()));
    tell("parallel_tool_calls", given("parallel_tool_calls", true.into()));
    tell("text", written_text(fields.get("text")));
    tell("reasoning", with_defaults(json!({"effort": null, "summary": null}), fields.get("reasoning")));
    tell("temperature", given("temperature", json!(1.0)));
    tell("top_p", given("top_p", json!(1.0)));
    tell("presence_penalty", given("presence_penalty", json!(0.0)));
    tell("frequency_penalty", given("frequency_penalty", json!(0.0)));
    tell("top_logprobs", 0.into());
    tell("truncation", given("truncation", "disabled".into()));
    tell("metadata", given("metadata", json!({})));
    tell("service_tier", given("service_tier", "default".into()));
    for key in ["safety_identifier", "prompt_cache_key", "user"] {
        tell(key, given(key, Value::Null));
    }
    Ok(echo)
}

fn with_defaults(mut defaults: Value, given: Option<&Value>) -> Value {
    for (key, value) in given.and_then(Value::as_object).into_iter().flatten() {
        defaults[key.as_str()] = value.clone();
    }
    defaults
}

fn written_text(given: Option<&Value>) -> Value {
    let mut text = with_defaults(json!({"format": {"type": "text"}}), given);
    if text["format"].is_null() {
        text["format"] = json!({"type": "text"});
    }
    if text["format"]["type"] == "json_schema" {
        let defaults = json!({"type": "json_schema", "name": "answer", "description": null, "strict": false});
        text["format"] = with_defaults(defaults, Some(&text["format"]));
    }
    text
}
