//! Inline tools of a model.

use std::collections::HashSet;
use std::sync::Arc;

use lf_core::project::InlineTool;
use serde_json::Value as Json;

use super::Reading;
use crate::diagnostic::Span;
use crate::node::Node;
use crate::raw::RawTool;

pub(super) fn read(reading: &mut Reading<'_, '_, '_>, tools: Vec<RawTool>) -> Vec<InlineTool> {
    let nodes = reading.node("tools").map(Node::items).unwrap_or_default();
    let mut seen = HashSet::new();
    let mut inline = Vec::with_capacity(tools.len());
    for (raw, node) in tools.into_iter().zip(nodes) {
        let (Some(name), Some(parameters)) = (raw.name, raw.parameters) else { continue };
        let name_node = node.get("name").unwrap_or(node);
        if !seen.insert(name.clone()) {
            let message = format!("{} has the tool {} twice", reading.thing, reading.quoted(name_node));
            reading.report.error(&node.span_of("name"), message).label("the second one");
            continue;
        }
        let parameters = Json::Object(parameters);
        let quoted = reading.quoted(name_node);
        check_schema(reading, &quoted, &parameters, node);
        let description = raw.description.unwrap_or_default();
        inline.push(InlineTool { name, description, parameters: Arc::new(parameters) });
    }
    inline
}

/// `name` as messages have it.
fn check_schema(reading: &mut Reading<'_, '_, '_>, name: &str, parameters: &Json, node: &Node) {
    let Some(node) = node.get("parameters") else { return };
    if let Some(kind) = parameters.get("type")
        && kind != "object"
    {
        let message = format!("the parameters of tool {name} must be of type `object`");
        if let Some(diagnostic) = reading.wrong(node.get("type").unwrap_or(node), message) {
            diagnostic.hint("a tool's arguments always have names");
        }
        return;
    }
    if let Err(error) = jsonschema::validator_for(parameters) {
        let message = format!("the parameters of tool {name} are no JSON Schema");
        // what the checker says repeats the value
        if reading.expanded.holds_variable(node) {
            reading.wrong(node, message);
            return;
        }
        let span = at(node, error.instance_path().as_str());
        reading.report.error(&span, format!("{message}: {error}"));
    }
}

/// Where a JSON pointer leads, as far as it can be followed.
fn at(node: &Node, pointer: &str) -> Span {
    let mut here = node;
    for part in pointer.split('/').skip(1) {
        let key = part.replace("~1", "/").replace("~0", "~");
        let next = here.get(&key).or_else(|| here.items().get(key.parse::<usize>().ok()?));
        let Some(next) = next else { break };
        here = next;
    }
    here.span.clone()
}
