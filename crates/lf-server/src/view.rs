//! JSON views of servers and tools, the same over HTTP and on the command line.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lf_core::project::Disabled;
use lf_core::tool::{Held, ToolContent};
use lf_core::tool_set::Target;
use lf_core::{Catalogue, ChatEvent, Model, ToolOutput, ToolSet, Usage};
use lf_dialects::openai_chat;
use lf_mcp::{ServerReport, ServerState};
use serde_json::{Value, json};

use crate::app::{ConfigStatus, Generation, diagnostic};
use crate::timestamp::timestamp;

/// Lines of stderr in the view of one server.
const SHOWN_LINES: usize = 50;

/// One server: `name`, `transport`, `state`, what goes with the state, and what was counted.
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
        view["error_code"] = json!(report.error_code());
    }
    if let Some(hint) = report.hint() {
        view["hint"] = json!(hint);
    }
    if !report.held.is_empty() {
        let held = report.held.iter().map(|(tool, why)| json!({"tool": tool.name, "reason": why}));
        view["held_back"] = held.collect();
    }
    if let Some(activity) = &report.activity {
        let counters = &activity.counters;
        view["since"] = json!(unix(activity.state_since));
        view["circuit"] = json!(activity.circuit.name());
        view["counters"] = json!({
            "since": unix(counters.since),
            "starts": counters.starts,
            "restarts": counters.restarts,
            "failures": counters.failures,
            "calls": counters.calls,
            "failed_calls": counters.failed_calls,
            "garbage_lines": counters.garbage,
            "dropped_notifications": counters.dropped,
        });
        if let Some((when, failure)) = &activity.last_failure {
            view["last_failure"] = json!({
                "at": unix(*when),
                "error": failure.reason,
                "error_code": failure.cause.code(),
            });
        }
    }
    view
}

/// The same with the last lines that the server wrote to stderr, and to stdout where they are no messages.
pub fn server_in_full(report: &ServerReport) -> Value {
    let mut view = server(report);
    let activity = report.activity.as_ref();
    let stderr = activity.map(|activity| activity.stderr.as_slice()).unwrap_or_default();
    view["stderr"] = json!(stderr[stderr.len().saturating_sub(SHOWN_LINES)..]);
    view["garbage"] = json!(activity.map(|activity| activity.noise.as_slice()).unwrap_or_default());
    view
}

/// Tools that are held back, each with the reason.
pub fn held(catalogue: &Catalogue) -> Vec<Value> {
    let held = catalogue.held.iter();
    held.map(|Held { tool, why }| json!({"server": tool.id.server, "tool": tool.id.name, "reason": why}))
        .collect()
}

/// Which generation of a project's configuration is active, and what was refused since.
pub fn config(status: &ConfigStatus) -> Value {
    let ConfigStatus { is_main, file, active, refused } = status;
    let Generation { number, project, hash, since, diagnostics } = &**active;
    let refused = refused.as_ref().map(|refused| {
        let mut view = config_error(status).unwrap_or_default();
        view["at"] = json!(timestamp(refused.at));
        view["diagnostics"] = refused.broken.diagnostics.iter().map(diagnostic).collect();
        view
    });
    json!({
        "project": format!("{}/{}", project.namespace, project.name),
        "main": is_main,
        "file": file.display().to_string(),
        "generation": number,
        "hash": hash,
        "since": timestamp(*since),
        "diagnostics": diagnostics.iter().map(diagnostic).collect::<Vec<_>>(),
        "refused": refused,
    })
}

/// What is wrong with a project's file as it is now: the first mistake and its place.
pub fn config_error(status: &ConfigStatus) -> Option<Value> {
    let broken = &status.refused.as_ref()?.broken;
    let first = broken.error();
    let position = first.and_then(|first| first.position);
    Some(json!({
        "file": status.file.file_name().map(|name| name.to_string_lossy()),
        "line": position.map(|position| position.line),
        "column": position.map(|position| position.column),
        "message": first.map_or(&broken.reason, |first| &first.message),
        "hint": first.and_then(|first| first.hint.as_ref()),
    }))
}

/// Seconds since 1970.
fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
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

/// A model of a project, by its name in the file.
pub(crate) fn model(name: &str, model: &Result<Arc<Model>, Disabled>) -> Value {
    match model {
        Ok(model) => json!({
            "name": name,
            "description": model.description,
            "provider": model.provider.name(),
            "model": model.model,
            "mcp_servers": model.servers,
        }),
        Err(disabled) => json!({"name": name, "error": disabled.reason}),
    }
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

/// One event of a turn: `event` says which.
pub fn event(event: &ChatEvent) -> Value {
    match event {
        ChatEvent::Started { turn, model } => json!({"event": "started", "turn": turn, "model": model}),
        ChatEvent::Text(text) => json!({"event": "text", "text": text}),
        ChatEvent::Reasoning(text) => json!({"event": "reasoning", "text": text}),
        ChatEvent::Answering { model } => json!({"event": "model", "model": model}),
        ChatEvent::Native(native) => json!({"event": "native", "item": native.item}),
        ChatEvent::CallStarted { call, tool } => json!({
            "event": "tool_call",
            "call_id": call.id,
            "name": call.name,
            "server": tool.as_ref().map(|tool| &*tool.server),
            "tool": tool.as_ref().map(|tool| &*tool.name),
            "arguments": call.arguments.value().map_or_else(|_| call.arguments.raw().into(), |map| Value::Object(map.clone())),
        }),
        ChatEvent::CallProgress { call_id, progress } => openai_chat::call_progress(call_id, progress),
        ChatEvent::CallFinished { result, elapsed } => json!({
            "event": "tool_result",
            "call_id": result.call_id,
            "name": result.name,
            "is_error": result.is_error,
            "result": result.content.text(),
            "elapsed_ms": u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        }),
        ChatEvent::ClientCalls(calls) => json!({
            "event": "client_tool_calls",
            "calls": calls.iter().map(|call| json!({"id": call.id, "name": call.name, "arguments": call.arguments.raw()})).collect::<Vec<_>>(),
        }),
        ChatEvent::ApprovalNeeded(_) | ChatEvent::ApprovalDecided(_) | ChatEvent::Limited(_) => {
            openai_chat::lf_event(event).unwrap_or_default()
        }
        ChatEvent::Notice(text) => json!({"event": "notice", "text": text}),
        ChatEvent::Finished { reason, usage: used, rounds, .. } => json!({
            "event": "finished",
            "finish_reason": reason.name(),
            "usage": usage(used),
            "rounds": rounds,
        }),
        ChatEvent::Failed(error) => json!({"event": "failed", "error": error.to_string()}),
    }
}

/// Tokens of a turn.
pub fn usage(usage: &Usage) -> Value {
    json!({"input_tokens": usage.input, "output_tokens": usage.output, "cached_tokens": usage.cached})
}
