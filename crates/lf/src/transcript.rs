//! Views of a turn's events for the terminal and for programs.

use std::io::{IsTerminal as _, Write as _};

use anstyle::{AnsiColor, Style};
use lf_core::{AssistantMessage, ChatEvent, Content, Message, ModelError};
use lf_server::view;
use serde_json::{Map, Value, json};

use crate::exit::{Trouble, print};
use crate::log::printable;

/// What a turn added to the conversation, folded from its events.
#[derive(Default)]
pub(crate) struct Transcript {
    pub messages: Vec<Message>,
    pub text: String,
    pub tools: Vec<Value>,
    pub client_calls: Vec<Value>,
    pub end: Option<Value>,
    pub failure: Option<String>,
    pub notices: Vec<String>,
    /// As the first event names it.
    pub turn: Option<String>,
    model: String,
}

impl Transcript {
    pub(crate) fn push(&mut self, event: &ChatEvent) {
        match event {
            ChatEvent::Started { turn, model } => {
                self.turn = Some(turn.clone());
                self.model.clone_from(model);
            }
            ChatEvent::Answering { model } => self.model.clone_from(model),
            ChatEvent::Text(text) => {
                self.text.push_str(text);
                match &mut self.saying().content {
                    Content::Text(said) => said.push_str(text),
                    Content::Parts(_) => {}
                }
            }
            ChatEvent::CallStarted { call, .. } => self.saying().calls.push(call.clone()),
            ChatEvent::CallFinished { result, elapsed } => {
                self.tools.push(json!({
                    "name": result.name,
                    "call_id": result.call_id,
                    "is_error": result.is_error,
                    "elapsed_ms": u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
                    "result": result.content.text(),
                }));
                self.messages.push(Message::Tool(result.clone()));
            }
            ChatEvent::ClientCalls(calls) => {
                for call in calls {
                    let arguments = call.arguments.value().cloned().unwrap_or_default();
                    self.client_calls.push(json!({"id": call.id, "name": call.name, "arguments": arguments}));
                }
            }
            ChatEvent::Notice(text) => self.notices.push(text.clone()),
            ChatEvent::Limited(limit) => self.notices.push(format!("the turn has reached {limit}")),
            ChatEvent::Finished { reason, usage, rounds, .. } => {
                self.end = Some(
                    json!({"finish_reason": reason.name(), "usage": view::usage(usage), "rounds": rounds}),
                );
            }
            ChatEvent::Failed(error) => self.failure = Some(error.to_string()),
            ChatEvent::Reasoning(_)
            | ChatEvent::CallProgress { .. }
            | ChatEvent::ApprovalNeeded(_)
            | ChatEvent::ApprovalDecided(_)
            | ChatEvent::Native(_) => {}
        }
    }

    /// The assistant message that is being said: a new one after results.
    fn saying(&mut self) -> &mut AssistantMessage {
        if !matches!(self.messages.last(), Some(Message::Assistant(_))) {
            self.messages.push(Message::Assistant(AssistantMessage::default()));
        }
        match self.messages.last_mut() {
            Some(Message::Assistant(message)) => message,
            _ => unreachable!("an assistant message was just pushed"),
        }
    }

    /// The turn as one JSON document.
    pub(crate) fn document(&self) -> Value {
        let mut document = json!({
            "model": self.model,
            "answer": self.text,
            "tools": self.tools,
        });
        if !self.client_calls.is_empty() {
            document["tool_calls"] = self.client_calls.clone().into();
        }
        if !self.notices.is_empty() {
            document["notices"] = json!(self.notices);
        }
        if let Some(Value::Object(end)) = &self.end {
            for (key, value) in end {
                document[key] = value.clone();
            }
        }
        if let Some(failure) = &self.failure {
            document["error"] = json!(failure);
        }
        document
    }
}

/// Text on stdout is the answer and nothing else; everything else goes to stderr.
pub(crate) struct Terminal {
    ends_with_newline: bool,
    wrote: bool,
    /// Answer and status share a screen: a status line begins a line of its own.
    shared: bool,
}

const DIM: Style = Style::new().dimmed();
const RED: Style = AnsiColor::Red.on_default();
const YELLOW: Style = AnsiColor::Yellow.on_default();

impl Terminal {
    pub(crate) fn new() -> Self {
        let shared = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        Self { ends_with_newline: true, wrote: false, shared }
    }

