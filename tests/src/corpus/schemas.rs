//! KIND `schemas`: a tool's declaration as a provider takes it.

use std::sync::Arc;

use anyhow::{Context, Result};
use lf_core::model::ToolSpec;
use lf_dialects::schema::{SchemaTarget, tool_for};
use serde_json::{Map, Value, json};

pub(super) fn run(case: &Value) -> Result<Value> {
    let tool = case["tool"].as_object().context("a case without a tool")?;
    let target = case["target"].as_str().context("a case without a target")?;
    let mut rest: Map<String, Value> = tool
        .iter()
        .filter(|(key, _)| !["name", "description", "schema"].contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if target.ends_with("strict") || case["strict"] == true {
        rest.insert("strict".to_owned(), true.into());
    }
    let spec = ToolSpec {
        name: tool["name"].as_str().context("a tool without a name")?.to_owned(),
        description: tool.get("description").and_then(Value::as_str).map(Arc::from),
        schema: Arc::new(tool.get("schema").cloned().unwrap_or(Value::Null)),
        rest,
    };
    let target = match target.split(['-', '_']).next().unwrap_or_default() {
        "gemini" | "google" | "vertex" => SchemaTarget::Gemini,
        "anthropic" => SchemaTarget::Anthropic,
        // All others follow OpenAI's rules or take more.
        _ => SchemaTarget::Openai,
    };
    Ok(json!({"id": case["id"], "tool": tool_for(target, &spec)}))
}
