//! What was found, told as it happens or as one JSON document.

use std::time::Duration;

use lf_core::McpServer;
use lf_core::tool::ToolOutput;
use lf_mcp::{Activity, Cause, Failure, List, OpenSession, ServerState};
use lf_server::view;
use serde_json::{Map, Value, json};

use crate::exit::{Exit, Trouble, print_line};
use crate::log::printable;
use crate::mcp::printable_lines;

/// Characters of a result that are shown; JSON has all of it.
const SHOWN: usize = 2_000;
/// Lines of stderr that are shown.
const SHOWN_LINES: usize = 20;

/// One thing that was tried.
pub(super) struct Step {
    name: &'static str,
    elapsed: Duration,
    outcome: Result<String, Problem>,
}

struct Problem {
    reason: String,
    /// For programs, where it is known.
    code: Option<&'static str>,
    hint: Option<String>,
}

impl Step {
    pub(super) fn done(name: &'static str, elapsed: Duration, detail: impl Into<String>) -> Self {
        Self { name, elapsed, outcome: Ok(detail.into()) }
    }

    pub(super) fn wrong(name: &'static str, elapsed: Duration, reason: impl Into<String>) -> Self {
        Self { name, elapsed, outcome: Err(Problem { reason: reason.into(), code: None, hint: None }) }
    }

    /// A failure of the session, at the step that it tells of.
    pub(super) fn failed(name: &'static str, elapsed: Duration, failure: &Failure) -> Self {
        let code = failure.cause.code();
        let name = match failure.cause {
            Cause::HostNotFound => "resolve",
            Cause::Unreachable => "connect",
            Cause::Tls => "tls",
            Cause::HttpStatus => "http",
            Cause::AuthRequired => "authorize",
            Cause::CannotStart | Cause::NoResources | Cause::Changed => "start",
            _ => name,
        };
        let hint = match failure.cause {
            Cause::AuthRequired => {
                Some("add `--login`, or the header that the server expects: `--header`".to_owned())
            }
            _ => failure.hint.clone(),
        };
        let problem = Problem { reason: failure.reason.clone(), code: Some(code), hint };
        Self { name, elapsed, outcome: Err(problem) }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        if let Err(problem) = &mut self.outcome {
            problem.hint = Some(hint.into());
        }
        self
    }

    pub(super) fn has_failed(&self) -> bool {
        self.outcome.is_err()
    }

    fn to_json(&self) -> Value {
        let mut json =
            json!({"step": self.name, "ok": self.outcome.is_ok(), "ms": milliseconds(self.elapsed)});
        match &self.outcome {
            Ok(detail) => json["detail"] = json!(detail),
            Err(problem) => {
                json["error"] = json!(problem.reason);
                json["error_code"] = json!(problem.code);
                json["hint"] = json!(problem.hint);
            }
        }
        json
    }
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

pub(super) struct Report {
    in_json: bool,
    target: Value,
    steps: Vec<Value>,
    failed: bool,
    server: Value,
    tools: Vec<Value>,
    /// Prompts, resources and templates.
    items: Map<String, Value>,
    calls: Vec<Value>,
    answers: Vec<Value>,
    stderr: Vec<String>,
    noise: Vec<String>,
}

impl Report {
    pub(super) fn new(server: &McpServer, in_json: bool) -> Self {
        let transport = server.transport.name();
        let protocol = server.protocol.name();
        Self {
            in_json,
            target: json!({"name": server.name, "transport": transport, "protocol": protocol}),
            steps: Vec::new(),
            failed: false,
            server: Value::Null,
            tools: Vec::new(),
            items: Map::new(),
            calls: Vec::new(),
            answers: Vec::new(),
            stderr: Vec::new(),
            noise: Vec::new(),
        }
    }

    pub(super) fn failed(&self) -> bool {
        self.failed
    }

    pub(super) fn add(&mut self, step: Step) -> Result<(), Trouble> {
        self.failed |= step.has_failed();
        self.steps.push(step.to_json());
        let (word, text) = match &step.outcome {
            Ok(detail) => ("ok", detail),
            Err(problem) => ("FAILED", &problem.reason),
        };
        let elapsed = milliseconds(step.elapsed);
        self.say(format_args!("{:9}  {word:6}  {elapsed:>8.1} ms  {}", step.name, printable_lines(text)))?;
        match step.outcome {
            Err(Problem { hint: Some(hint), .. }) => {
                self.say(format_args!("hint: {}", printable_lines(&hint)))
            }
            _ => Ok(()),
        }
    }

