//! The response as far as it is: one account of a turn for streamed and whole answers.

use std::collections::{HashMap, HashSet};

use lf_core::model::Dialect;
use lf_core::{ChatEvent, FinishReason, ToolCall, Usage};
use serde_json::{Map, Value, json};

use super::RESPONSES_ONLY;
use super::approvals;
use super::errors::failure;
use super::ids::item_id;
use super::stream::Wire;
use super::tools::{Calls, Form, INPUT};
use super::view::ResponsesView;

/// The `phase` of a message that is not the answer.
const COMMENTARY: &str = "commentary";

#[derive(Debug)]
pub(super) struct Draft {
    id: String,
    created_at: u64,
    /// Seconds since 1970; noted by the caller, because nothing here has a clock.
    pub(super) now: Option<u64>,
    model: String,
    echo: Map<String, Value>,
    forms: HashMap<String, Form>,
    /// Items that are done.
    output: Vec<Value>,
    /// Their ids: clients refuse one that comes twice.
    ids: HashSet<String>,
    open: Option<Open>,
    /// Sealed reasoning that nothing came of yet.
    sealed: Vec<Value>,
    status: Status,
    usage: Option<Usage>,
}

#[derive(Debug)]
struct Open {
    kind: Kind,
    id: String,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Message,
    Reasoning,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Whole,
    /// The answer was cut while it was told.
    Cut,
    /// The server's own work follows; what is said after it is another item, as with tools that OpenAI runs.
    Commentary,
}

#[derive(Debug)]
enum Status {
    InProgress,
    Completed,
    /// With the reason.
    Incomplete(&'static str),
    /// With the error.
    Failed(Value),
}

impl Draft {
    pub(super) fn new(id: &str, created_at: u64, model: &str, view: ResponsesView) -> Self {
        Self {
            id: id.to_owned(),
            created_at,
            now: None,
            model: model.to_owned(),
            echo: view.echo,
            forms: view.forms,
            output: Vec::new(),
            ids: HashSet::new(),
            open: None,
            sealed: Vec::new(),
            status: Status::InProgress,
            usage: None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        !matches!(self.status, Status::InProgress)
    }

    /// Takes in one event, and tells on the wire what it changes. Items come one after another; after the one event
    /// that tells the end nothing more changes.
    pub(super) fn event(&mut self, event: &ChatEvent, wire: &mut Wire) {
        if self.is_over() {
            return;
        }
        match event {
            ChatEvent::Text(text) => self.say(Kind::Message, text, wire),
            ChatEvent::Reasoning(text) => self.say(Kind::Reasoning, text, wire),
            ChatEvent::Native(native) if native.dialect == Dialect::OpenaiResponses => {
                self.native(&native.item, wire);
            }
            ChatEvent::ApprovalNeeded(ask) => {
                self.close(Ending::Whole, wire);
                self.whole(approvals::item(ask), "apr", wire);
            }
            ChatEvent::ClientCalls(calls) => calls.iter().for_each(|call| self.call(call, wire)),
            ChatEvent::CallStarted { .. } => {
                self.close(Ending::Commentary, wire);
                // an upstream refuses it without the call it led to, and the client does not see that one
                self.sealed.clear();
            }
            ChatEvent::Answering { model } => {
                self.close(Ending::Whole, wire);
                self.sealed.clear();
                self.model.clone_from(model);
            }
            ChatEvent::Started { .. }
            | ChatEvent::Native(_)
            | ChatEvent::CallProgress { .. }
            | ChatEvent::CallFinished { .. }
            | ChatEvent::ApprovalDecided(_)
            | ChatEvent::Limited(_)
            | ChatEvent::Notice(_) => {}
            ChatEvent::Finished { reason, usage, .. } => {
                self.usage = Some(*usage);
                self.end(
                    match reason {
                        FinishReason::Stop | FinishReason::ToolCalls => Status::Completed,
                        FinishReason::Length => Status::Incomplete("max_output_tokens"),
                        FinishReason::ContentFilter => Status::Incomplete("content_filter"),
                    },
                    wire,
                );
            }
            ChatEvent::Failed(error) => self.end(Status::Failed(failure(error)), wire),
        }
    }

    fn say(&mut self, kind: Kind, text: &str, wire: &mut Wire) {
        if text.is_empty() {
            return;
        }
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.close(Ending::Whole, wire);
            if kind == Kind::Message {
                self.unseal(wire);
            }
            self.open(kind, wire);
        }
        let at = self.output.len();
        let Some(open) = &mut self.open else { return };
        open.text.push_str(text);
        match kind {
            Kind::Message => wire.tell("response.output_text.delta", || {
                json!({"item_id": open.id, "output_index": at, "content_index": 0, "delta": text, "logprobs": []})
            }),
            Kind::Reasoning => wire.tell("response.reasoning_summary_text.delta", || {
                json!({"item_id": open.id, "output_index": at, "summary_index": 0, "delta": text})
            }),
        }
    }