    pub(crate) fn show(&mut self, event: &ChatEvent) -> Result<(), Trouble> {
        match event {
            ChatEvent::Text(text) => {
                // what a model writes could drive the terminal; a pipe gets it as it is
                if std::io::stdout().is_terminal() {
                    print(harmless(text))?;
                } else {
                    print(text)?;
                }
                self.wrote = true;
                self.ends_with_newline = text.ends_with('\n');
            }
            ChatEvent::CallStarted { call, .. } => {
                let arguments = shortened(&printable(call.arguments.raw()), 120);
                self.status(DIM, &format!("→ {} {arguments}", printable(&call.name)));
            }
            ChatEvent::CallProgress { progress, .. } => {
                let of = progress.total.map_or_else(String::new, |total| format!("/{total}"));
                let message = progress.message.as_deref().map(printable).unwrap_or_default();
                self.status(DIM, &format!("  … {}{of} {message}", progress.progress));
            }
            ChatEvent::CallFinished { result, elapsed } => {
                let name = result.name.as_deref().map(printable).unwrap_or_default();
                let text = printable(&shortened(&result.content.text().replace('\n', " "), 120));
                if result.is_error {
                    self.status(RED, &format!("✗ {name} ({elapsed:.1?}): {text}"));
                } else {
                    self.status(DIM, &format!("✓ {name} ({elapsed:.1?})"));
                }
            }
            ChatEvent::ClientCalls(calls) => {
                for call in calls {
                    let arguments = printable(call.arguments.raw());
                    let what =
                        format!("the model calls `{}` with {arguments}; only a client can run it", call.name);
                    self.status(YELLOW, &what);
                }
            }
            ChatEvent::Notice(text) => self.status(YELLOW, &format!("warning: {}", printable(text))),
            ChatEvent::Limited(limit) => {
                self.status(YELLOW, &format!("warning: the turn has reached {limit}"));
            }
            ChatEvent::Failed(error) => {
                self.status(RED, &format!("error: {}", printable(&error.to_string())));
                if let Some(hint) = hint(error) {
                    self.status(Style::new(), &format!("hint: {hint}"));
                }
            }
            ChatEvent::Answering { model } => {
                self.status(YELLOW, &format!("model `{}` answers", printable(model)));
            }
            ChatEvent::ApprovalNeeded(ask) => {
                let tool = printable(&ask.tool.name);
                self.status(YELLOW, &format!("? {tool} has to be approved ({})", printable(&ask.id)));
            }
            ChatEvent::ApprovalDecided(ask) => {
                if let Some(decision) = &ask.decision {
                    let what = format!("  {} by {}", decision.verdict.name(), printable(&decision.by));
                    self.status(DIM, &what);
                }
            }
            ChatEvent::Started { .. }
            | ChatEvent::Reasoning(_)
            | ChatEvent::Native(_)
            | ChatEvent::Finished { .. } => {}
        }
        Ok(())
    }

    /// Ends the answer with a newline.
    pub(crate) fn end(&mut self) -> Result<(), Trouble> {
        if self.wrote && !std::mem::replace(&mut self.ends_with_newline, true) {
            print("\n")?;
        }
        Ok(())
    }

    fn status(&mut self, style: Style, text: &str) {
        if self.shared {
            // a screen that cannot be written to has nobody to tell
            let _ = self.end();
        }
        let _ = writeln!(anstream::stderr(), "{style}{text}{style:#}");
    }
}

/// What to try when a model could not answer.
fn hint(error: &ModelError) -> Option<String> {
    match error {
        ModelError::Unreachable { .. } => {
            Some("check `base_url`, and that the model's server is running".to_owned())
        }
        ModelError::Unauthorized { .. } => {
            Some("check the model's `api_key`, or the provider's variable such as OPENAI_API_KEY".to_owned())
        }
        ModelError::RateLimited { retry_after: Some(pause), .. } => Some(format!("try again in {pause:?}")),
        ModelError::RateLimited { .. } => Some("try again later".to_owned()),
        ModelError::Garbled { .. } => {
            Some("check that `base_url` is an OpenAI-compatible endpoint; it usually ends in /v1".to_owned())
        }
        ModelError::Timeout { .. } => Some("`limits.turn_timeout` bounds a turn".to_owned()),
        ModelError::Rejected { status: 404, .. } => {
            Some("check the upstream's name in `model`, and `base_url`".to_owned())
        }
        ModelError::Rejected { .. } | ModelError::Failed { .. } | ModelError::Unsupported(_) => None,
    }
}

/// Without what could drive a terminal or cannot be seen on it; line breaks and tabs stay.
pub(crate) fn harmless(text: &str) -> String {
    lf_core::visible::words(text).into_owned()
}

fn shortened(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(limit)])
}

/// `NAME=VALUE` pairs as template variables.
pub(crate) fn variables(pairs: &[String]) -> Result<Map<String, Value>, String> {
    let pair = |pair: &String| {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| format!("`--var {pair}` is not NAME=VALUE, such as `--var user=Ada`"))?;
        Ok((name.to_owned(), Value::String(value.to_owned())))
    };
    pairs.iter().map(pair).collect()
}
