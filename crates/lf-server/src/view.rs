//! JSON views of servers and tools, the same over HTTP and on the command line.

use std::time::Duration;

use lf_core::tool::ToolContent;
use lf_core::tool_set::Target;
use lf_core::{ToolOutput, ToolSet};
use lf_mcp::{ServerReport, ServerState};
use serde_json::{Value, json};

/// One server: `name`, `transport`, `state`, and what goes with the state.
pub fn server(report: &ServerReport) -> Value {
    let mut view = json!({
        "name": report.name,
        "transport": report.transport,
        "required": report.required,
        "state": report.state.name(),
    });
    if let ServerState::Ready { protocol, peer, tools } = &report.state {
        view["protocol"] = json!(protocol);
        view["tools"] = json!(tools);
        view["server_info"] =
            json!(peer.as_ref().map(|peer| json!({"name": peer.name, "version": peer.version})));
    }
    if let ServerState::Failed { retry_in, .. } = &report.state {
        view["retry_in_seconds"] = json!(seconds(*retry_in));
    }
    if let Some(error) = report.last_error() {
        view["error"] = json!(error);
    }
    if let Some(hint) = report.hint() {
        view["hint"] = json!(hint);
    }
    view
}

fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10.0).round() / 10.0
}

/// The tools of a set under the names the model is shown.
pub fn tools(set: &ToolSet) -> Vec<Value> {
    set.iter()
        .zip(set.specs().iter())
        .map(|((exposed, target), spec)| {
            let (server, tool) = match target {
                Target::Source(tool) => (Some(&*tool.id.server), &*tool.id.name),
                Target::Client(name) => (None, name.as_str()),
            };
            json!({
                "name": exposed,
                "server": server,
                "tool": tool,
                "description": spec.description,
                "parameters": spec.schema,
            })
        })
        .collect()
}

/// A tool's output in MCP's own shape.
pub fn output(server: &str, tool: &str, output: &ToolOutput) -> Value {
    let content: Vec<Value> = output.content.iter().map(ToolContent::to_json).collect();
    json!({
        "server": server,
        "tool": tool,
        "is_error": output.is_error,
        "content": content,
        "structured_content": output.structured,
    })
}