    /// Notes whom the session is with, and says so.
    pub(super) fn greeted(&mut self, session: &OpenSession, state: &ServerState) -> String {
        let (protocol, generation) = (session.protocol(), session.generation().name());
        let mut said = format!("revision {protocol} ({generation})");
        self.server = json!({"protocol": protocol, "generation": generation});
        for key in ["capabilities", "instructions"] {
            self.server[key] = session.about()[key].clone();
        }
        if let ServerState::Ready { peer: Some(peer), .. } = state {
            said = format!("{} {}, {said}", peer.name, peer.version);
            self.server["name"] = json!(peer.name);
            self.server["version"] = json!(peer.version);
        }
        said
    }

    /// What a child wrote beside the protocol.
    pub(super) fn said(&mut self, activity: Option<Activity>) -> Result<(), Trouble> {
        let Some(activity) = activity else { return Ok(()) };
        let from = activity.stderr.len().saturating_sub(SHOWN_LINES);
        for line in &activity.stderr[from..] {
            self.say(format_args!("stderr: {}", printable(line)))?;
        }
        for line in &activity.noise {
            self.say(format_args!("stdout, no message: {}", printable(line)))?;
        }
        (self.stderr, self.noise) = (activity.stderr, activity.noise);
        Ok(())
    }

    pub(super) fn tool(&mut self, definition: &Value, problems: &[String]) -> Result<(), Trouble> {
        let name = definition["name"].as_str().unwrap_or_default();
        let description = definition["description"].as_str().unwrap_or_default();
        let first = description.lines().next().unwrap_or_default();
        self.say(format_args!("    {}  {}", printable(name), printable(first)))?;
        for problem in problems {
            self.say(format_args!("        warning: {}", printable(problem)))?;
        }
        let mut definition = definition.clone();
        definition["problems"] = json!(problems);
        self.tools.push(definition);
        Ok(())
    }

    pub(super) fn items(&mut self, list: List, items: &[Value]) -> Result<(), Trouble> {
        for item in items {
            let name = [&item["uri"], &item["uriTemplate"], &item["name"]];
            let name = name.into_iter().find_map(Value::as_str).unwrap_or("(without a name)");
            let description = item["description"].as_str().unwrap_or_default();
            let first = description.lines().next().unwrap_or_default();
            self.say(format_args!("    {}  {}", printable(name), printable(first)))?;
        }
        self.items.insert(list.key().to_owned(), json!(items));
        Ok(())
    }

    /// A resource that was read, or a prompt.
    pub(super) fn answer(&mut self, step: &str, name: &str, result: &Value) -> Result<(), Trouble> {
        let shown: String = result.to_string().chars().take(SHOWN).collect();
        self.say(format_args!("    {}", printable(&shown)))?;
        self.answers.push(json!({"step": step, "name": name, "result": result}));
        Ok(())
    }

    pub(super) fn call(
        &mut self,
        tool: &str,
        arguments: &Map<String, Value>,
        doubts: &[String],
        heard: &[Value],
        output: Option<&ToolOutput>,
    ) -> Result<(), Trouble> {
        for doubt in doubts {
            self.say(format_args!("    warning: the arguments do not fit the schema: {}", printable(doubt)))?;
        }
        for event in heard {
            self.say(format_args!("    … {}", printable(&event.to_string())))?;
        }
        for content in output.iter().flat_map(|output| &output.content) {
            let text = match content {
                lf_core::tool::ToolContent::Text(text) => text.clone(),
                other => other.to_json().to_string(),
            };
            let shown: String = text.chars().take(SHOWN).collect();
            self.say(format_args!("    {}", printable_lines(&shown)))?;
        }
        let server = self.target["name"].as_str().unwrap_or_default();
        let output = output.map(|output| view::output(server, tool, output));
        self.calls.push(json!({
            "tool": tool,
            "arguments": arguments,
            "problems": doubts,
            "heard": heard,
            "output": output,
        }));
        Ok(())
    }

    /// Writes the document, where one is wanted.
    pub(super) fn finish(self) -> Result<Exit, Trouble> {
        if self.in_json {
            let item = |list: List| self.items.get(list.key()).cloned().unwrap_or_else(|| json!([]));
            print_line(json!({
                "target": self.target,
                "ok": !self.failed,
                "steps": self.steps,
                "server": self.server,
                "tools": self.tools,
                "prompts": item(List::Prompts),
                "resources": item(List::Resources),
                "resource_templates": item(List::Templates),
                "calls": self.calls,
                "answers": self.answers,
                "stderr": self.stderr,
                "garbage": self.noise,
            }))?;
        }
        Ok(if self.failed { Exit::Failure } else { Exit::Success })
    }

    fn say(&self, line: std::fmt::Arguments<'_>) -> Result<(), Trouble> {
        if self.in_json { Ok(()) } else { print_line(line) }
    }
}
