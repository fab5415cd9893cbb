//! Reads the tools that a client declares.
//!
//! Models are shown functions only, whatever their API: a namespace becomes the functions in it, and a tool with free
//! text as its input a function with that text as its only argument. What the client calls such a tool is kept in a
//! [`Form`] for the way back. A search for tools that the client runs is a function as well, and what it found are
//! tools of the requests that follow.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use lf_core::Message;
use lf_core::model::ToolSpec;
use lf_core::tool_set::fit_name;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::compaction;
use super::parts::string;
use super::{RESPONSES_ONLY, WITH_TOOLS};
use crate::openai_chat::RequestError;
use crate::schema;

/// The one argument of a function that stands for a custom tool.
pub(super) const INPUT: &str = "input";

/// The name of the function that stands for a search for tools.
pub(super) const SEARCH: &str = "tool_search";

/// What a client's tools are, apart from each other.
#[derive(Debug, Default)]
pub(super) struct Tools {
    /// Those that the client runs, as functions.
    pub(super) specs: Vec<ToolSpec>,
    /// Of these by their names those that are no plain functions to the client.
    pub(super) forms: HashMap<String, Form>,
    /// All other kinds: tools that OpenAI's servers run or its models know without a schema. An open list.
    pub(super) hosted: Vec<Value>,
    /// As the response tells them back: with every field that the API has.
    pub(super) told: Vec<Value>,
    /// How many of `specs` are in `tools`; the others came with items of the input.
    pub(super) declared: usize,
}

/// What becomes of tools that are declared to be searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deferred {
    Stay,
    /// They were found, and are not to be searched for once more.
    Come,
}

/// What the client calls a tool that models are shown as a plain function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Form {
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) calls: Calls,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Calls {
    /// `function_call`, with arguments.
    Function,
    /// `custom_tool_call`, with a text.
    Custom,
    /// `tool_search_call`, with arguments as an object.
    Search,
}

/// Whether the client itself searches, and not the model's API.
pub(super) fn is_clients_search(value: &Value) -> bool {
    value["execution"] == "client"
}

/// The name of a tool in a namespace.
pub(super) fn full_name(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) if !namespace.is_empty() => format!("{namespace}.{name}"),
        _ => name.to_owned(),
    }
}

/// The tools in `tools`, and those that items of the input add.
pub(super) fn read(fields: &Map<String, Value>) -> Result<Tools, RequestError> {
    let mut tools = Tools::default();
    if let Some(value) = fields.get("tools") {
        tools.told = tools.add_list("tools", value)?;
    }
    tools.declared = tools.specs.len();
    let items = fields.get("input").and_then(Value::as_array).into_iter().flatten().enumerate();
    for (at, item) in items {
        tools.add_item(&format!("input[{at}].tools"), item)?;
    }
    Ok(tools)
}

/// The tools that came with the input of earlier requests.
pub(super) fn earlier<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Tools {
    let mut tools = Tools::default();
    for item in messages.into_iter().flat_map(brought_by) {
        // what is wrong with them was told then
        let _ = tools.add_item(WITH_TOOLS, item);
    }
    tools
}

