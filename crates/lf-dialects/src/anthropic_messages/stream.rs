//! Writes streamed answers.

use lf_core::{ChatEvent, ToolCall, Usage};
use serde_json::{Value, json};

use super::reply::{input, write_stop, write_usage};
use super::request::{MessagesView, ThinkingView};
use super::{OWN_SIGNATURE, error_reply};
use crate::openai_chat::{LfEvents, lf_event};

/// The name of an SSE event, and its data: one JSON document.
type Told = (&'static str, String);

/// The events of one streamed answer: one `message_start`, content blocks one after the other, then either
/// `message_delta` and `message_stop` or one `error`, and nothing after it.
#[derive(Debug)]
pub struct EventEncoder {
    id: String,
    model: String,
    view: MessagesView,
    lf_events: LfEvents,
    began: bool,
    over: bool,
    called: bool,
    /// Blocks begun so far; the last of them may be open.
    blocks: u64,
    open: Option<Open>,
    /// White space that begins a block of text, held until the block has something to say: one of white space alone is
    /// refused by Anthropic when it comes back.
    blank: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Text,
    Thinking,
}

impl EventEncoder {
    pub fn new(id: &str, model: &str, view: MessagesView, lf_events: LfEvents) -> Self {
        Self {
            id: id.to_owned(),
            model: model.to_owned(),
            view,
            lf_events,
            began: false,
            over: false,
            called: false,
            blocks: 0,
            open: None,
            blank: String::new(),
        }
    }

    /// The SSE events that this event becomes. The stream ends with the last ones of [`ChatEvent::Finished`] or
    /// [`ChatEvent::Failed`].
    pub fn event(&mut self, event: &ChatEvent) -> Vec<Told> {
        let mut out = Vec::new();
        if self.over {
            return out;
        }
        if let ChatEvent::Failed(error) = event {
            self.over = true;
            let mut body = error_reply(error, "").body;
            if let Some(body) = body.as_object_mut() {
                // the response's header says it
                body.shift_remove("request_id");
            }
            out.push(("error", body.to_string()));
            return out;
        }
        self.begin(&mut out);
        match event {
            ChatEvent::Started { .. } | ChatEvent::Failed(_) => {}
            ChatEvent::Text(text) => self.text(text, &mut out),
            ChatEvent::Reasoning(text) => self.thinking(text, &mut out),
            ChatEvent::CallStarted { .. }
            | ChatEvent::CallProgress { .. }
            | ChatEvent::CallFinished { .. }
            | ChatEvent::Notice(_) => {
                if let (LfEvents::Told, Some(lf)) = (self.lf_events, lf_event(event)) {
                    out.push(told("ping", json!({"type": "ping", "lf": lf})));
                }
            }
            ChatEvent::ClientCalls(calls) => calls.iter().for_each(|call| self.call(call, &mut out)),
            ChatEvent::Finished { reason, usage, stop_sequence, .. } => {
                self.close(&mut out);
                let delta = write_stop(*reason, self.called, stop_sequence.as_deref());
                let usage = write_usage(usage);
                out.push(told(
                    "message_delta",
                    json!({"type": "message_delta", "delta": delta, "usage": usage}),
                ));
                out.push(told("message_stop", json!({"type": "message_stop"})));
                self.over = true;
            }
        }
        out
    }

    /// For when nothing else is to be said: clients cut off a silent stream.
    pub fn ping(&self) -> Option<Told> {
        (self.began && !self.over).then(|| told("ping", json!({"type": "ping"})))
    }

    fn begin(&mut self, out: &mut Vec<Told>) {
        if std::mem::replace(&mut self.began, true) {
            return;
        }
        let message = json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            // the counts are known at the end; `message_delta` tells them
            "usage": write_usage(&Usage::default()),
        });
        out.push(told("message_start", json!({"type": "message_start", "message": message})));
    }

    fn text(&mut self, text: &str, out: &mut Vec<Told>) {
        if self.open == Some(Open::Text) {
            self.delta(&json!({"type": "text_delta", "text": text}), out);
            return;
        }
        self.blank.push_str(text);
        if self.blank.trim_start().is_empty() {
            return;
        }
        let text = std::mem::take(&mut self.blank);
        self.start(&json!({"type": "text", "text": ""}), out);
        self.open = Some(Open::Text);
        self.delta(&json!({"type": "text_delta", "text": text}), out);
    }

    fn thinking(&mut self, text: &str, out: &mut Vec<Told>) {
        if self.view.thinking == ThinkingView::Hidden {
            return;
        }
        if self.open != Some(Open::Thinking) {
            self.start(&json!({"type": "thinking", "thinking": "", "signature": ""}), out);
            self.open = Some(Open::Thinking);
        }
        self.delta(&json!({"type": "thinking_delta", "thinking": text}), out);
    }

    fn call(&mut self, call: &ToolCall, out: &mut Vec<Told>) {
        self.called = true;
        self.start(&json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}), out);
        let input = match call.arguments.value() {
            // the model's own bytes, where they are an object
            Ok(_) => call.arguments.for_replay(),
            Err(_) => Value::Object(input(call)).to_string(),
        };
        self.delta(&json!({"type": "input_json_delta", "partial_json": input}), out);
        self.stop(out);
    }

    /// Begins a block, after the end of the one before.
    fn start(&mut self, block: &Value, out: &mut Vec<Told>) {
        self.close(out);
        let index = self.blocks;
        self.blocks += 1;
        let event = json!({"type": "content_block_start", "index": index, "content_block": block});
        out.push(told("content_block_start", event));
    }

    fn delta(&self, delta: &Value, out: &mut Vec<Told>) {
        let event = json!({"type": "content_block_delta", "index": self.last(), "delta": delta});
        out.push(told("content_block_delta", event));
    }

    fn stop(&self, out: &mut Vec<Told>) {
        out.push(told("content_block_stop", json!({"type": "content_block_stop", "index": self.last()})));
    }

    fn close(&mut self, out: &mut Vec<Told>) {
        self.blank.clear();
        match self.open.take() {
            None => return,
            Some(Open::Thinking) => {
                self.delta(&json!({"type": "signature_delta", "signature": OWN_SIGNATURE}), out);
            }
            Some(Open::Text) => {}
        }
        self.stop(out);
    }

    fn last(&self) -> u64 {
        self.blocks.saturating_sub(1)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "every caller has just made it")]
fn told(name: &'static str, event: Value) -> Told {
    (name, event.to_string())
}