    fn open(&mut self, kind: Kind, wire: &mut Wire) {
        let at = self.output.len();
        let prefix = match kind {
            Kind::Message => "msg",
            Kind::Reasoning => "rs",
        };
        let open = Open { kind, id: item_id(prefix, &self.id, at), text: String::new() };
        wire.tell(
            "response.output_item.added",
            || json!({"output_index": at, "item": open.item("in_progress")}),
        );
        match kind {
            Kind::Message => wire.tell(
                "response.content_part.added",
                || json!({"item_id": open.id, "output_index": at, "content_index": 0, "part": open.part()}),
            ),
            Kind::Reasoning => wire.tell(
                "response.reasoning_summary_part.added",
                || json!({"item_id": open.id, "output_index": at, "summary_index": 0, "part": open.part()}),
            ),
        }
        self.open = Some(open);
    }

    fn close(&mut self, ending: Ending, wire: &mut Wire) {
        let Some(open) = self.open.take() else { return };
        let (at, id, text) = (self.output.len(), &open.id, &open.text);
        match open.kind {
            Kind::Message => {
                wire.tell("response.output_text.done", || {
                    json!({"item_id": id, "output_index": at, "content_index": 0, "text": text, "logprobs": []})
                });
                wire.tell(
                    "response.content_part.done",
                    || json!({"item_id": id, "output_index": at, "content_index": 0, "part": open.part()}),
                );
            }
            Kind::Reasoning => {
                wire.tell(
                    "response.reasoning_summary_text.done",
                    || json!({"item_id": id, "output_index": at, "summary_index": 0, "text": text}),
                );
                wire.tell(
                    "response.reasoning_summary_part.done",
                    || json!({"item_id": id, "output_index": at, "summary_index": 0, "part": open.part()}),
                );
            }
        }
        let mut item = open.item(if ending == Ending::Cut { "incomplete" } else { "completed" });
        if ending == Ending::Commentary && open.kind == Kind::Message {
            // clients that want an answer in a given form do not read this as the answer
            item["phase"] = COMMENTARY.into();
        }
        self.done(item, wire);
    }

    fn done(&mut self, item: Value, wire: &mut Wire) {
        let at = self.output.len();
        wire.tell("response.output_item.done", || json!({"output_index": at, "item": item}));
        if let Some(id) = item["id"].as_str() {
            self.ids.insert(id.to_owned());
        }
        self.output.push(item);
    }

    /// A call for the client to run.
    fn call(&mut self, call: &ToolCall, wire: &mut Wire) {
        self.close(Ending::Whole, wire);
        self.unseal(wire);
        let form = self.forms.get(&call.name).cloned();
        match form.as_ref().map_or(Calls::Function, |form| form.calls) {
            Calls::Function => self.function_call(call, form.as_ref(), wire),
            Calls::Custom => self.custom_call(call, form.as_ref(), wire),
            Calls::Search => self.search_call(call, wire),
        }
    }

