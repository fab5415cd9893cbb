//! What is asked of a server once its lists are known.

use std::sync::{Arc, Mutex, PoisonError};

use lf_core::tool::{Attendant, Tool, ToolOutput, ToolProgress};
use lf_core::{McpServer, ToolRef, ToolSource as _};
use lf_mcp::{Failure, OpenSession, SessionPool};
use serde_json::{Map, Value, json};
use tokio::time::{Duration, Instant};

use super::report::{Report, Step};
use crate::exit::Trouble;

/// A tool that is to be called.
pub(super) struct Call {
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
}

/// What a call reports, in order.
#[derive(Default)]
struct Heard(Mutex<Vec<Value>>);

impl Heard {
    fn add(&self, value: Value) {
        /// More of a call that does not stop talking are left out.
        const MOST: usize = 1_000;
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if heard.len() < MOST {
            heard.push(value);
        }
    }
}

impl Attendant for Heard {
    fn progress(&self, progress: ToolProgress) {
        self.add(
            json!({"progress": progress.progress, "total": progress.total, "message": progress.message}),
        );
    }

    fn note(&self, note: String) {
        self.add(json!({"note": note}));
    }
}

pub(super) async fn call(
    pool: &SessionPool,
    server: &Arc<McpServer>,
    tools: &[Tool],
    call: Call,
    report: &mut Report,
) -> Result<(), Trouble> {
    let known = tools.iter().find(|tool| *tool.id.name == *call.tool);
    let doubts = known.map(|tool| tool.problems(&call.arguments)).unwrap_or_default();
    let source = pool.tools([(server.name.clone(), Ok(server.clone()))]);
    let wanted = ToolRef { server: server.name.as_str().into(), name: call.tool.as_str().into() };
    let heard = Heard::default();
    let started = Instant::now();
    let outcome = source.call(&wanted, &call.arguments, &heard).await;
    let elapsed = started.elapsed();
    let heard = heard.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    let step = match &outcome {
        Ok(ToolOutput { is_error: false, .. }) => Step::done("call", elapsed, call.tool.clone()),
        Ok(_) => Step::wrong("call", elapsed, format!("{}: the tool reported an error", call.tool)),
        Err(error) => Step::wrong("call", elapsed, error.to_string()),
    };
    report.add(step)?;
    report.call(&call.tool, &call.arguments, &doubts, &heard, outcome.as_ref().ok())
}

/// Gets a prompt, with any text for each of its arguments.
pub(super) async fn prompt(
    session: &OpenSession,
    server: &McpServer,
    prompt: &Value,
    report: &mut Report,
) -> Result<(), Trouble> {
    let Some(name) = prompt["name"].as_str() else { return Ok(()) };
    let arguments = prompt["arguments"].as_array().into_iter().flatten();
    let arguments: Map<String, Value> = arguments
        .filter_map(|argument| argument["name"].as_str())
        .map(|argument| (argument.to_owned(), json!("text")))
        .collect();
    let params = json!({"name": name, "arguments": arguments});
    let started = Instant::now();
    let answer = session.ask(server, "prompts/get", params).await;
    answered("prompt", name, started.elapsed(), answer, report)
}

pub(super) async fn read(
    session: &OpenSession,
    server: &McpServer,
    uri: &str,
    report: &mut Report,
) -> Result<(), Trouble> {
    let started = Instant::now();
    let answer = session.ask(server, "resources/read", json!({"uri": uri})).await;
    answered("read", uri, started.elapsed(), answer, report)
}

fn answered(
    step: &'static str,
    name: &str,
    elapsed: Duration,
    answer: Result<Value, Failure>,
    report: &mut Report,
) -> Result<(), Trouble> {
    match answer {
        Ok(result) => {
            let asks = result["resultType"] == "input_required";
            let detail = if asks { format!("{name}: it asks for input first") } else { name.to_owned() };
            report.add(Step::done(step, elapsed, detail))?;
            report.answer(step, name, &result)
        }
        Err(failure) => report.add(Step::failed(step, elapsed, &failure)),
    }
}
