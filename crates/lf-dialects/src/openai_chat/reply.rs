//! Writes answers to our clients: streamed chunks, or one completion.

use lf_core::tool::ToolProgress;
use lf_core::{ChatEvent, ToolCall, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::errors::{ErrorReply, error_reply, internal_error_reply};
use super::request::write_call;
use super::served::ViewOptions;
use super::usage::write_usage;
use crate::upstream::media;

/// How much of a tool's result the client is shown as progress; the model gets all of it.
const SHOWN_RESULT_BYTES: usize = 4096;

/// Whether progress of the server's own work is told, in the extra field `lf` that SDKs ignore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LfEvents {
    Told,
    Hidden,
}

/// The chunks of one streamed answer: one id, the role once, one finish reason or one error, nothing after it.
#[derive(Debug)]
pub struct ChunkEncoder {
    id: String,
    created: u64,
    /// Everything before the delta; the same in each chunk.
    head: String,
    view: ViewOptions,
    lf_events: LfEvents,
    began: bool,
    over: bool,
    /// Client calls told so far.
    calls: usize,
}

#[derive(Serialize)]
struct Head<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
}

fn head(id: &str, created: u64, model: &str, view: ViewOptions) -> String {
    let mut head = to_json(&Head { id, object: "chat.completion.chunk", created, model });
    head.pop();
    if view.include_usage {
        head.push_str(r#","usage":null"#);
    }
    head
}

impl ChunkEncoder {
    /// `created` in seconds since 1970.
    pub fn new(id: &str, created: u64, model: &str, view: ViewOptions, lf_events: LfEvents) -> Self {
        let head = head(id, created, model, view);
        Self { id: id.to_owned(), created, head, view, lf_events, began: false, over: false, calls: 0 }
    }

    /// The data of the SSE events that this event becomes, each one JSON document. After the last ones of
    /// [`ChatEvent::Finished`] the caller writes `[DONE]`; after [`ChatEvent::Failed`] it must not.
    pub fn event(&mut self, event: &ChatEvent) -> Vec<String> {
        let mut out = Vec::new();
        if self.over {
            return out;
        }
        if let ChatEvent::Failed(error) = event {
            self.over = true;
            out.push(error_reply(error).body.to_string());
            return out;
        }
        if !std::mem::replace(&mut self.began, true) {
            out.push(self.chunk(r#"{"role":"assistant","content":""}"#, None));
        }
        match event {
            ChatEvent::Started { .. } | ChatEvent::Failed(_) | ChatEvent::Native(_) => {}
            ChatEvent::Text(text) => out.push(self.text("content", text)),
            ChatEvent::Reasoning(text) => out.push(self.text("reasoning_content", text)),
            ChatEvent::CallStarted { .. }
            | ChatEvent::CallProgress { .. }
            | ChatEvent::CallFinished { .. }
            | ChatEvent::Answering { .. }
            | ChatEvent::ApprovalNeeded(_)
            | ChatEvent::ApprovalDecided(_)
            | ChatEvent::Notice(_) => {
                if let ChatEvent::Answering { model } = event {
                    self.head = head(&self.id, self.created, model, self.view);
                }
                if let (LfEvents::Told, Some(lf)) = (self.lf_events, lf_event(event)) {
                    out.push(self.lf(&lf));
                }
            }
            ChatEvent::ClientCalls(calls) => out.push(self.client_calls(calls)),
            ChatEvent::Finished { reason, usage, .. } => {
                self.over = true;
                out.push(self.chunk("{}", Some(reason.name())));
                if self.view.include_usage {
                    out.push(self.usage(usage));
                }
            }
        }
        out
    }

    fn chunk(&self, delta: &str, finish_reason: Option<&str>) -> String {
        let reason = finish_reason.map_or_else(|| "null".to_owned(), |reason| format!("\"{reason}\""));
        format!(r#"{},"choices":[{{"index":0,"delta":{delta},"finish_reason":{reason}}}]}}"#, self.head)
    }

    fn text(&self, field: &str, text: &str) -> String {
        self.chunk(&format!(r#"{{"{field}":{}}}"#, to_json(&text)), None)
    }

    fn lf(&self, lf: &Value) -> String {
        let mut chunk = self.chunk("{}", None);
        chunk.pop();
        format!(r#"{chunk},"lf":{lf}}}"#)
    }

    fn client_calls(&mut self, calls: &[ToolCall]) -> String {
        let first = self.calls;
        self.calls += calls.len();
        let calls = calls.iter().enumerate().map(|(at, call)| {
            let Value::Object(call) = told_call(call) else { return Value::Null };
            let mut indexed = Map::new();
            indexed.insert("index".to_owned(), (first + at).into());
            indexed.extend(call);
            indexed.into()
        });
        let delta = json!({"tool_calls": calls.collect::<Vec<Value>>()});
        self.chunk(&delta.to_string(), None)
    }

    fn usage(&self, usage: &Usage) -> String {
        let head = self.head.strip_suffix(r#","usage":null"#).unwrap_or(&self.head);
        format!(r#"{head},"choices":[],"usage":{}}}"#, write_usage(usage))
    }
}

pub(crate) fn to_json(value: &impl Serialize) -> String {
    // Strings and numbers always have a JSON form.
    serde_json::to_string(value).unwrap_or_default()
}

/// A call for the client to run: the model's own text, unless that has no meaning but through repair.
fn told_call(call: &ToolCall) -> Value {
    let arguments = match call.arguments.value() {
        Ok(_) => call.arguments.for_replay(),
        Err(_) => call.arguments.raw().to_owned(),
    };
    write_call(call, &call.id, &arguments)
}

/// What is told about the server's own work; `None` for what is told in the dialect itself.
pub fn lf_event(event: &ChatEvent) -> Option<Value> {
    Some(match event {
        ChatEvent::CallStarted { call, tool } => json!({
            "event": "tool_call",
            "call_id": call.id,
            "name": call.name,
            "server": tool.as_ref().map(|tool| tool.server.as_ref()),
            "tool": tool.as_ref().map(|tool| tool.name.as_ref()),
            "arguments": call.arguments.raw(),
        }),
        ChatEvent::CallProgress { call_id, progress } => call_progress(call_id, progress),
        ChatEvent::CallFinished { result, elapsed } => {
            let text = result.content.text();
            let shown = &text[..text.floor_char_boundary(SHOWN_RESULT_BYTES)];
            let mut told = json!({
                "event": "tool_result",
                "call_id": result.call_id,
                "name": result.name,
                "is_error": result.is_error,
                "elapsed_ms": u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
                "text": shown,
                "truncated": shown.len() < text.len(),
            });
            let attachments = media::listed(&result.content);
            if !attachments.is_empty() {
                told["attachments"] = attachments.into();
            }
            told
        }
        ChatEvent::ApprovalNeeded(ask) => {
            let mut told = json!({
                "event": "approval_needed",
                "approval": ask.id,
                "call_id": ask.call.id,
                "server": ask.tool.server,
                "tool": ask.tool.name,
                "arguments": ask.call.arguments.raw(),
            });
            if let Some(why) = &ask.why {
                told["why"] = why.as_str().into();
            }
            told
        }
        ChatEvent::ApprovalDecided(ask) => {
            let decision = ask.decision.as_ref();
            json!({
                "event": "approval_decided",
                "approval": ask.id,
                "call_id": ask.call.id,
                "decision": decision.map(|decision| decision.verdict.name()),
                "by": decision.map(|decision| &decision.by),
                "reason": decision.and_then(|decision| decision.reason.as_ref()),
            })
        }
        ChatEvent::Notice(message) => json!({"event": "notice", "message": message}),
        ChatEvent::Answering { model } => json!({"event": "model", "model": model}),
        _ => return None,
    })
}

/// A report of a running call, as every view of a turn has it.
pub fn call_progress(call_id: &str, progress: &ToolProgress) -> Value {
    json!({
        "event": "tool_progress",
        "call_id": call_id,
        "progress": progress.progress,
        "total": progress.total,
        "message": progress.message,
    })
}

/// Folds the events of a turn into one `chat.completion` object.
#[derive(Debug)]
pub struct Completion {
    id: String,
    created: u64,
    model: String,
    lf_events: LfEvents,
    content: String,
    reasoning: String,
    calls: Vec<Value>,
    told: Vec<Value>,
    end: Option<Result<Ended, ErrorReply>>,
}

#[derive(Debug)]
struct Ended {
    reason: &'static str,
    usage: Usage,
}

impl Completion {
    /// `created` in seconds since 1970.
    pub fn new(id: &str, created: u64, model: &str, lf_events: LfEvents) -> Self {
        Self {
            id: id.to_owned(),
            created,
            model: model.to_owned(),
            lf_events,
            content: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            told: Vec::new(),
            end: None,
        }
    }

    pub fn push(&mut self, event: &ChatEvent) {
        if self.end.is_some() {
            return;
        }
        match event {
            ChatEvent::Started { .. } => {}
            ChatEvent::Text(text) => self.content.push_str(text),
            ChatEvent::Reasoning(text) => self.reasoning.push_str(text),
            // Only a running client can use progress.
            ChatEvent::CallProgress { .. } | ChatEvent::Native(_) => {}
            ChatEvent::CallStarted { .. }
            | ChatEvent::CallFinished { .. }
            | ChatEvent::Answering { .. }
            | ChatEvent::ApprovalNeeded(_)
            | ChatEvent::ApprovalDecided(_)
            | ChatEvent::Notice(_) => {
                if let ChatEvent::Answering { model } = event {
                    self.model.clone_from(model);
                }
                if self.lf_events == LfEvents::Told {
                    self.told.extend(lf_event(event));
                }
            }
            ChatEvent::ClientCalls(calls) => self.calls.extend(calls.iter().map(told_call)),
            ChatEvent::Finished { reason, usage, .. } => {
                self.end = Some(Ok(Ended { reason: reason.name(), usage: *usage }));
            }
            ChatEvent::Failed(error) => self.end = Some(Err(error_reply(error))),
        }
    }

    /// The body for status 200, or the error the turn ended with. A turn that has no end is an error of ours.
    pub fn finish(self) -> Result<Value, ErrorReply> {
        let Some(end) = self.end else {
            return Err(internal_error_reply(500, "the turn ended without an answer"));
        };
        let Ended { reason, usage } = end?;
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        let only_calls = self.content.is_empty() && !self.calls.is_empty();
        let content = if only_calls { Value::Null } else { self.content.into() };
        message.insert("content".to_owned(), content);
        if !self.reasoning.is_empty() {
            message.insert("reasoning_content".to_owned(), self.reasoning.into());
        }
        if !self.calls.is_empty() {
            message.insert("tool_calls".to_owned(), self.calls.into());
        }
        let mut body = json!({
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": write_usage(&usage),
        });
        if !self.told.is_empty() {
            body["lf"] = json!({"events": self.told});
        }
        Ok(body)
    }
}

/// The body of `GET …/models`. `created` in seconds since 1970.
pub fn models<'a>(names: impl IntoIterator<Item = &'a str>, created: u64, owned_by: &str) -> Value {
    let data = names
        .into_iter()
        .map(|name| json!({"id": name, "object": "model", "created": created, "owned_by": owned_by}));
    json!({"object": "list", "data": data.collect::<Vec<_>>()})
}
