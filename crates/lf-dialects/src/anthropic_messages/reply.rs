//! Writes whole answers, and what they share with streamed ones.

use lf_core::{ChatEvent, FinishReason, ToolCall, Usage};
use serde_json::{Map, Value, json};

use super::request::{MessagesView, ThinkingView};
use super::{OWN_SIGNATURE, error_reply, internal_error_reply};
use crate::openai_chat::{ErrorReply, LfEvents, lf_event};

pub(super) fn write_usage(usage: &Usage) -> Value {
    json!({
        // Anthropic counts what came from the cache apart
        "input_tokens": usage.input.saturating_sub(usage.cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    })
}

/// `stop_reason` and `stop_sequence`; `called`: calls for the client were told.
pub(super) fn write_stop(reason: FinishReason, called: bool, stop_sequence: Option<&str>) -> Value {
    let reason = match reason {
        FinishReason::Length => "max_tokens",
        FinishReason::ContentFilter => "refusal",
        FinishReason::Stop | FinishReason::ToolCalls if called => "tool_use",
        FinishReason::Stop | FinishReason::ToolCalls if stop_sequence.is_some() => "stop_sequence",
        FinishReason::Stop | FinishReason::ToolCalls => "end_turn",
    };
    let stop_sequence = stop_sequence.filter(|_| reason == "stop_sequence");
    json!({"stop_reason": reason, "stop_sequence": stop_sequence})
}

/// A call's arguments as an object in every case.
pub(super) fn input(call: &ToolCall) -> Map<String, Value> {
    call.arguments.value().cloned().unwrap_or_default()
}

/// Folds the events of a turn into one `message` object.
#[derive(Debug)]
pub struct Completion {
    id: String,
    model: String,
    view: MessagesView,
    lf_events: LfEvents,
    content: Vec<Block>,
    /// White space that may begin a text; a block of nothing else is refused by Anthropic when it comes back.
    blank: String,
    called: bool,
    told: Vec<Value>,
    end: Option<Result<Value, lf_core::ModelError>>,
}

#[derive(Debug)]
enum Block {
    Text(String),
    Thinking(String),
    ToolUse(Value),
}

impl Completion {
    pub fn new(id: &str, model: &str, view: MessagesView, lf_events: LfEvents) -> Self {
        Self {
            id: id.to_owned(),
            model: model.to_owned(),
            view,
            lf_events,
            content: Vec::new(),
            blank: String::new(),
            called: false,
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
            ChatEvent::Text(text) => match self.content.last_mut() {
                Some(Block::Text(said)) => said.push_str(text),
                _ => {
                    self.blank.push_str(text);
                    if !self.blank.trim_start().is_empty() {
                        let text = std::mem::take(&mut self.blank);
                        self.content.push(Block::Text(text));
                    }
                }
            },
            ChatEvent::Reasoning(_) if self.view.thinking == ThinkingView::Hidden => {}
            ChatEvent::Reasoning(text) => match self.content.last_mut() {
                Some(Block::Thinking(said)) => said.push_str(text),
                _ => {
                    self.blank.clear();
                    self.content.push(Block::Thinking(text.clone()));
                }
            },
            // Only a running client can use progress.
            ChatEvent::CallProgress { .. } => {}
            ChatEvent::CallStarted { .. } | ChatEvent::CallFinished { .. } | ChatEvent::Notice(_) => {
                if self.lf_events == LfEvents::Told {
                    self.told.extend(lf_event(event));
                }
            }
            ChatEvent::ClientCalls(calls) => {
                if !calls.is_empty() {
                    self.called = true;
                    self.blank.clear();
                }
                self.content.extend(calls.iter().map(|call| {
                    let block = json!({
                        "type": "tool_use", "id": call.id, "name": call.name, "input": input(call),
                    });
                    Block::ToolUse(block)
                }));
            }
            ChatEvent::Finished { reason, usage, stop_sequence, .. } => {
                let mut end = write_stop(*reason, self.called, stop_sequence.as_deref());
                end["usage"] = write_usage(usage);
                self.end = Some(Ok(end));
            }
            ChatEvent::Failed(error) => self.end = Some(Err(error.clone())),
        }
    }

    /// The body for status 200, or the error the turn ended with. A turn that has no end is an error of ours.
    pub fn finish(self, request_id: &str) -> Result<Value, ErrorReply> {
        let Some(end) = self.end else {
            return Err(internal_error_reply(500, "the turn ended without an answer", request_id));
        };
        let mut end = end.map_err(|error| error_reply(&error, request_id))?;
        let content: Vec<Value> = self.content.into_iter().map(Block::write).collect();
        let mut body = json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": end["stop_reason"].take(),
            "stop_sequence": end["stop_sequence"].take(),
            "usage": end["usage"].take(),
        });
        if !self.told.is_empty() {
            body["lf"] = json!({"events": self.told});
        }
        Ok(body)
    }
}

impl Block {
    fn write(self) -> Value {
        match self {
            Self::Text(text) => json!({"type": "text", "text": text}),
            Self::Thinking(text) => {
                json!({"type": "thinking", "thinking": text, "signature": OWN_SIGNATURE})
            }
            Self::ToolUse(block) => block,
        }
    }
}
