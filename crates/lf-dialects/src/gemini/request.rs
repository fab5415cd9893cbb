//! Writes requests: everything but the messages.

use lf_core::model::ToolSpec;
use lf_core::{Message, ModelError, ModelRequest, ToolChoice};
use serde_json::{Map, Value, json};

use super::contents::{contents, system};
use crate::schema::{self, SchemaTarget};
use crate::upstream::parameters::{
    AnswerForm, Effort, Fate, anthropic_thinking, fate, out_of_place, refusal, stops, with_schema,
};
use crate::upstream::{Encoded, UpstreamOptions};

/// The API takes no more stop sequences.
const MAX_STOPS: usize = 5;
const API: &str = "the Gemini API";

/// The body of `POST …/models/MODEL:generateContent` and `:streamGenerateContent`. Equal requests give equal bytes. A
/// parameter that neither OpenAI nor this program knows is sent as it came; `generationConfig` and `toolConfig` are
/// added to what is made of the others.
///
/// # Errors
/// [`ModelError::Unsupported`] for parameters and content that the API cannot express.
pub(crate) fn encode(
    model: &str,
    request: &ModelRequest,
    _options: &UpstreamOptions,
) -> Result<Encoded, ModelError> {
    let series = Series::of(model);
    let leading = request.messages.iter().take_while(|message| matches!(message, Message::System(_))).count();
    let (first, conversation) = request.messages.split_at(leading);
    let mut body = Map::new();
    if let Some(system) = system(first) {
        body.insert("systemInstruction".to_owned(), system);
    }
    let contents = contents(conversation, series.major >= 3)?;
    body.insert("contents".to_owned(), contents.into());
    if let Some(config) = tool_config(request) {
        body.insert("toolConfig".to_owned(), config);
    }
    let mut encoded = Encoded { left_out: out_of_place(request), ..Encoded::default() };
    let mut config = Map::new();
    for (key, value) in &request.parameters {
        write_parameter(key, value, &mut config, &mut encoded)?;
    }
    if let Some(thinking) = thinking(series, request, &mut encoded.left_out)? {
        config.insert("thinkingConfig".to_owned(), thinking);
    }
    if !config.is_empty() {
        body.insert("generationConfig".to_owned(), config.into());
    }
    for (key, value) in std::mem::take(&mut encoded.fields) {
        match (body.get_mut(&key), value) {
            (Some(Value::Object(made)), Value::Object(given)) => made.extend(given),
            (_, value) => {
                body.insert(key, value);
            }
        }
    }
    encoded.fields = body;
    Ok(encoded)
}

/// Writes what is the configuration's; `encoded` gets the rest.
fn write_parameter(
    key: &str,
    value: &Value,
    config: &mut Map<String, Value>,
    encoded: &mut Encoded,
) -> Result<(), ModelError> {
    if value.is_null() {
        return Ok(());
    }
    let name = match key {
        "temperature" => "temperature",
        "top_p" => "topP",
        "top_k" => "topK",
        // the newer name of the two counts
        "max_tokens" if config.contains_key("maxOutputTokens") => return Ok(()),
        "max_tokens" | "max_completion_tokens" => "maxOutputTokens",
        "seed" => "seed",
        "presence_penalty" => "presencePenalty",
        "frequency_penalty" => "frequencyPenalty",
        "logprobs" => "responseLogprobs",
        "top_logprobs" => "logprobs",
        "stop" => {
            let mut first = stops(value);
            encoded.stops = first.split_off(first.len().min(MAX_STOPS));
            if !first.is_empty() {
                config.insert("stopSequences".to_owned(), first.into());
            }
            return Ok(());
        }
        "response_format" => {
            write_form(&AnswerForm::of(value)?, config);
            return Ok(());
        }
        "reasoning_effort" => return Ok(()),
        _ => {
            match fate(key, value) {
                Some(Fate::Nothing) => {}
                Some(Fate::LeftOut) => encoded.left_out.push(key.to_owned()),
                Some(Fate::Refused) => return Err(refusal(key, API)),
                None => {
                    encoded.fields.insert(key.to_owned(), value.clone());
                }
            }
            return Ok(());
        }
    };
    config.insert(name.to_owned(), value.clone());
    Ok(())
}

fn write_form(form: &AnswerForm, config: &mut Map<String, Value>) {
    if *form != AnswerForm::Text {
        config.insert("responseMimeType".to_owned(), "application/json".into());
    }
    if let AnswerForm::Schema(schema) = form {
        config.insert("responseJsonSchema".to_owned(), schema.clone());
    }
}