    fn function_call(&mut self, call: &ToolCall, form: Option<&Form>, wire: &mut Wire) {
        let at = self.output.len();
        let id = item_id("fc", &self.id, at);
        let name = form.map_or(&call.name, |form| &form.name);
        // the model's own text, unless that has no meaning but through repair
        let arguments = match call.arguments.value() {
            Ok(_) => call.arguments.for_replay(),
            Err(_) => call.arguments.raw().to_owned(),
        };
        let mut item = json!({
            "id": id, "type": "function_call", "status": "in_progress", "call_id": call.id, "name": name,
            "arguments": "",
        });
        complete(&mut item, call, form);
        wire.tell("response.output_item.added", || json!({"output_index": at, "item": item}));
        wire.tell(
            "response.function_call_arguments.delta",
            || json!({"item_id": id, "output_index": at, "delta": arguments}),
        );
        wire.tell(
            "response.function_call_arguments.done",
            || json!({"item_id": id, "output_index": at, "name": name, "arguments": arguments}),
        );
        item["arguments"] = arguments.into();
        item["status"] = "completed".into();
        self.done(item, wire);
    }

    /// A call whose input is a text, which the model gave as the argument of a function.
    fn custom_call(&mut self, call: &ToolCall, form: Option<&Form>, wire: &mut Wire) {
        let at = self.output.len();
        let id = item_id("ctc", &self.id, at);
        let name = form.map_or(&call.name, |form| &form.name);
        let input = custom_input(call);
        let mut item = json!({
            "id": id, "type": "custom_tool_call", "status": "in_progress", "call_id": call.id, "name": name,
            INPUT: "",
        });
        complete(&mut item, call, form);
        wire.tell("response.output_item.added", || json!({"output_index": at, "item": item}));
        wire.tell(
            "response.custom_tool_call_input.delta",
            || json!({"item_id": id, "output_index": at, "delta": input}),
        );
        wire.tell(
            "response.custom_tool_call_input.done",
            || json!({"item_id": id, "output_index": at, "input": input}),
        );
        item[INPUT] = input.into();
        item["status"] = "completed".into();
        self.done(item, wire);
    }

    /// A search for tools, whose arguments are no text.
    fn search_call(&mut self, call: &ToolCall, wire: &mut Wire) {
        // what cannot be read is told as it is: a search for nothing is no part of it
        let arguments = match call.arguments.value() {
            Ok(arguments) => Value::Object(arguments.clone()),
            Err(_) => call.arguments.raw().into(),
        };
        let item = json!({
            "id": item_id("tsc", &self.id, self.output.len()), "type": "tool_search_call", "status": "completed",
            "call_id": call.id, "execution": "client", "arguments": arguments,
        });
        self.whole(item, "tsc", wire);
    }

    /// An item that the upstream gave as a whole. Messages and calls are told by events of their own; reasoning that
    /// was told as text before is not repeated, but the item that carries what the upstream sealed is, once it is known
    /// what came of it.
    fn native(&mut self, item: &Value, wire: &mut Wire) {
        let kind = item["type"].as_str().unwrap_or_default();
        if matches!(kind, "" | "message" | "function_call") {
            return;
        }
        let mut item = item.clone();
        let told = self.open.as_ref().is_some_and(|open| open.kind == Kind::Reasoning);
        self.close(Ending::Whole, wire);
        if kind != "reasoning" {
            self.unseal(wire);
            return self.whole(item, "item", wire);
        }
        if told || !item["summary"].is_array() {
            item["summary"] = json!([]);
        }
        if told && item.get("content").is_some() {
            item["content"] = json!([]);
        }
        self.sealed.push(item);
    }

    fn unseal(&mut self, wire: &mut Wire) {
        for item in std::mem::take(&mut self.sealed) {
            self.whole(item, "rs", wire);
        }
    }

