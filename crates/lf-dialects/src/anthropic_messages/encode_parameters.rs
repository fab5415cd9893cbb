//! Writes the parameters of a request, which come in OpenAI's spelling, to Anthropic upstreams.

use lf_core::{ModelError, ModelRequest};
use serde_json::{Map, Value, json};

use super::encode::kept;
use super::thinking::{Generation, budget, effort, generation, goes_on_without, is_forced, sampling};
use crate::upstream::parameters::{Fate, fate, out_of_place, refusal};
use crate::upstream::{Encoded, is_reserved};

const API: &str = "the Anthropic Messages API";

/// Writes every parameter, or names it as left out.
///
/// # Errors
/// [`ModelError::Unsupported`] for one that the API cannot express.
pub(super) fn write(
    model: &str,
    request: &ModelRequest,
    default_limit: u64,
    out: &mut Encoded,
) -> Result<(), ModelError> {
    out.left_out = out_of_place(request);
    let mut writer = Writer {
        generation: generation(model),
        request,
        default_limit,
        kept: kept(&request.parameters),
        out,
    };
    request
        .parameters
        .iter()
        .filter(|(_, value)| !value.is_null())
        .try_for_each(|(key, value)| writer.write(key, value))
}

/// The limit of the answer that the caller asked for.
pub(super) fn asked_limit(request: &ModelRequest) -> Option<&Value> {
    let parameter = |key: &str| request.parameters.get(key).filter(|value| !value.is_null());
    parameter("max_completion_tokens").or_else(|| parameter("max_tokens"))
}

struct Writer<'a> {
    generation: Generation,
    request: &'a ModelRequest,
    default_limit: u64,
    kept: Option<&'a Map<String, Value>>,
    out: &'a mut Encoded,
}