fn tool_config(request: &ModelRequest) -> Option<Value> {
    with_schema(&request.tools).next()?;
    let config = match request.tool_choice.as_ref()? {
        ToolChoice::Auto => json!({"mode": "AUTO"}),
        ToolChoice::None => json!({"mode": "NONE"}),
        ToolChoice::Required => json!({"mode": "ANY"}),
        ToolChoice::Tool(name) => {
            json!({"mode": "ANY", "allowedFunctionNames": [SchemaTarget::Gemini.name(name)]})
        }
    };
    Some(json!({"functionCallingConfig": config}))
}

/// One element for all tools; none without any.
pub(crate) fn tools(specs: &[ToolSpec]) -> Vec<Value> {
    let declarations: Vec<Value> = with_schema(specs).map(declaration).collect();
    if declarations.is_empty() { Vec::new() } else { vec![json!({"functionDeclarations": declarations})] }
}

fn declaration(spec: &ToolSpec) -> Value {
    let mut declaration = schema::tool_for(SchemaTarget::Gemini, spec);
    // an object without properties is refused at the root; a function that takes nothing has no parameters
    if let Value::Object(fields) = &mut declaration
        && fields.get("parameters").is_some_and(|parameters| parameters["properties"].is_null())
    {
        fields.shift_remove("parameters");
    }
    declaration
}

/// What a model's name says of how it is asked to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Series {
    /// 0 for a model that is no Gemini, or does not say.
    major: u32,
    minor: u32,
    /// Such models cannot be kept from thinking.
    pro: bool,
}

impl Series {
    fn of(model: &str) -> Self {
        let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
        let unknown = Self { major: 0, minor: 0, pro: name.contains("pro") };
        let Some((_, rest)) = name.split_once("gemini-") else { return unknown };
        let version = rest.split('-').next().unwrap_or_default();
        let mut numbers = version.split('.').map(str::parse::<u32>);
        match numbers.next() {
            Some(Ok(major)) => {
                let minor = numbers.next().and_then(Result::ok).unwrap_or(0);
                Self { major, minor, ..unknown }
            }
            // `gemini-flash-latest` and its like stand for the newest one
            _ if rest.ends_with("-latest") => Self { major: 3, ..unknown },
            _ => unknown,
        }
    }

    fn may_think(self) -> bool {
        (self.major, self.minor) >= (2, 5)
    }
}

/// `thinkingConfig`: a level for Gemini 3 and later, a budget of tokens for others, with the numbers that Google gives
/// for OpenAI's efforts. Thoughts are asked for, so that they are shown.
fn thinking(
    series: Series,
    request: &ModelRequest,
    left_out: &mut Vec<String>,
) -> Result<Option<Value>, ModelError> {
    let Some(effort) = Effort::of(&request.parameters)? else { return Ok(None) };
    if effort == Effort::None {
        return Ok(without_thinking(series, request, left_out));
    }
    if series.major >= 3 {
        let level = match effort {
            Effort::None | Effort::Minimal => least_level(series),
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High | Effort::Most => "high",
        };
        return Ok(Some(json!({"thinkingLevel": level, "includeThoughts": true})));
    }
    let most = if series.pro { 32_768 } else { 24_576 };
    let asked = anthropic_thinking(&request.parameters)
        .and_then(|thinking| thinking["budget_tokens"].as_u64().filter(|_| thinking["type"] == "enabled"));
    let budget = asked.map_or(
        match effort {
            Effort::None | Effort::Minimal | Effort::Low => 1024,
            Effort::Medium => 8192,
            Effort::High | Effort::Most => 24_576,
        },
        |asked| asked.min(most),
    );
    Ok(Some(json!({"thinkingBudget": budget, "includeThoughts": true})))
}

/// The larger models do not know `minimal`.
fn least_level(series: Series) -> &'static str {
    if series.pro { "low" } else { "minimal" }
}

/// The least thinking that the model can be brought to; an effort that is not met is left out.
fn without_thinking(series: Series, request: &ModelRequest, left_out: &mut Vec<String>) -> Option<Value> {
    if !series.may_think() {
        return None;
    }
    let (config, off) = match (series.major, series.pro) {
        (3.., _) => (json!({"thinkingLevel": least_level(series)}), false),
        (_, true) => (json!({"thinkingBudget": 128}), false),
        (_, false) => (json!({"thinkingBudget": 0}), true),
    };
    if !off && request.parameters.contains_key("reasoning_effort") {
        left_out.push("reasoning_effort: none".to_owned());
    }
    Some(config)
}