/// The items that brought tools with a message.
pub(super) fn brought_by(message: &Message) -> &[Value] {
    let rest = match message {
        Message::System(prose) | Message::User(prose) => &prose.rest,
        Message::Assistant(said) => &said.rest,
        Message::Tool(result) => &result.rest,
    };
    rest.get(WITH_TOOLS).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// What the model is told of the tools that a search found, under the names that it knows them by.
pub(super) fn found(value: &Value) -> String {
    let mut found = Tools::default();
    // what is wrong with them is told with the tools of the request
    let _ = found.add_list("tools", value);
    if found.specs.is_empty() {
        return "No tool was found.".to_owned();
    }
    let names: Vec<String> = found.specs.iter().map(|spec| fit_name(&spec.name)).collect();
    format!("These tools can be called from now on: `{}`.", names.join("`, `"))
}

impl Tools {
    fn add_list(&mut self, path: &str, value: &Value) -> Result<Vec<Value>, RequestError> {
        let Value::Array(list) = value else { return Err(RequestError::expected(path, "an array", value)) };
        list.iter().enumerate().map(|(at, tool)| self.add(&format!("{path}[{at}]"), tool)).collect()
    }

    fn add_item(&mut self, path: &str, item: &Value) -> Result<(), RequestError> {
        match item["type"].as_str().unwrap_or_default() {
            "additional_tools" => self.add_further(path, &item["tools"], Deferred::Stay),
            "tool_search_output" if is_clients_search(item) => {
                self.add_further(path, &item["tools"], Deferred::Come)
            }
            "compaction" => {
                // what is wrong with the item itself is told where its summary is read
                let carried = compaction::carried(item);
                carried.iter().try_for_each(|item| self.add_item(path, item))
            }
            _ => Ok(()),
        }
    }

    /// What items of the input bring: a tool may be sent or found again and again.
    fn add_further(&mut self, path: &str, value: &Value, deferred: Deferred) -> Result<(), RequestError> {
        let mut further = Self::default();
        further.add_list(path, value)?;
        for mut spec in further.specs {
            if self.specs.iter().any(|known| known.name == spec.name) {
                continue;
            }
            if deferred == Deferred::Come
                && let Some(Value::Object(kept)) = spec.rest.get_mut(RESPONSES_ONLY)
            {
                kept.shift_remove("defer_loading");
            }
            self.forms.extend(further.forms.remove_entry(&spec.name));
            self.specs.push(spec);
        }
        further.hosted.retain(|tool| !self.hosted.contains(tool));
        self.hosted.append(&mut further.hosted);
        Ok(())
    }

    /// Gives the tool as it is told back.
    fn add(&mut self, path: &str, tool: &Value) -> Result<Value, RequestError> {
        if !tool.is_object() {
            return Err(RequestError::expected(path, "an object", tool));
        }
        match string(path, tool, "type")?.as_str() {
            "function" => {
                let (spec, told) = function(path, tool)?;
                self.specs.push(spec);
                return Ok(told);
            }
            "custom" => self.add_custom(path, tool, None)?,
            "namespace" => self.add_namespace(path, tool)?,
            SEARCH if is_clients_search(tool) => self.add_search(path, tool)?,
            _ => self.hosted.push(tool.clone()),
        }
        Ok(tool.clone())
    }

    fn add_custom(&mut self, path: &str, tool: &Value, namespace: Option<&str>) -> Result<(), RequestError> {
        let name = string(path, tool, "name")?;
        let spec = ToolSpec {
            name: full_name(namespace, &name),
            description: Some(custom_description(path, tool)?.into()),
            schema: Arc::new(json!({
                "type": "object",
                "properties": {INPUT: {"type": "string", "description": "The whole input of the tool."}},
                "required": [INPUT],
                "additionalProperties": false,
            })),
            rest: Map::new(),
        };
        self.add_form(spec, namespace, name, Calls::Custom);
        Ok(())
    }

    fn add_search(&mut self, path: &str, tool: &Value) -> Result<(), RequestError> {
        let schema = match &tool["parameters"] {
            Value::Null => {
                json!({"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]})
            }
            schema => schema.clone(),
        };
        let text = "Finds further tools, which can be called from then on.";
        let description = description(path, tool)?.unwrap_or_else(|| Arc::from(text));
        let name = SEARCH.to_owned();
        let spec = ToolSpec {
            name: name.clone(),
            description: Some(description),
            schema: Arc::new(schema),
            rest: Map::new(),
        };
        self.add_form(spec, None, name, Calls::Search);
        Ok(())
    }

    /// What the namespace is about stands before the first tool in it: once is enough, and the names tell what belongs
    /// together.
    fn add_namespace(&mut self, path: &str, value: &Value) -> Result<(), RequestError> {
        let namespace = string(path, value, "name")?;
        let mut about = description(path, value)?;
        let Value::Array(list) = &value["tools"] else {
            return Err(RequestError::expected(&format!("{path}.tools"), "an array", &value["tools"]));
        };
        let mut others = Vec::new();
        for (at, tool) in list.iter().enumerate() {
            let path = format!("{path}.tools[{at}]");
            match string(&path, tool, "type")?.as_str() {
                "function" => {
                    let (mut spec, _) = function(&path, tool)?;
                    let name = std::mem::take(&mut spec.name);
                    spec.name = full_name(Some(&namespace), &name);
                    self.add_form(spec, Some(&namespace), name, Calls::Function);
                }
                "custom" => self.add_custom(&path, tool, Some(&namespace))?,
                _ => {
                    others.push(tool.clone());
                    continue;
                }
            }
            if let (Some(about), Some(spec)) = (about.take(), self.specs.last_mut()) {
                let own = spec.description.take().unwrap_or_default();
                spec.description = Some(format!("[{namespace}: {about}]\n{own}").into());
            }
        }
        if !others.is_empty() {
            let mut rest = value.clone();
            rest["tools"] = others.into();
            self.hosted.push(rest);
        }
        Ok(())
    }

    fn add_form(&mut self, spec: ToolSpec, namespace: Option<&str>, name: String, calls: Calls) {
        let form = Form { namespace: namespace.map(str::to_owned), name, calls };
        self.forms.insert(spec.name.clone(), form);
        self.specs.push(spec);
    }
}

fn description(path: &str, value: &Value) -> Result<Option<Arc<str>>, RequestError> {
    match &value["description"] {
        Value::Null => Ok(None),
        Value::String(text) if text.is_empty() => Ok(None),
        Value::String(text) => Ok(Some(Arc::from(text.as_str()))),
        other => Err(RequestError::expected(&format!("{path}.description"), "a string", other)),
    }
}

/// The description with the format in words: nothing but the model itself keeps to it.
fn custom_description(path: &str, tool: &Value) -> Result<String, RequestError> {
    let mut text = format!("The input is one plain text: give all of it as the string `{INPUT}`.");
    if let Some(own) = description(path, tool)? {
        text = format!(
            "{own}\n\n{text} Whatever is said above of the input, or of not putting it in JSON, is about what this string \
             holds."
        );
    }
    let format = &tool["format"];
    let Some(definition) = format["definition"].as_str() else { return Ok(text) };
    let (kind, what) = match format["syntax"].as_str().unwrap_or("given") {
        "regex" => ("regular expression".to_owned(), "match"),
        syntax => (format!("{syntax} grammar"), "follow"),
    };
    let _ = write!(text, " It must {what} this {kind}:\n\n{}", definition.trim_end());
    Ok(text)
}

/// A function, and how it is told back.
fn function(path: &str, value: &Value) -> Result<(ToolSpec, Value), RequestError> {
    const READ: [&str; 5] = ["type", "name", "description", "parameters", "strict"];
    let fields = value.as_object();
    let has = |key: &str| fields.is_some_and(|fields| fields.contains_key(key));
    if has("function") && !has("name") {
        let message = format!("`{path}` is declared as in Chat Completions");
        let hint = "write `name`, `description` and `parameters` beside `type`, without `function`";
        return Err(RequestError::value(&format!("{path}.function"), message, hint));
    }
    let name = string(path, value, "name")?;
    let description = match &value["description"] {
        Value::Null => None,
        Value::String(text) => Some(Arc::from(text.as_str())),
        other => return Err(RequestError::expected(&format!("{path}.description"), "a string", other)),
    };
    let schema = match &value["parameters"] {
        Value::Null => Value::Object(Map::new()),
        schema @ (Value::Object(_) | Value::Bool(_)) => unsealed(schema),
        other => {
            let what = "a JSON Schema (an object)";
            return Err(RequestError::expected(&format!("{path}.parameters"), what, other));
        }
    };
    let further = fields.into_iter().flatten();
    let further = further.filter(|(key, value)| !READ.contains(&key.as_str()) && !value.is_null());
    let mut kept: Map<String, Value> = further.map(|(key, value)| (key.clone(), value.clone())).collect();
    let mut told = json!({
        "type": "function", "name": name, "description": value["description"], "parameters": value["parameters"],
    });
    for (key, value) in &kept {
        told[key.as_str()] = value.clone();
    }
    let mut rest = Map::new();
    let strict = match &value["strict"] {
        strict @ Value::Bool(_) => {
            rest.insert("strict".to_owned(), strict.clone());
            *strict == true
        }
        // Left open, a function is strict here as far as its schema allows; elsewhere it is not. A schema that keeps
        // the rules of strict mode already means the same either way.
        Value::Null if schema::is_strict(&schema) => {
            rest.insert("strict".to_owned(), true.into());
            true
        }
        Value::Null => {
            kept.insert("strict".to_owned(), Value::Null);
            false
        }
        other => return Err(RequestError::expected(&format!("{path}.strict"), "true or false", other)),
    };
    told["strict"] = strict.into();
    if !kept.is_empty() {
        rest.insert(RESPONSES_ONLY.to_owned(), kept.into());
    }
    Ok((ToolSpec { name, description, schema: Arc::new(schema), rest }, told))
}

/// Codex marks arguments that OpenAI is to seal for another agent. Here they stay readable, for whatever model that
/// agent asks.
fn unsealed(schema: &Value) -> Value {
    let mut schema = schema.clone();
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(Map::values_mut) {
        if let Some(fields) = property.as_object_mut()
            && fields.get("encrypted").is_some_and(Value::is_boolean)
        {
            fields.shift_remove("encrypted");
        }
    }
    schema
}