impl Writer<'_> {
    fn write(&mut self, key: &str, value: &Value) -> Result<(), ModelError> {
        match key {
            "model"
            | "messages"
            | "tools"
            | "tool_choice"
            | "stream"
            | "stream_options"
            | "max_tokens"
            | "max_completion_tokens"
            | "parallel_tool_calls" => {}
            _ if is_reserved(key) => {}
            "stop" => self.stop(value),
            "user" | "safety_identifier" | "metadata" => self.metadata(key, value),
            "service_tier" => self.service_tier(value),
            // what these were made from is sent itself
            "reasoning_effort" if self.said("thinking") || self.said("output_config") => {}
            "response_format" if self.said("output_config") || self.said("output_format") => {}
            "reasoning_effort" => return self.effort(value),
            "response_format" => return self.response_format(value),
            "frequency_penalty" | "presence_penalty" if value.as_f64() == Some(0.0) => {}
            "logprobs" if *value == Value::Bool(false) => {}
            "top_logprobs" if value.as_u64() == Some(0) => {}
            "frequency_penalty" | "presence_penalty" | "logprobs" | "top_logprobs" | "seed" => {
                return Err(refusal(key, API));
            }
            _ => match fate(key, value) {
                Some(Fate::Nothing) => {}
                Some(Fate::LeftOut) => self.leave_out(key),
                Some(Fate::Refused) => return Err(refusal(key, API)),
                None => self.put(key, value.clone()),
            },
        }
        Ok(())
    }

    /// A client of the same dialect said it in its own words.
    fn said(&self, key: &str) -> bool {
        self.kept.is_some_and(|kept| kept.contains_key(key))
    }

    fn put(&mut self, key: &str, value: Value) {
        self.out.fields.insert(key.to_owned(), value);
    }

    fn leave_out(&mut self, key: &str) {
        self.out.left_out.push(key.to_owned());
    }

    fn stop(&mut self, value: &Value) {
        let list = match value {
            Value::Array(list) => list.clone(),
            one => vec![one.clone()],
        };
        // the API refuses sequences of white space alone
        let is_blank = |stop: &Value| stop.as_str().is_some_and(|stop| stop.trim().is_empty());
        let (blank, list): (Vec<Value>, Vec<Value>) = list.into_iter().partition(is_blank);
        self.out.stops.extend(blank.iter().filter_map(Value::as_str).map(str::to_owned));
        if !list.is_empty() {
            self.put("stop_sequences", list.into());
        }
    }

    /// The API knows of its callers' users one id.
    fn metadata(&mut self, key: &str, value: &Value) {
        let given = |key: &str| self.request.parameters.get(key).is_some_and(Value::is_string);
        match (key, value) {
            ("user", _) if self.said("metadata") => {}
            ("user", Value::String(user)) => self.put("metadata", json!({"user_id": user})),
            ("safety_identifier", Value::String(user)) if !given("user") && !self.said("metadata") => {
                self.put("metadata", json!({"user_id": user}));
            }
            // as the file of a project may spell it
            ("metadata", Value::Object(fields)) if fields.len() == 1 && fields.contains_key("user_id") => {
                self.put("metadata", value.clone());
            }
            ("metadata", Value::Object(fields)) if fields.is_empty() => {}
            _ => self.leave_out(key),
        }
    }

    fn service_tier(&mut self, value: &Value) {
        match value.as_str() {
            Some(tier @ ("auto" | "standard_only")) => self.put("service_tier", tier.into()),
            Some("default") => self.put("service_tier", "standard_only".into()),
            _ => self.leave_out("service_tier"),
        }
    }

    fn effort(&mut self, value: &Value) -> Result<(), ModelError> {
        // the file of a project may say it in the API's own words
        if self.request.parameters.contains_key("thinking") {
            self.leave_out("reasoning_effort");
            return Ok(());
        }
        let Some(word) = value.as_str() else {
            self.output_config("effort", value.clone());
            return Ok(());
        };
        match (word, self.generation) {
            ("none", Generation::Unthinking) => {}
            ("none", Generation::Always) => {
                self.leave_out("reasoning_effort");
                self.output_config("effort", "low".into());
            }
            ("none", _) => self.put("thinking", json!({"type": "disabled"})),
            (_, Generation::Unthinking) => {
                let message = "`reasoning_effort` asks for reasoning, which this model does not do; leave it out, or \
                               use another model";
                return Err(ModelError::Unsupported(message.to_owned()));
            }
            (_, Generation::Budget) => return self.budget(word),
            (_, Generation::Effort) => self.output_config("effort", effort(word, self.generation).into()),
            (_, Generation::Adaptive | Generation::AdaptiveXhigh | Generation::Always) => {
                if !is_forced(self.request) && sampling(self.request).is_none() {
                    self.put("thinking", json!({"type": "adaptive"}));
                }
                self.output_config("effort", effort(word, self.generation).into());
            }
        }
        Ok(())
    }

    fn budget(&mut self, word: &str) -> Result<(), ModelError> {
        let asked = asked_limit(self.request);
        let room = match asked.map(Value::as_u64) {
            // no number: the upstream says so
            Some(None) => None,
            asked => budget(word, asked.flatten(), self.default_limit),
        };
        let possible = !is_forced(self.request) && !goes_on_without(&self.request.messages);
        let Some((budget, limit)) = room.filter(|_| possible) else {
            self.leave_out("reasoning_effort");
            return Ok(());
        };
        if let Some(key) = sampling(self.request) {
            return Err(ModelError::Unsupported(format!(
                "`{key}` cannot be combined with `reasoning_effort` for this model; leave one of them out"
            )));
        }
        self.put("max_tokens", limit.into());
        self.put("thinking", json!({"type": "enabled", "budget_tokens": budget}));
        Ok(())
    }

    fn response_format(&mut self, value: &Value) -> Result<(), ModelError> {
        match value["type"].as_str() {
            Some("text") => {}
            Some("json_schema") => {
                let format = json!({"type": "json_schema", "schema": value["json_schema"]["schema"]});
                self.output_config("format", format);
            }
            _ => {
                let message = "`response_format` needs a schema with this model: use `json_schema`";
                return Err(ModelError::Unsupported(message.to_owned()));
            }
        }
        Ok(())
    }

    fn output_config(&mut self, key: &str, value: Value) {
        let config = self.out.fields.entry("output_config").or_insert_with(|| json!({}));
        config[key] = value;
    }
}
