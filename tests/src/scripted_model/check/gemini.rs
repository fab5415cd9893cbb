//! Gemini. Its calls have no ids: results answer the calls before them by place and name.

use serde_json::Value;

use super::{Raw, list, text};
use crate::scripted_model::asked::{Asked, Called, Said, Tool};

pub(super) fn read(raw: &Raw<'_>, problems: &mut Vec<String>) -> Asked {
    let request = raw.body;
    if !raw.headers.contains_key("x-goog-api-key") {
        problems.push("no header `x-goog-api-key`".to_owned());
    }
    if raw.path.contains("key=") {
        problems.push("the key is in the URL".to_owned());
    }
    let (path, query) = raw.path.split_once('?').unwrap_or((raw.path, ""));
    let last = path.rsplit('/').next().unwrap_or_default();
    let (model, method) = last.split_once(':').unwrap_or((last, ""));
    let stream = method == "streamGenerateContent";
    if stream && !query.split('&').any(|pair| pair == "alt=sse") {
        problems.push("a stream without `alt=sse`".to_owned());
    }
    for key in ["model", "stream", "messages", "temperature", "max_tokens", "tool_choice"] {
        if request.get(key).is_some() {
            problems.push(format!("there is no field `{key}`"));
        }
    }
    let system: String = list(&request["systemInstruction"]["parts"])
        .iter()
        .filter_map(|part| part["text"].as_str())
        .collect();
    let mut asked = Asked {
        model: model.to_owned(),
        stream,
        tools: tools(request, problems),
        system: system.clone(),
        ..Asked::default()
    };
    if !system.is_empty() {
        asked.history.push(Said::System(system));
    }
    contents(list(&request["contents"]), &mut asked.history, problems);
    asked
}

fn tools(request: &Value, problems: &mut Vec<String>) -> Vec<Tool> {
    let declarations: Vec<&Value> =
        list(&request["tools"]).iter().flat_map(|tool| list(&tool["functionDeclarations"])).collect();
    if request["tools"].is_array() && declarations.is_empty() {
        problems.push(format!("`tools` is {}", request["tools"]));
    }
    if declarations.is_empty() && !request["toolConfig"].is_null() {
        problems.push("`toolConfig` without `tools`".to_owned());
    }
    let declared = |tool: &Value| {
        // `parametersJsonSchema` takes JSON Schema as it is, `parameters` a part of OpenAPI's
        let subset = &tool["parameters"];
        foreign_keys(subset, &tool["name"], problems);
        let schema = if subset.is_null() { &tool["parametersJsonSchema"] } else { subset };
        if schema["properties"].as_object().is_some_and(serde_json::Map::is_empty) && !subset.is_null() {
            problems.push(format!("the parameters of {} are an object without members", tool["name"]));
        }
        let mut schema = schema.clone();
        // both spellings are taken
        if schema["type"] == "OBJECT" {
            schema["type"] = Value::from("object");
        }
        Tool { name: text(&tool["name"]), schema }
    };
    declarations.into_iter().map(declared).collect()
}

/// Keywords that the API refuses, at any depth; names of members are not keywords.
fn foreign_keys(schema: &Value, tool: &Value, problems: &mut Vec<String>) {
    const FOREIGN: [&str; 10] = [
        "$schema",
        "$ref",
        "$defs",
        "definitions",
        "additionalProperties",
        "patternProperties",
        "const",
        "oneOf",
        "allOf",
        "not",
    ];
    for (key, value) in schema.as_object().into_iter().flatten() {
        if FOREIGN.contains(&key.as_str()) {
            problems.push(format!("the parameters of {tool} have `{key}`"));
        }
        match key.as_str() {
            "properties" => {
                for member in value.as_object().into_iter().flatten().map(|(_, member)| member) {
                    foreign_keys(member, tool, problems);
                }
            }
            "items" => foreign_keys(value, tool, problems),
            "anyOf" => list(value).iter().for_each(|branch| foreign_keys(branch, tool, problems)),
            _ => {}
        }
    }
}

fn contents(contents: &[Value], history: &mut Vec<Said>, problems: &mut Vec<String>) {
    let mut open: Vec<Called> = Vec::new();
    for (number, content) in contents.iter().enumerate() {
        let parts = list(&content["parts"]);
        if parts.is_empty() {
            problems.push(format!("content {number} has no parts"));
        }
        for part in parts {
            part_is_well_formed(number, part, problems);
        }
        match content["role"].as_str().unwrap_or_default() {
            "model" => {
                if !open.is_empty() {
                    problems.push(format!("content {number} comes before the results"));
                }
                open = calls(number, parts);
                let told = |part: &&Value| part["thought"] != true;
                let text = parts.iter().filter(told).filter_map(|part| part["text"].as_str()).collect();
                history.push(Said::Assistant { text, calls: open.clone() });
            }
            "user" => user(number, parts, std::mem::take(&mut open), history, problems),
            role => problems.push(format!("content {number} has the role `{role}`")),
        }
    }
}

fn part_is_well_formed(number: usize, part: &Value, problems: &mut Vec<String>) {
    const KINDS: [&str; 5] = ["text", "functionCall", "functionResponse", "inlineData", "fileData"];
    let kinds = KINDS.iter().filter(|kind| part.get(**kind).is_some()).count();
    if kinds != 1
        || part["text"].as_str().is_some_and(str::is_empty) && part.get("thoughtSignature").is_none()
    {
        problems.push(format!("content {number} has the part {part}"));
    }
    if part.get("functionResponse").is_some() && !part["functionResponse"]["response"].is_object() {
        problems.push(format!("content {number}: the response is no object: {part}"));
    }
}

fn calls(number: usize, parts: &[Value]) -> Vec<Called> {
    let calls = parts.iter().filter(|part| part["functionCall"].is_object()).enumerate();
    calls
        .map(|(place, part)| Called {
            id: format!("{number}.{place}"),
            name: text(&part["functionCall"]["name"]),
            // a call without arguments may come without the field
            arguments: match &part["functionCall"]["args"] {
                Value::Null => serde_json::json!({}),
                other => other.clone(),
            },
            seal: part["thoughtSignature"].as_str().map(str::to_owned),
        })
        .collect()
}

/// As many results as there were calls, under their names and in their order; then what the person says.
fn user(
    number: usize,
    parts: &[Value],
    open: Vec<Called>,
    history: &mut Vec<Said>,
    problems: &mut Vec<String>,
) {
    let results: Vec<&Value> =
        parts.iter().map(|part| &part["functionResponse"]).filter(|result| result.is_object()).collect();
    if results.len() != open.len() {
        problems.push(format!("content {number} has {} results for {} calls", results.len(), open.len()));
    }
    for (result, call) in results.into_iter().zip(open) {
        if result["name"] != call.name.as_str() {
            problems.push(format!(
                "content {number} answers `{}` where `{}` was called",
                result["name"], call.name
            ));
        }
        history.push(Said::Result { id: call.id, text: told(&result["response"]) });
    }
    let texts: String = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    if !texts.is_empty() {
        history.push(Said::User(texts));
    }
}

/// The one text in a response, or its JSON.
fn told(response: &Value) -> String {
    let members = response.as_object();
    match members.and_then(|members| members.values().next()) {
        Some(Value::String(text)) if members.is_some_and(|members| members.len() == 1) => text.clone(),
        _ => response.to_string(),
    }
}