    fn whole(&mut self, mut item: Value, prefix: &str, wire: &mut Wire) {
        let at = self.output.len();
        if item["id"].as_str().is_none_or(|id| id.is_empty() || self.ids.contains(id)) {
            item["id"] = item_id(prefix, &self.id, at).into();
        }
        wire.tell("response.output_item.added", || json!({"output_index": at, "item": item}));
        self.done(item, wire);
    }

    fn end(&mut self, status: Status, wire: &mut Wire) {
        self.close(if matches!(status, Status::Completed) { Ending::Whole } else { Ending::Cut }, wire);
        self.unseal(wire);
        self.status = status;
        let name = match self.status {
            Status::InProgress => "response.in_progress",
            Status::Completed => "response.completed",
            Status::Incomplete(_) => "response.incomplete",
            Status::Failed(_) => "response.failed",
        };
        wire.tell(name, || json!({"response": self.response()}));
    }

    /// The whole object, with all that was said so far.
    pub(super) fn response(&self) -> Value {
        let (status, error, incomplete) = match &self.status {
            Status::InProgress => ("in_progress", Value::Null, Value::Null),
            Status::Completed => ("completed", Value::Null, Value::Null),
            Status::Incomplete(reason) => ("incomplete", Value::Null, json!({"reason": reason})),
            Status::Failed(error) => ("failed", error.clone(), Value::Null),
        };
        let completed_at = self.now.filter(|_| status == "completed");
        let mut output = self.output.clone();
        output.extend(self.open.as_ref().map(|open| open.item("in_progress")));
        let mut response = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "completed_at": completed_at,
            "status": status,
            "error": error,
            "incomplete_details": incomplete,
            "model": self.model,
            "output": output,
            "usage": self.usage.as_ref().map(write_usage),
        });
        for (key, value) in &self.echo {
            response[key.as_str()] = value.clone();
        }
        response
    }
}

/// What the item of a call says beyond name and arguments.
fn complete(item: &mut Value, call: &ToolCall, form: Option<&Form>) {
    if let Some(namespace) = form.and_then(|form| form.namespace.as_ref()) {
        item["namespace"] = namespace.as_str().into();
    }
    for (key, value) in call.rest.get(RESPONSES_ONLY).and_then(Value::as_object).into_iter().flatten() {
        if item.get(key).is_none() {
            item[key.as_str()] = value.clone();
        }
    }
}

/// The text that is meant: some models name the one argument as they like.
fn custom_input(call: &ToolCall) -> String {
    let Ok(arguments) = call.arguments.value() else { return call.arguments.raw().to_owned() };
    let only = arguments.values().next().filter(|_| arguments.len() == 1);
    match arguments.get(INPUT).or(only) {
        Some(Value::String(text)) => text.clone(),
        Some(other) if arguments.contains_key(INPUT) => other.to_string(),
        _ => call.arguments.for_replay(),
    }
}

impl Open {
    fn item(&self, status: &str) -> Value {
        let parts = if self.text.is_empty() { json!([]) } else { json!([self.part()]) };
        match self.kind {
            Kind::Message => json!({
                "id": self.id, "type": "message", "status": status, "role": "assistant", "content": parts,
            }),
            Kind::Reasoning => {
                json!({"id": self.id, "type": "reasoning", "status": status, "summary": parts})
            }
        }
    }

    fn part(&self) -> Value {
        match self.kind {
            Kind::Message => {
                json!({"type": "output_text", "text": self.text, "annotations": [], "logprobs": []})
            }
            // Raw reasoning has an event of its own in OpenAI's API and another in Open Responses, and clients hide
            // it; a summary is the same in both, and shown.
            Kind::Reasoning => json!({"type": "summary_text", "text": self.text}),
        }
    }
}

pub(super) fn write_usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input.saturating_add(usage.output),
    })
}
