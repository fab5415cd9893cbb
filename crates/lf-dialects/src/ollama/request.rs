//! Writes requests: everything but the messages.

use lf_core::model::ToolSpec;
use lf_core::{ModelError, ModelRequest, ToolChoice};
use serde_json::{Map, Value, json};

use super::messages::messages;
use crate::schema;
use crate::upstream::parameters::{
    AnswerForm, Effort, Fate, fate, out_of_place, refusal, stops, with_schema,
};
use crate::upstream::{Encoded, UpstreamOptions};

const API: &str = "Ollama";

/// Members of `options` that clients also send beside the parameters of OpenAI.
const OPTIONS: [&str; 20] = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repeat_penalty",
    "repeat_last_n",
    "num_predict",
    "num_ctx",
    "num_keep",
    "num_batch",
    "num_gpu",
    "main_gpu",
    "num_thread",
    "use_mmap",
    "mirostat",
    "draft_num_predict",
];

/// The body of `POST …/api/chat`. Equal requests give equal bytes. A parameter that neither OpenAI nor this program
/// knows is sent as it came; what Ollama's own `options`, `think` and `format` say counts before what is made of
/// others.
///
/// # Errors
/// [`ModelError::Unsupported`] for parameters and content that the API cannot express.
pub(crate) fn encode(
    model: &str,
    request: &ModelRequest,
    _options: &UpstreamOptions,
) -> Result<Encoded, ModelError> {
    let mut body = Map::new();
    body.insert("model".to_owned(), model.into());
    body.insert("messages".to_owned(), messages(&request.messages)?.into());
    // the default is true
    body.insert("stream".to_owned(), request.stream.into());
    if let Some(think) = think(&request.parameters)? {
        body.insert("think".to_owned(), think);
    }
    let omit_tools = omits_tools(request)?;
    let mut encoded = Encoded { omit_tools, left_out: out_of_place(request), ..Encoded::default() };
    let mut options = Map::new();
    for (key, value) in request.parameters.iter().filter(|(_, value)| !value.is_null()) {
        write_parameter(key, value, &mut options, &mut encoded)?;
    }
    if let Some(Value::Object(given)) = encoded.fields.shift_remove("options") {
        options.extend(given);
    }
    if !options.is_empty() {
        body.insert("options".to_owned(), options.into());
    }
    body.extend(std::mem::take(&mut encoded.fields));
    encoded.fields = body;
    Ok(encoded)
}

/// Writes what is an option; `encoded` gets the rest.
fn write_parameter(
    key: &str,
    value: &Value,
    options: &mut Map<String, Value>,
    encoded: &mut Encoded,
) -> Result<(), ModelError> {
    match key {
        key if OPTIONS.contains(&key) => {
            options.insert(key.to_owned(), value.clone());
        }
        // the newer name of the two counts
        "max_tokens" if options.contains_key("num_predict") => {}
        "max_tokens" | "max_completion_tokens" => {
            options.insert("num_predict".to_owned(), value.clone());
        }
        "stop" => {
            let stops = stops(value);
            if !stops.is_empty() {
                options.insert("stop".to_owned(), stops.into());
            }
        }
        "response_format" => {
            let format = match AnswerForm::of(value)? {
                AnswerForm::Text => return Ok(()),
                AnswerForm::Json => "json".into(),
                AnswerForm::Schema(schema) => schema,
            };
            encoded.fields.entry("format").or_insert(format);
        }
        "reasoning_effort" => {}
        _ => match fate(key, value) {
            Some(Fate::Nothing) => {}
            Some(Fate::LeftOut) => encoded.left_out.push(key.to_owned()),
            Some(Fate::Refused) => return Err(refusal(key, API)),
            None => {
                encoded.fields.insert(key.to_owned(), value.clone());
            }
        },
    }
    Ok(())
}

/// The words are those that Ollama's own OpenAI-compatible API makes of an effort. It takes a level for every model
/// that thinks; one that only knows on and off reads it as on.
fn think(parameters: &Map<String, Value>) -> Result<Option<Value>, ModelError> {
    Ok(Effort::of(parameters)?.map(|effort| match effort {
        Effort::None => false.into(),
        Effort::Minimal | Effort::Low => "low".into(),
        Effort::Medium => "medium".into(),
        Effort::High => "high".into(),
        Effort::Most => "max".into(),
    }))
}

/// Ollama has no `tool_choice`.
fn omits_tools(request: &ModelRequest) -> Result<bool, ModelError> {
    if with_schema(&request.tools).next().is_none() {
        return Ok(false);
    }
    match &request.tool_choice {
        None | Some(ToolChoice::Auto) => Ok(false),
        Some(ToolChoice::None) => Ok(true),
        Some(ToolChoice::Required | ToolChoice::Tool(_)) => Err(ModelError::Unsupported(
            "`tool_choice` cannot make this model call a tool: Ollama's own API has no such thing; use `auto` or \
             `none`, or another model"
                .to_owned(),
        )),
    }
}

pub(crate) fn tools(specs: &[ToolSpec]) -> Vec<Value> {
    with_schema(specs).map(tool).collect()
}

fn tool(spec: &ToolSpec) -> Value {
    let mut function = Map::new();
    function.insert("name".to_owned(), spec.name.as_str().into());
    if let Some(description) = &spec.description {
        function.insert("description".to_owned(), description.as_ref().into());
    }
    function.insert("parameters".to_owned(), schema::ollama_parameters(&spec.schema));
    json!({"type": "function", "function": function})
}
